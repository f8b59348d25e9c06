"""Quorum and consensus of stores, from positions alone (S3.11)."""

from collections.abc import Iterator
from itertools import chain, combinations, product

import pytest

from pillion_sidecar.journal.segments import position_of
from pillion_sidecar.stores.copies import Copy, Epoch, Extent, Run
from pillion_sidecar.stores.quorum import (
    Between,
    Consensus,
    Membership,
    StoreGroup,
    Within,
    consensus_position,
    is_enough,
    is_viable,
    latest,
    missing,
    stable_end,
    stable_position,
    viable_groups,
)

THREE = StoreGroup(name="three", members=("a", "b", "c"))
ONE = StoreGroup(name="one", members=("d",))
TWO = StoreGroup(name="two", members=("e", "f"))
SPARE = StoreGroup(name="spare", members=("a", "b"), backups=("c",))
POSITIONS = {"a": 50, "b": 30, "c": 10, "d": 20, "e": 40, "f": 5}


def membership(
    *groups: StoreGroup,
    within: Within = Within.QUORUM,
    between: Between = Between.ANY,
    consensus: Consensus = Consensus.MAJORITY,
) -> Membership:
    return Membership(groups=groups, within=within, between=between, consensus=consensus)


def subsets(stores: tuple[str, ...]) -> Iterator[frozenset[str]]:
    sizes = range(len(stores) + 1)
    return map(frozenset, chain.from_iterable(combinations(stores, size) for size in sizes))


@pytest.mark.parametrize(
    ("groups", "within", "between", "stable"),
    [
        ((THREE,), Within.QUORUM, Between.ANY, 30),
        ((THREE,), Within.ALL, Between.ANY, 10),
        ((ONE,), Within.QUORUM, Between.ANY, 20),
        ((SPARE,), Within.QUORUM, Between.ANY, 30),
        ((THREE, ONE, TWO), Within.QUORUM, Between.ANY, 30),
        ((THREE, ONE, TWO), Within.QUORUM, Between.MAJORITY, 20),
        ((THREE, ONE, TWO), Within.QUORUM, Between.ALL, 5),
        ((THREE, ONE, TWO), Within.ALL, Between.ANY, 20),
    ],
)
def test_what_enough_stores_of_enough_groups_have_is_stable(
    groups: tuple[StoreGroup, ...], within: Within, between: Between, stable: int
) -> None:
    stores = membership(*groups, within=within, between=between)
    assert stable_position(stores, POSITIONS, stores.stores) == stable


def test_a_store_that_was_never_heard_of_has_nothing() -> None:
    assert stable_position(membership(THREE), {"a": 50}, {"a"}) == 0


def test_a_backup_stands_in_for_any_member() -> None:
    stores = membership(SPARE, within=Within.ALL)
    assert stable_position(stores, {"a": 50, "c": 40}, {"a", "c"}) == 40
    assert viable_groups(stores, {"a", "c"}) == (SPARE,)


@pytest.mark.parametrize(
    ("responsive", "stable"),
    [
        ({"a", "b", "d", "e", "f"}, 5),
        ({"a", "b", "d", "e"}, 20),
        ({"a", "b"}, 30),
        # No group is active.
        ({"a"}, 0),
    ],
)
def test_groups_that_are_not_active_are_not_waited_for(responsive: set[str], stable: int) -> None:
    stores = membership(THREE, ONE, TWO, between=Between.ALL_ACTIVE)
    assert stable_position(stores, POSITIONS, responsive) == stable


@pytest.mark.parametrize(
    ("between", "responsive", "viable"),
    [
        (Between.ANY, {"d"}, True),
        (Between.ANY, {"a", "e"}, False),
        (Between.MAJORITY, {"d", "a", "b"}, True),
        (Between.MAJORITY, {"d", "a", "e"}, False),
        (Between.ALL, {"a", "b", "d", "e"}, False),
        (Between.ALL, {"a", "b", "d", "e", "f"}, True),
        (Between.ALL_ACTIVE, {"d"}, True),
        (Between.ALL_ACTIVE, {"a"}, False),
    ],
)
def test_a_journal_is_viable_while_something_can_become_stable(
    between: Between, responsive: set[str], viable: bool
) -> None:
    assert is_viable(membership(THREE, ONE, TWO, between=between), responsive) is viable


@pytest.mark.parametrize(
    ("consensus", "position"),
    [(Consensus.LOWEST, 10), (Consensus.MAJORITY, 30), (Consensus.HIGHEST, 50)],
)
def test_the_announced_position_follows_the_rule_of_consensus(
    consensus: Consensus, position: int
) -> None:
    stores = membership(THREE, consensus=consensus)
    assert consensus_position(stores, POSITIONS) == position
    assert consensus_position(stores, {}) == 0


def test_of_two_stores_the_majority_is_both() -> None:
    assert consensus_position(membership(TWO), POSITIONS) == 5


@pytest.mark.parametrize("groups", [(THREE,), (ONE,), (SPARE,), (THREE, ONE), (THREE, ONE, TWO)])
@pytest.mark.parametrize(("within", "between"), list(product(Within, Between)))
def test_answers_are_enough_if_they_meet_every_set_that_makes_something_stable(
    groups: tuple[StoreGroup, ...], within: Within, between: Between
) -> None:
    stores = membership(*groups, within=within, between=between)
    # Whichever groups were active then.
    writing = [
        some
        for some in subsets(stores.stores)
        if any(
            stable_position(stores, dict.fromkeys(some, 1), active)
            for active in {some, frozenset(stores.stores)}
        )
    ]
    for answered in subsets(stores.stores):
        meets_all = all(answered & some for some in writing)
        assert is_enough(stores, answered) is meets_all
        assert (missing(stores, answered) == ()) is meets_all
        assert is_enough(stores, answered | {*missing(stores, answered)})


def test_those_that_are_missing_are_named() -> None:
    stores = membership(THREE, ONE)
    assert missing(stores, {"a"}) == ("b", "c", "d")
    assert missing(stores, {"a", "b"}) == ("d",)
    assert missing(stores, {"b", "c", "d"}) == ()


def test_a_claim_goes_on_from_the_copy_of_the_last_writer() -> None:
    long = Copy(written=Epoch(1, "x"), extents=(Extent(1, 1.0, 900),))
    late = Copy(written=Epoch(2, "x"), extents=(Extent(1, 1.0, 100),))
    later = Copy(written=Epoch(2, "x"), extents=(Extent(1, 1.0, 200),))
    assert latest({"a": long, "b": late, "c": later}) == "c"


@pytest.mark.parametrize(
    "groups",
    [(), (StoreGroup(name="g", members=()),), (THREE, SPARE)],
    ids=["no group", "no member", "twice"],
)
def test_stores_that_make_no_sense_are_refused(groups: tuple[StoreGroup, ...]) -> None:
    with pytest.raises(ValueError, match="store"):
        membership(*groups)


def test_a_copy_counts_where_it_is_whole() -> None:
    group = StoreGroup(name="g", members=("a", "b"))
    both = Membership(groups=(group,), within=Within.ALL)
    one = Copy(extents=(Extent(1, 1.0, 100), Extent(2, 1.0, 50)))
    before = Run(one.extents[:1], 0)
    other = Copy(extents=(Extent(2, 1.0, 90),), through=position_of(2, 60), replaced=(before,))
    # If the log goes back to where the first ends, the other has its first segment alone.
    assert stable_end(both, {"a": one, "b": other}, "ab") == position_of(1, 100)
    longer = Copy(extents=(one.extents[0], Extent(2, 1.0, 70)))
    assert stable_end(both, {"a": longer, "b": other}, "ab") == position_of(2, 70)
