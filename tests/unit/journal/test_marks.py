"""The marks: a missing first or last segment is told, a version that keeps none is no loss, and a
full disk costs no more than the marks."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from pillion_sidecar.journal.marks import MARKS_NAME, MARKS_SIZE, SLOT_SIZE, Marks, read_marks
from pillion_sidecar.journal.ports import QueueState
from pillion_sidecar.journal.recovery import examine
from pillion_sidecar.journal.scan import FindingKind
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    Header,
    encode_header,
    segment_name,
    segment_numbers,
)
from pillion_sidecar.testing import FakeTime
from support.crashing_files import Disk, Kind, Operation, RecordingFiles
from support.journal_owner import LiveJournal

FIRST_RELEASE = Path(__file__).parent / "first_release" / "journal"
SEGMENT_BYTES = 4096
STATE = QueueState(
    destination=0, listener="x", sends_identifiers=True, epoch=3, base=0, next_number=0
)


def numbers(image: dict[str, bytes]) -> list[int]:
    return segment_numbers(list(image))


def live_on(image: dict[str, bytes] | None = None) -> tuple[RecordingFiles, LiveJournal]:
    files = RecordingFiles(image)
    return files, LiveJournal(files, segment_bytes=SEGMENT_BYTES)


def filled(count: int = 20, *, close: bool = True) -> dict[str, bytes]:
    """A journal of several segments, all of whose indications are pending."""
    files, live = live_on()
    live.owner.states[0] = STATE
    for _ in range(count):
        live.accept(0, body=b" " * 700)
        live.run()
    if close:
        live.journal.close()
    return files.image()


def marks_of(image: dict[str, bytes]) -> Marks:
    found = read_marks(image[MARKS_NAME])
    assert found is not None
    return found


def without(image: dict[str, bytes], *gone: int) -> dict[str, bytes]:
    return {name: data for name, data in image.items() if name not in map(segment_name, gone)}


# ---------------------------------------------------------------------- what is missing


def test_the_marks_name_the_newest_segment_and_the_oldest_that_is_needed() -> None:
    image = filled()
    there = numbers(image)
    assert len(there) > 3
    marks = marks_of(image)
    assert (marks.newest, marks.oldest) == (there[-1], there[0])
    assert len(image[MARKS_NAME]) == MARKS_SIZE


@pytest.mark.parametrize("which", ["first", "first two", "last", "last two", "all", "middle"])
def test_missing_segments_are_told_once_and_every_context_is_new(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    image = filled()
    there = numbers(image)
    gone = {
        "first": there[:1],
        "first two": there[:2],
        "last": there[-1:],
        "last two": there[-2:],
        "all": there,
        "middle": there[2:3],
    }[which]
    left = without(image, *gone)
    examined = examine(RecordingFiles(left))
    assert [one.kind for one in examined.findings] == [FindingKind.MISSING]
    assert examined.findings[0].file == segment_name(gone[0])
    with caplog.at_level(logging.ERROR):
        files, live = live_on(left)
    (record,) = caplog.records
    assert (record.__dict__["event"], record.__dict__["damage"]) == ("journal-damaged", "missing")
    assert record.__dict__["lost"] == (
        f"{len(gone)} segments with all their records, to {segment_name(gone[-1])}"
    )
    assert live.recovered.damaged
    assert live.recovered.next_epoch > STATE.epoch
    assert live.journal.statistics.damaged == 1
    # No number of a segment is given again, and the same is not told twice.
    assert max(numbers(files.image())) > there[-1]
    live.journal.close()
    _, after = live_on(files.image())
    assert not after.recovered.damaged
    assert after.journal.id == live.journal.id


def test_what_was_missing_leaves_no_gap_once_the_segments_behind_it_are_removed() -> None:
    image = filled()
    there = numbers(image)
    files, live = live_on(without(image, there[1]))
    for found in list(live.owner.indications.values()):
        live.settle(found, 0)
    for _ in range(30):
        live.accept()
        live.time.advance(1.0)
        live.run()
    live.journal.close()
    assert numbers(files.image())[0] > there[-1]
    _, after = live_on(files.image())
    assert not after.recovered.damaged


def test_a_header_that_was_marked_is_damage_and_not_a_torn_write() -> None:
    image = filled()
    last = segment_name(numbers(image)[-1])
    image[last] = b"\0" * len(image[last])
    kinds = {one.kind for one in examine(RecordingFiles(image)).findings}
    assert kinds == {FindingKind.HEADER, FindingKind.DAMAGED}
    _, live = live_on(image)
    assert live.recovered.damaged


# ---------------------------------------------------------------------- no false alarm


@pytest.mark.parametrize("seed", range(3))
def test_no_crash_makes_the_marks_tell_of_a_loss_that_is_none(seed: int) -> None:
    draw = Random(seed)
    files, live = live_on()
    live.owner.states[0] = STATE
    for _ in range(30):
        live.accept(0, body=b" " * 700)
        live.run()
        if draw.random() < 0.8:
            live.settle(draw.choice(list(live.owner.indications.values())), 0)
        live.time.advance(0.1)
        live.run()
    removed = [one for one in files.operations if one.kind is Kind.REMOVE]
    assert len(removed) > 2
    disk = Disk({})
    for operation in [*files.operations, None]:
        for _ in range(3):
            image = disk.after_power_cut(operation, draw)
            files = RecordingFiles(image, boots=2)
            found = {one.kind for one in examine(files).findings}
            assert found <= {FindingKind.TORN}
        if operation is not None:
            disk.tell(operation)


def test_a_journal_of_the_first_release_is_read_whole_and_has_no_marks() -> None:
    image = {path.name: path.read_bytes() for path in FIRST_RELEASE.iterdir()}
    assert MARKS_NAME not in image
    assert examine(RecordingFiles(image)).findings == []
    files = RecordingFiles(image)
    live = LiveJournal(files, time=FakeTime(epoch=1_750_000_100.0), segment_bytes=SEGMENT_BYTES)
    recovered = live.recovered
    assert not recovered.damaged
    siem, pager = recovered.queues[0], recovered.queues[1]
    assert (siem.uid, siem.name, list(siem.numbers)) == ("siem-uid", "siem", [27, 28, 29])
    assert (pager.name, list(pager.numbers)) == ("pager", list(range(12, 30)))
    assert siem.state is not None
    assert (siem.state.epoch, siem.next_number) == (3, 30)
    assert len(live.owner.known) == 30
    assert [held.body for held, _ in recovered.held] == [b'{"held":true}']
    marks = marks_of(files.image())
    assert (marks.newest, marks.oldest) == (max(numbers(files.image())), min(numbers(image)))


def test_segments_that_a_version_without_marks_wrote_and_removed_are_not_missed() -> None:
    image = filled()
    marks = image.pop(MARKS_NAME)
    # The first release goes on: it removes what is settled, and leaves the marks as they are.
    files, live = live_on(image)
    for found in list(live.owner.indications.values()):
        live.settle(found, 0)
    for _ in range(20):
        live.accept()
        live.time.advance(1.0)
        live.run()
    live.journal.close()
    after = {**files.image(), MARKS_NAME: marks}
    assert numbers(after)[0] > numbers(image)[-1]
    assert examine(RecordingFiles(after)).findings == []
    opened, _ = live_on(after)
    assert marks_of(opened.image()).oldest == numbers(opened.image())[0]


# ---------------------------------------------------------------------- the file itself


def test_a_torn_mark_leaves_the_one_before() -> None:
    image = filled()
    marks, there = marks_of(image), numbers(image)
    slots = [at for at in range(0, MARKS_SIZE, SLOT_SIZE) if image[MARKS_NAME][at]]
    for at in slots:
        data = bytearray(image[MARKS_NAME])
        data[at + 20 : at + 64] = b"x" * 44
        found = read_marks(bytes(data))
        # A pair of which one slot was ever written has no other one.
        assert found is None or found.newest in (there[-1], there[-1] - 1)
        assert found is None or found.oldest == marks.oldest


def test_damaged_marks_are_told_and_cost_nothing() -> None:
    image = filled()
    image[MARKS_NAME] = b"x" * MARKS_SIZE
    (found,) = examine(RecordingFiles(image)).findings
    assert (found.kind, found.file) == (FindingKind.MARKS, MARKS_NAME)
    files, live = live_on(image)
    assert not live.recovered.damaged
    assert live.journal.statistics.damaged == 1
    assert marks_of(files.image()).newest == max(numbers(files.image()))


def refuse(name: str, code: int) -> Callable[[Operation], OSError | None]:
    def failing(operation: Operation) -> OSError | None:
        is_it = operation.name.startswith(name) and operation.kind in (Kind.CREATE, Kind.WRITE)
        return OSError(code, "refused") if is_it else None

    return failing


def test_a_disk_without_room_for_the_marks_leaves_them_out() -> None:
    files = RecordingFiles()
    files.failing = refuse(MARKS_NAME, errno.ENOSPC)
    live = LiveJournal(files, segment_bytes=SEGMENT_BYTES)
    for _ in range(20):
        live.accept(0, body=b" " * 700)
        live.run()
    assert live.owner.errors == []
    assert not any(name.startswith(MARKS_NAME) for name in files.names())
    files.failing = None
    for _ in range(8):
        live.accept(0, body=b" " * 700)
        live.run()
    assert marks_of(files.image()).newest == max(numbers(files.image()))


def test_marks_that_cannot_be_written_are_removed_rather_than_left_untrue() -> None:
    files, live = live_on()
    for _ in range(12):
        live.accept(0, body=b" " * 700)
        live.run()
    files.failing = refuse(MARKS_NAME, errno.ENOSPC)
    for found in list(live.owner.indications.values()):
        live.settle(found, 0)
    live.time.advance(1.0)
    live.run()
    assert MARKS_NAME not in files.names()
    assert live.owner.errors == []
    assert examine(RecordingFiles(files.image())).findings == []


# ---------------------------------------------------------------------- a start on a full disk


@pytest.mark.parametrize("harm", ["missing", "damaged", "torn", "identities", "header"])
def test_a_start_on_a_full_disk_mends_what_it_can_and_goes_on(harm: str) -> None:
    image = {path.name: path.read_bytes() for path in FIRST_RELEASE.iterdir()}
    there = numbers(image)
    middle, last = segment_name(there[1]), segment_name(there[-1])
    flipped = {"damaged": (middle, 200), "identities": ("0000000000000001.identities", 190)}
    if harm == "missing":
        del image[middle]
    elif harm == "torn":
        image[last] += b"x" * 40
    elif harm == "header":
        image[middle] = b"x" + image[middle][1:]
    else:
        name, at = flipped[harm]
        data = bytearray(image[name])
        data[at] ^= 1
        image[name] = bytes(data)

    def failing(operation: Operation) -> OSError | None:
        grows = operation.kind in (Kind.CREATE, Kind.ALLOCATE)
        return OSError(errno.ENOSPC, "No space left on device") if grows else None

    files = RecordingFiles(image, failing=failing)
    live = LiveJournal(files, segment_bytes=SEGMENT_BYTES)
    assert live.recovered.damaged == (harm in ("missing", "damaged", "torn"))
    assert live.journal.refusal(10) is not None
    assert live.pending
    assert not any(name.endswith(".tmp") for name in files.names())
    live.journal.close()


# ---------------------------------------------------------------------- how far it is written


def killed() -> tuple[dict[str, bytes], str, int, int]:
    """A journal of three indications, whose process was killed: the folder, its newest segment,
    where the last record begins there, and how far the log is written."""
    files, live = live_on()
    live.owner.states[0] = STATE
    for _ in range(3):
        last = live.accept(0, body=b" " * 700)
        live.run()
    image = files.image()
    end = marks_of(image).end
    assert end is not None
    assert end.offset == (last.position & 0xFFFFFFFF) + last.size
    return image, segment_name(end.number), end.offset - last.size, end.offset


@pytest.mark.parametrize("size", [1, 30, 700])
@pytest.mark.parametrize("boots", [1, 2, 0])
def test_only_a_start_of_the_machine_makes_a_broken_write_a_torn_one(
    size: int, boots: int, caplog: pytest.LogCaptureFixture
) -> None:
    image, name, begin, end = killed()
    data = bytearray(image[name])
    data[end : end + size] = data[begin : begin + size]
    image[name] = bytes(data)
    kind = FindingKind.UNFINISHED if boots == 1 else FindingKind.TORN
    (found,) = examine(RecordingFiles(image, boots=boots)).findings
    assert (found.kind, found.file, found.begin) == (kind, name, end)
    with caplog.at_level(logging.INFO):
        live = LiveJournal(RecordingFiles(image, boots=boots), segment_bytes=SEGMENT_BYTES)
    event = "journal-unfinished" if boots == 1 else "journal-torn"
    assert [one.__dict__["event"] for one in caplog.records] == [event]
    assert live.recovered.damaged == (boots != 1)
    assert live.journal.statistics.torn == (boots != 1)
    assert len(live.pending) == 3


@pytest.mark.parametrize("harm", ["flipped", "zeros", "cut off", "all cut off"])
def test_damage_before_the_end_is_no_write_that_was_broken_off(harm: str) -> None:
    image, name, begin, end = killed()
    data = bytearray(image[name])
    if harm == "flipped":
        data[end - 400] ^= 1
    elif harm == "zeros":
        data[begin:end] = bytes(end - begin)
    elif harm == "cut off":
        # Between two records: nothing in the segment itself says that there was more.
        del data[begin:]
    else:
        data.clear()
    image[name] = bytes(data)
    files = RecordingFiles(image)
    found = {one.kind for one in examine(files).findings}
    assert found <= {FindingKind.DAMAGED, FindingKind.HEADER}
    assert FindingKind.DAMAGED in found
    live = LiveJournal(files, segment_bytes=SEGMENT_BYTES)
    assert live.recovered.damaged
    assert len(live.pending) == (0 if harm == "all cut off" else 2)
    live.journal.close()
    again = LiveJournal(RecordingFiles(files.image()), segment_bytes=SEGMENT_BYTES)
    assert not again.recovered.damaged


def test_an_end_that_was_cut_off_a_full_disk_is_damage_and_opens() -> None:
    image, name, _, end = killed()
    image[name] = image[name][: end - 400]

    def failing(operation: Operation) -> OSError | None:
        grows = operation.kind is Kind.CREATE or operation.offset >= end - 400
        return OSError(errno.ENOSPC, "No space left on device") if grows else None

    live = LiveJournal(RecordingFiles(image, failing=failing), segment_bytes=SEGMENT_BYTES)
    assert live.recovered.damaged
    assert len(live.pending) == 2


def test_the_end_is_told_by_the_version_that_wrote_last_only() -> None:
    image, name, _, end = killed()
    number = numbers(image)[-1]
    assert name == segment_name(number)
    # As a version that keeps no marks leaves it: a segment of its own, and a torn write there.
    image[name] = image[name][:end]
    header = encode_header(Header(number + 1, marks_of(image).journal_id, 0.0))
    image[segment_name(number + 1)] = header + image[name][HEADER_SIZE:] + b"torn"
    kinds = [one.kind for one in examine(RecordingFiles(image)).findings]
    assert kinds == [FindingKind.TORN]


# ---------------------------------------------------------------------- the clock


@pytest.mark.parametrize(
    ("days", "says"),
    [(5.0, "5.0 days ahead"), (-5.0, "5.0 days behind"), (0.5, None), (-0.5, None)],
)
def test_a_start_warns_of_a_clock_far_from_the_last_record(
    days: float, says: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    time = FakeTime()
    files = RecordingFiles()
    live = LiveJournal(files, time=time)
    live.accept(0)
    live.run()
    live.journal.close()
    time.step(days * 86_400)
    with caplog.at_level(logging.WARNING):
        LiveJournal(files, time=time)
    told = [one for one in caplog.records if one.__dict__.get("event") == "journal-clock"]
    assert len(told) == (says is not None)
    if says is not None:
        assert says in told[0].getMessage()
        assert round(told[0].__dict__["seconds"]) == round(days * 86_400)
