"""A store's copy of another's journal, and the changes that it accepts. Pure.

A journal has one writer at a time. Each claims an *epoch*, which fences the writers before it. A
writer that goes on from a claim *bases* its log on the latest copy that answered. Copies that lag
are brought up to that base first, and copies that went another way are cut back to where they
agree. A copy counts for the epoch only once it has the whole base.

A writer removes its oldest segments, after it has copied forward what is pending in them. A copy is
whole without them once it has the log up to that removal. A copy that ends before the first segment
that is left gets a second run of segments beside its own, which replaces it once it is whole. The
first stays until its removal is stable: another writer may still go on from there.
"""

from collections.abc import Iterable, Sequence
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


class Run(NamedTuple):
    """Segments that follow each other, and the log's before them were removed."""

    extents: tuple[Extent, ...]
    #: Whole once it ends there or later.
    through: int


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


class Removal(NamedTuple):
    """The segments before ``first`` are not needed where the log is there up to ``through``."""

    first: int
    through: int


NO_EPOCH = Epoch(0, "")
NO_REMOVAL = Removal(0, 0)
NO_RUN = Run((), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    #: Writers of lower epochs are refused.
    promised: Epoch = NO_EPOCH
    #: The epoch of whose log it has the whole base, and a beginning of the rest.
    written: Epoch = NO_EPOCH
    #: By number: what the copy answers for.
    extents: tuple[Extent, ...] = ()
    #: Where ``extents`` are whole; 0 if nothing was removed before them.
    through: int = 0
    #: Later segments, which replace ``extents`` once they are whole.
    renewed: Run | None = None
    #: What ``extents`` replaced, oldest first. A cut to before ``through`` goes back to the last,
    #: or to nothing.
    replaced: tuple[Run, ...] = ()

    @property
    def end(self) -> int:
        return end_of(self.extents)

    @property
    def kept(self) -> tuple[Extent, ...]:
        """All that is in the folder, by number."""
        before = [extent for run in self.replaced for extent in run.extents]
        return (*before, *self.extents, *(self.renewed.extents if self.renewed else ()))

    @property
    def newest(self) -> tuple[Extent, ...]:
        """What the writer continues."""
        return self.renewed.extents if self.renewed else self.extents


def end_of(extents: Sequence[Extent]) -> int:
    return position_of(extents[-1].number, extents[-1].size) if extents else 0


def bytes_between(extents: Sequence[Extent], begin: int, end: int) -> int:
    """Return how many bytes lie between two positions."""
    return sum(
        max(0, min(end - at, one.size) - max(begin - at, 0))
        for one in extents
        for at in (position_of(one.number, 0),)
    )


def cut_extents(extents: Sequence[Extent], position: int) -> tuple[Extent, ...]:
    """Return what lies before ``position``."""
    number, offset = segment_of(position)
    return tuple(
        one if one.number < number else one._replace(size=min(one.size, offset))
        for one in extents
        if one.number < number or (one.number == number and offset)
    )


def common_end(extents: Sequence[Extent], log: Sequence[Extent]) -> int:
    """Return the position up to which a copy is a beginning of a log.

    The first segments of either may be removed from the other.
    """
    if not extents or not log:
        return 0
    first = max(extents[0].number, log[0].number)
    end = end_of([one for one in extents if one.number < first])
    for ours, theirs in zip(_since(extents, first), _since(log, first), strict=False):
        if ours[:2] != theirs[:2]:
            break
        end = position_of(ours.number, min(ours.size, theirs.size))
        if ours.size != theirs.size:
            break
    return end


def _since(extents: Sequence[Extent], first: int) -> tuple[Extent, ...]:
    return tuple(one for one in extents if one.number >= first)


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


def next_change(
    copy: Copy,
    epoch: Epoch,
    log: Sequence[Extent],
    *,
    stable: int = 0,
    removal: Removal = NO_REMOVAL,
    meeting: int = 0,
) -> Cut | Removal | Piece | None:
    """Return what a copy needs next to have the epoch's log and to count for it; None if nothing.

    ``removal`` is the last that is stable; ``meeting`` is :func:`meeting_point` of all copies. A
    piece ends with its segment and may be shortened. An empty one gives the copy its label. One
    after 0 begins what is left of the log.
    """
    agreed = common_end(copy.newest, log)
    if agreed < copy.end and not copy.renewed:
        while agreed < copy.through:
            copy = _gone_back(copy)
            agreed = common_end(copy.extents, log)
        return Cut(agreed)
    if copy.written == epoch:
        if copy.replaced and copy.through <= stable:
            return Removal(copy.extents[0].number, copy.through)
        if _is_removable(copy, removal):
            return removal
    piece = next_piece(log, agreed)
    if piece is None and log and copy.written < epoch:
        return Piece(agreed, agreed, log[-1].created, 0)
    if piece is not None and not piece.after and copy.replaced and copy.written == epoch:
        # Without need, no further run: once others come as far, what was replaced goes.
        return piece if copy.end < meeting else None
    return piece


def meeting_point(copies: Iterable[Copy], epoch: Epoch) -> int:
    """Return the lowest position at which all copies of an epoch can be whole."""
    return max(
        (
            one.through if one.renewed is None else one.renewed.through
            for one in copies
            if one.written == epoch
        ),
        default=0,
    )


def whole_end(copy: Copy, position: int) -> int:
    """Return up to where a copy is whole if the log goes back to ``position``."""
    while position < copy.through:
        copy = _gone_back(copy)
    return copy.end


def _is_removable(copy: Copy, removal: Removal) -> bool:
    if copy.end < removal.through or not copy.extents:
        return False
    first, last = copy.extents[0].number, copy.extents[-1].number
    # What was replaced goes with the removal that the copy itself rests on, not with an earlier.
    return first + (not copy.replaced) <= removal.first <= last


def _gone_back(copy: Copy) -> Copy:
    extents, through = copy.replaced[-1] if copy.replaced else NO_RUN
    return replace(copy, extents=extents, through=through, replaced=copy.replaced[:-1])


def claim(copy: Copy, epoch: Epoch) -> Copy:
    """Promise to refuse all lower epochs. Raises FencedError."""
    if epoch < copy.promised:
        raise _fenced(copy)
    if epoch > copy.promised:
        # What is not whole yet may be without segments that this writer's log has.
        copy = replace(copy, renewed=None)
    return replace(copy, promised=epoch)


def cut(copy: Copy, epoch: Epoch, position: int) -> Copy:
    """Cut off what is not in the base of the epoch's log.

    Raises FencedError, UnclaimedError, GapError, and ConflictError: the copy counts already.
    """
    check_writer(copy, epoch)
    if position > copy.end:
        raise _gap(copy, position)
    if position == copy.end:
        return copy
    if copy.written == epoch:
        raise ConflictError(f"the log never goes back, and would from {copy.end:x} to {position:x}")
    while position < copy.through:
        copy = _gone_back(copy)
    return replace(copy, extents=cut_extents(copy.extents, position), renewed=None)


def remove(copy: Copy, epoch: Epoch, removal: Removal) -> Copy:
    """Remove the segments that are not needed, of a copy that counts.

    ``removal`` is stable: no later writer goes on from before it. Raises FencedError,
    UnclaimedError, GapError, ConflictError.
    """
    check_writer(copy, epoch)
    if copy.written != epoch:
        raise ConflictError("the copy does not have the base of the epoch yet")
    if copy.end < removal.through:
        raise _gap(copy, removal.through)
    if not _is_removable(copy, removal):
        return copy
    through = max(copy.through, removal.through)
    extents = _since(copy.extents, removal.first)
    return replace(copy, extents=extents, replaced=(), through=through)


def append(copy: Copy, epoch: Epoch, piece: Piece, *, base: int) -> Copy:
    """Take the bytes that follow, or, unchanged, those of a repeated request.

    ``base``: where the epoch's own part of the log begins. For a piece after 0 it is at least where
    the log was when its last segment before the piece was removed.

    Raises FencedError, UnclaimedError, GapError, ConflictError.
    """
    check_writer(copy, epoch)
    if has_piece(copy, piece):
        changed = copy
    elif not piece.after:
        changed = _begun(copy, piece, base)
    elif copy.renewed:
        run = copy.renewed
        changed = replace(copy, renewed=run._replace(extents=_extended(run.extents, piece)))
    else:
        changed = replace(copy, extents=_extended(copy.extents, piece))
    changed = _renewed(changed)
    # What is to be replaced may be of another log.
    is_based = changed.renewed is None and changed.end >= base
    return replace(changed, written=epoch if is_based else copy.written)


def _renewed(copy: Copy) -> Copy:
    if copy.renewed is None or end_of(copy.renewed.extents) < copy.renewed.through:
        return copy
    replaced = copy.replaced
    if copy.extents:
        replaced = (*replaced, Run(copy.extents, copy.through))
    extents, through = copy.renewed
    return replace(copy, extents=extents, through=through, renewed=None, replaced=replaced)


def has_piece(copy: Copy, piece: Piece) -> bool:
    number, offset = segment_of(piece.position)
    return any(
        one[:2] == (number, piece.created) and offset + piece.size <= one.size for one in copy.kept
    )


def _begun(copy: Copy, piece: Piece, through: int) -> Copy:
    """Begin with the first segment that is left of the log."""
    number, offset = segment_of(piece.position)
    if offset:
        raise _conflict(copy.extents, piece)
    there = (*copy.extents, *copy.newest[:1])
    if there and number <= max(one.number for one in there):
        raise ConflictError(f"segment {number:x} is there already")
    extents = (Extent(number, piece.created, piece.size),)
    if copy.extents:
        through = max(through, piece.position)
    return replace(copy, renewed=Run(extents, through))


def _extended(extents: tuple[Extent, ...], piece: Piece) -> tuple[Extent, ...]:
    number, offset = segment_of(piece.position)
    end = end_of(extents)
    if piece.after > end:
        raise _gap_at(end, piece.after)
    if piece.after < end:
        raise _conflict(extents, piece)
    if not offset:
        if extents and number <= extents[-1].number:
            raise ConflictError(f"segment {number:x} is there already")
        return (*extents, Extent(number, piece.created, piece.size))
    last = extents[-1] if extents else None
    if last is None or piece.position != piece.after or last.created != piece.created:
        raise ConflictError(f"segment {number:x} is that of another writer")
    return (*extents[:-1], last._replace(size=offset + piece.size))


def _conflict(extents: Sequence[Extent], piece: Piece) -> ConflictError:
    return ConflictError(
        f"the copy ends at {end_of(extents):x} and has other bytes at {piece.position:x},"
        " or not all"
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
    return _gap_at(copy.end, position)


def _gap_at(end: int, position: int) -> GapError:
    return GapError(f"the copy ends at {end:x}, before {position:x}; go on from there")
