"""What a writer's own folder has lost, before its repair: the places that stores may have sound.

A start reads every byte of the folder anyway; this reads it once more. Every call blocks.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.marks import MARKS_NAME, Marks, read_marks
from pillion_sidecar.journal.records import Kind
from pillion_sidecar.journal.repair import keep_damaged
from pillion_sidecar.journal.scan import Finding, FindingKind, describe
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    PARTIAL_SUFFIX,
    is_zero,
    position_of,
    read_header,
    segment_name,
    segment_numbers,
    segment_of,
    walk,
)
from pillion_sidecar.stores.copies import Extent
from pillion_sidecar.stores.extents import read_whole


class Hole(NamedTuple):
    """Bytes of a segment that the folder lacks, or has unsound. From 0: all of it."""

    number: int
    created: float
    begin: int
    end: int
    #: Bytes that the folder has of the segment, sound or not.
    size: int = 0


def find_holes(files: Files, extents: Sequence[Extent], log: Sequence[Extent]) -> list[Hole]:
    """Return what the folder lacks before its end. ``extents`` are its own, and ``log`` has what
    stores have between them."""
    own = {one.number: one for one in extents}
    last = extents[-1].number if extents else -1
    holes: list[Hole] = []
    for one in log:
        if one.number not in own:
            holes.append(Hole(*one[:2], 0, one.size))
            continue
        data = read_whole(files, segment_name(one.number))
        places = [(at, at + size) for at, size in _unsound(data)]
        if one.number != last and one.size > len(data):
            begin = places.pop()[0] if places and places[-1][1] == len(data) else len(data)
            places.append((begin, one.size))
        holes += [Hole(*one[:2], begin, end, len(data)) for begin, end in places]
    return holes


def _unsound(data: bytes) -> list[tuple[int, int]]:
    """Return offset and size of each stretch without a sound record, but for what was reserved."""
    found = [(at, size) for at, kind, _, size, *_ in walk(data, HEADER_SIZE, len(data)) if not kind]
    if found and is_zero(data, found[-1][0], len(data)) and sum(found[-1]) == len(data):
        del found[-1]
    return found


def first_needed(files: Files, session: str, extents: Sequence[Extent]) -> int:
    """Return the first segment that the folder still needed, there or not."""
    names = files.names()
    first = extents[0].number
    marks = _marks(files, session) if MARKS_NAME in names else None
    marked = first if marks is None or marks.newest < extents[-1].number else marks.oldest
    # A file whose header is spoilt is there, so it was needed.
    return min([first, marked, *segment_numbers(names)])


class Filling:
    """Writes sound bytes into a hole. After a crash the next start finds what is left of it."""

    def __init__(self, files: Files, hole: Hole) -> None:
        self._files = files
        self._name = segment_name(hole.number)
        self._is_new = not hole.begin
        #: A part of a segment would be taken for all of it.
        self._written = self._name + PARTIAL_SUFFIX if self._is_new else self._name
        self.at = hole.begin

    def write(self, data: bytes) -> None:
        begins = self._is_new and not self.at
        if begins and self._written in self._files.names():
            self._files.remove(self._written)
        if begins:
            file = self._files.create(self._written)
        else:
            file = self._files.open(self._written, writable=True)
        try:
            file.write(self.at, data)
            file.sync()
        finally:
            file.close()
        self.at += len(data)

    def finish(self) -> None:
        if self._is_new and self.at:
            self._files.rename(self._written, self._name)
            self._files.sync_folder()


def known_end(files: Files, session: str) -> int:
    """Return where the log ended at least, as far as the folder says: sound or not."""
    names = files.names()
    numbers = segment_numbers(names)
    marks = _marks(files, session) if MARKS_NAME in names else None
    last = numbers[-1] if numbers else 0
    if marks is not None and marks.newest >= last:
        end = marks.end
        if end is not None and end.number >= last and end.boot_id == files.boot_id():
            return position_of(end.number, end.offset)
        if marks.newest > last:
            return position_of(marks.newest, HEADER_SIZE)
    if not numbers:
        return 0
    return position_of(last, len(read_whole(files, segment_name(last)).rstrip(b"\0")))


def _marks(files: Files, session: str) -> Marks | None:
    marks = read_marks(read_whole(files, MARKS_NAME))
    return marks if marks is not None and marks.journal_id.hex() == session else None


def set_aside(
    files: Files, session: str, *, end: int, known: int, restored: Mapping[int, int]
) -> list[Finding]:
    """Keep the damaged bytes of a folder that is to be cut, as a repair does, and tell of them.

    ``end``: where its last segment is sound; ``known``: where its log ended, if what it is brought
    to ends before; else 0. ``restored``: sizes of what the folder gets of its own log, by segment.
    """
    findings = []
    numbers = segment_numbers(files.names())
    for number in numbers:
        name = segment_name(number)
        data = read_whole(files, name)
        begin = _end_of(number, data, session, end)
        lost = len(data.rstrip(b"\0"))
        if begin >= lost or restored.get(number, 0) >= lost:
            continue
        steps = walk(data, max(begin, HEADER_SIZE), len(data))
        if number != numbers[-1] or any(kind == Kind.COMMIT for _, kind, *_ in steps):
            keep_damaged(files, number, data, begin, lost)
            kind = FindingKind.DAMAGED
        elif known:
            kind = FindingKind.TORN
        else:
            continue
        says = describe(data, max(begin, HEADER_SIZE), lost)
        findings.append(Finding(kind=kind, file=name, begin=begin, end=lost, lost=says))
    if known and not findings:
        name = segment_name(segment_of(known)[0])
        says = f"the end of the log up to {known:x}, which no store has"
        findings.append(Finding(kind=FindingKind.MISSING, file=name, begin=0, end=0, lost=says))
    return findings


def _end_of(number: int, data: bytes, session: str, end: int) -> int:
    """Return where a segment is sound up to; its end if it is not the last."""
    header = read_header(data)
    if header is None or header.number != number or header.journal_id.hex() != session:
        return 0
    last, offset = segment_of(end)
    return offset if number == last else len(data)
