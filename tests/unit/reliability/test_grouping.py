"""Message groups: holding, discarding, termination, removal of state, bounds (S1.5 to S1.8)."""

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.indication import Refusal
from pillion_sidecar.reliability.group_index import DISCARDS_PER_TURN, MAXIMUM_PAST, GroupLimits
from pillion_sidecar.reliability.states import Guard
from support.groups import WINDOW, Bed

IN_SEQUENCE, MISSING, HOPELESS = Guard.IN_SEQUENCE, Guard.PREDECESSORS_MISSING, Guard.HOPELESS
DUPLICATE, INVALID, NO_ROOM = Guard.DUPLICATE, Guard.INVALID, Guard.NO_ROOM


def delivered(bed: Bed, group: str = "g") -> list[int]:
    return [sequence for name, sequence in bed.queues.delivered if name == group]


def discarded(bed: Bed, group: str = "g") -> list[int]:
    return [sequence for name, sequence in bed.queues.discarded if name == group]


def ended(bed: Bed) -> list[str]:
    return [how for how, count in bed.groups.terminations.items() for _ in range(count)]


# ---------------------------------------------------------------------- order (S1.5)


def test_out_of_order_members_wait_and_are_delivered_in_sequence() -> None:
    bed = Bed()
    found = [bed.submit(n, ordered=True, idle=60) for n in (2, 0, 3, 1)]
    assert found == [MISSING, IN_SEQUENCE, MISSING, IN_SEQUENCE]
    assert delivered(bed) == [0, 1, 2, 3]
    assert (bed.groups.held, bed.groups.held_bytes) == (0, 0)


def test_an_unordered_group_holds_nothing_and_knows_its_duplicates() -> None:
    bed = Bed()
    assert [bed.submit(n) for n in (5, 0, 5, 3, 0)] == [
        IN_SEQUENCE,
        IN_SEQUENCE,
        DUPLICATE,
        IN_SEQUENCE,
        DUPLICATE,
    ]
    assert delivered(bed) == [5, 0, 3]


def test_a_held_member_is_a_duplicate_too() -> None:
    bed = Bed()
    bed.submit(1, ordered=True, idle=60)
    assert bed.submit(1, ordered=True, idle=60) is DUPLICATE
    assert bed.groups.held == 1


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 7), st.sampled_from([0.0, 1.0, 40.0])),
        max_size=60,
    )
)
def test_an_ordered_group_is_delivered_in_sequence_without_gaps(
    history: list[tuple[str, int, float]],
) -> None:
    """Against a model: within 30 s of silence every complete prefix is delivered, each once."""
    bed = Bed(window=10_000)
    received: dict[str, set[int]] = {"a": set(), "b": set()}
    failed: dict[str, bool] = {"a": False, "b": False}
    heard = {"a": 0.0, "b": 0.0}
    for group, sequence, pause in history:
        bed.time.advance(pause)
        now = bed.time.monotonic()
        if received[group] and now - heard[group] >= 30:
            failed[group] = True
        if failed[group]:
            # Another group of the name: its beginning is remembered from the first.
            continue
        if bed.submit(sequence, group=group, ordered=True, idle=30) is not DUPLICATE:
            heard[group] = now
        received[group].add(sequence)
        prefix = next(n for n in range(9) if n not in received[group])
        assert delivered(bed, group) == list(range(prefix))
    bed.time.advance(31)
    for group, numbers in received.items():
        beyond = sorted(numbers - set(delivered(bed, group)))
        assert discarded(bed, group) == beyond
    assert not bed.queues.held


# ---------------------------------------------------------------------- d1 to d3 (S1.6)


def test_d1_what_is_held_is_discarded_when_the_group_expires(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed()
    over = bed.time.time() + 100
    for sequence in (0, 2, 3, 7):
        bed.submit(sequence, ordered=True, group_expires=over, expires_in=1)
    bed.time.advance(99)
    assert bed.groups.held == 3
    with caplog.at_level(logging.INFO, logger="pillion.reliability"):
        bed.time.advance(1)
    assert (delivered(bed), discarded(bed)) == ([0], [2, 3, 7])
    assert ended(bed) == ["t1"]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    told = vars(record)
    assert (told["event"], told["group"], told["source"]) == ("group-terminated", "g", "s")
    assert (told["missing"], told["held_discarded"]) == ("1,4-6", 3)


def test_expiry_of_held_members_does_not_discard_them() -> None:
    bed = Bed()
    bed.submit(1, ordered=True, idle=1000, expires_in=5)
    bed.time.advance(500)
    assert bed.submit(0, ordered=True, idle=1000) is IN_SEQUENCE
    assert delivered(bed) == [0, 1]


def test_d2_what_is_held_is_discarded_after_the_idle_time() -> None:
    bed = Bed()
    bed.submit(1, ordered=True, idle=60)
    bed.time.advance(59)
    bed.submit(2, ordered=True, idle=60)
    bed.time.advance(59)
    assert bed.groups.held == 2
    bed.time.advance(1)
    assert discarded(bed) == [1, 2]
    assert ended(bed) == ["t2"]


def test_d2_a_long_group_is_discarded_in_turns() -> None:
    bed = Bed()
    for sequence in range(1, 2 * DISCARDS_PER_TURN + 2):
        bed.submit(sequence, ordered=True, idle=60)
    bed.submit(1, group="other", ordered=True, idle=60)
    turns = []
    bed.time.call_at(bed.time.monotonic() + 60, lambda: turns.append(len(discarded(bed))))
    bed.time.advance(60)
    # The loop had its turn between two parts.
    assert turns == [DISCARDS_PER_TURN]
    assert discarded(bed) == list(range(1, 2 * DISCARDS_PER_TURN + 2))
    assert discarded(bed, "other") == [1]
    assert (bed.groups.held, bed.groups.held_bytes) == (0, 0)


def test_d2_does_not_count_where_the_group_has_an_expiry() -> None:
    bed = Bed()
    over = bed.time.time() + 100
    bed.submit(1, ordered=True, idle=10, group_expires=over)
    bed.time.advance(99)
    assert discarded(bed) == []
    bed.time.advance(1)
    assert discarded(bed) == [1]


def test_d3_without_a_criterion_an_out_of_order_member_is_discarded_and_ends_the_group() -> None:
    bed = Bed()
    assert [bed.submit(n, ordered=True) for n in (0, 1, 3)] == [IN_SEQUENCE, IN_SEQUENCE, HOPELESS]
    assert (delivered(bed), discarded(bed)) == ([0, 1], [3])
    assert ended(bed) == ["d3"]
    assert not bed.queues.held


def test_d3_what_follows_belongs_to_a_new_group_and_the_old_one_is_asked_for_duplicates() -> None:
    bed = Bed()
    for sequence in (0, 1, 3):
        bed.submit(sequence, ordered=True)
    assert [bed.submit(n, ordered=True) for n in (0, 1, 3)] == [DUPLICATE] * 3
    # The draft's note: such a message would never be delivered.
    assert bed.submit(2, ordered=True) is HOPELESS
    assert (delivered(bed), discarded(bed)) == ([0, 1], [3, 2])


# ---------------------------------------------------------------------- t1 to t4 (S1.7)


def test_t1_ends_the_group_and_removes_its_state_at_once() -> None:
    bed = Bed()
    bed.submit(0, group_expires=bed.time.time() + 100, expires_in=50)
    bed.time.advance(100)
    assert ended(bed) == ["t1"]
    assert (bed.groups.active, bed.groups.remembered) == (0, 0)
    assert bed.submit(0, group_expires=bed.time.time() + 100) is IN_SEQUENCE


def test_t1_members_without_expires_keep_its_state_no_longer() -> None:
    bed = Bed()
    over = bed.time.time() + WINDOW / 2
    bed.submit(0, group_expires=over)
    bed.time.advance(WINDOW / 2)
    assert (ended(bed), bed.groups.remembered) == (["t1"], 0)
    assert bed.submit(0, group_expires=over + WINDOW) is IN_SEQUENCE


def test_t2_ends_the_group_and_its_state_goes_after_the_greatest_expiry() -> None:
    bed = Bed()
    bed.submit(0, idle=10, expires_in=500)
    bed.submit(1, idle=10, expires_in=100)
    bed.time.advance(10)
    assert ended(bed) == ["t2"]
    assert (bed.groups.active, bed.groups.remembered) == (0, 1)
    bed.time.advance(489)
    assert bed.submit(1, idle=10) is DUPLICATE
    bed.time.advance(1)
    assert bed.groups.remembered == 0
    assert bed.submit(1, idle=10) is IN_SEQUENCE


def test_t2_members_without_expires_are_remembered_for_the_window() -> None:
    bed = Bed()
    bed.submit(0, idle=10)
    bed.time.advance(WINDOW - 1)
    assert bed.submit(0, idle=10) is DUPLICATE
    bed.time.advance(1)
    assert bed.submit(0, idle=10) is IN_SEQUENCE


def test_t2_of_a_group_whose_members_have_all_expired_removes_its_state_at_once() -> None:
    bed = Bed()
    bed.submit(0, idle=10, expires_in=5)
    bed.time.advance(10)
    assert (ended(bed), bed.groups.remembered) == (["t2"], 0)


def test_t3_1_a_complete_group_ends_with_its_last_and_its_state_goes_by_t1() -> None:
    bed = Bed()
    over = bed.time.time() + 100
    bed.submit(0, group_expires=over, expires_in=1)
    bed.submit(1, group_expires=over, expires_in=1, last=True)
    assert ended(bed) == ["t3.1"]
    bed.time.advance(99)
    assert bed.submit(1, group_expires=over, last=True) is DUPLICATE
    bed.time.advance(1)
    assert bed.groups.remembered == 0


def test_t3_1_a_complete_group_ends_with_its_last_and_its_state_goes_by_t2() -> None:
    bed = Bed()
    bed.submit(0, idle=10, expires_in=100)
    bed.submit(1, idle=10, expires_in=50, last=True)
    assert ended(bed) == ["t3.1"]
    bed.time.advance(99)
    assert bed.submit(0, idle=10) is DUPLICATE
    bed.time.advance(1)
    assert bed.groups.remembered == 0


@pytest.mark.parametrize("ordered", [False, True])
def test_t3_2_an_incomplete_group_waits_for_t1(ordered: bool) -> None:
    bed = Bed()
    over = bed.time.time() + 100
    bed.submit(0, ordered=ordered, group_expires=over)
    bed.submit(2, ordered=ordered, group_expires=over, last=True)
    assert ended(bed) == []
    bed.time.advance(50)
    # Late messages may still arrive for it.
    assert bed.submit(1, ordered=ordered, group_expires=over) is IN_SEQUENCE
    assert sorted(delivered(bed)) == [0, 1, 2]
    bed.time.advance(50)
    assert (ended(bed), discarded(bed)) == (["t1"], [])


def test_t3_2_an_incomplete_group_waits_for_t2() -> None:
    bed = Bed()
    bed.submit(0, ordered=True, idle=10)
    bed.submit(2, ordered=True, idle=10, last=True)
    bed.time.advance(9)
    assert ended(bed) == []
    bed.time.advance(1)
    assert (ended(bed), discarded(bed)) == (["t2"], [2])


def test_t4_1_a_complete_group_without_criterion_ends_and_goes_after_the_greatest_expiry() -> None:
    bed = Bed()
    bed.submit(0, expires_in=100)
    bed.submit(1, expires_in=50, last=True)
    assert ended(bed) == ["t4.1"]
    bed.time.advance(99)
    assert bed.submit(0) is DUPLICATE
    bed.time.advance(1)
    assert bed.groups.remembered == 0


def test_t4_2_an_incomplete_group_without_criterion_ends_and_is_forgotten_at_once() -> None:
    bed = Bed()
    bed.submit(0, expires_in=100)
    bed.submit(2, expires_in=100, last=True)
    assert ended(bed) == ["t4.2"]
    assert (bed.groups.active, bed.groups.remembered) == (0, 0)
    assert bed.submit(0, expires_in=100) is IN_SEQUENCE


def test_t4_2_in_an_ordered_group_discards_the_last_too() -> None:
    bed = Bed()
    bed.submit(0, ordered=True)
    bed.submit(2, ordered=True, last=True)
    assert (ended(bed), discarded(bed)) == (["t4.2"], [2])


def test_a_complete_group_is_told_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed()
    with caplog.at_level(logging.INFO, logger="pillion.reliability"):
        bed.submit(0, last=True)
    (record,) = caplog.records
    assert (record.levelno, vars(record)["missing"]) == (logging.INFO, None)


def test_what_is_missing_is_told_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed()
    for sequence in range(1, 41, 2):
        bed.submit(sequence, ordered=True, idle=5)
    bed.time.advance(5)
    assert vars(caplog.records[-1])["missing"] == "0,2,4,6,8,10,12,14,…"


# ---------------------------------------------------------------------- agreement


@pytest.mark.parametrize(
    ("first", "second", "field"),
    [
        ({"ordered": True, "idle": 5}, {"ordered": False, "idle": 5}, "ordered"),
        ({"idle": 5}, {"idle": 6}, "groupMaxIdleSeconds"),
        ({"idle": 5}, {}, "groupMaxIdleSeconds"),
        ({}, {"idle": 5}, "groupMaxIdleSeconds"),
        ({"group_expires": 2e9}, {"group_expires": 2e9 + 1}, "groupExpires"),
        ({}, {"group_expires": 2e9}, "groupExpires"),
    ],
)
def test_a_member_that_contradicts_its_group_is_invalid(
    first: dict[str, float], second: dict[str, float], field: str
) -> None:
    bed = Bed()
    bed.submit(0, **first)  # type: ignore[arg-type]
    assert bed.submit(1, **second) is INVALID  # type: ignore[arg-type]
    # Another run under the same name is not swallowed as a repeat either.
    assert bed.submit(0, **second) is INVALID  # type: ignore[arg-type]
    assert bed.decision is not None
    assert bed.decision.field == field
    assert bed.decision.reason.startswith(f"{field}: ")


def test_nothing_follows_on_the_last_one() -> None:
    bed = Bed()
    bed.submit(0, idle=5)
    bed.submit(3, idle=5, last=True)
    assert bed.submit(4, idle=5) is INVALID
    assert bed.submit(2, idle=5, last=True) is INVALID
    assert bed.submit(2, idle=5) is IN_SEQUENCE


# ---------------------------------------------------------------------- a refusal, bounds, clocks


@pytest.mark.parametrize("sequence", [0, 1])
def test_a_refusal_by_the_queues_leaves_no_trace(sequence: int) -> None:
    bed = Bed()
    before = bed.groups.snapshot()
    bed.queues.refusal = Refusal(1.0, "full")
    assert bed.submit(sequence, ordered=True, idle=5) is NO_ROOM
    assert bed.groups.snapshot() == before
    assert bed.groups.hold_refusals["destination"] == sequence
    assert bed.time.next_due() is None
    bed.queues.refusal = None
    assert bed.submit(sequence, ordered=True, idle=5) is not DUPLICATE


def holding(bed: Bed, group: str, source: str, **options: Any) -> int:
    """Have a group hold what it can; return how many members that is."""
    for count in range(100):
        found = bed.submit(count + 1, group=group, source=source, ordered=True, idle=5, **options)
        if found is NO_ROOM:
            return count
    raise AssertionError("no bound")


def test_held_members_are_bounded_in_number_and_others_go_on() -> None:
    bed = Bed(limits=GroupLimits(held=8))
    # One group a quarter, one publisher half, all groups all.
    assert [holding(bed, "g", "a"), holding(bed, "h", "a"), holding(bed, "i", "a")] == [2, 2, 0]
    assert [holding(bed, "g", "b"), holding(bed, "h", "b"), holding(bed, "g", "c")] == [2, 2, 0]
    assert bed.groups.held == 8
    refusals = {"all": 2, "group": 3, "publisher": 1, "destination": 0}
    assert bed.groups.hold_refusals == refusals
    assert bed.submit(0, group="other") is IN_SEQUENCE
    assert bed.submit(0, group="g", source="a", ordered=True, idle=5) is IN_SEQUENCE
    assert delivered(bed) == [0, 1, 2]
    assert bed.submit(4, group="g", source="a", ordered=True, idle=5) is MISSING


def test_held_members_are_bounded_in_bytes_and_one_is_held_however_large() -> None:
    bed = Bed(limits=GroupLimits(held_bytes=400))
    assert holding(bed, "g", "a", body=b"x" * 50) == 2
    assert holding(bed, "h", "a", body=b"x" * 99) == 1
    assert holding(bed, "i", "a", body=b"x" * 2) == 0
    assert holding(bed, "g", "b", body=b"x" * 200) == 1
    assert holding(bed, "g", "c", body=b"x" * 2) == 0
    assert bed.groups.held_bytes == 399


def test_a_publisher_with_a_token_is_its_namespace_whatever_sources_it_names() -> None:
    bed = Bed(limits=GroupLimits(held=8))
    counts = [holding(bed, f"one/{source}", source, namespace="one") for source in "abc"]
    assert counts == [2, 2, 0]
    assert holding(bed, "two/g", "a", namespace="two") == 2


def test_what_a_group_that_ended_held_is_given_back_to_its_publisher() -> None:
    bed = Bed(limits=GroupLimits(held=8))
    assert [holding(bed, "g", "a"), holding(bed, "h", "a")] == [2, 2]
    bed.time.advance(6)
    assert bed.groups.held == 0
    assert [holding(bed, "i", "a"), holding(bed, "j", "a")] == [2, 2]


def test_groups_are_bounded_and_those_that_nothing_ends_give_way_when_nobody_needs_them() -> None:
    bed = Bed(limits=GroupLimits(groups=2))
    bed.submit(0, group="a", expires_in=10)
    bed.submit(0, group="b", idle=10_000)
    assert bed.submit(0, group="c") is NO_ROOM
    assert bed.submit(1, group="a", expires_in=10) is IN_SEQUENCE
    bed.time.advance(11)
    assert bed.submit(0, group="c") is IN_SEQUENCE
    assert bed.groups.active == 2
    assert bed.submit(0, group="b", idle=10_000) is DUPLICATE


def test_a_group_does_not_give_way_to_its_own_member() -> None:
    bed = Bed(limits=GroupLimits(state_bytes=120))
    assert bed.submit(0, group="a", ordered=True, expires_in=1) is IN_SEQUENCE
    bed.time.advance(50)
    assert bed.submit(1, group="a", ordered=True, expires_in=1) is IN_SEQUENCE


def test_gaps_are_bounded() -> None:
    bed = Bed(limits=GroupLimits(state_bytes=200))
    found = [bed.submit(2 * n) for n in range(20)]
    assert NO_ROOM in found
    assert bed.submit(1) is IN_SEQUENCE


def test_a_snapshot_of_full_groups_is_no_larger_than_was_counted() -> None:
    limits = GroupLimits(state_bytes=20_000)
    bed = Bed(limits=limits)
    for number in range(1000):
        bed.submit(2**62 + 2 * number, group=f"group {number % 50}", group_expires=2e9 + 0.1)
    assert 0 < len(bed.groups.snapshot()) <= limits.state_bytes


def test_many_groups_of_one_name_are_remembered_as_few() -> None:
    bed = Bed()
    for sequence in range(3 * MAXIMUM_PAST):
        bed.submit(2 * sequence + 1, ordered=True)
    assert bed.groups.remembered == MAXIMUM_PAST
    assert bed.submit(1, ordered=True) is DUPLICATE


def test_what_is_remembered_together_is_remembered_until_the_last_of_it_expires() -> None:
    bed = Bed()
    bed.submit(1, ordered=True, expires_in=100)
    for sequence in range(1, 3 * MAXIMUM_PAST):
        bed.submit(2 * sequence + 1, ordered=True, expires_in=10)
    bed.time.advance(99)
    assert bed.submit(1, ordered=True) is DUPLICATE
    bed.time.advance(1)
    assert bed.groups.remembered == 0


def test_a_clock_that_is_set_back_keeps_the_group_until_its_date() -> None:
    bed = Bed()
    over = bed.time.time() + 100
    bed.submit(1, ordered=True, group_expires=over)
    bed.time.step(-3600)
    bed.time.advance(200)
    assert (ended(bed), discarded(bed)) == ([], [])
    assert bed.submit(1, ordered=True, group_expires=over) is DUPLICATE
    bed.time.advance(3500)
    assert (ended(bed), discarded(bed)) == (["t1"], [1])


def test_a_clock_that_is_set_forward_is_followed_with_the_next_member() -> None:
    bed = Bed()
    over = bed.time.time() + 3600
    bed.submit(1, ordered=True, group_expires=over)
    bed.time.step(4000)
    bed.submit(0, group="other")
    assert (ended(bed), discarded(bed)) == (["t1"], [1])


def test_an_active_group_sets_one_timer() -> None:
    bed = Bed()
    due = []
    for sequence in range(5):
        bed.submit(sequence, idle=10)
        due.append(bed.time.next_due())
        bed.time.advance(1)
    assert set(due) == {1010.0}
    bed.time.advance(8)
    assert ended(bed) == []
    bed.time.advance(1)
    assert ended(bed) == ["t2"]
