"""Damage: what is put aside, what is told of it, and that a crash meanwhile makes it no worse."""

import logging
from pathlib import Path
from random import Random

import pytest

from pillion_sidecar.delivery.table import SKIPPED_EPOCHS
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.files import (
    File,
    MixedError,
    SystemFiles,
    UnreadableError,
    VersionError,
)
from pillion_sidecar.journal.records import (
    DELIVERED,
    MAXIMUM_RECORD,
    REASON_CODES,
    encode_commit,
    encode_indication,
    encode_settlements,
)
from pillion_sidecar.journal.recovery import Recovery, examine, recover
from pillion_sidecar.journal.scan import Finding, FindingKind
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    Header,
    damaged_name,
    encode_header,
    read_header,
    segment_name,
)
from pillion_sidecar.testing import FakeTime
from support.crashing_files import Disk, RecordingFiles
from support.journal_checks import Identities, check, columns, open_again
from support.journal_files import JOURNAL_ID, Hand, MemoryFiles, Written

PURGED = REASON_CODES[DiscardReason.PURGED]
FIRST = segment_name(1)


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
def hand(files: MemoryFiles) -> Hand:
    return Hand(files)


def three(hand: Hand) -> list[Written]:
    """Write three indications, each with a commit of its own."""
    written = []
    for _ in range(3):
        hand.commit()
        written.append(hand.indication([hand.place(1)]))
    return written


def test_damage_is_named_put_aside_and_logged(
    files: MemoryFiles, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    _, hit, _ = three(hand)
    files.contents[FIRST][hit.end - 1] ^= 0x40
    bytes_hit = bytes(files.contents[FIRST][hit.begin : hit.end])
    with caplog.at_level(logging.INFO):
        recovery = check(files, [one for one in hand.written if one is not hit])
    assert recovery.findings == (
        Finding(
            kind=FindingKind.DAMAGED,
            file=FIRST,
            begin=hit.begin,
            end=hit.end,
            lost="INDICATION 2",
        ),
    )
    assert recovery.recovered.damaged
    assert files.contents[damaged_name(1, hit.begin)] == bytes_hit
    (record,) = [one for one in caplog.records if one.__dict__["event"] != "journal-clock"]
    assert (record.levelname, record.__dict__["event"]) == ("ERROR", "journal-damaged")
    assert (record.__dict__["file"], record.__dict__["begin"], record.__dict__["end"]) == (
        FIRST,
        hit.begin,
        hit.end,
    )


def test_an_examination_changes_nothing(files: MemoryFiles, hand: Hand) -> None:
    _, hit, _ = three(hand)
    files.contents[FIRST][hit.begin + 30] ^= 1
    files.contents[FIRST] += b"torn"
    files.contents["x.segment.tmp"] = bytearray(b"partial")
    before = files.copy()
    examination = examine(files)
    assert [finding.kind for finding in examination.findings] == [
        FindingKind.DAMAGED,
        FindingKind.TORN,
    ]
    assert [one.number for one in examination.surveyed] == [1]
    assert examination.journal_id == JOURNAL_ID
    assert files.contents == before.contents
    assert files.changes == 0


def test_damage_is_over_once_a_segment_was_begun(files: MemoryFiles, hand: Hand) -> None:
    _, hit, _ = three(hand)
    files.contents[FIRST][hit.begin + 30] ^= 1
    recovery = open_again(files)
    # No one has written down yet that contexts have ended: a crash came first.
    assert open_again(files).recovered.damaged
    hand.number = recovery.next_segment - 1
    hand.roll()
    assert not open_again(files).recovered.damaged


def test_an_epoch_that_only_a_lost_record_named_is_not_used_again(
    files: MemoryFiles, hand: Hand
) -> None:
    first, hit, _ = three(hand)
    sound = open_again(files).recovered.next_epoch
    files.contents[FIRST][hit.begin + 30] ^= 1
    assert open_again(files).recovered.next_epoch > sound
    assert first.id == 1


def test_what_is_written_inside_a_record_is_not_taken_for_one(
    files: MemoryFiles, hand: Hand
) -> None:
    hand.commit()
    hand.indication([hand.place(1)])
    victim = encode_settlements([(1, DELIVERED, 0)])  # type: ignore[list-item]
    from pillion_sidecar.indication import Indication

    indication = Indication(
        body=b"before" + victim + b"after", class_name="C", accepted_at=0.0, id=2
    )
    hit = hand._put(
        encode_indication(indication, [hand.place(1)], accepted_at=0.0), "indication", id=2
    )
    hand.commit()
    files.contents[FIRST][hit.end - 1] ^= 1
    recovery = check(files, [one for one in hand.written if one is not hit])
    assert [queue.ids[0] for queue in recovery.recovered.queues.values() if queue.ids] == [1]


@pytest.mark.parametrize("extra", [1, 23, 24, 1000, MAXIMUM_RECORD - 30, MAXIMUM_RECORD + 10])
def test_a_long_stretch_is_filled_whole(files: MemoryFiles, hand: Hand, extra: int) -> None:
    three(hand)
    begin = len(files.contents[FIRST])
    size = MAXIMUM_RECORD + extra
    files.contents[FIRST] += bytes(size)
    last = hand.written[-1]
    hand._put(encode_commit(9, 2000.0), "commit")
    after = hand.indication([hand.place(1)])
    recovery = check(files, hand.written)
    assert [(one.begin, one.end) for one in recovery.findings] == [(begin, begin + size)]
    assert last.end == begin
    assert files.contents[damaged_name(1, begin)] == bytes(size)
    assert after.position in recovery.recovered.queues[1].positions
    assert open_again(files).findings == ()


def test_what_is_too_short_for_a_record_is_cut_off_an_older_segment(
    files: MemoryFiles, hand: Hand
) -> None:
    three(hand)
    files.contents[FIRST] += b"stray"
    hand.roll()
    recovery = check(files, hand.written)
    assert [finding.kind for finding in recovery.findings] == [FindingKind.DAMAGED]
    assert files.contents[damaged_name(1, hand.written[-2].end)] == b"stray"
    assert open_again(files).findings == ()


def test_zeros_end_the_newest_segment_and_no_older_one(files: MemoryFiles, hand: Hand) -> None:
    three(hand)
    end = len(files.contents[FIRST])
    files.contents[FIRST] += bytes(4096)
    recovery = check(files.copy(), hand.written)
    assert recovery.findings == ()
    hand.roll()
    recovery = check(files, hand.written)
    assert [(one.kind, one.begin) for one in recovery.findings] == [(FindingKind.DAMAGED, end)]


# ---------------------------------------------------------------------- whole segments


def test_a_damaged_header_is_made_anew(files: MemoryFiles, hand: Hand) -> None:
    three(hand)
    hand.roll()
    before = bytes(files.contents[FIRST][:HEADER_SIZE])
    files.contents[FIRST][17] ^= 1
    recovery = check(files, hand.written)
    assert [(one.kind, one.file) for one in recovery.findings] == [(FindingKind.HEADER, FIRST)]
    assert not recovery.recovered.damaged
    header = read_header(bytes(files.contents[FIRST]))
    assert header is not None
    assert (header.number, header.journal_id) == (1, JOURNAL_ID)
    assert files.contents[damaged_name(1, 0)] != before
    assert open_again(files).findings == ()


def test_the_only_header_lost_makes_another_journal_of_the_same_entries(
    files: MemoryFiles, hand: Hand
) -> None:
    three(hand)
    files.contents[FIRST][0] ^= 1
    recovery = check(files, hand.written)
    assert recovery.journal_id == b"n" * 16
    assert open_again(files).journal_id == b"n" * 16


def test_an_older_segment_shorter_than_its_header_is_lost(files: MemoryFiles, hand: Hand) -> None:
    three(hand)
    hand.roll()
    hand.commit()
    hand.indication([hand.place(1)])
    del files.contents[FIRST][20:]
    left = [one for one in hand.written if one.segment == 2]
    recovery = check(files, left)
    assert [(one.kind, one.end) for one in recovery.findings] == [(FindingKind.DAMAGED, 20)]
    assert recovery.recovered.damaged
    again = check(files, left)
    assert again.findings == ()
    assert again.recovered.damaged


def test_missing_segments_are_told_once(files: MemoryFiles, hand: Hand) -> None:
    for _ in range(4):
        hand.commit()
        hand.indication([hand.place(1)])
        hand.roll()
    hand.remove(2)
    hand.remove(3)
    recovery = check(files, hand.written)
    assert [(one.kind, one.file) for one in recovery.findings] == [
        (FindingKind.MISSING, segment_name(2))
    ]
    assert recovery.recovered.damaged
    assert recovery.next_segment == 6
    again = check(files, hand.written)
    assert again.findings == ()
    # The oldest may be removed, and the one that stands in after it.
    hand.remove(1)
    assert check(files, hand.written).findings == ()
    files.remove(segment_name(3))
    assert check(files, hand.written).findings == ()


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", [segment_name(2), "0000000000000000.identities"])
def test_a_newer_version_is_refused_untouched(files: MemoryFiles, hand: Hand, name: str) -> None:
    three(hand)
    number = int(name[:16], 16)
    header = bytearray(encode_header(Header(number, JOURNAL_ID, 0.0)))
    header[8] = 2
    header[-4:] = _crc(header[:-4])
    files.contents[name] = header
    files.contents[FIRST] += b"torn"
    with pytest.raises(VersionError, match=rf"{name}.*layout version 2.*knows 1"):
        open_again(files)
    with pytest.raises(VersionError):
        examine(files)
    assert files.changes == 0


def _crc(data: bytearray) -> bytes:
    from zlib import crc32

    return crc32(data).to_bytes(4, "little")


def test_files_of_two_journals_are_refused(files: MemoryFiles, hand: Hand) -> None:
    three(hand)
    files.contents[segment_name(2)] = bytearray(encode_header(Header(2, b"o" * 16, 0.0)))
    with pytest.raises(MixedError, match="belongs to journal"):
        open_again(files)
    assert files.changes == 0


def test_a_renamed_segment_is_refused(files: MemoryFiles, hand: Hand) -> None:
    three(hand)
    files.contents[segment_name(2)] = files.contents[FIRST]
    with pytest.raises(MixedError, match=f"{segment_name(2)}.*was written as .{FIRST}"):
        open_again(files)
    assert files.changes == 0


class FailingFiles(MemoryFiles):
    """A disk that cannot be read."""

    def open(self, name: str, *, writable: bool = False) -> File:
        raise OSError(5, "Input/output error", name)


def test_a_disk_that_cannot_be_read_is_named(hand: Hand, files: MemoryFiles) -> None:
    failing = FailingFiles({name: bytes(data) for name, data in files.contents.items()})
    with pytest.raises(UnreadableError, match=f"{FIRST}.*Input/output error; see to the disk"):
        open_again(failing)


class HiddenFiles(MemoryFiles):
    """A folder that must be searched and not listed."""

    def names(self) -> list[str]:
        raise PermissionError(13, "Permission denied", ".")


def test_a_folder_that_cannot_be_listed_is_named() -> None:
    with pytest.raises(UnreadableError, match="Permission denied; let the user"):
        open_again(HiddenFiles())


# ---------------------------------------------------------------------- crashes while mending


def test_a_crash_while_it_is_mended_loses_nothing_more(files: MemoryFiles, hand: Hand) -> None:
    """Damage in two segments, a lost header, and a torn tail; a crash at each step of the start."""
    three(hand)
    hit = hand.written[2]
    hand.roll()
    later = three(hand)
    hand.roll()
    three(hand)
    files.contents[FIRST][hit.begin + 30] ^= 1
    files.contents[segment_name(2)][3] ^= 1
    files.contents[segment_name(2)][later[1].begin + 5] ^= 1
    files.contents[segment_name(3)] += b"torn tail"
    image = {name: bytes(data) for name, data in files.contents.items()}
    recording = RecordingFiles(image)
    expected = columns(_start(recording))
    aside = {name: data for name, data in recording.image().items() if name.endswith(".damaged")}
    assert len(aside) == 3
    draw = Random(5)
    disk = Disk(image)
    for operation in [*recording.operations, None]:
        for _ in range(10):
            for left in (disk.after_kill(operation, draw), disk.after_power_cut(operation, draw)):
                _check_left(left, expected, aside)
        if operation is not None:
            disk.tell(operation)


def _check_left(
    left: dict[str, bytes],
    expected: dict[int, list[tuple[int, int, int, int]]],
    aside: dict[str, bytes],
) -> None:
    files = MemoryFiles(left)
    recovery = open_again(files)
    assert columns(recovery) == expected
    assert recovery.recovered.damaged
    assert {
        name: bytes(data) for name, data in files.contents.items() if name.endswith(".damaged")
    } == aside
    assert not [name for name in files.contents if name.endswith(".tmp")]
    assert open_again(files).findings == ()


def _start(files: RecordingFiles) -> Recovery:
    return recover(files, clock=FakeTime(), identities=Identities(), new_journal_id=b"n" * 16)


def test_a_folder_that_lacks_its_end_goes_on_with_counters_beyond_any_that_were_used(
    files: MemoryFiles, hand: Hand
) -> None:
    three(hand)
    known = open_again(files)
    found = recover(
        files,
        clock=FakeTime(),
        identities=Identities(),
        new_journal_id=b"n" * 16,
        lacks_end=True,
    )
    assert not known.recovered.damaged
    assert found.recovered.damaged
    assert found.recovered.next_epoch > known.recovered.next_epoch + 256 * SKIPPED_EPOCHS - 1
    assert found.next_id > known.next_id + (1 << 32)
    assert columns(found) == columns(known)


def test_a_folder_on_a_disk_is_mended_as_one_in_memory(
    files: MemoryFiles, hand: Hand, tmp_path: Path
) -> None:
    _, hit, _ = three(hand)
    hand.roll()
    three(hand)
    files.contents[FIRST][hit.begin + 30] ^= 1
    files.contents[segment_name(2)] += b"torn" + bytes(5000)
    for name, data in files.contents.items():
        (tmp_path / name).write_bytes(data)
    clock = FakeTime()
    found = recover(
        SystemFiles(tmp_path), clock=clock, identities=Identities(), new_journal_id=b"n" * 16
    )
    expected = open_again(files, clock=clock)
    assert columns(found) == columns(expected)
    assert found.findings == expected.findings
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files.contents
