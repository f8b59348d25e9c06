"""The faults that publishers poll for, a view of the history (S1.4, S1.9)."""

import asyncio
from pathlib import Path

import pytest

from pillion_sidecar.history.faults import SETTLE_SECONDS, FaultList, FaultPage, FaultsBusy
from pillion_sidecar.history.outcome import OutcomeQuery, repeated_fault
from pillion_sidecar.history.recorder import History
from pillion_sidecar.testing import FakeTime
from support.outcomes import BEGAN, EVERY, Recording, numbers, outcome


def told(page: FaultPage) -> list[tuple[int, str | None]]:
    return [(one.number, one.outcome.identifier) for one in page.found]


def ask(history: History, publisher: str, number: int, *, limit: int) -> FaultPage:
    return asyncio.run(FaultList(history).after(publisher, number, limit=limit))


def kept(time: FakeTime, *publishers: str | None, memory_bytes: int = 1 << 20) -> History:
    history = History(clock=time, timers=time, memory_bytes=memory_bytes)
    for order, publisher in enumerate(publishers, 1):
        history.add(outcome(order, publisher=publisher))
    return history


async def test_each_publisher_is_told_its_own_from_a_number_on(fake_time: FakeTime) -> None:
    history = kept(fake_time, "p", None, "q", "p", "pp")
    history.add(outcome(6, publisher="p", result="delivered", reason=None))
    faults = FaultList(history)
    page = await faults.after("p", 0, limit=10)
    assert (told(page), page.last, page.dropped) == ([(1, "i1"), (4, "i4")], 4, 0)
    page = await faults.after("p", 0, limit=1)
    assert (told(page), page.last) == ([(1, "i1")], 4)
    page = await faults.after("p", 4, limit=10)
    assert (told(page), page.last) == ([], 4)
    page = await faults.after("p", 0, limit=0)
    assert (told(page), page.last) == ([], 4)
    assert told(await FaultList(history).after("p", 1, limit=10)) == [(4, "i4")]
    page = await faults.after("nobody", 0, limit=10)
    assert (told(page), page.last) == ([], 0)


async def test_who_asks_again_is_told_what_came_meanwhile(fake_time: FakeTime) -> None:
    history = kept(fake_time, "q", "p")
    faults = FaultList(history)
    assert told(await faults.after("p", 0, limit=10)) == [(2, "i2")]
    assert told(await faults.after("p", 2, limit=10)) == []
    history.add(outcome(3, publisher="p"))
    assert told(await faults.after("p", 2, limit=10)) == [(3, "i3")]
    # From the begin again, and from between.
    assert told(await faults.after("p", 0, limit=10)) == [(2, "i2"), (3, "i3")]
    assert told(await faults.after("p", 1, limit=10)) == [(2, "i2"), (3, "i3")]


async def test_what_memory_has_no_more_is_counted(fake_time: FakeTime) -> None:
    history = kept(fake_time, *(["p"] * 300), memory_bytes=20_000)
    faults = FaultList(history)
    page = await faults.after("p", 0, limit=1000)
    first = page.found[0].number
    assert first > 1
    assert page.dropped == first - 1
    assert (await faults.after("p", first - 1, limit=1)).dropped == 0
    assert (await faults.after("q", 0, limit=1)).dropped == 0


def test_the_note_of_a_duplicate_is_a_fault_and_no_outcome(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    recording = Recording(tmp_path, fake_time)
    recording.add(repeated_fault("p", destination="siem", reason="purged", at=BEGAN))
    recording.commit()
    assert numbers(tmp_path) == []
    page = ask(recording.history, "p", 0, limit=10)
    assert [one.outcome.reason for one in page.found] == ["purged"]
    read = recording.history.latest(OutcomeQuery(result="discarded"), limit=10)
    assert list(read()) == []
    recording.crash()


def test_faults_are_the_same_after_a_crash(fake_time: FakeTime, tmp_path: Path) -> None:
    recording = Recording(tmp_path, fake_time)
    for order in range(1, 9):
        recording.add(outcome(order, publisher="p" if order % 3 == 0 else None))
        recording.commit()
    before = ask(recording.history, "p", 0, limit=1)
    recording.crash()
    recording = Recording(tmp_path, fake_time)
    after = ask(recording.history, "p", 0, limit=1)
    assert (told(after), after.last, after.dropped) == (told(before), 6, 0)
    recording.crash()


def test_what_is_removed_from_the_disk_is_counted_over_restarts(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    recording = Recording(tmp_path, fake_time)
    for order in range(1, 400):
        recording.add(outcome(order, publisher="p", body=b"x" * 8000))
        recording.commit()
    first = numbers(tmp_path)[0]
    assert first > 1
    for _ in range(2):
        assert ask(recording.history, "p", 0, limit=1).dropped == first - 1
        assert ask(recording.history, "p", first - 1, limit=1).dropped == 0
        recording.crash()
        recording = Recording(tmp_path, fake_time)
    recording.crash()


async def test_a_list_has_what_was_discarded_before_it_was_asked_for(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    recording = await asyncio.to_thread(Recording, tmp_path, fake_time)
    recording.add(outcome(1, publisher="p"))
    asked = asyncio.create_task(FaultList(recording.history).after("p", 0, limit=10))
    await asyncio.sleep(0)
    await asyncio.to_thread(recording.commit)
    assert told(await asked) == [(1, "i1")]
    recording.add(outcome(2, publisher="p"))
    asked = asyncio.create_task(FaultList(recording.history).after("p", 0, limit=10))
    await asyncio.sleep(0)
    fake_time.advance(SETTLE_SECONDS)
    # The disk has not taken it: a list without it would say too little.
    with pytest.raises(FaultsBusy):
        await asked
    await asyncio.to_thread(recording.crash)


def test_a_page_without_a_query_has_no_notes(fake_time: FakeTime) -> None:
    history = kept(fake_time, "p")
    history.add(repeated_fault("p", destination="siem", reason="purged", at=BEGAN))
    page = history.page(EVERY, after=0, limit=10)()
    assert ([one.number for one in page.found], page.through) == ([1], 2)
