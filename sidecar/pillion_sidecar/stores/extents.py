"""Which segments a folder has, by their headers. Blocks."""

from collections.abc import Collection, Sequence
from itertools import pairwise

from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.records import FRAME, MAGIC, Kind
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    MAXIMUM_NUMBER,
    read_header,
    segment_name,
    segment_numbers,
)
from pillion_sidecar.stores.copies import Extent, Run


def load_extents(
    files: Files, session: str, *, begins: Collection[int], is_own: bool
) -> tuple[list[Extent], bool]:
    """Return what is there of the segments, and whether more is behind it that does not follow.

    ``begins``: with which segment each run begins. ``is_own``: go on behind what is lost.
    """
    extents: list[Extent] = []
    numbers = segment_numbers(files.names())
    for number in numbers:
        name = segment_name(number)
        begin = read_whole(files, name, HEADER_SIZE + FRAME.size)
        header = read_header(begin)
        if header is None or header.number != number or header.journal_id.hex() != session:
            if is_own:
                continue
            # A crash may leave the last one so.
            return extents, number != numbers[-1]
        missing = number - extents[-1].number - 1 if extents and number not in begins else 0
        if missing and not is_own and not _is_substitute(begin, missing):
            return extents, True
        extents.append(Extent(number, header.created, files.size(name)))
    return extents, False


def _is_substitute(begin: bytes, missing: int) -> bool:
    """Whether a segment stands for the ``missing`` ones before it, which its writer had lost."""
    if len(begin) < HEADER_SIZE + FRAME.size:
        return False
    _, magic, kind, _, _, entries, _ = FRAME.unpack_from(begin, HEADER_SIZE)
    return bool(magic == MAGIC and kind == Kind.FILLER and entries > missing)


def split_runs(extents: Sequence[Extent], noted: Sequence[tuple[int, int]]) -> list[Run]:
    """Return the runs of which there is anything."""
    begins = [0, *(first for first, _ in noted[1:]), MAXIMUM_NUMBER]
    throughs = [through for _, through in noted] or [0]
    runs = [
        Run(tuple(one for one in extents if begin <= one.number < end), through)
        for (begin, end), through in zip(pairwise(begins), throughs, strict=True)
    ]
    return [run for run in runs if run.extents]


def read_whole(files: Files, name: str, size: int | None = None) -> bytes:
    file = files.open(name)
    try:
        return file.read(0, files.size(name) if size is None else size)
    finally:
        file.close()
