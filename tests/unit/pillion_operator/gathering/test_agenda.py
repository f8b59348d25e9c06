import math

import pytest

from pillion_operator.gathering.agenda import Agenda


def test_the_first_due_comes_first() -> None:
    agenda: Agenda[str] = Agenda()
    agenda.put("late", 9.0)
    agenda.put("early", 1.0)
    agenda.put("as early", 1.0)

    assert agenda.next_due() == 1.0
    assert [agenda.pop(), agenda.pop(), agenda.pop()] == ["early", "as early", "late"]
    assert agenda.next_due() == math.inf
    with pytest.raises(IndexError):
        agenda.pop()


def test_an_item_is_due_once_at_the_moment_it_was_given_last() -> None:
    agenda: Agenda[str] = Agenda()
    agenda.put("one", 1.0)
    agenda.put("one", 5.0)

    assert agenda.next_due() == 5.0
    assert agenda.pop() == "one"
    assert agenda.next_due() == math.inf


def test_what_is_dropped_is_never_due() -> None:
    agenda: Agenda[str] = Agenda()
    agenda.put("gone", 1.0)
    agenda.drop("gone")
    agenda.drop("never there")

    assert agenda.next_due() == math.inf


def test_moving_items_about_leaves_nothing_behind() -> None:
    agenda: Agenda[str] = Agenda()
    for moment in range(10_000):
        agenda.put("one", float(moment))

    assert len(agenda._heap) < 100
    assert agenda.next_due() == 9999.0
