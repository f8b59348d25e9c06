"""Message groups whose members sidecars relay: accepted in time, and on their way for long."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.reliability.group_rules import RELAY_SECONDS
from pillion_sidecar.reliability.states import Guard
from support.groups import Bed

IN_SEQUENCE, MISSING = Guard.IN_SEQUENCE, Guard.PREDECESSORS_MISSING
HOUR = 3600.0
#: The wall clock of a bed when it begins.
BEGIN = 1_700_000_000.0

DATED: dict[str, Any] = {"ordered": True, "group_expires": BEGIN - HOUR, "expires_in": 60}
IDLE: dict[str, Any] = {"ordered": True, "idle": 10}


@pytest.mark.parametrize("says", [DATED, IDLE])
def test_what_comes_after_its_groups_time_is_still_put_in_order(says: dict[str, Any]) -> None:
    bed = Bed()
    assert bed.submit(1, relayed_after=2 * HOUR, **says) is MISSING
    bed.time.advance(RELAY_SECONDS - 1)
    assert bed.submit(2, relayed_after=2 * HOUR, **says) is MISSING
    bed.time.advance(RELAY_SECONDS - 1)
    assert bed.submit(0, relayed_after=3 * HOUR, **says) is IN_SEQUENCE
    assert bed.queues.delivered == [("g", 0), ("g", 1), ("g", 2)]


@pytest.mark.parametrize("says", [DATED, IDLE])
def test_a_gap_that_nobody_fills_ends_the_group(says: dict[str, Any]) -> None:
    bed = Bed()
    bed.submit(1, relayed_after=2 * HOUR, **says)
    bed.time.advance(RELAY_SECONDS + 0.1)
    assert bed.queues.delivered == []
    assert bed.queues.discarded == [("g", 1)]
    assert bed.groups.held == 0


def test_a_group_that_goes_on_waits_past_its_expiry_for_those_on_their_way() -> None:
    bed = Bed()
    says = {"ordered": True, "group_expires": BEGIN + 60}
    bed.submit(1, relayed_after=0.0, **says)
    bed.time.advance(60 + RELAY_SECONDS - 1)
    assert bed.submit(0, relayed_after=RELAY_SECONDS, **says) is IN_SEQUENCE
    assert bed.queues.delivered == [("g", 0), ("g", 1)]


def test_what_its_publisher_gives_to_the_gateway_itself_waits_no_longer_than_it_says() -> None:
    bed = Bed()
    bed.submit(1, **IDLE)
    bed.time.advance(10.1)
    assert bed.queues.discarded == [("g", 1)]


def test_idle_time_on_the_way_does_not_count_between_sidecars() -> None:
    bed = Bed()
    # One was idle for a minute, in which the other one accepted what was between.
    bed.submit(0, relayed_after=100.0, ordered=True, idle=30)
    assert bed.submit(3, relayed_after=40.0, ordered=True, idle=30) is MISSING
    assert bed.submit(1, relayed_after=80.0, ordered=True, idle=30) is IN_SEQUENCE
    assert bed.submit(2, relayed_after=60.0, ordered=True, idle=30) is IN_SEQUENCE
    assert bed.queues.delivered == [("g", number) for number in range(4)]


def test_another_run_under_the_same_name_is_told_by_its_acceptance() -> None:
    bed = Bed()
    first = {"ordered": True, "group_expires": BEGIN - HOUR, "expires_in": 60}
    second = {"ordered": True, "group_expires": BEGIN + HOUR, "expires_in": 60}
    # Both wait for the gateway, and come at once.
    assert bed.submit(0, relayed_after=2 * HOUR, **first) is IN_SEQUENCE
    assert bed.submit(1, relayed_after=2 * HOUR, **first) is IN_SEQUENCE
    assert bed.submit(0, relayed_after=HOUR / 2, **second) is IN_SEQUENCE
    assert bed.submit(1, relayed_after=HOUR / 2, **second) is IN_SEQUENCE
    assert bed.queues.delivered == [("g", 0), ("g", 1)] * 2


def test_another_run_after_an_idle_one_is_no_duplicate_once_the_sidecar_had_forgotten_it() -> None:
    bed = Bed()
    says = {"idle": 10, "expires_in": 5}
    assert bed.submit(0, relayed_after=200.0, **says) is IN_SEQUENCE
    # The sidecar has accepted it twice, as the first run was over and forgotten then.
    assert bed.submit(0, relayed_after=100.0, **says) is IN_SEQUENCE
    assert bed.submit(0, relayed_after=195.0, **says) is Guard.DUPLICATE
    assert bed.queues.delivered == [("g", 0), ("g", 0)]


def test_within_the_time_that_members_are_remembered_a_repeat_is_a_duplicate() -> None:
    bed = Bed()
    assert bed.submit(0, relayed_after=200.0, idle=10) is IN_SEQUENCE
    # Without ``expires`` the window counts.
    assert bed.submit(0, relayed_after=100.0, idle=10) is Guard.DUPLICATE


def test_members_that_contradict_their_group_are_invalid_though_they_were_relayed() -> None:
    bed = Bed()
    bed.submit(0, relayed_after=200.0, ordered=True, idle=10)
    assert bed.submit(1, relayed_after=199.0, ordered=True, idle=20) is Guard.INVALID


@pytest.mark.parametrize("in_snapshot", [True, False])
@pytest.mark.parametrize("says", [DATED, IDLE])
def test_a_gateway_that_was_away_waits_for_the_others_anew(
    in_snapshot: bool, says: dict[str, Any]
) -> None:
    bed = Bed()
    bed.submit(0, relayed_after=2 * HOUR, **says)
    bed.submit(2, relayed_after=2 * HOUR, **says)
    snapshot, members = (bed.groups.snapshot(), []) if in_snapshot else (None, bed.accepted)
    following = bed.restarted(snapshot, members, down=HOUR)
    assert following.queues.discarded == []
    following.time.advance(RELAY_SECONDS - 1)
    assert following.submit(1, relayed_after=3 * HOUR, **says) is IN_SEQUENCE
    assert following.queues.delivered == [("g", 0), ("g", 1), ("g", 2)]
    following.submit(4, relayed_after=3 * HOUR, **says)
    following.time.advance(RELAY_SECONDS + 0.1)
    assert following.queues.discarded == [("g", 4)]


@given(
    order=st.permutations(range(8)),
    ago=st.lists(st.floats(0, 7200), min_size=8, max_size=8),
    pauses=st.lists(st.floats(0, RELAY_SECONDS - 1), min_size=8, max_size=8),
    restart=st.integers(0, 8),
    in_snapshot=st.booleans(),
    says=st.sampled_from([DATED, IDLE, {"ordered": True, "idle": 1}]),
)
def test_whatever_the_way_a_group_that_comes_whole_is_delivered_whole_and_in_order(
    order: list[int],
    ago: list[float],
    pauses: list[float],
    restart: int,
    in_snapshot: bool,
    says: dict[str, Any],
) -> None:
    bed = Bed()
    for place, sequence in enumerate(order):
        if place == restart:
            snapshot = bed.groups.snapshot() if in_snapshot else None
            bed = bed.restarted(snapshot, [] if in_snapshot else bed.accepted, down=HOUR)
        found = bed.submit(sequence, relayed_after=HOUR + ago[place] + 60, **says)
        assert found in (IN_SEQUENCE, MISSING)
        bed.time.advance(pauses[place])
    assert bed.queues.delivered == [("g", sequence) for sequence in range(8)]
