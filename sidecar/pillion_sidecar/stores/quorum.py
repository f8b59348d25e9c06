"""Which positions of a log are stable, and which answers a claim needs: from the positions of the
stores alone (S3.11). Pure.

The log has one writer at a time, so every copy is a beginning of it and one number says what a
store has.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pillion_sidecar.config.schema.stores import Between, Consensus, Within
from pillion_sidecar.stores.copies import NO_EPOCH, Copy, Extent, whole_end


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreGroup:
    name: str
    #: They set how many copies are needed.
    members: tuple[str, ...]
    #: Each may stand in for any member.
    backups: tuple[str, ...] = ()

    @property
    def stores(self) -> tuple[str, ...]:
        return self.members + self.backups

    def needed(self, within: Within) -> int:
        """Return how many copies make a position stable in the group."""
        size = len(self.members)
        return size if within is Within.ALL else size // 2 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The stores of a journal.

    Raises ValueError: no group, a group without members, or a store that is named twice.
    """

    groups: tuple[StoreGroup, ...]
    within: Within = Within.QUORUM
    between: Between = Between.ANY
    consensus: Consensus = Consensus.MAJORITY

    def __post_init__(self) -> None:
        if not self.groups or not all(group.members for group in self.groups):
            raise ValueError("a journal needs a group of stores, and each group a member")
        stores = self.stores
        twice = sorted({store for store in stores if stores.count(store) > 1})
        if twice:
            raise ValueError(f"a store is named twice: {', '.join(twice)}; name each once")

    @property
    def stores(self) -> tuple[str, ...]:
        return tuple(store for group in self.groups for store in group.stores)


def viable_groups(membership: Membership, responsive: Collection[str]) -> tuple[StoreGroup, ...]:
    """Return the groups that can make a position stable with the stores that respond."""
    return tuple(
        group
        for group in membership.groups
        if _count(group, responsive) >= group.needed(membership.within)
    )


def is_viable(membership: Membership, responsive: Collection[str]) -> bool:
    """Whether a position can become stable with the stores that respond."""
    viable = len(viable_groups(membership, responsive))
    return viable >= _groups_needed(membership, active=viable)


def stable_position(
    membership: Membership, positions: Mapping[str, int], responsive: Collection[str]
) -> int:
    """Return the position below which all is stable; 0 if nothing is.

    ``positions`` are what the stores have on disk; a store that is left out has nothing. The
    result may go back when a group responds again; what was stable stays so.
    """
    within = membership.within
    viable = viable_groups(membership, responsive)
    counted = viable if membership.between is Between.ALL_ACTIVE else membership.groups
    reached = [_nth(_held(group, positions), group.needed(within)) for group in counted]
    return _nth(reached, _groups_needed(membership, active=len(viable)))


def stable_end(
    membership: Membership, copies: Mapping[str, Copy], responsive: Collection[str]
) -> int:
    """Return the position below which all is stable, of copies that count.

    A copy without the log's first segments counts only where it is whole without them, since a
    later log may end there.
    """
    positions = {name: copy.end for name, copy in copies.items()}
    while True:
        stable = stable_position(membership, positions, responsive)
        whole = {name: whole_end(copy, stable) for name, copy in copies.items()}
        if whole == positions:
            return stable
        positions = whole


def consensus_position(membership: Membership, positions: Mapping[str, int]) -> int:
    """Return the position to announce for the stores that answered; 0 if none did."""
    known = sorted((positions[one] for one in membership.stores if one in positions), reverse=True)
    if not known:
        return 0
    match membership.consensus:
        case Consensus.LOWEST:
            return known[-1]
        case Consensus.HIGHEST:
            return known[0]
        case Consensus.MAJORITY:
            return known[len(known) // 2]


def is_enough(membership: Membership, answered: Collection[str]) -> bool:
    """Whether the stores that answered intersect every set of stores that can make a position
    stable.

    They then know of all that is stable, and once they refuse a writer, nothing of it becomes
    stable.
    """
    groups = len(membership.groups)
    met = groups - len(_unmet(membership, answered))
    return met > groups - _groups_needed(membership, active=1)


def missing(membership: Membership, answered: Collection[str]) -> tuple[str, ...]:
    """Return the stores whose answers would help; empty if the answers are enough."""
    if is_enough(membership, answered):
        return ()
    unmet = _unmet(membership, answered)
    return tuple(store for group in unmet for store in group.stores if store not in answered)


def latest(answers: Mapping[str, Copy]) -> str:
    """Return the store whose copy a claim goes on from.

    Not simply the longest: a store that was away during a claim may have more bytes, which nobody
    else has, of a writer that was fenced since.
    """
    return max(answers, key=lambda store: (answers[store].written, answers[store].end))


def completed(copies: Mapping[str, Copy]) -> dict[str, Copy]:
    """Return the copies with what each has lost before its end, as far as another has it.

    A segment that another follows is whole, so among copies of one log the longest is right. Of
    different logs it is not: the later one may have gone on from where a copy was shorter.
    """
    return {
        name: replace(copy, extents=tuple(_completed(copy, others)))
        for name, copy in copies.items()
        for others in [[one for other, one in copies.items() if other != name]]
    }


def preceding(copy: Copy, others: Iterable[Copy], first: int) -> tuple[Extent, ...]:
    """Return the segments from ``first`` on that others of its log have before the copy's."""
    if not copy.extents:
        return ()
    begin = copy.extents[0]
    same = [other for other in others if _is_same_log(copy, other, begin)]
    return _most(_between(other.extents, first, begin.number) for other in same)


def _completed(copy: Copy, others: Sequence[Copy]) -> Iterator[Extent]:
    if not copy.through:
        # Nothing was removed before it.
        yield from preceding(copy, others, 0)
    for one, following in pairwise(copy.extents):
        same = [other for other in others if _is_same_log(copy, other, following)]
        sizes = [found.size for other in same for found in other.extents if found[:2] == one[:2]]
        yield one._replace(size=max([one.size, *sizes]))
        if following.number > one.number + 1:
            yield from _most(
                _between(other.extents, one.number + 1, following.number) for other in same
            )
    yield from copy.extents[-1:]


def _is_same_log(copy: Copy, other: Copy, extent: Extent) -> bool:
    """Whether two copies have one log up to ``extent``, which ``copy`` has."""
    if copy.written == other.written != NO_EPOCH:
        return True
    return any(found[:2] == extent[:2] for found in other.extents)


def _between(extents: Sequence[Extent], first: int, last: int) -> tuple[Extent, ...]:
    return tuple(one for one in extents if first <= one.number < last)


def _most(found: Iterable[tuple[Extent, ...]]) -> tuple[Extent, ...]:
    return max(found, key=lambda one: (len(one), sum(extent.size for extent in one)), default=())


def _unmet(membership: Membership, answered: Collection[str]) -> list[StoreGroup]:
    """Return the groups in which enough stores for a stable position have not answered."""
    within = membership.within
    return [
        group
        for group in membership.groups
        if len(group.stores) - _count(group, answered) >= group.needed(within)
    ]


def _groups_needed(membership: Membership, *, active: int) -> int:
    groups = len(membership.groups)
    match membership.between:
        case Between.ANY:
            return 1
        case Between.MAJORITY:
            return groups // 2 + 1
        case Between.ALL:
            return groups
        case Between.ALL_ACTIVE:
            return max(1, active)


def _count(group: StoreGroup, stores: Collection[str]) -> int:
    return sum(store in stores for store in group.stores)


def _held(group: StoreGroup, positions: Mapping[str, int]) -> list[int]:
    return [positions.get(store, 0) for store in group.stores]


def _nth(positions: Iterable[int], count: int) -> int:
    """Return the greatest position that ``count`` have; 0 if there are fewer."""
    descending = sorted(positions, reverse=True)
    return descending[count - 1] if count <= len(descending) else 0
