"""Rates of a queue against a count of every event, and when a queue falls behind."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.delivery.throughput import LATE_SECONDS, WINDOW, Throughput

#: A listener answers, and its deliveries are not late.
SOON = 0.05


def steady(made: Throughput, *, begin: float, end: float, accepted: int, delivered: int) -> None:
    """So many arrivals and deliveries per second."""
    at = begin
    while at < end:
        for _ in range(accepted):
            made.accept(at, is_first=False)
        for _ in range(delivered):
            made.deliver(SOON, at)
        at += 1


@pytest.mark.parametrize("now", [1.0, 7.0, 19.0, 20.0, 31.0, 40.0, 95.0])
def test_a_steady_rate_is_the_rate_at_any_time(now: float) -> None:
    made = Throughput()
    steady(made, begin=0.0, end=now, accepted=50, delivered=20)
    assert made.rates(now) == pytest.approx((50.0, 20.0), rel=0.06)


def test_the_rate_follows_a_change_within_two_windows() -> None:
    made = Throughput()
    steady(made, begin=0.0, end=100.0, accepted=50, delivered=50)
    steady(made, begin=100.0, end=100.0 + 2 * WINDOW, accepted=5, delivered=1)
    assert made.rates(100.0 + 2 * WINDOW) == pytest.approx((5.0, 1.0), rel=0.06)


def test_silence_ends_the_rate_without_an_event() -> None:
    made = Throughput()
    assert made.rates(1000.0) == (0.0, 0.0)
    steady(made, begin=1000.0, end=1030.0, accepted=10, delivered=10)
    falling = [made.rates(1030.0 + seconds).accepted for seconds in (0, 10, 20, 30)]
    assert falling == sorted(falling, reverse=True)
    assert made.rates(1030.0 + 2 * WINDOW) == (0.0, 0.0)


def test_what_follows_a_silence_counts_from_its_begin() -> None:
    made = Throughput()
    steady(made, begin=0.0, end=30.0, accepted=10, delivered=10)
    steady(made, begin=3600.0, end=3602.0, accepted=8, delivered=2)
    assert made.rates(3602.0) == (8.0, 2.0)


@given(
    steps=st.lists(st.tuples(st.floats(0.0, 2 * WINDOW), st.booleans()), min_size=1, max_size=60),
    later=st.floats(0.0, 3 * WINDOW),
)
def test_no_rate_is_more_than_all_that_came_lately(
    steps: list[tuple[float, bool]], later: float
) -> None:
    made, at, times = Throughput(), 0.0, []
    for step, arrives in steps:
        at += step
        times.append((at, arrives))
        if arrives:
            made.accept(at, is_first=False)
        else:
            made.deliver(SOON, at)
    now = at + later
    rates = made.rates(now)
    for rate, kind in ((rates.accepted, True), (rates.delivered, False)):
        lately = sum(moment >= now - 2 * WINDOW and of is kind for moment, of in times)
        assert 0 <= rate <= lately
    assert made.accepted + made.delivered == len(steps)


def test_its_memory_does_not_grow() -> None:
    made = Throughput()
    assert not hasattr(made, "__dict__")
    before = sys.getsizeof(made)
    steady(made, begin=0.0, end=500.0, accepted=3, delivered=2)
    held = [getattr(made, name) for name in made.__slots__]
    assert all(isinstance(one, int | float | tuple | None) for one in held)
    assert sys.getsizeof(made) == before


def behind(made: Throughput, now: float) -> tuple[float | None, bool]:
    made.deliver(LATE_SECONDS, now)
    return made.behind_since, made.is_slow


def test_it_is_slow_once_a_delivery_is_late_and_more_come_than_are_delivered() -> None:
    made = Throughput()
    steady(made, begin=0.0, end=15.0, accepted=20, delivered=5)
    made.deliver(LATE_SECONDS - 0.1, 15.0)
    assert (made.behind_since, made.is_slow) == (None, False)
    assert behind(made, 16.0) == (16.0, True)
    assert behind(made, 17.0) == (16.0, True)


def test_late_deliveries_of_what_has_waited_are_not_slow() -> None:
    made = Throughput()
    steady(made, begin=0.0, end=15.0, accepted=5, delivered=20)
    assert behind(made, 15.0) == (15.0, False)


def test_about_as_many_as_are_delivered_change_nothing() -> None:
    for rates, is_slow in (((20, 5), True), ((5, 20), False)):
        made = Throughput()
        steady(made, begin=0.0, end=40.0, accepted=rates[0], delivered=rates[1])
        assert behind(made, 40.0)[1] is is_slow
        # Twenty arrive for each nineteen that are delivered.
        for second in range(40, 120):
            for _ in range(19):
                made.accept(float(second), is_first=False)
                made.deliver(LATE_SECONDS, float(second))
            made.accept(float(second), is_first=False)
        assert made.is_slow is is_slow


def test_it_is_slow_no_more_when_it_takes_more_than_arrive() -> None:
    made = Throughput()
    steady(made, begin=0.0, end=40.0, accepted=20, delivered=5)
    assert behind(made, 40.0) == (40.0, True)
    for second in range(41, 81):
        for _ in range(30):
            made.deliver(LATE_SECONDS, float(second))
    assert (made.behind_since, made.is_slow) == (40.0, False)


@pytest.mark.parametrize(("age", "is_behind"), [(LATE_SECONDS / 2, True), (4.9, False)])
def test_it_is_behind_until_a_delivery_is_in_time(age: float, is_behind: bool) -> None:
    made = Throughput()
    steady(made, begin=0.0, end=40.0, accepted=20, delivered=5)
    behind(made, 40.0)
    made.deliver(age, 41.0)
    assert (made.behind_since is not None, made.is_slow) == (is_behind, is_behind)


def test_it_is_behind_no_more_when_it_was_empty() -> None:
    made = Throughput()
    steady(made, begin=0.0, end=40.0, accepted=20, delivered=5)
    assert behind(made, 40.0) == (40.0, True)
    made.accept(41.0, is_first=True)
    assert (made.behind_since, made.is_slow) == (None, False)
