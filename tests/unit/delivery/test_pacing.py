"""``rateLimit`` of a destination: a token bucket in front of its attempts, on fake time."""

import asyncio
import math
from itertools import combinations, count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import Ordering, RemovalPolicy, RetryPolicy
from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.delivery.retry import limited_until, next_attempt_at
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.pacing import Pace
from support.delivery import ERROR, HELD, SUCCESS, Deliverer, destination
from support.fake_journal import FakeJournal
from support.journaled import restarted, settle_loads


@pytest.fixture
def deliverer() -> Deliverer:
    return Deliverer()


def limit(per_second: float, burst: int | None = None) -> RateLimit:
    return RateLimit(per_second=per_second, burst=burst)


def publish(deliverer: Deliverer, count: int, *to: str) -> list[str]:
    names = [f"{number:03}" for number in range(count)]
    for name in names:
        deliverer.publish(name, *to)
    return names


def since_start(deliverer: Deliverer, name: str = "ops") -> list[float]:
    return [at - 1000.0 for at in deliverer.handlers[name].times]


# ------------------------------------------------------------------ the bucket


RATES = st.one_of(st.sampled_from([0.001, 0.1, 1 / 3, 1.0, 7.0, 1000.0]), st.floats(0.01, 1e4))
GAPS = st.lists(st.floats(0, 20), min_size=1, max_size=40)


@given(rate=RATES, burst=st.integers(1, 12), gaps=GAPS)
def test_no_time_sees_more_than_the_burst_and_the_rate(rate, burst, gaps):
    pace, now, spent = Pace(limit(rate, burst)), 1e6, []
    for gap in gaps:
        now += gap / rate
        while pace.due() <= now and len(spent) < 200:
            pace.spend(now)
            spent.append(now)
    for (first, begin), (last, end) in combinations(enumerate(spent), 2):
        assert last - first + 1 <= burst + rate * (end - begin) + 1e-3


@given(rate=RATES, burst=st.integers(1, 12), count=st.integers(1, 60))
def test_the_limit_is_used_fully(rate, burst, count):
    pace, now = Pace(limit(rate, burst)), 1000.0
    for _ in range(burst + count):
        now = max(now, pace.due())
        pace.spend(now)
    assert now - 1000.0 == pytest.approx(count / rate, rel=1e-6, abs=1e-9)


def test_the_default_burst_is_the_rate_rounded_up():
    assert [limit(rate).most_at_once for rate in (0.001, 1.0, 2.5)] == [1, 1, 3]


def test_several_tokens_are_due_later_than_one():
    pace = Pace(limit(2.0, 4))
    for _ in range(4):
        pace.spend(1000.0)
    assert (pace.due(), pace.due(4)) == (1000.5, 1002.0)


def test_an_old_burst_does_not_delay_beyond_the_new_one():
    pace = Pace(limit(10.0, 10))
    for _ in range(10):
        pace.spend(1000.0)
    pace.change(limit(0.1, 1))
    assert pace.due() == 1010.0


# ------------------------------------------------------------------ attempts


def test_attempts_keep_to_the_limit_in_order(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(2.0, 3))])
    names = publish(deliverer, 6)
    deliverer.advance(10)
    assert deliverer.handlers["ops"].identifiers == names
    assert since_start(deliverer) == [0, 0, 0, 0.5, 1.0, 1.5]


def test_unspent_tokens_are_kept_up_to_the_burst(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(1.0, 2))])
    deliverer.advance(100)
    publish(deliverer, 4)
    deliverer.advance(10)
    assert since_start(deliverer) == [100, 100, 101, 102]


def test_what_waits_for_the_limit_is_not_failing_and_spends_nothing(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(0.1))])
    publish(deliverer, 2)
    deliverer.run()
    queue = deliverer.queue("ops")
    assert (queue.health.failing_since, queue.health.next_attempt_at) == (None, None)
    assert next_attempt_at(queue, deliverer.time.monotonic()) == 1010.0
    deliverer.advance(10)
    assert [one.attempt for one in deliverer.handlers["ops"].attempts] == [1, 1]


def test_a_retry_counts(deliverer):
    deliverer.answer = ERROR
    retry = RetryPolicy(attempts=3, interval_seconds=1.0)
    deliverer.apply([destination("ops", retry=retry, rate_limit=limit(0.1))])
    publish(deliverer, 1)
    deliverer.advance(15)
    assert since_start(deliverer) == [0, 10]


def test_a_retry_waits_for_its_interval_too(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", rate_limit=limit(0.1))])
    publish(deliverer, 1)
    deliverer.advance(60)
    assert since_start(deliverer) == [0, 30, 60]


def test_another_destination_does_not_wait(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(0.1)), destination("siem")])
    names = publish(deliverer, 5)
    deliverer.run()
    assert deliverer.handlers["siem"].identifiers == names
    assert deliverer.handlers["ops"].identifiers == names[:1]


@pytest.mark.parametrize("ordering", [Ordering.NONE, Ordering.GROUP])
def test_attempts_at_the_same_time_keep_to_the_limit(deliverer, ordering):
    deliverer.answer = None
    deliverer.apply(
        [destination("ops", ordering=ordering, max_in_flight=100, rate_limit=limit(2.0, 4))]
    )
    for number in range(20):
        deliverer.publish(str(number), group=f"group-{number}")
    deliverer.advance(2)
    assert since_start(deliverer) == [0, 0, 0, 0, 0.5, 1.0, 1.5, 2.0]


def test_one_timer_serves_all_that_wait(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(0.1))])
    publish(deliverer, 50)
    deliverer.run()
    live = [entry for entry in deliverer.time._heap if entry[2].callback is not None]
    assert len(live) == 1


def test_the_lifetime_goes_on_while_it_waits(deliverer):
    deliverer.apply([destination("ops", indication_lifetime_seconds=25.0, rate_limit=limit(0.1))])
    names = publish(deliverer, 5)
    deliverer.advance(60)
    assert deliverer.settlements.delivered == names[:3]
    assert deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == names[3:]
    assert since_start(deliverer) == [0, 10, 20]


def test_a_full_queue_refuses_as_for_a_slow_listener(deliverer):
    deliverer.apply(
        [
            destination(
                "ops",
                queue_size=2,
                queue_full_policy=QueueFullPolicy.ADAPTIVE,
                rate_limit=limit(0.1),
            )
        ]
    )
    deliverer.publish("a")
    deliverer.run()
    taken = [deliverer.publish(name) is None for name in "bcd"]
    assert taken == [True, True, False]
    deliverer.advance(10)
    assert deliverer.publish("e") is None


def test_a_suspended_or_held_queue_does_not_wait_for_the_limit(deliverer):
    limited = destination("ops", rate_limit=limit(0.1))
    deliverer.apply([limited])
    publish(deliverer, 3)
    deliverer.advance(5)
    queue = deliverer.queue("ops")
    assert queue.pace is not None
    deliverer.apply([destination("ops", suspended=True, rate_limit=limit(0.1))])
    deliverer.advance(50)
    assert queue.pace.waited(deliverer.time.monotonic()) == 5.0
    assert limited_until(queue, deliverer.time.monotonic()) is None
    deliverer.apply([limited])
    deliverer.handlers["ops"].answer = HELD
    deliverer.advance(12)
    assert queue.health.hold is not None
    assert limited_until(queue, deliverer.time.monotonic()) is None


def test_the_seconds_of_waiting_are_counted_once(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(0.1))])
    publish(deliverer, 3)
    deliverer.advance(4)
    deliverer.publish("late")
    deliverer.advance(100)
    pace = deliverer.queue("ops").pace
    assert pace is not None
    assert pace.waited(deliverer.time.monotonic()) == pytest.approx(30.0)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 8)),
        st.tuples(st.just("advance"), st.floats(0, 12)),
        st.tuples(st.just("answer"), st.booleans()),
        st.tuples(st.just("suspend"), st.booleans()),
        st.tuples(st.just("hasten"), st.none()),
        st.tuples(st.just("skip"), st.none()),
        st.tuples(st.just("purge"), st.none()),
    ),
    max_size=25,
)


class Played:
    """A limited destination, to which anything happens."""

    def __init__(self, rate_limit: RateLimit, *, in_flight: int) -> None:
        self.deliverer = Deliverer()
        self._spec: dict[str, Any] = {
            "rate_limit": rate_limit,
            "retry": RetryPolicy(attempts=None, interval_seconds=2.0),
            "indication_lifetime_seconds": 0.0,
            "max_in_flight": in_flight,
            "ordering": Ordering.DESTINATION if in_flight == 1 else Ordering.NONE,
        }
        self._numbers = count()
        self.suspend(False)
        self.handler = self.deliverer.handlers["ops"]

    def suspend(self, suspended: bool) -> None:
        self.deliverer.apply([destination("ops", suspended=suspended, **self._spec)])

    def publish(self, number: int) -> None:
        for _ in range(number):
            self.deliverer.publish(str(next(self._numbers)))

    def advance(self, seconds: float) -> None:
        self.deliverer.advance(seconds)

    def answer(self, well: bool) -> None:
        self.handler.answer = SUCCESS if well else ERROR

    def hasten(self, _: None) -> None:
        self.deliverer.service.hasten()

    def skip(self, _: None) -> None:
        self.deliverer.service.skip("ops")

    def purge(self, _: None) -> None:
        self.deliverer.service.purge("ops")


@given(
    steps=_STEPS,
    rate=st.sampled_from([0.1, 1.0, 3.0]),
    burst=st.integers(1, 5),
    in_flight=st.sampled_from([1, 4]),
)
def test_whatever_happens_the_limit_holds_and_everything_goes_in_the_end(
    steps, rate, burst, in_flight
):
    played = Played(limit(rate, burst), in_flight=in_flight)
    for step, value in steps:
        getattr(played, step)(value)
        played.deliverer.run()
    played.suspend(False)
    played.answer(True)
    queue = played.deliverer.queue("ops")
    # A retry may wait, and the bucket is empty at most.
    played.advance(2.0 + (queue.depth + 1) / rate)
    assert queue.depth == 0
    for (first, begin), (last, end) in combinations(enumerate(played.handler.times), 2):
        assert last - first + 1 <= burst + rate * (end - begin) + 1e-6
    if in_flight == 1:
        delivered = [int(name) for name in played.deliverer.settlements.delivered if name]
        assert delivered == sorted(delivered)


# ------------------------------------------------------------------ changes


def test_a_changed_limit_takes_effect_at_once(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(0.001))])
    publish(deliverer, 4)
    deliverer.advance(1)
    deliverer.apply([destination("ops", rate_limit=limit(1.0))])
    deliverer.advance(5)
    assert since_start(deliverer) == [0, 1, 2, 3]


def test_a_revision_with_the_same_limit_gives_no_second_burst(deliverer):
    for _ in range(3):
        deliverer.apply([destination("ops", rate_limit=limit(0.1, 2), timeout_seconds=30.0)])
        publish(deliverer, 2)
        deliverer.run()
        deliverer.apply([destination("ops", rate_limit=limit(0.1, 2), timeout_seconds=40.0)])
    deliverer.run()
    assert len(deliverer.settlements.delivered) == 2


def test_a_removed_limit_lets_everything_go(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(0.001))])
    names = publish(deliverer, 4)
    deliverer.advance(1)
    deliverer.apply([destination("ops")])
    assert deliverer.settlements.delivered == names


def test_a_removed_destination_that_drains_keeps_to_its_limit(deliverer):
    drains = {"removal_policy": RemovalPolicy.DRAIN, "rate_limit": limit(0.1)}
    deliverer.apply([destination("ops", **drains)])
    names = publish(deliverer, 3)
    deliverer.run()
    deliverer.apply([], subscriptions=[])
    deliverer.advance(20)
    assert since_start(deliverer) == [0, 10, 20]
    assert deliverer.settlements.delivered == names
    assert deliverer.service.queue("ops") is None


def test_a_step_of_the_wall_clock_changes_nothing(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(0.1))])
    publish(deliverer, 3)
    deliverer.run()
    deliverer.time.step(-86_400)
    deliverer.advance(10)
    deliverer.time.step(86_400 * 365)
    deliverer.advance(10)
    assert since_start(deliverer) == [0, 10, 20]


def test_a_relayed_destination_is_limited_at_the_gateway_alone(deliverer):
    deliverer.apply([destination("ops", relay_to="hub", rate_limit=limit(0.1))])
    publish(deliverer, 20)
    deliverer.run()
    assert len(deliverer.handlers["ops"].attempts) == 20
    assert deliverer.queue("ops").pace is None


def test_a_purge_ends_the_wait(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(0.1))])
    publish(deliverer, 3)
    deliverer.run()
    deliverer.service.purge("ops")
    deliverer.run()
    assert deliverer.time.next_due() is None
    assert limited_until(deliverer.queue("ops"), deliverer.time.monotonic()) is None


def test_a_restarted_queue_begins_without_a_burst():
    journal = FakeJournal()
    before = Deliverer(journal=journal)
    before.apply([destination("ops", rate_limit=limit(0.1, 2))])
    publish(before, 5)
    journal.commit()
    before.run()
    assert len(before.handlers["ops"].attempts) == 2
    again = restarted(journal)
    again.apply([destination("ops", rate_limit=limit(0.1, 2))])
    settle_loads(again, journal)
    again.advance(20)
    assert since_start(again) == [10, 20]


def test_a_new_bucket_is_full_and_an_emptied_one_is_not():
    pace = Pace(limit(0.5, 2))
    assert pace.due(2) == -math.inf
    pace.empty(1000.0)
    assert (pace.due(), pace.due(2)) == (1002.0, 1004.0)


# ------------------------------------------------------------------ the end


@pytest.mark.parametrize(("grace", "delivered"), [(5.0, 1), (25.0, 3), (60.0, 4)])
async def test_the_limit_holds_during_a_drain(deliverer, grace, delivered):
    deliverer.apply([destination("ops", rate_limit=limit(0.1))])
    publish(deliverer, 4)
    deliverer.run()
    draining = asyncio.ensure_future(deliverer.service.drain(grace))
    await asyncio.sleep(0)
    while not draining.done():
        deliverer.advance(0.25)
        await asyncio.sleep(0)
    assert await draining == 4 - delivered
    assert since_start(deliverer) == [0, 10, 20, 30][:delivered]


async def test_a_drain_does_not_wait_for_what_is_due_after_it(deliverer):
    deliverer.apply([destination("ops", rate_limit=limit(0.1))])
    publish(deliverer, 2)
    deliverer.run()
    draining = asyncio.ensure_future(deliverer.service.drain(9.0))
    for _ in range(3):
        await asyncio.sleep(0)
    assert draining.done()


def test_a_greater_burst_comes_at_the_rate_whatever_was_in_between() -> None:
    pace = Pace(RateLimit(per_second=1.0, burst=100))
    pace.empty(1000.0)
    for burst in (1, 100, 1, 100):
        pace.change(RateLimit(per_second=1.0, burst=burst))
    assert pace.due() == 1001.0
    assert pace.due(tokens=50) == 1050.0
