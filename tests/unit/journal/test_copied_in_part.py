"""A crash in the middle of copying forward: some records of the oldest segment have a copy, and
some have not. What has one must not get a second, or both would be delivered once their segment is
gone (the kill points found it)."""

from random import Random

from pillion_sidecar.journal.records import Flag
from pillion_sidecar.journal.segments import segment_numbers, walk
from pillion_sidecar.testing import FakeTime
from support.core import EAST, NORTH, SUCCESS, Core
from support.crashing_files import Disk, Kind, Operation, RecordingFiles

PENDING = 12
BODY = b"{" + b"x" * 400 + b"}"


def let_time_pass(core: Core, prefix: str, *, until_gone: int) -> None:
    """Deliver to one listener while the other hangs, until a segment has been removed."""
    number = 0
    while until_gone in segment_numbers(core.files.names()):
        number += 1
        assert number < 500, "the segment is never removed"
        core.publish(f"{prefix}{number}", [NORTH], group=None, body=BODY)
        core.disks()
        for attempt in [one for one in core.flying if one.destination == NORTH]:
            core.answer(attempt, SUCCESS)
        core.rest()


def cut_among_copies(core: Core) -> dict[str, bytes]:
    """The folder after a kill in the middle of the first copies."""
    disk = Disk()
    for operation in core.files.operations:
        if operation.kind is Kind.WRITE:
            copies = [
                at
                for at, _, flags, *_ in walk(operation.data, 0, len(operation.data))
                if flags & Flag.COPY
            ]
            if copies:
                # In front of the last one, unless there is but one.
                cut = copies[-1] + 10 if len(copies) > 1 else len(operation.data)
                disk.tell(
                    Operation(
                        kind=Kind.WRITE,
                        file=operation.file,
                        offset=operation.offset,
                        data=operation.data[:cut],
                    )
                )
                return disk.after_kill(None, Random(0))
        disk.tell(operation)
    raise AssertionError("nothing was copied forward")


def test_what_was_copied_before_a_crash_is_not_copied_again() -> None:
    core = Core(RecordingFiles(), draw=Random(0), time=FakeTime())
    for number in range(PENDING):
        core.publish(f"pending{number}", [EAST], group=None, body=BODY)
    core.disks()
    (oldest, *_) = segment_numbers(core.files.names())
    let_time_pass(core, "before", until_gone=oldest)

    again = Core(RecordingFiles(cut_among_copies(core)), draw=Random(1), time=FakeTime())
    assert oldest in segment_numbers(again.files.names())
    let_time_pass(again, "after", until_gone=oldest)

    # Opening asserts that no number is there twice.
    last = Core(RecordingFiles(again.files.image()), draw=Random(2), time=FakeTime())
    last.deliver_all()
    arrived = [one.given[1] for one in last.events if one.what == "arrive" and one.given[0] == EAST]
    assert arrived == [f"pending{number}" for number in range(PENDING)]
