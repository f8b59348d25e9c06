"""Reads a history: in files, with or without a running deliverer, and in memory."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pillion_sidecar.history import blocks
from pillion_sidecar.history.files import Segment, kept_in, segments_of
from pillion_sidecar.history.outcome import Numbered, Outcome, OutcomeQuery, OutcomeResult

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a history has at a moment: files, and behind them what is in memory. What a file takes
    meanwhile is read once."""

    folder: Path | None = None
    blocks: Sequence[bytes] = ()
    #: Outcomes that wait for a file, numbered from ``first``.
    first: int = 1
    waiting: Sequence[Outcome] = ()

    def files(self, *, after: int = 0) -> Iterator[BinaryIO]:
        """Yield what may have numbers above ``after``, oldest first."""
        if self.folder is not None:
            yield from _opened(_segments(self.folder, after=after))
        yield from self._memory()

    def latest(self, *, after: int) -> Iterator[BinaryIO]:
        """As :meth:`files`, latest first."""
        yield from self._memory()
        if self.folder is not None:
            yield from _opened(reversed(_segments(self.folder, after=after)))

    def _memory(self) -> Iterator[BinaryIO]:
        if self.blocks or self.waiting:
            yield BytesIO(b"".join((*self.blocks, *blocks.encode_blocks(self.first, self.waiting))))


def read_oldest(kept: Kept) -> Oldest | None:
    """Return from where on it has all outcomes; None without any. Blocks; raises OSError."""
    segments = [] if kept.folder is None else segments_of(kept.folder)
    whole = replace(kept, folder=None)
    for file in chain(_opened(segments), whole.files()):
        with file:
            for _, header in blocks.read_headers(file):
                return Oldest(segments[0].first if segments else header.first, header.since)
    return Oldest(segments[0].first, None) if segments else None


def read_page(kept: Kept, query: OutcomeQuery, *, after: int, through: int, limit: int) -> Page:
    """Return the first ``limit`` outcomes of a query with numbers above ``after``, up to
    ``through``; fewer where that would read too much. Blocks; raises OSError."""
    page = Page(through=after, has_more=False)
    left = LOOKED_BYTES
    for file in kept.files(after=after):
        with file:
            left = _fill(page, file, query, through=through, limit=limit, left=left)
        if page.has_more:
            return page
    page.through = max(after, through)
    return page


def read_last_page(
    kept: Kept, query: OutcomeQuery, *, after: int, through: int, limit: int
) -> Page:
    """Return the last ``limit`` outcomes of a query with numbers above ``after``, up to
    ``through``; fewer where that would read too much. Blocks; raises OSError."""
    newest = _newest(kept.latest(after=after), query, after=after, through=through)
    found: list[Numbered] = []
    bodies = 0
    for one in islice(newest, limit):
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
                through = header.first - 1


def last_in(kept: Kept, query: OutcomeQuery, *, after: int, through: int) -> int | None:
    """Return the greatest number of an outcome of a query, above ``after`` and up to ``through``.
    Blocks; raises OSError."""
    for file in kept.latest(after=after):
        with file:
            found = _last(file, query, after=after, through=through)
        if found is not None:
            return found
    return None


def _last(file: BinaryIO, query: OutcomeQuery, *, after: int, through: int) -> int | None:
    for offset, header in reversed([*blocks.read_headers(file)]):
        if header.following <= after + 1:
            return None
        found = [one.number for one in _matches(file, offset, header, query)]
        if fitting := [number for number in found if after < number <= through]:
            return fitting[-1]
    return None


def _segments(folder: Path, *, after: int) -> list[Segment]:
    segments = kept_in(folder)
    return segments[max(0, bisect_right([one.first for one in segments], after + 1) - 1) :]


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


def read_all(kept: Kept, query: OutcomeQuery, *, after: int = 0) -> Iterator[Numbered]:
    """Yield the outcomes of a query with numbers above ``after``, oldest first. Blocks; raises
    OSError."""
    for file in kept.files(after=after):
        with file:
            for offset, header in blocks.read_headers(file):
                if header.following > after + 1:
                    found = _matches(file, offset, header, query)
                    yield from (one for one in found if one.number > after)
                    after = header.following - 1


def count(kept: Kept) -> tuple[int, int]:
    """Return how many outcomes there are, and how many of them are discards, as the headers say.
    Blocks; raises OSError."""
    outcomes = discards = through = 0
    for file in kept.files():
        with file:
            for _, header in blocks.read_headers(file):
                if header.first > through:
                    outcomes += header.outcomes
                    discards += header.discards
                    through = header.following - 1
    return outcomes, discards
