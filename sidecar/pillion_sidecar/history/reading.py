"""Reads a history: in files, with or without a running deliverer, or in memory."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pillion_sidecar.history import blocks
from pillion_sidecar.history.files import Segment, segments_of
from pillion_sidecar.history.outcome import Numbered, OutcomeQuery, OutcomeResult

#: Bytes that one page looks through, and bytes of the bodies in it.
LOOKED_BYTES = 64 << 20
MOST_BODY_BYTES = 2 << 20


@dataclass(slots=True, kw_only=True)
class Page:
    found: list[Numbered] = field(default_factory=list)
    #: The number up to which the history was looked through.
    through: int
    #: Whether there may be more behind it.
    has_more: bool


class Oldest(NamedTuple):
    #: 1 if nothing was removed.
    number: int
    #: Seconds since the epoch; None without an outcome.
    time: float | None


def read_oldest(folder: Path) -> Oldest | None:
    """Return where the history begins; None without files. Blocks; raises OSError."""
    segments = segments_of(folder)
    for file in _opened(segments):
        with file:
            for _, header in blocks.read_headers(file):
                return Oldest(segments[0].first, header.since)
    return Oldest(segments[0].first, None) if segments else None


def read_page(folder: Path, query: OutcomeQuery, *, after: int, through: int, limit: int) -> Page:
    """Return the first ``limit`` outcomes of a query with numbers above ``after``, up to
    ``through``; fewer where that would read too much. Blocks; raises OSError."""
    page = Page(through=after, has_more=False)
    left = LOOKED_BYTES
    for file in _files(folder, after=after):
        with file:
            left = _fill(page, file, query, through=through, limit=limit, left=left)
        if page.has_more:
            return page
    page.through = max(after, through)
    return page


def page_of(
    kept: Iterable[bytes], query: OutcomeQuery, *, after: int, through: int, limit: int
) -> Page:
    """As :func:`read_page`, of blocks in memory."""
    page = Page(through=after, has_more=False)
    _fill(page, BytesIO(b"".join(kept)), query, through=through, limit=limit, left=LOOKED_BYTES)
    if not page.has_more:
        page.through = max(after, through)
    return page


def read_last_page(
    folder: Path, query: OutcomeQuery, *, after: int, through: int, limit: int
) -> Page:
    """Return the last ``limit`` outcomes of a query with numbers above ``after``, up to
    ``through``; fewer where that would read too much. Blocks; raises OSError."""
    return _last_page(
        _opened(reversed(_segments(folder, after=after))),
        query,
        after=after,
        through=through,
        limit=limit,
    )


def last_page_of(
    kept: Iterable[bytes], query: OutcomeQuery, *, after: int, through: int, limit: int
) -> Page:
    """As :func:`read_last_page`, of blocks in memory."""
    files = (BytesIO(b"".join(kept)),)
    return _last_page(files, query, after=after, through=through, limit=limit)


def _last_page(
    files: Iterable[BinaryIO], query: OutcomeQuery, *, after: int, through: int, limit: int
) -> Page:
    """``files`` are the latest first."""
    newest = islice(_newest(files, query, after=after, through=through), limit)
    found: list[Numbered] = []
    bodies = 0
    for one in newest:
        bodies += len(one.outcome.body or b"")
        if found and bodies > MOST_BODY_BYTES:
            break
        found.append(one)
    return Page(found=found[::-1], through=max(after, through), has_more=False)


def _newest(
    files: Iterable[BinaryIO], query: OutcomeQuery, *, after: int, through: int
) -> Iterator[Numbered]:
    left = LOOKED_BYTES
    for file in files:
        with file:
            for offset, header in reversed([*blocks.read_headers(file)]):
                if header.following <= after + 1 or left <= 0:
                    return
                if header.first > through:
                    continue
                left -= header.size
                found = reversed([*_matches(file, offset, header, query)])
                yield from (one for one in found if after < one.number <= through)


def last_in(folder: Path, query: OutcomeQuery, *, after: int, through: int) -> int | None:
    """Return the greatest number of an outcome of a query, above ``after`` and up to ``through``.
    Blocks; raises OSError."""
    for segment in reversed(_segments(folder, after=after)):
        for file in _opened((segment,)):
            with file:
                found = _last(file, query, after=after, through=through)
            if found is not None:
                return found
    return None


def last_of(kept: Iterable[bytes], query: OutcomeQuery, *, after: int, through: int) -> int | None:
    """As :func:`last_in`, of blocks in memory."""
    return _last(BytesIO(b"".join(kept)), query, after=after, through=through)


def _last(file: BinaryIO, query: OutcomeQuery, *, after: int, through: int) -> int | None:
    for offset, header in reversed([*blocks.read_headers(file)]):
        if header.following <= after + 1:
            return None
        found = [one.number for one in _matches(file, offset, header, query)]
        if fitting := [number for number in found if after < number <= through]:
            return fitting[-1]
    return None


def _segments(folder: Path, *, after: int) -> list[Segment]:
    segments = segments_of(folder)
    return segments[max(0, bisect_right([one.first for one in segments], after + 1) - 1) :]


def _files(folder: Path, *, after: int) -> Iterator[BinaryIO]:
    return _opened(_segments(folder, after=after))


def _opened(segments: Iterable[Segment]) -> Iterator[BinaryIO]:
    for segment in segments:
        try:
            yield segment.path.open("rb")
        except FileNotFoundError:
            # Removed meanwhile.
            continue


def _fill(
    page: Page, file: BinaryIO, query: OutcomeQuery, *, through: int, limit: int, left: int
) -> int:
    """Add what matches. Return how many bytes may still be looked through."""
    bodies = sum(len(one.outcome.body or b"") for one in page.found)
    for offset, header in blocks.read_headers(file):
        if header.following <= page.through + 1:
            continue
        if header.first > through:
            return left
        if left <= 0:
            page.has_more = True
            return left
        left -= header.size
        for one in _matches(file, offset, header, query):
            if not page.through < one.number <= through:
                continue
            bodies += len(one.outcome.body or b"")
            if len(page.found) >= limit or (page.found and bodies > MOST_BODY_BYTES):
                page.has_more = True
                return left
            page.found.append(one)
            page.through = one.number
        page.through = max(page.through, min(through, header.following - 1))
    return left


def _matches(
    file: BinaryIO, offset: int, header: blocks.Header, query: OutcomeQuery
) -> Iterator[Numbered]:
    if not _may_match(header, query):
        return
    data = blocks.read_data(file, offset, header)
    if query.may_be_in(data):
        numbered = blocks.decode(header, data) or ()
        yield from (one for one in numbered if query.matches(one.outcome))


def _may_match(header: blocks.Header, query: OutcomeQuery) -> bool:
    return not (
        ((query.faults or query.result == OutcomeResult.DISCARDED) and not header.discards)
        or (query.since is not None and header.until < query.since)
        or (query.until is not None and header.since >= query.until)
    )


def all_of(kept: Iterable[bytes], query: OutcomeQuery, *, after: int) -> Iterator[Numbered]:
    """As :func:`read_all`, of blocks in memory."""
    return _all_in(BytesIO(b"".join(kept)), query, after=after)


def _all_in(file: BinaryIO, query: OutcomeQuery, *, after: int) -> Iterator[Numbered]:
    for offset, header in blocks.read_headers(file):
        if header.following > after + 1:
            found = _matches(file, offset, header, query)
            yield from (one for one in found if one.number > after)


def read_all(folder: Path, query: OutcomeQuery, *, after: int = 0) -> Iterator[Numbered]:
    """Yield the outcomes of a query with numbers above ``after``, oldest first. Blocks; raises
    OSError."""
    for file in _files(folder, after=after):
        with file:
            yield from _all_in(file, query, after=after)


def count(files: Iterable[BinaryIO]) -> tuple[int, int]:
    """Return how many outcomes there are, and how many of them are discards, as the headers say.
    Blocks; raises OSError."""
    outcomes = discards = 0
    for file in files:
        with file:
            for _, header in blocks.read_headers(file):
                outcomes += header.outcomes
                discards += header.discards
    return outcomes, discards


def count_of(folder: Path) -> tuple[int, int]:
    return count(_files(folder, after=0))


def count_in(kept: Iterable[bytes]) -> tuple[int, int]:
    """As :func:`count_of`, of blocks in memory."""
    return count([BytesIO(b"".join(kept))])
