"""The first look at a segment in a recovery: what in it is sound. Pure: nothing is changed on
disk."""

from dataclasses import dataclass
from enum import StrEnum
from struct import Struct
from typing import NamedTuple

from pillion_sidecar.journal.records import FRAME, Flag, Kind
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    UNSOUND,
    Header,
    claimed_size,
    is_zero,
    read_header,
    walk,
)

#: ``origin`` of an INDICATION, from the beginning of its record.
ORIGIN = Struct("<Q")
ORIGIN_AT = FRAME.size + 32
#: Records that are named, of those that a damaged stretch seems to have held.
_MAXIMUM_NAMED = 8
# Plain numbers: a million of comparisons with members of enumerations take a second.
_INDICATION = int(Kind.INDICATION)
_COMMIT = int(Kind.COMMIT)
_COPY = int(Flag.COPY)
_KIND_NAMES = {kind.value: kind.name for kind in Kind}


class FindingKind(StrEnum):
    """What is wrong with a part of a journal."""

    #: Records that were on disk cannot be read; what was acknowledged may be lost.
    DAMAGED = "damaged"
    #: The same, of the header of a segment: no record is lost.
    HEADER = "header"
    #: Segments are not there.
    MISSING = "missing"
    #: The end of what was being written at a crash, or of what was written and is damaged: which of
    #: the two, nothing says.
    TORN = "torn"
    #: The last write, broken off by the end of the process: nothing of it was acknowledged.
    UNFINISHED = "unfinished"
    #: Which segments are the first and the last is not known: no record is lost.
    MARKS = "marks"
    #: Identities are forgotten, so a repeat of theirs is delivered again.
    IDENTITIES = "identities"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something wrong in a file of a journal."""

    kind: FindingKind
    file: str
    #: Offsets in the file.
    begin: int
    end: int
    #: What is lost, as far as it can be told.
    lost: str


class Layout(NamedTuple):
    """What of a segment is sound."""

    header: Header | None
    #: Where the log ends in it; what lies behind is torn, or room that was never written.
    end: int
    #: Whether anything was written behind the end.
    torn: bool
    #: Damaged stretches before the end: offset, size.
    damaged: tuple[tuple[int, int], ...]
    #: Offsets of the records before the end that are no INDICATION.
    others: tuple[int, ...]
    #: Offsets of the INDICATIONs before the end that were held before, or are copies of what is
    #: there as well.
    derived: tuple[int, ...]
    #: The greatest id of an INDICATION.
    last_id: int


def survey(data: bytes, *, newest: bool, oldest: int) -> Layout:
    """Check a whole segment; ``oldest``: the number of the oldest there is.

    Its log ends before the first unsound stretch that no COMMIT follows, but only where it is the
    ``newest``: an older one was complete and on disk before the next was made.
    """
    header = read_header(data)
    stretches: list[tuple[int, int]] = []
    others: list[int] = []
    derived: list[int] = []
    last_commit = -1
    last_id = 0
    origin = ORIGIN.unpack_from
    for at, kind, flags, size, _, record_id in walk(data, HEADER_SIZE, len(data)):
        if kind == _INDICATION:
            if record_id > last_id:
                last_id = record_id
            # Where one listener is dead, most records are copies of what is long gone.
            if origin(data, at + ORIGIN_AT)[0] >= (oldest if flags & _COPY else 1):
                derived.append(at)
        elif kind == UNSOUND:
            stretches.append((at, size))
        else:
            others.append(at)
            if kind == _COMMIT:
                last_commit = at
    end = max(len(data), HEADER_SIZE)
    if newest:
        end = next((at for at, _ in stretches if at > last_commit), end)
        if header is None and last_commit < 0:
            end = 0
    return Layout(
        header,
        end,
        torn=not is_zero(data, end, len(data)),
        damaged=tuple(stretch for stretch in stretches if stretch[0] < end),
        others=tuple(at for at in others if at < end),
        derived=tuple(at for at in derived if at < end),
        last_id=last_id,
    )


def sound_ranges(layout: Layout) -> list[tuple[int, int]]:
    """Return the ranges of a segment in which one sound record follows another."""
    begin = HEADER_SIZE
    ranges = []
    for at, size in layout.damaged:
        ranges.append((begin, at))
        begin = at + size
    ranges.append((begin, layout.end))
    return [(begin, end) for begin, end in ranges if begin < end]


def describe(data: bytes, begin: int, end: int) -> str:
    """Return what a damaged stretch seems to have held: the frames in it may be readable still."""
    found: list[str] = []
    at = begin
    while len(found) < _MAXIMUM_NAMED and (size := claimed_size(data, at, end)) is not None:
        _, _, kind, _, _, _, record_id = FRAME.unpack_from(data, at)
        name = _KIND_NAMES.get(kind, f"kind {kind}")
        found.append(f"{name} {record_id}" if kind == Kind.INDICATION else name)
        at += size
    if at < end:
        found.append(f"{end - at} bytes in which no record can be told")
    return ", ".join(found)
