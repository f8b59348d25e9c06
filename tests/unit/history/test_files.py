"""The files of a history: what is kept of it, over crashes, damage, full disks and time."""

import errno
import os
from array import array
from pathlib import Path

import pytest

from pillion_sidecar.config.schema.history import HistoryPolicy
from pillion_sidecar.history.blocks import BLOCK_BYTES, MAGIC, encode_blocks
from pillion_sidecar.history.files import (
    AGE_PARTS,
    LEFT_OUT,
    LOCK_NAME,
    SEGMENTS,
    SPARE_NAME,
    TOLD_AGAIN_SECONDS,
    HistoryFiles,
    kept_in,
    read_lock,
    segments_of,
)
from pillion_sidecar.history.outcome import OutcomeQuery
from pillion_sidecar.history.pending import pending_in
from pillion_sidecar.history.reading import Kept, read_all, read_page
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.ports import Recovered, RecoveredQueue
from pillion_sidecar.testing import FakeTime
from support.chaos import small_disk
from support.outcomes import BEGAN, EVERY, WEEK, Recording, identifiers, numbers, outcome


def bytes_of(folder: Path) -> int:
    return sum(one.path.stat().st_size for one in kept_in(folder))


def test_every_outcome_is_kept_with_all_its_members(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time)
    whole = outcome(
        1,
        result="delivered",
        reason=None,
        cause="success",
        detail="HTTP 200",
        status=200,
        attempts=3,
        first_attempt=BEGAN + 0.5,
        last_attempt=BEGAN + 0.75,
        group="g",
        group_sequence=7,
        languages=("de", "en"),
        subscription_uid="uid-1",
        body=b'{"class":"C","properties":{}}',
    )
    run.add(whole, outcome(2, source=None, identifier=None, number=None, sequence_number=None))
    run.commit()
    found = list(read_all(Kept(folder=tmp_path), EVERY))
    assert [one.number for one in found] == [1, 2]
    assert found[0].outcome == whole


def test_a_query_selects_by_every_member(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time)
    for number in range(6):
        one = "delivered" if number == 4 else "discarded"
        where = "siem" if number % 2 else "noc"
        run.add(outcome(number, destination=where, result=one, source=f"s{number // 3}"))
        run.commit()
    queries = {
        OutcomeQuery(destination="noc"): ["i0", "i2", "i4"],
        OutcomeQuery(result="delivered"): ["i4"],
        OutcomeQuery(source="s1"): ["i3", "i4", "i5"],
        OutcomeQuery(identifier="i3"): ["i3"],
        OutcomeQuery(reason="purged"): [],
        OutcomeQuery(since=BEGAN + 4): ["i4", "i5"],
        OutcomeQuery(until=BEGAN + 2): ["i0", "i1"],
    }
    for query, expected in queries.items():
        assert identifiers(tmp_path, query) == expected


def test_the_segments_are_bounded_and_the_oldest_is_removed(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    size = 64 << 10
    run = Recording(tmp_path, fake_time, size=size)
    for number in range(2000):
        run.add(outcome(number))
        run.commit()
    assert SEGMENTS // 2 <= len(segments_of(tmp_path)) <= SEGMENTS
    assert bytes_of(tmp_path) == run.history.bytes <= size
    kept = numbers(tmp_path)
    assert kept == list(range(2001 - len(kept), 2001))
    assert run.history.unkept_discards == 2000 - len(kept)
    run.history.close()
    lock = read_lock(tmp_path)
    assert lock is not None
    assert lock.removed_discards == 2000 - len(kept)


def test_delivered_outcomes_that_are_removed_are_no_lost_discards(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time, size=64 << 10)
    for number in range(2000):
        run.add(outcome(number, result="delivered", reason=None))
        run.commit()
    assert run.history.unkept_discards == 0
    assert numbers(tmp_path)[0] > 1


def test_what_is_too_old_is_removed(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time)
    for day in range(10):
        run.add(outcome(day * 86_400, identifier=f"day {day}"))
        run.commit()
        run.files.expire(BEGAN + day * 86_400)
    days = [int((one or "").split()[1]) for one in identifiers(tmp_path)]
    # By segments of an eighth of a week.
    assert days == list(range(days[0], 10))
    assert 1 <= days[0] <= 2
    run.files.expire(BEGAN + 9 * 86_400 + WEEK + WEEK / AGE_PARTS + 1)
    assert identifiers(tmp_path) == []
    # The next outcome has the next number, and not the first one.
    run.add(outcome(0))
    run.commit()
    assert numbers(tmp_path) == [11]


def test_numbers_go_on_after_a_run_that_ended_in_order(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1), outcome(2))
    run.history.close()
    again = Recording(tmp_path, fake_time)
    assert (again.opened.id, again.opened.told) == (run.opened.id, [])
    again.add(outcome(3))
    again.history.close()
    assert numbers(tmp_path) == [1, 2, 3]


def test_after_a_crash_numbers_are_left_out_and_the_last_discards_told_again(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(0), outcome(10), outcome(int(TOLD_AGAIN_SECONDS) + 5))
    run.add(outcome(66, result="delivered"))
    run.commit()
    run.crash()
    again = Recording(tmp_path, fake_time)
    assert [one.identifier for one in again.opened.told] == ["i10", "i65"]
    again.add(outcome(67))
    again.commit()
    assert numbers(tmp_path) == [1, 2, 3, 4, 5 + LEFT_OUT]


def test_what_the_journal_has_pending_still_is_taken_back_at_a_start(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(*(outcome(number, result="delivered") for number in range(3)))
    run.commit()
    run.add(*(outcome(number) for number in range(3, 6)))
    run.add(outcome(6, number=None, id=500))
    run.add(outcome(7, sequence_context="default#in-memory#siem#1"))
    run.commit()
    queue = RecoveredQueue(uid="u", name="siem", index=3)
    queue.numbers.extend(array("Q", [2, 4, 5, 7]))
    held = Indication(body=b"{}", class_name="C", accepted_at=0.0, id=500)
    recovered = Recovered(queues={3: queue}, held=[(held, ())])
    run.crash()
    is_pending = pending_in(recovered, journal_id="journal-1")
    again = Recording(tmp_path, fake_time, is_pending=is_pending)
    assert identifiers(tmp_path) == ["i0", "i1", "i3", "i7"]
    assert again.history.bytes == bytes_of(tmp_path)
    # What is left keeps its number.
    assert numbers(tmp_path) == [1, 2, 4, 8]
    assert again.opened.next_number == 9 + LEFT_OUT


def test_what_is_pending_is_taken_back_from_every_segment_that_one_write_filled(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time, size=1 << 20)
    run.add(*(outcome(number, body=b"x" * 10_000) for number in range(20)))
    run.commit()
    run.crash()
    assert len(segments_of(tmp_path)) > 1
    Recording(tmp_path, fake_time, is_pending=lambda one: one.id >= 104)
    first = numbers(tmp_path)[0]
    assert identifiers(tmp_path) == [f"i{number}" for number in range(first - 1, 4)]


def test_a_torn_block_is_cut_off(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1))
    run.commit()
    run.crash()
    (segment,) = segments_of(tmp_path)
    (block,) = encode_blocks(2, [outcome(2)])
    with segment.path.open("ab") as file:
        file.write(block[:-3])
    again = Recording(tmp_path, fake_time)
    again.add(outcome(3))
    again.commit()
    assert identifiers(tmp_path) == ["i1", "i3"]


@pytest.mark.parametrize("at", [0, 5, 30, 50, 60, 150])
def test_a_damaged_block_costs_only_its_own_outcomes(
    tmp_path: Path, fake_time: FakeTime, at: int
) -> None:
    run = Recording(tmp_path, fake_time)
    for number in range(3):
        run.add(outcome(number))
        run.commit()
    run.history.close()
    (segment,) = segments_of(tmp_path)
    data = bytearray(segment.path.read_bytes())
    begin = data.find(MAGIC, 1)
    data[begin + at] ^= 0xFF
    segment.path.write_bytes(data)
    assert identifiers(tmp_path) == ["i0", "i2"]
    again = Recording(tmp_path, fake_time)
    again.add(outcome(3))
    again.commit()
    assert numbers(tmp_path) == [1, 3, 4]


def test_a_block_of_a_later_kind_is_passed_over(tmp_path: Path, fake_time: FakeTime) -> None:
    from pillion_sidecar.history import blocks

    run = Recording(tmp_path, fake_time)
    run.add(outcome(1))
    run.history.close()
    (segment,) = segments_of(tmp_path)
    kind = blocks.KIND
    try:
        blocks.KIND = kind + 1
        (later,) = encode_blocks(2, [outcome(2), outcome(3)])
    finally:
        blocks.KIND = kind
    with segment.path.open("ab") as file:
        file.write(later)
    again = Recording(tmp_path, fake_time)
    again.add(outcome(4))
    again.commit()
    assert numbers(tmp_path) == [1, 4]
    page = read_page(Kept(folder=tmp_path), EVERY, after=1, through=4, limit=10)
    assert ([one.number for one in page.found], page.through) == ([4], 4)


def test_outcomes_of_a_later_version_may_have_more_members(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    import msgspec

    from pillion_sidecar.history import blocks

    one = outcome(1)
    run = Recording(tmp_path, fake_time)
    (block,) = encode_blocks(1, [one])
    header = blocks.header_of(block)
    assert header is not None
    fields = msgspec.msgpack.decode(block[blocks.HEADER_BYTES :])
    data = msgspec.msgpack.encode([[*fields[0], "a later member"]])
    found = blocks.decode(header._replace(checksum=blocks.crc32(data)), data)
    assert found is not None
    assert [numbered.outcome for numbered in found] == [one]
    run.history.close()


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path, fake_time: FakeTime) -> None:
    others = {"history-1.outcomes", "history-x.outcomes", "lock", "0000000000000001.segment"}
    for name in others:
        (tmp_path / name).write_bytes(b"x")
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1))
    run.history.close()
    written = {file.name for file in tmp_path.iterdir()} - others
    assert written == {f"history-{1:020d}.outcomes", LOCK_NAME, SPARE_NAME}


def test_two_processes_do_not_write_one_history(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time)
    with pytest.raises(OSError, match="unavailable"):
        HistoryFiles(tmp_path, size=1 << 20, seconds=WEEK).open(lambda _: False)
    run.history.close()
    run.history.close()
    Recording(tmp_path, fake_time).history.close()


def test_a_disk_that_others_fill_takes_the_newest_in_reserved_room(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    with small_disk(tmp_path / "disk", mebibytes=8) as disk:
        if disk is None:
            pytest.skip("this user must not mount")
        size = 2 << 20
        run = Recording(disk.folder, fake_time, size=size)
        disk.fill()
        for number in range(20_000):
            run.add(outcome(number))
            if number % 100 == 99:
                run.commit()
                disk.fill()
        kept = numbers(disk.folder)
        # A segment's worth at least is there, and the oldest gave way to the newest.
        assert kept == list(range(20_001 - len(kept), 20_001))
        assert bytes_of(disk.folder) > size // (SEGMENTS + 1)
        assert run.history.unkept_discards == 20_000 - len(kept)
        run.crash()


def test_a_full_disk_is_given_the_oldest_segment(tmp_path: Path, fake_time: FakeTime) -> None:
    run = Recording(tmp_path, fake_time, size=64 << 10)
    for number in range(200):
        run.add(outcome(number))
        run.commit()
    before = len(segments_of(tmp_path))
    assert before > 1
    for _ in range(before + 1):
        run.history.shed()
        run.worker.drain()
    # The newest stays.
    assert len(segments_of(tmp_path)) == 1
    assert numbers(tmp_path)[-1] == 200


def test_what_gives_way_to_a_full_disk_leaves_its_discards(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time, size=64 << 10)
    run.add(outcome(0, body=b"{}"), outcome(1, result="redriven", redrives=1))
    for number in range(2, 40):
        run.add(outcome(number, result="delivered", reason=None))
        run.commit()
    begun = len(segments_of(tmp_path))
    for _ in range(begun):
        run.history.shed()
        run.worker.drain()
    assert (begun > 1, len(segments_of(tmp_path))) == (True, 1)
    kept = numbers(tmp_path)
    assert kept == [1, 2, *range(kept[2], 41)]
    assert (run.history.unkept_discards, run.history.given_way) == (0, 40 - len(kept))
    oldest = run.history.oldest()()
    # Only from there on it has all.
    assert oldest is not None
    assert oldest.number == kept[2] > 3
    assert run.history.bytes == bytes_of(tmp_path)
    run.history.close()
    again = Recording(tmp_path, fake_time, size=64 << 10)
    assert (numbers(tmp_path), again.history.bytes) == (kept, bytes_of(tmp_path))
    (discard,) = again.history.latest(OutcomeQuery(result="discarded"), limit=9)()
    assert discard.identifier == "i0"
    # It goes with its age.
    again.files.expire(BEGAN + WEEK + WEEK / AGE_PARTS + 100)
    assert numbers(tmp_path) == []
    assert again.history.unkept_discards == 1


def test_discards_that_outlast_a_full_disk_are_bounded(tmp_path: Path, fake_time: FakeTime) -> None:
    size = 64 << 10
    run = Recording(tmp_path, fake_time, size=size)
    for number in range(400):
        run.add(outcome(number, result="discarded" if number % 4 else "delivered"))
        run.commit()
        if number % 100 == 99:
            while len(segments_of(tmp_path)) > 1:
                run.history.shed()
                run.worker.drain()
    saved = [one.path for one in kept_in(tmp_path) if one.path.suffix == ".discards"]
    assert saved
    assert sum(512 * path.stat().st_blocks for path in saved) <= size // (SEGMENTS + 1) + 4096
    assert {path.stat().st_mode & 0o777 for path in saved} == {0o600}
    assert run.history.unkept_discards == 300 - run.history.count()()[1]


def test_a_segment_with_its_discards_beside_it_is_read_once(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(0), outcome(1, result="delivered"))
    run.commit()
    (segment,) = segments_of(tmp_path)
    # As a crash leaves it.
    (block,) = encode_blocks(1, [outcome(0)])
    segment.path.with_suffix(".discards").write_bytes(block)
    assert numbers(tmp_path) == [1, 2]


class _FullDisk(HistoryFiles):
    is_full = False

    def _write(self, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._write(data)


def test_a_full_disk_that_left_the_newest_segment_empty_takes_nothing_more(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    files = _FullDisk(tmp_path, size=64 << 10, seconds=WEEK)
    run = Recording(tmp_path, fake_time, files=files)
    run.add(*(outcome(number, result="delivered") for number in range(5)))
    run.commit()
    files.is_full = True
    run.add(outcome(5))
    run.commit()
    for _ in range(3):
        run.history.shed()
        run.worker.drain()
    assert numbers(tmp_path) == [1, 2, 3, 4, 5]
    assert run.history.waiting == 1


class _SmallDisk(HistoryFiles):
    """A disk for some bytes of segments."""

    room = 1 << 30

    def _write(self, data: bytes) -> None:
        if bytes_of(self._folder) + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._write(data)

    def _reserve(self) -> bool:
        return bytes_of(self._folder) < self.room


def test_what_must_be_written_displaces_what_is_older_and_no_more(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    files = _SmallDisk(tmp_path, size=1 << 20, seconds=WEEK)
    run = Recording(tmp_path, fake_time, files=files)
    files.room = 200_000
    run.add(*(outcome(number, result="delivered") for number in range(700)))
    run.commit()
    run.add(*(outcome(number, result="delivered") for number in range(700, 2000)))
    run.commit()
    waits = 2001 - run.history.waiting
    assert numbers(tmp_path)[-1] == waits - 1 < 2000
    run.history.close()
    kept = numbers(tmp_path)
    assert kept == list(range(kept[0], kept[-1] + 1))
    # The first that waited are there still.
    assert kept[0] <= waits < kept[-1]
    assert len(kept) > 500


def test_the_bound_of_a_small_disk_outlasts_a_change(tmp_path: Path, fake_time: FakeTime) -> None:
    with small_disk(tmp_path / "disk", mebibytes=4) as disk:
        if disk is None:
            pytest.skip("this user must not mount")
        run = Recording(disk.folder, fake_time, size=64 << 20)
        run.history.configure(HistoryPolicy(), size=64 << 20)
        for number in range(8000):
            run.add(outcome(number))
            if number % 100 == 99:
                run.commit()
        assert bytes_of(disk.folder) <= 1 << 20
        run.crash()


def test_a_page_reads_so_many_bytes_and_says_how_to_go_on(
    tmp_path: Path, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillion_sidecar.history.reading.LOOKED_BYTES", 2 * BLOCK_BYTES)
    run = Recording(tmp_path, fake_time, size=16 << 20)
    run.add(*(outcome(number) for number in range(2000)))
    run.commit()
    found, after, pages = [], 0, 0
    while True:
        page = read_page(
            Kept(folder=tmp_path),
            OutcomeQuery(identifier="i1999"),
            after=after,
            through=2000,
            limit=5,
        )
        found += page.found
        pages += 1
        if not page.has_more:
            break
        assert page.through > after
        after = page.through
    assert [one.number for one in found] == [2000]
    assert (page.through, pages > 1) == (2000, True)


def test_pages_follow_each_other_without_a_gap_and_with_bounded_bodies(
    tmp_path: Path, fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillion_sidecar.history.reading.MOST_BODY_BYTES", 50_000)
    run = Recording(tmp_path, fake_time, size=16 << 20)
    run.add(*(outcome(number, body=b"x" * 20_000) for number in range(10)))
    run.commit()
    found, after = [], 0
    while True:
        page = read_page(Kept(folder=tmp_path), EVERY, after=after, through=9, limit=100)
        assert len(page.found) <= 3
        found += [one.number for one in page.found]
        after = page.through
        if not page.has_more:
            break
    # The tenth is not settled.
    assert found == list(range(1, 10))


def test_a_segment_that_is_removed_while_it_is_read_is_passed_over(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time, size=64 << 10)
    for number in range(200):
        run.add(outcome(number))
        run.commit()
    reading = read_all(Kept(folder=tmp_path), EVERY)
    first = next(reading)
    os.unlink(segments_of(tmp_path)[1].path)
    rest = [one.number for one in reading]
    assert rest[-1] == 200
    assert first.number < rest[0]


@pytest.mark.parametrize("cut", [1, 7, 60, 150])
def test_a_block_that_was_torn_after_a_good_end_swallows_no_later_one(
    tmp_path: Path, fake_time: FakeTime, cut: int
) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1))
    run.commit()
    run.add(outcome(2))
    run.history.close()
    (segment,) = segments_of(tmp_path)
    os.truncate(segment.path, segment.path.stat().st_size - cut)
    again = Recording(tmp_path, fake_time)
    again.add(outcome(3))
    again.history.close()
    assert identifiers(tmp_path) == ["i1", "i3"]


def test_numbers_are_not_used_twice_where_segments_were_removed(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1), outcome(2))
    run.history.close()
    for segment in segments_of(tmp_path):
        segment.path.unlink()
    again = Recording(tmp_path, fake_time)
    again.add(outcome(3))
    again.history.close()
    assert (again.opened.id, numbers(tmp_path)) == (run.opened.id, [3])


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"a\xff\x01\x7f 00000000000000000000 shut 1\n",
        b"zzzzzzzzzzzzzzzz 0 shut 1\n",
        b"0123456789abcdef 0 shut 99999999999999999999\n",
        b"0123456789abcdef 0 shut -1\n",
        b"0123456789abcdef 0 shut\n",
    ],
)
def test_a_lock_with_another_content_begins_another_history(
    tmp_path: Path, fake_time: FakeTime, text: bytes
) -> None:
    (tmp_path / LOCK_NAME).write_bytes(text)
    run = Recording(tmp_path, fake_time)
    run.add(outcome(1))
    run.history.close()
    lock = read_lock(tmp_path)
    assert lock is not None
    assert (lock.id, lock.next_number) == (run.opened.id, 2)
    assert lock.id not in text.decode("latin-1")


def test_a_segment_is_a_plain_file_with_a_possible_number(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    (tmp_path / f"history-{'9' * 20}.outcomes").touch()
    (tmp_path / f"history-{1:020d}.outcomes").symlink_to("/dev/zero")
    (tmp_path / f"history-{2:020d}.outcomes").mkdir()
    assert segments_of(tmp_path) == []
