"""The history of a running deliverer: what it shows when, and what it does without room."""

import asyncio
import errno
from pathlib import Path

import pytest

from pillion_sidecar.config.schema.history import HistoryBodies, HistoryPolicy
from pillion_sidecar.history.files import HistoryFiles, read_lock
from pillion_sidecar.history.outcome import OutcomeQuery, OutcomeResult
from pillion_sidecar.history.reading import MOST_BODY_BYTES, Kept, read_all
from pillion_sidecar.history.recorder import (
    OUTCOME_BYTES,
    RETRY_SECONDS,
    WAITING_BYTES,
    WRITE_SECONDS,
    History,
)
from pillion_sidecar.testing import FakeTime
from support.outcomes import EVERY, WEEK, Recording, identifiers, outcome

DISCARDED, DELIVERED = OutcomeResult.DISCARDED, OutcomeResult.DELIVERED


def shown(history: History, *, after: int = 0) -> list[int]:
    return [one.number for one in history.page(EVERY, after=after, limit=1000)().found]


def test_with_a_journal_nothing_is_written_but_before_a_commit(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1))
    fake_time.advance(10 * WRITE_SECONDS)
    assert not run.worker.jobs
    run.commit()
    assert identifiers(tmp_path) == ["i1"]


def test_nothing_is_shown_before_its_commit(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1), outcome(2))
    settled = run.history.write()
    run.worker.drain()
    run.add(outcome(3))
    assert (run.history.settled, shown(run.history)) == (0, [])
    assert settled is not None
    settled()
    assert (run.history.settled, shown(run.history)) == (2, [1, 2])


def test_without_a_journal_they_are_written_soon(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time, alone=True)
    run.add(outcome(1), outcome(2))
    fake_time.advance(WRITE_SECONDS)
    assert run.history.settled == 0
    run.worker.drain()
    assert identifiers(tmp_path) == ["i1", "i2"]
    assert run.history.settled == 2


class _FullDisk(HistoryFiles):
    is_full = True

    def _write(self, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._write(data)


def test_what_a_full_disk_does_not_take_is_shown_and_written_once_it_has_room(
    tmp_path: Path, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    files = _FullDisk(tmp_path, size=1 << 20, seconds=WEEK)
    run = Recording(tmp_path, fake_time, files=files)
    for number in range(3):
        run.add(outcome(number))
        run.commit()
    history = run.history
    assert (history.settled, history.unkept_discards, history.waiting) == (3, 0, 3)
    assert (shown(history), identifiers(tmp_path)) == ([1, 2, 3], [])
    listed = history.latest(OutcomeQuery(result="discarded"), limit=2)()
    assert [one.identifier for one in listed] == ["i1", "i2"]
    assert [one.number for one in history.last_page(EVERY, after=0, limit=2)().found] == [2, 3]
    assert (history.count()(), history.last_in(EVERY, after=0)()) == ((3, 3), 3)
    # No other outcome need follow.
    files.is_full = False
    fake_time.advance(RETRY_SECONDS)
    run.worker.drain()
    assert identifiers(tmp_path) == ["i0", "i1", "i2"]
    assert (shown(history), history.waiting) == ([1, 2, 3], 0)
    assert [vars(record)["event"] for record in caplog.records] == ["discards-not-listed"]


def test_what_is_written_while_it_is_read_is_shown_once(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    files = _FullDisk(tmp_path, size=1 << 20, seconds=WEEK)
    run = Recording(tmp_path, fake_time, files=files)
    run.add(outcome(0), outcome(1))
    run.commit()
    history = run.history
    page, last = (one(EVERY, after=0, limit=9) for one in (history.page, history.last_page))
    every, count = history.every(EVERY), history.count()
    files.is_full = False
    fake_time.advance(RETRY_SECONDS)
    run.worker.drain()
    assert identifiers(tmp_path) == ["i0", "i1"]
    for found in (page().found, last().found, list(every())):
        assert [one.number for one in found] == [1, 2]
    assert count() == (2, 2)


def test_a_commit_during_a_retry_leaves_the_order(tmp_path: Path, fake_time: FakeTime) -> None:
    files = _FullDisk(tmp_path, size=1 << 20, seconds=WEEK)
    run = Recording(tmp_path, fake_time, files=files)
    run.add(outcome(0))
    run.commit()
    for number in (1, 2):
        fake_time.advance(RETRY_SECONDS)
        run.add(outcome(number))
        run.commit()
        assert shown(run.history) == list(range(1, number + 2))
        files.is_full = False
    assert identifiers(tmp_path) == ["i0", "i1"]
    # What waited for the retry is written without another commit.
    fake_time.advance(RETRY_SECONDS)
    run.worker.drain()
    assert identifiers(tmp_path) == ["i0", "i1", "i2"]


def test_on_a_full_disk_deliveries_are_left_out_before_discards(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time, files=_FullDisk(tmp_path, size=1 << 20, seconds=WEEK))
    run.add(outcome(0))
    run.commit()
    most = WAITING_BYTES // OUTCOME_BYTES
    run.add(*(outcome(number, result="delivered", reason=None) for number in range(most + 9)))
    run.add(outcome(1))
    run.commit()
    assert (run.history.given_way, run.history.unkept_discards) == (10, 0)
    listed = run.history.latest(OutcomeQuery(result="discarded"), limit=9)()
    assert [one.identifier for one in listed] == ["i0", "i1"]


def test_what_a_full_disk_does_not_take_at_the_end_is_counted(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time, files=_FullDisk(tmp_path, size=1 << 20, seconds=WEEK))
    run.add(outcome(0), outcome(1, result="delivered"))
    run.commit()
    run.history.close()
    lock = read_lock(tmp_path)
    assert lock is not None
    assert (lock.removed_discards, run.history.unkept_discards) == (1, 1)


def test_of_what_waits_for_a_disk_the_bodies_go_first(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time, size=64 << 20)
    for number in range(50):
        run.add(outcome(number, body=b"x" * 100_000))
    run.commit()
    with_body = [one.outcome.body is not None for one in read_all(Kept(folder=tmp_path), EVERY)]
    most = WAITING_BYTES // (100_000 + OUTCOME_BYTES)
    assert with_body == [True] * most + [False] * (50 - most)
    assert run.history.unkept_discards == 0


def test_what_waits_for_a_disk_is_bounded_and_counted(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time, size=64 << 20)
    most = 2 * WAITING_BYTES // OUTCOME_BYTES
    for number in range(most + 10):
        run.add(outcome(number))
    assert run.history.unkept_discards == 10
    run.history.close()
    assert len(identifiers(tmp_path)) == most


def test_it_is_behind_until_the_disk_has_what_waits(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time, size=64 << 20)
    assert not run.history.is_behind
    run.add(*(outcome(number, body=b"x" * 100_000) for number in range(30)))
    assert run.history.is_behind
    called: list[str] = []
    run.history.once_written(lambda: called.append("written"))
    run.history.write()
    # The worker has it, and the disk does not.
    assert (run.history.is_behind, called) == (True, [])
    run.worker.drain()
    assert (run.history.is_behind, called) == (False, ["written"])


def test_a_disk_in_trouble_is_not_waited_for(tmp_path: Path, fake_time: FakeTime) -> None:
    files = _FullDisk(tmp_path, size=64 << 20, seconds=WEEK)
    run = Recording(tmp_path, fake_time, files=files)
    run.add(*(outcome(number, body=b"x" * 100_000) for number in range(30)))
    called: list[str] = []
    run.history.once_written(lambda: called.append("failed"))
    run.commit()
    assert (run.history.is_behind, called) == (False, ["failed"])


def test_what_the_worker_has_counts_as_redriven(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1), outcome(2), outcome(3))
    run.commit()
    run.add(outcome(1, result="redriven", redrives=1))
    run.history.write()
    run.add(outcome(2, result="redriven", redrives=2))
    # A replay repeats it elsewhere.
    run.add(outcome(3, result="delivered", redrives=3, replay="r-1"))
    assert run.history.redriven({1, 2, 3})() == {1, 2}


def test_without_a_folder_the_latest_are_in_memory(fake_time: FakeTime) -> None:
    history = History(clock=fake_time, timers=fake_time, memory_bytes=20_000)
    for number in range(1000):
        history.add(outcome(number, result="delivered" if number % 2 else "discarded"))
    assert history.settled == 1000
    kept = shown(history)
    assert kept == list(range(1001 - len(kept), 1001))
    assert 0 < len(kept) < 1000
    latest = history.latest(OutcomeQuery(result="discarded"), limit=3)()
    assert [one.identifier for one in latest] == ["i994", "i996", "i998"]
    listed = history.latest(OutcomeQuery(result="discarded"), limit=1000)()
    assert history.unkept_discards == 500 - len(listed)
    assert history.write() is None
    history.close()


@pytest.mark.parametrize(
    ("bodies", "kept"),
    [
        (HistoryBodies.ALL, [True, True]),
        (HistoryBodies.DISCARDED, [True, False]),
        (HistoryBodies.NONE, [False, False]),
    ],
)
def test_the_service_says_whose_bodies_are_kept(
    fake_time: FakeTime, bodies: HistoryBodies, kept: list[bool]
) -> None:
    history = History(clock=fake_time, timers=fake_time)
    history.configure(HistoryPolicy(bodies=bodies), size=1 << 20)
    assert [history.keeps_body(DISCARDED), history.keeps_body(DELIVERED)] == kept


def test_a_smaller_bound_holds_from_the_next_segment_on(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time, size=1 << 20)
    run.add(*(outcome(number) for number in range(3000)))
    run.commit()
    assert len(identifiers(tmp_path)) == 3000
    run.history.configure(HistoryPolicy(), size=64 << 10)
    for number in range(3000, 3100):
        run.add(outcome(number))
        run.commit()
    assert len(identifiers(tmp_path)) < 1000


def test_a_lesser_age_holds_at_once(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1, time=fake_time.time()))
    run.commit()
    fake_time.advance(77.0)
    run.history.configure(HistoryPolicy(maximum_age_seconds=60.0), size=1 << 20)
    run.worker.drain()
    assert identifiers(tmp_path) == []
    run.add(outcome(2, time=fake_time.time()))
    run.commit()
    # And so at each part of that age.
    for _ in range(11):
        fake_time.advance(7.5)
        run.worker.drain()
    assert identifiers(tmp_path) == []


async def test_a_wait_ends_with_the_next_settled_outcome_or_the_time(fake_time: FakeTime) -> None:
    history = History(clock=fake_time, timers=fake_time)
    history.add(outcome(0))
    await history.wait(0, 10.0)
    waiting = asyncio.create_task(history.wait(1, 10.0))
    await asyncio.sleep(0)
    assert not waiting.done()
    history.add(outcome(1))
    await waiting
    waiting = asyncio.create_task(history.wait(2, 10.0))
    await asyncio.sleep(0)
    fake_time.advance(10.0)
    await waiting
    assert history.settled == 2


def test_in_memory_bodies_bound_a_page_and_nothing_else(fake_time: FakeTime) -> None:
    history = History(clock=fake_time, timers=fake_time)
    size = MOST_BODY_BYTES // 2
    for number in range(1, 6):
        history.add(outcome(number, body=bytes(size), digest=b"%16d" % number))
    assert len(history.page(EVERY, after=0, limit=1000)().found) == 2
    kept = [one.number for one in history.every(EVERY)()]
    assert kept[-1] == 5
    assert len(kept) > 2
    missed = history.missed([b"%16d" % 5], since=None)()
    assert [one.number for one in missed[b"%16d" % 5]] == [5]
    assert [one.id for one in history.latest(EVERY, limit=1)()] == [105]


def test_without_a_journal_one_write_ends_before_the_next(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time, alone=True)
    run.add(outcome(1))
    fake_time.advance(WRITE_SECONDS)
    run.add(outcome(2))
    before = len(run.worker.jobs)
    fake_time.advance(WRITE_SECONDS)
    assert len(run.worker.jobs) == before
    run.worker.drain()
    fake_time.advance(WRITE_SECONDS)
    run.worker.drain()
    assert identifiers(tmp_path) == ["i1", "i2"]


def _last(
    history: History, query: OutcomeQuery = EVERY, *, after: int = 0, limit: int
) -> list[int]:
    return [one.number for one in history.last_page(query, after=after, limit=limit)().found]


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_the_last_ones_are_found_from_the_end(
    tmp_path: Path, fake_time: FakeTime, is_on_disk: bool
) -> None:
    if is_on_disk:
        run = Recording(tmp_path, fake_time)
        history = run.history
        for number in range(1, 7):
            run.add(outcome(number, destination="siem" if number % 2 else "archive"))
            run.commit()
    else:
        history = History(clock=fake_time, timers=fake_time)
        for number in range(1, 7):
            history.add(outcome(number, destination="siem" if number % 2 else "archive"))
    assert _last(history, limit=2) == [5, 6]
    assert _last(history, limit=10) == [1, 2, 3, 4, 5, 6]
    assert _last(history, OutcomeQuery(destination="siem"), limit=2) == [3, 5]
    assert _last(history, after=5, limit=10) == [6]
    page = history.last_page(OutcomeQuery(destination="nobody"), after=0, limit=1)()
    assert (page.found, page.through, page.has_more) == ([], 6, False)


def test_the_last_ones_are_fewer_if_their_bodies_are_too_long(fake_time: FakeTime) -> None:
    history = History(clock=fake_time, timers=fake_time)
    body = b"1" * (MOST_BODY_BYTES // 2)
    for number in range(4):
        history.add(outcome(number, body=body))
    assert _last(history, limit=10) == [3, 4]
