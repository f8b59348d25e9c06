"""The groups after a restart are what they would have been without one (S1.7, S1.8)."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pillion_sidecar.reliability.group_index import DISCARDS_PER_TURN
from pillion_sidecar.reliability.states import Guard
from support.groups import Bed

#: Kinds of groups: what all their members say, by name.
KINDS: dict[str, dict[str, Any]] = {
    "ordered-idle": {"ordered": True, "idle": 30},
    "ordered-dated": {"ordered": True, "group_expires": 1_700_000_090.0},
    "ordered": {"ordered": True},
    "idle": {"idle": 20, "expires_in": 45},
    "dated": {"group_expires": 1_700_000_060.0, "expires_in": 5},
    "bare": {"expires_in": 70},
}


@dataclass(frozen=True)
class Member:
    group: str
    sequence: int
    last: bool = False
    #: Whether gateways alone get it, which put it in order.
    passes: bool = False


#: A member, or seconds that pass.
Event = Member | float

_EVENTS = st.one_of(
    st.builds(Member, st.sampled_from(sorted(KINDS)), st.integers(0, 4), st.booleans()),
    st.builds(Member, st.sampled_from(sorted(KINDS)), st.integers(0, 4)),
    st.builds(Member, st.sampled_from(sorted(KINDS)), st.integers(0, 4), passes=st.booleans()),
    st.sampled_from([1.0, 10.0, 30.0, 1000.0]),
)


def play(bed: Bed, events: list[Event]) -> list[Guard | None]:
    found: list[Guard | None] = []
    for event in events:
        if isinstance(event, Member):
            dated = KINDS[event.group].get("group_expires")
            if dated is not None and dated <= bed.time.time():
                # The door refuses it as expired.
                found.append(None)
                continue
            found.append(
                bed.submit(
                    event.sequence,
                    group=event.group,
                    last=event.last,
                    passes_gaps=event.passes,
                    **KINDS[event.group],
                )
            )
        else:
            bed.time.advance(event)
    return found


def outcome(bed: Bed) -> tuple[Any, ...]:
    delivered, discarded = bed.queues.delivered, bed.queues.discarded
    return (
        [[n for name, n in delivered if name == group] for group in KINDS],
        [[n for name, n in discarded if name == group] for group in KINDS],
        bed.groups.active,
        bed.groups.remembered,
        bed.groups.held,
        bed.groups.held_bytes,
    )


def check_restarts(events: list[Event], *, snapshot_at: int, down: float) -> None:
    """Compare a restart at each point of a history to none, with a snapshot taken before."""
    for restart_at in range(snapshot_at, len(events) + 1):
        whole = Bed()
        expected = play(whole, events[:restart_at])
        whole.time.advance(down)
        expected += play(whole, events[restart_at:])

        first = Bed()
        found = play(first, events[:snapshot_at])
        snapshot, known = first.groups.snapshot(), len(first.accepted)
        found += play(first, events[snapshot_at:restart_at])
        second = first.restarted(snapshot, first.accepted[known:], down=down)
        found += play(second, events[restart_at:])

        assert found == expected
        assert outcome(second) == outcome(whole)


@given(st.lists(_EVENTS, max_size=14), st.integers(0, 14), st.sampled_from([0.0, 5.0, 100.0]))
@example([Member("ordered-idle", 1), 10.0, Member("ordered-idle", 0)], 1, 0.0)
@example([Member("ordered-idle", 1), 30.0, Member("ordered-idle", 0)], 0, 0.0)
@example([Member("ordered-idle", 1), 30.0, Member("ordered-idle", 1)], 0, 0.0)
@example([Member("ordered", 0), Member("ordered", 2), Member("ordered", 1)], 0, 5.0)
def test_a_restart_changes_nothing(events: list[Event], snapshot_at: int, down: float) -> None:
    check_restarts(events, snapshot_at=min(snapshot_at, len(events)), down=down)


def test_what_became_due_meanwhile_is_done_at_once_in_the_order_in_which_it_was_due() -> None:
    bed = Bed()
    for group, idle in (("late", 50), ("early", 10), ("later", 500)):
        bed.submit(1, group=group, ordered=True, idle=idle)
    following = bed.restarted(bed.groups.snapshot(), (), down=100)
    assert bed.queues.discarded == [("early", 1), ("late", 1)]
    assert following.groups.held == 1
    # Half of its idle time was over before.
    following.time.advance(399)
    assert following.groups.held == 1
    following.time.advance(1)
    assert bed.queues.discarded[-1] == ("later", 1)


def test_what_was_completed_but_not_released_is_released_in_sequence() -> None:
    bed = Bed()
    for sequence in (2, 1):
        bed.submit(sequence, ordered=True, idle=50)
    held = dict(bed.queues.held)
    bed.submit(0, ordered=True, idle=50, last=False)
    # The records of their release did not get to the disk.
    bed.queues.held, bed.queues.delivered = held, [("g", 0)]
    following = bed.restarted(None, bed.accepted, down=0)
    assert bed.queues.delivered == [("g", 0), ("g", 1), ("g", 2)]
    assert following.groups.held == 0
    assert following.submit(2, ordered=True, idle=50) is Guard.DUPLICATE


def test_a_complete_group_that_ended_releases_what_it_had_no_time_to() -> None:
    bed = Bed()
    bed.submit(1, ordered=True, idle=50)
    held = dict(bed.queues.held)
    bed.submit(0, ordered=True, idle=50)
    bed.queues.held, bed.queues.delivered = held, [("g", 0)]
    bed.time.advance(50)
    bed.restarted(bed.groups.snapshot(), (), down=10)
    assert bed.queues.delivered == [("g", 0), ("g", 1)]
    assert bed.queues.discarded == []


def test_what_was_terminated_but_not_discarded_is_discarded() -> None:
    bed = Bed()
    bed.submit(0, ordered=True)
    bed.submit(1, ordered=True)
    bed.submit(3, ordered=True)
    (place,) = bed.queues.discarded
    assert place == ("g", 3)
    # The record of the discard did not get to the disk: it is still held there.
    bed.queues.discarded = []
    again = Bed(queues=bed.queues)
    again.submit(1, group="other", ordered=True, idle=5)
    (indication,) = bed.queues.held.values()
    indication.group, indication.member = "g", bed.accepted[-1].record.member
    bed.restarted(None, bed.accepted, down=0)
    assert bed.queues.discarded == [("g", 3)]
    assert not bed.queues.held


def test_what_a_restart_finds_terminated_is_discarded_in_turns() -> None:
    bed = Bed()
    places = [("g", sequence) for sequence in range(1, 3 * DISCARDS_PER_TURN)]
    for _, sequence in places:
        bed.submit(sequence, ordered=True, idle=50)
    held = dict(bed.queues.held)
    bed.time.advance(50)
    # The records of the discards did not get to the disk.
    bed.queues.held, bed.queues.discarded = held, []
    following = bed.restarted(bed.groups.snapshot(), (), down=0)
    assert bed.queues.discarded == places[:DISCARDS_PER_TURN]
    assert following.groups.held == len(places) - DISCARDS_PER_TURN
    following.time.advance(0.0)
    following.time.advance(0.0)
    assert bed.queues.discarded == places
    assert (following.groups.held, following.groups.held_bytes) == (0, 0)


def test_what_was_held_and_is_lost_is_missing_again() -> None:
    bed = Bed()
    for sequence in (1, 2):
        bed.submit(sequence, ordered=True, idle=50)
    # Damage took the record of 1.
    del bed.queues.held[1]
    following = bed.restarted(bed.groups.snapshot(), (), down=0)
    assert following.submit(0, ordered=True, idle=50) is Guard.IN_SEQUENCE
    assert bed.queues.delivered == [("g", 0)]
    assert following.submit(1, ordered=True, idle=50) is Guard.IN_SEQUENCE
    assert bed.queues.delivered == [("g", 0), ("g", 1), ("g", 2)]


def test_a_clock_set_back_before_the_restart_ends_no_group_twice() -> None:
    bed = Bed()
    over = bed.time.time() + 100
    bed.submit(0, ordered=True, group_expires=over)
    # Journal time does not go back: it is ahead of the wall clock from now on.
    bed.offset += 500
    bed.submit(1, ordered=True, group_expires=over)
    following = bed.restarted(None, bed.accepted, down=0)
    assert following.submit(2, ordered=True, group_expires=over) is Guard.IN_SEQUENCE
    assert following.submit(0, ordered=True, group_expires=over) is Guard.DUPLICATE


@pytest.mark.parametrize("down", [0.0, 100.0])
def test_a_first_run_begins_with_nothing(down: float) -> None:
    bed = Bed().restarted(None, (), down=down)
    assert (bed.groups.active, bed.groups.held) == (0, 0)
    assert bed.submit(0) is Guard.IN_SEQUENCE
