import math

import pytest

from pillion_operator.polling.schedule import (
    INTERVAL,
    Schedule,
    Turns,
    fair_share,
    poll_interval,
)


def test_the_interval_stretches_with_the_number_of_pods() -> None:
    assert poll_interval(0, share=math.inf) == poll_interval(10, share=math.inf) == INTERVAL
    alone = fair_share([5000], rate=100)
    assert poll_interval(5000, share=alone) == 100.0
    # Half of the rate is left for those that are not calm.
    assert 5000 / poll_interval(5000, share=alone) == 50.0


def test_there_is_enough_for_a_few() -> None:
    assert fair_share([]) == math.inf
    assert fair_share([500], rate=100, least=10.0) == math.inf
    assert fair_share([250, 250], rate=100, least=10.0) == math.inf


def test_many_pods_stretch_the_interval_of_their_own_namespace_alone() -> None:
    counts = [10_000, 10, 200]
    share = fair_share(counts, rate=100, least=10.0)

    # What the small ones do not take of their parts is the large one's.
    assert share == 50.0 - 1.0 - 20.0
    assert [poll_interval(count, share=share) for count in counts] == [
        10_000 / 29.0,
        INTERVAL,
        INTERVAL,
    ]


def test_large_namespaces_have_equal_parts_of_what_the_small_ones_leave() -> None:
    counts = [4000, 10, 2000, 3000]
    share = fair_share(counts, rate=100, least=10.0)

    assert share == pytest.approx(49.0 / 3)
    taken = sum(count / poll_interval(count, share=share) for count in counts)
    assert taken == pytest.approx(50.0)


def test_the_first_due_comes_first() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.put("late", 9.0)
    schedule.put("early", 1.0)
    schedule.put("as early", 1.0)

    assert schedule.next_due() == 1.0
    assert [schedule.pop(), schedule.pop(), schedule.pop()] == ["early", "as early", "late"]
    assert schedule.next_due() == math.inf
    with pytest.raises(IndexError):
        schedule.pop()


def test_an_item_is_due_once_at_the_moment_it_was_given_last() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.put("one", 1.0)
    schedule.put("one", 5.0)

    assert schedule.next_due() == 5.0
    assert schedule.pop() == "one"
    assert schedule.next_due() == math.inf


def test_what_is_dropped_is_never_due() -> None:
    schedule: Schedule[str] = Schedule()
    schedule.put("gone", 1.0)
    schedule.drop("gone")
    schedule.drop("never there")

    assert schedule.next_due() == math.inf


def test_moving_items_about_leaves_nothing_behind() -> None:
    schedule: Schedule[str] = Schedule()
    for moment in range(10_000):
        schedule.put("one", float(moment))

    assert len(schedule._heap) < 100
    assert schedule.next_due() == 9999.0


def turns_of(*groups: tuple[str, int], most: int = 100) -> Turns[str]:
    """Groups with so many items each, all of them due at 1."""
    turns: Turns[str] = Turns(most=most)
    for group, count in groups:
        for number in range(count):
            turns.put(f"{group}{number}", 1.0, group=group)
    return turns


def served(turns: Turns[str], now: float) -> list[str]:
    """All that may be taken out at a moment."""
    items = []
    while turns.next_due() <= now:
        items.append(turns.pop(now)[0])
    return items


def test_groups_are_served_in_turn_however_many_are_due_in_any() -> None:
    turns = turns_of(("large", 5), ("small", 2), ("smaller", 1))

    first = [turns.pop(2.0 + number)[1] for number in range(5)]

    assert first == ["large", "small", "smaller", "large", "small"]
    assert served(turns, 9.0) == ["large2", "large3", "large4"]
    assert turns.next_due() == math.inf


def test_who_becomes_due_is_served_next_though_many_of_another_group_wait() -> None:
    turns = turns_of(("large", 50))
    turns.put("small0", 5.0, group="small")
    for now in (2.0, 3.0, 4.0, 5.0):
        assert turns.pop(now)[1] == "large"

    assert turns.pop(5.1) == ("small0", "small")


def test_a_group_has_only_so_many_out_at_once() -> None:
    turns = turns_of(("large", 5), ("small", 1), most=2)

    assert served(turns, 1.0) == ["large0", "small0", "large1"]
    assert turns.next_due() == math.inf
    turns.done("large")
    assert served(turns, 2.0) == ["large2"]
    turns.done("small")
    turns.done("large")
    turns.done("large")
    assert served(turns, 2.0) == ["large3", "large4"]


def test_an_item_waits_in_the_group_in_which_it_was_put_last() -> None:
    turns = turns_of(("one", 1))
    turns.put("one0", 3.0, group="another")

    assert turns.next_due() == 3.0
    assert turns.pop(3.0) == ("one0", "another")
    assert turns.next_due() == math.inf


def test_what_is_dropped_takes_no_turn_and_nothing_is_kept_of_it() -> None:
    turns = turns_of(("one", 2))
    turns.drop("never there")
    turns.drop("one0")
    turns.drop("one1")

    assert turns.next_due() == math.inf
    with pytest.raises(IndexError):
        turns.pop(9.0)
    turns.put("two0", 1.0, group="two")
    turns.done(turns.pop(1.0)[1])
    assert turns._groups == {}
    assert turns._group_of == {}
