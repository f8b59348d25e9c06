"""Destinations in trouble are tried again one after the other, and keep nobody."""

from pillion_sidecar.clock import BETWEEN_SLICES, MOST_AT_ONCE, Slices
from pillion_sidecar.testing import FakeTime
from support.delivery import ERROR, SUCCESS, Deliverer, destination

BAD = [f"bad-{number}" for number in range(4)]


def in_trouble() -> Deliverer:
    """Four destinations whose first attempt has failed, due now beside so much else that they
    wait."""
    time = FakeTime()
    slices = Slices(clock=time, timers=time)
    deliverer = Deliverer(time=time, slices=slices)
    deliverer.apply([*map(destination, BAD), destination("good")])
    for name in BAD:
        deliverer.handlers[name].answer = ERROR
    assert deliverer.publish("a", *BAD) is None
    deliverer.run()
    assert attempts(deliverer) == [1, 1, 1, 1]
    deliverer.advance(29.96875)
    for _ in range(MOST_AT_ONCE + 33):
        slices.add(lambda: None)
    deliverer.advance(0.03125)
    # Two are left before theirs.
    deliverer.advance(2 * BETWEEN_SLICES)
    return deliverer


def attempts(deliverer: Deliverer) -> list[int]:
    return [len(deliverer.handlers[name].attempts) for name in BAD]


def test_those_that_are_due_together_are_tried_in_turn() -> None:
    deliverer = in_trouble()
    assert attempts(deliverer) == [1, 1, 1, 1]
    seen = []
    for _ in BAD:
        deliverer.advance(BETWEEN_SLICES)
        seen.append(sum(attempts(deliverer)))
    assert seen == [5, 6, 7, 8]


def test_one_that_answers_does_not_wait_for_them() -> None:
    deliverer = in_trouble()
    assert deliverer.publish("b", "good") is None
    deliverer.run()
    assert deliverer.handlers["good"].identifiers == ["b"]
    assert attempts(deliverer) == [1, 1, 1, 1]


def test_what_comes_meanwhile_costs_none_its_place() -> None:
    deliverer = in_trouble()
    for identifier in "bcd":
        assert deliverer.publish(identifier, "bad-0") is None
        deliverer.run()
    deliverer.advance(BETWEEN_SLICES)
    assert attempts(deliverer) == [2, 1, 1, 1]


def test_one_that_is_removed_meanwhile_is_not_tried() -> None:
    deliverer = in_trouble()
    handlers = dict(deliverer.handlers)
    deliverer.apply([*map(destination, BAD[1:]), destination("good")])
    deliverer.advance(1.0)
    assert [len(handlers[name].attempts) for name in BAD] == [1, 2, 2, 2]


def test_one_that_has_recovered_is_not_delayed_any_more() -> None:
    deliverer = in_trouble()
    deliverer.handlers["bad-0"].answer = SUCCESS
    deliverer.advance(1.0)
    assert deliverer.handlers["bad-0"].identifiers == ["a", "a"]
    assert deliverer.publish("b", "bad-0") is None
    deliverer.run()
    assert deliverer.handlers["bad-0"].identifiers == ["a", "a", "b"]
