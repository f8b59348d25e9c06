"""The segments of a journal: names, headers, and a walk over their content. Pure; described in
``docs/journal.md``."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, TypeAlias
from zlib import crc32

from pillion_sidecar.journal.records import (
    CHECKED_FROM,
    FRAME,
    MAGIC,
    MAGIC_BYTES,
    MAXIMUM_RECORD,
    Frame,
    read_frame,
)

#: Segment numbers are less, so that a position fits in 64 bits.
MAXIMUM_NUMBER = 1 << 32
#: The layout version, written and read.
VERSION = 1
HEADER_SIZE = 64
SEGMENT_SUFFIX = ".segment"
DAMAGED_SUFFIX = ".damaged"
#: Suffix of an incomplete file, which belongs to nobody.
PARTIAL_SUFFIX = ".tmp"

#: magic, version, size of the header, number, journal id, created at; the checksum ends it.
_HEADER = Struct("<8sHHQ16sd16xI")
_HEADER_BEGIN = Struct("<8sHH")
_HEADER_MAGIC = b"PILLION\0"
_CHECKSUM = Struct("<I")
_NUMBER_DIGITS = 16
#: The kind of an unsound stretch in :func:`walk`.
UNSOUND = 0


class Header(NamedTuple):
    """Begins a segment or a file of identities."""

    number: int
    #: Random; the same in all files of a journal.
    journal_id: bytes
    #: Journal time.
    created: float


class Stretch(NamedTuple):
    """Bytes in which no sound record begins."""

    size: int
    #: All zero: reserved but never written, if nothing follows.
    zeros: bool


#: offset, kind (``UNSOUND`` for a stretch), flags, size, entries, id.
Step: TypeAlias = tuple[int, int, int, int, int, int]


def segment_name(number: int) -> str:
    return f"{number:0{_NUMBER_DIGITS}x}{SEGMENT_SUFFIX}"


def damaged_name(number: int, offset: int) -> str:
    return f"{number:0{_NUMBER_DIGITS}x}-{offset:08x}{DAMAGED_SUFFIX}"


def numbered(name: str, suffix: str) -> int | None:
    digits = name.removesuffix(suffix)
    if digits == name or len(digits) != _NUMBER_DIGITS or set(digits) - set("0123456789abcdef"):
        return None
    return int(digits, 16)


def segment_numbers(names: list[str]) -> list[int]:
    numbers = [numbered(name, SEGMENT_SUFFIX) for name in names]
    return sorted(number for number in numbers if number is not None and number < MAXIMUM_NUMBER)


def position_of(number: int, offset: int) -> int:
    """Return the position of a record: where its frame begins, among all segments."""
    return number << 32 | offset


def segment_of(position: int) -> tuple[int, int]:
    return position >> 32, position & 0xFFFFFFFF


def encode_header(header: Header) -> bytes:
    """Return the first ``HEADER_SIZE`` bytes of a file."""
    fields = (_HEADER_MAGIC, VERSION, HEADER_SIZE, *header)
    checked = _HEADER.pack(*fields, 0)[: -_CHECKSUM.size]
    return checked + _CHECKSUM.pack(crc32(checked))


def header_version(data: bytes) -> int | None:
    """Return the layout version of a file; None without a sound header.

    In every version the header states its size and ends in its checksum.
    """
    if len(data) < _HEADER_BEGIN.size:
        return None
    magic, version, size = _HEADER_BEGIN.unpack_from(data)
    if magic != _HEADER_MAGIC or not _HEADER_BEGIN.size + _CHECKSUM.size <= size <= len(data):
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, size - _CHECKSUM.size)
    return int(version) if crc32(data[: size - _CHECKSUM.size]) == checksum else None


def read_header(data: bytes) -> Header | None:
    if header_version(data) != VERSION or len(data) < HEADER_SIZE:
        return None
    _, _, _, number, journal_id, created, _ = _HEADER.unpack_from(data)
    return Header(number, journal_id, created)


def walk(data: bytes, begin: int, end: int, *, searches: bool = True) -> Iterator[Step]:
    """Yield each sound record and each unsound stretch of a segment, with its offset.

    ``searches``: whether an unsound stretch ends where the next sound record begins, which takes
    the square of its size at worst; else it is the rest. The steps cover all from ``begin`` to
    ``end``, as plain tuples: a restart takes a million.
    """
    view = memoryview(data)
    unpack, smallest = FRAME.unpack_from, FRAME.size
    at = begin
    while at < end:
        if at + smallest <= end:
            checksum, magic, kind, flags, size, entries, record_id = unpack(data, at)
            if (
                magic == MAGIC
                and smallest <= size <= MAXIMUM_RECORD
                and at + size <= end
                and crc32(view[at + CHECKED_FROM : at + size]) == checksum
            ):
                yield at, kind, flags, size, entries, record_id
                at += size
                continue
        following = next_sound(data, at, end) if searches else end
        yield at, UNSOUND, 0, following - at, 0, 0
        at = following


def scan(
    data: bytes, *, begin: int = HEADER_SIZE, end: int | None = None
) -> Iterator[tuple[int, Frame | Stretch]]:
    for at, kind, flags, size, entries, record_id in walk(
        data, begin, len(data) if end is None else end
    ):
        if kind == UNSOUND:
            yield at, Stretch(size, is_zero(data, at, at + size))
        else:
            yield at, Frame(kind, flags, size, entries, record_id)


def next_sound(data: bytes, at: int, end: int) -> int:
    """Return where the next sound record begins after an unsound one at ``at``; ``end`` if none
    does."""
    view = memoryview(data)
    # Trust the length in a readable frame first, so that no publisher's content is mistaken for a
    # record.
    claimed = claimed_size(data, at, end)
    if claimed is not None and read_frame(view, at + claimed, end) is not None:
        return at + claimed
    # No record is shorter than its frame, so nothing sound begins before.
    found = at + FRAME.size
    while True:
        hit = data.find(MAGIC_BYTES, found + CHECKED_FROM, end)
        if hit < 0:
            return end
        found = hit - CHECKED_FROM
        if read_frame(view, found, end) is not None:
            return found
        found += 1


def claimed_size(data: bytes, at: int, end: int) -> int | None:
    """Return the stated length of an unsound record; None if it is impossible."""
    if at + FRAME.size > end:
        return None
    _, magic, _, _, size, _, _ = FRAME.unpack_from(data, at)
    possible = magic == MAGIC and FRAME.size <= size <= MAXIMUM_RECORD and at + size <= end
    return int(size) if possible else None


def is_zero(data: bytes, begin: int, end: int) -> bool:
    # Counted in C, without a copy of the segment.
    return not any(data[at : min(at + 65536, end)].strip(b"\0") for at in range(begin, end, 65536))
