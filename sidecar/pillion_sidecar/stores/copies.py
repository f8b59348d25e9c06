"""A store's copy of another's journal, and the changes that it accepts. Pure.

A journal has one writer at a time. Each claims an *epoch*, which fences the writers before it. A
writer that goes on from a claim *bases* its log on the latest copy that answered. Copies that lag
are brought up to that base first, and copies that went another way are cut back to where they
agree. A copy counts for the epoch only once it has the whole base.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from pillion_sidecar.journal.segments import position_of, segment_of


class StoreError(Exception):
    """A store refuses a request; nothing was changed. Each message names the reason."""


class FencedError(StoreError):
    """Another writer has claimed the session."""

    def __init__(self, message: str, promised: "Epoch | None" = None) -> None:
        """``promised``: what that writer has claimed; None if an earlier version refuses."""
        super().__init__(message)
        self.promised = promised


class UnclaimedError(StoreError):
    """The writer has not claimed the session at this store."""


class GapError(StoreError):
    """The bytes do not follow what the store has."""


class ConflictError(StoreError):
    """The bytes are not those that the store has at their position."""


class Epoch(NamedTuple):
    number: int
    #: Two claims with one number differ by it.
    claimant: str


class Extent(NamedTuple):
    """What a copy has of one segment."""

    number: int
    #: From its header. With the number, it tells the segments of different writers apart.
    created: float
    size: int


class Piece(NamedTuple):
    """Bytes of the log, all of one segment."""

    #: The end of the log before them: ``position``, unless they begin a segment.
    after: int
    position: int
    #: When the segment was begun.
    created: float
    size: int


class Cut(NamedTuple):
    """What is behind the position is not in the log."""

    position: int


NO_EPOCH = Epoch(0, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    #: Writers of lower epochs are refused.
    promised: Epoch = NO_EPOCH
    #: The epoch of whose log it has the whole base, and a beginning of the rest.
    written: Epoch = NO_EPOCH
    #: By number.
    extents: tuple[Extent, ...] = ()

    @property
    def end(self) -> int:
        return end_of(self.extents)


def end_of(extents: Sequence[Extent]) -> int:
    return position_of(extents[-1].number, extents[-1].size) if extents else 0


def cut_extents(extents: Sequence[Extent], position: int) -> tuple[Extent, ...]:
    """Return what lies before ``position``."""
    number, offset = segment_of(position)
    return tuple(
        one if one.number < number else one._replace(size=min(one.size, offset))
        for one in extents
        if one.number < number or (one.number == number and offset)
    )


def common_end(extents: Sequence[Extent], log: Sequence[Extent]) -> int:
    """Return the position up to which a copy is a beginning of a log."""
    end = 0
    for ours, theirs in zip(extents, log, strict=False):
        if ours[:2] != theirs[:2]:
            break
        end = position_of(ours.number, min(ours.size, theirs.size))
        if ours.size != theirs.size:
            break
    return end


def next_piece(log: Sequence[Extent], end: int) -> Piece | None:
    """Return what follows ``end`` in a log, to the end of a segment; None if nothing does."""
    after = 0
    for extent in log:
        begin = position_of(extent.number, 0)
        if begin + extent.size > end:
            if end > begin:
                begin = after = end
            size = position_of(extent.number, extent.size) - begin
            return Piece(after, begin, extent.created, size)
        after = begin + extent.size
    return None


def next_change(copy: Copy, epoch: Epoch, log: Sequence[Extent]) -> Cut | Piece | None:
    """Return what a copy needs next to have the epoch's log and to count for it; None if nothing.

    A piece ends with its segment and may be shortened. An empty one gives the copy its label.
    """
    agreed = common_end(copy.extents, log)
    if agreed < copy.end:
        return Cut(agreed)
    piece = next_piece(log, agreed)
    if piece is None and log and copy.written < epoch:
        return Piece(agreed, agreed, log[-1].created, 0)
    return piece


def claim(copy: Copy, epoch: Epoch) -> Copy:
    """Promise to refuse all lower epochs. Raises FencedError."""
    if epoch < copy.promised:
        raise _fenced(copy)
    return replace(copy, promised=epoch)


def cut(copy: Copy, epoch: Epoch, position: int) -> Copy:
    """Cut off what is not in the base of the epoch's log.

    Raises FencedError, UnclaimedError, GapError, and ConflictError: the copy counts already.
    """
    check_writer(copy, epoch)
    if position > copy.end:
        raise _gap(copy, position)
    if copy.written == epoch and position < copy.end:
        raise ConflictError(f"the log never goes back, and would from {copy.end:x} to {position:x}")
    return replace(copy, extents=cut_extents(copy.extents, position))


def append(copy: Copy, epoch: Epoch, piece: Piece, *, base: int) -> Copy:
    """Take the bytes that follow, or, unchanged, those of a repeated request.

    ``base``: where the epoch's own part of the log begins.

    Raises FencedError, UnclaimedError, GapError, ConflictError.
    """
    check_writer(copy, epoch)
    extents = copy.extents
    if piece.after > copy.end:
        raise _gap(copy, piece.after)
    if piece.after < copy.end:
        _check_repeated(copy, piece)
    else:
        extents = _extended(copy, piece)
    written = epoch if end_of(extents) >= base else copy.written
    return replace(copy, written=written, extents=extents)


def _extended(copy: Copy, piece: Piece) -> tuple[Extent, ...]:
    number, offset = segment_of(piece.position)
    if not offset:
        if copy.extents and number <= copy.extents[-1].number:
            raise ConflictError(f"segment {number:x} is there already")
        return (*copy.extents, Extent(number, piece.created, piece.size))
    last = copy.extents[-1] if copy.extents else None
    if last is None or piece.position != piece.after or last.created != piece.created:
        raise ConflictError(f"segment {number:x} is that of another writer")
    return (*copy.extents[:-1], last._replace(size=offset + piece.size))


def _check_repeated(copy: Copy, piece: Piece) -> None:
    number, offset = segment_of(piece.position)
    for one in copy.extents:
        if one[:2] == (number, piece.created) and offset + piece.size <= one.size:
            return
    raise ConflictError(
        f"the copy ends at {copy.end:x} and has other bytes at {piece.position:x}, or not all"
    )


def check_writer(copy: Copy, epoch: Epoch) -> None:
    """Raises FencedError and UnclaimedError."""
    if epoch < copy.promised:
        raise _fenced(copy)
    if epoch > copy.promised:
        raise UnclaimedError(
            f"epoch {epoch.number} of {epoch.claimant} was not claimed at this store; claim it"
        )


def _fenced(copy: Copy) -> FencedError:
    number, claimant = copy.promised
    return FencedError(
        f"{claimant} has claimed the session under epoch {number}", promised=copy.promised
    )


def _gap(copy: Copy, position: int) -> GapError:
    return GapError(f"the copy ends at {copy.end:x}, before {position:x}; go on from there")
