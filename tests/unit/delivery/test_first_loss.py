"""When the first indication is due to be lost, against when it is (S0.12)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import Backoff, RemovalPolicy, RetryPolicy
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.delivery.retry import (
    HORIZON,
    first_loss,
    first_loss_due,
    full_at,
    full_due,
    last_attempt_at,
    slow_since,
)
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, HELD, SUCCESS, Deliverer, destination
from support.fake_journal import FakeJournal

ATTEMPTS, LIFETIME = DiscardReason.ATTEMPTS_EXCEEDED, DiscardReason.LIFETIME_EXPIRED
FIXED = RetryPolicy(attempts=3, interval_seconds=30.0)
GROWING = RetryPolicy(
    attempts=5, interval_seconds=10.0, backoff=Backoff.EXPONENTIAL, maximum_interval_seconds=60.0
)


def failing(**changes: object) -> Deliverer:
    """A deliverer whose listener has just failed for the first time, with one indication."""
    made = Deliverer()
    made.answer = ERROR
    made.apply([destination("ops", **changes)])
    made.publish("a")
    made.run()
    return made


def due(made: Deliverer) -> float | None:
    """In how many seconds the first loss is due."""
    now = made.time.monotonic()
    at = first_loss_due(made.queue("ops"), now)
    return None if at is None else at - now


def why(made: Deliverer) -> DiscardReason | None:
    loss = first_loss(made.queue("ops"), made.time.monotonic())
    return None if loss is None else loss.reason


def test_a_queue_with_nothing_pending_loses_nothing() -> None:
    made = Deliverer()
    made.apply([destination("ops")])
    assert due(made) is None
    made.publish("a")
    made.run()
    assert made.settlements.delivered == ["a"]
    assert due(made) is None


@pytest.mark.parametrize(
    ("changes", "seconds", "reason"),
    [
        ({"retry": FIXED}, 90, ATTEMPTS),
        ({"retry": GROWING}, 10 + 20 + 40 + 60 + 60, ATTEMPTS),
        ({"retry": FIXED, "indication_lifetime_seconds": 45.0}, 45, LIFETIME),
        (
            {"retry": RetryPolicy(attempts=None), "indication_lifetime_seconds": 600.0},
            600,
            LIFETIME,
        ),
    ],
)
def test_the_first_loss_happens_when_it_was_due_and_not_before(
    changes: dict[str, object], seconds: float, reason: DiscardReason
) -> None:
    made = failing(**changes)
    told = due(made)
    assert (told, why(made)) == (seconds, reason)
    for part in (0.3, 0.6, 0.9):
        made.advance(told * 0.3)
        assert due(made) == pytest.approx(told * (1 - part))
    made.advance(told * 0.1 - 0.01)
    assert not made.settlements.seen
    made.advance(0.02)
    assert made.settlements.discarded(reason) == ["a"]


def test_the_next_in_the_queue_has_its_attempts_before_it() -> None:
    made = failing(retry=FIXED)
    made.publish("b")
    made.advance(90)
    assert len(made.settlements.seen) == 1
    # Its first attempt is due after the interval, and three retries follow.
    assert due(made) == 120
    made.advance(119.9)
    assert len(made.settlements.seen) == 1
    made.advance(0.2)
    assert len(made.settlements.seen) == 2


def test_jitter_makes_it_due_as_early_as_it_can_be() -> None:
    made = failing(retry=RetryPolicy(attempts=2, interval_seconds=100.0, jitter=0.5))
    # The wait under way is known, the next one may be half as long.
    assert due(made) == 100 + 50


def test_an_indication_that_its_listener_refuses_is_due_after_its_third_refusal() -> None:
    made = Deliverer()
    made.answer = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 422", 422, refuses_indication=True)
    policy = RetryPolicy(attempts=None, interval_seconds=30.0)
    made.apply([destination("ops", retry=policy, indication_lifetime_seconds=0.0)])
    made.publish("a")
    made.run()
    assert (due(made), why(made)) == (60, DiscardReason.FATAL_ERROR)
    made.advance(59.9)
    assert not made.settlements.seen
    made.advance(0.2)
    assert made.settlements.discarded(DiscardReason.FATAL_ERROR) == ["a"]


def test_a_held_queue_is_due_only_once_it_is_full() -> None:
    made = Deliverer()
    made.answer = HELD
    made.apply([destination("ops", retry=FIXED, queue_size=1000)])
    made.publish("a")
    made.run()
    made.advance(3600)
    now = made.time.monotonic()
    assert due(made) == pytest.approx(full_at(room=999, depth=1, age=3600, now=now) - now)


def test_no_limit_of_attempts_and_no_lifetime_lose_nothing_until_the_queue_is_full() -> None:
    made = failing(
        retry=RetryPolicy(attempts=None),
        indication_lifetime_seconds=0.0,
        queue_full_policy=QueueFullPolicy.REJECT,
    )
    made.advance(1000)
    assert due(made) is None


def test_a_suspended_queue_loses_nothing_while_there_is_room_and_then_its_oldest() -> None:
    made = Deliverer()
    made.apply([destination("ops", suspended=True, queue_size=10)])
    made.publish("0")
    made.advance(10)
    made.publish("1")
    # Two in ten seconds, eight places: at this rate it is full after forty.
    assert due(made) == 40
    for number in range(2, 10):
        made.publish(str(number))
    assert (due(made), why(made)) == (0, DiscardReason.QUEUE_FULL)
    made.publish("10")
    assert made.settlements.discarded(DiscardReason.QUEUE_FULL) == ["0"]


def test_a_queue_that_pushes_back_is_never_due_for_being_full() -> None:
    made = Deliverer()
    made.apply(
        [destination("ops", suspended=True, queue_size=2, queue_full_policy=QueueFullPolicy.REJECT)]
    )
    made.publish("a")
    made.publish("b")
    assert due(made) is None


def test_time_of_suspension_moves_the_due_time() -> None:
    made = failing(retry=RetryPolicy(attempts=None), indication_lifetime_seconds=600.0)
    made.advance(100)
    changed = {"retry": RetryPolicy(attempts=None), "indication_lifetime_seconds": 600.0}
    made.apply([destination("ops", suspended=True, **changed)])
    made.advance(5000)
    made.apply([destination("ops", **changed)])
    assert due(made) == 500


def test_a_listener_that_is_back_takes_the_due_time_away() -> None:
    made = failing(retry=FIXED)
    made.answer = SUCCESS
    made.handlers["ops"].answer = SUCCESS
    made.advance(30)
    assert made.settlements.delivered == ["a"]
    assert due(made) is None


def test_a_queue_that_drains_gets_nothing_more_and_is_never_full() -> None:
    made = failing(
        retry=RetryPolicy(attempts=None),
        indication_lifetime_seconds=0.0,
        queue_size=1,
        removal_policy=RemovalPolicy.DRAIN,
    )
    made.advance(100)
    assert due(made) == 0
    made.apply([])
    assert made.queue("ops").draining
    assert due(made) is None


def test_on_disk_by_default_the_first_loss_is_due_a_day_after_acceptance() -> None:
    journal = FakeJournal()
    made = Deliverer(journal=journal)
    made.answer = ERROR
    made.apply([destination("ops", retry=None)])
    made.publish("a")
    journal.commit()
    made.run()
    assert due(made) == 86_400
    made.advance(3600)
    assert due(made) == 86_400 - 3600


def test_what_would_be_full_in_more_than_a_year_is_not_forecast() -> None:
    assert full_at(room=10_000_000, depth=1, age=864_000.0, now=0.0) is None
    assert full_at(room=1, depth=1, age=HORIZON, now=5.0) == HORIZON + 5.0


@given(
    made=st.integers(0, 12),
    failures=st.integers(0, 100),
    attempts=st.integers(0, 10),
    jitter=st.sampled_from((0.0, 0.2, 1.0)),
)
def test_the_last_attempt_is_never_before_the_next(
    made: int, failures: int, attempts: int, jitter: float
) -> None:
    policy = RetryPolicy(attempts=attempts, interval_seconds=30.0, jitter=jitter)
    at = last_attempt_at(policy, made=made, failures=failures, next_attempt_at=7.0)
    assert at is not None
    assert at >= 7.0
    assert math.isfinite(at)


def test_a_full_queue_is_due_to_give_way_with_the_next_failed_attempt() -> None:
    made = failing(queue_size=2, retry=RetryPolicy(attempts=None, interval_seconds=30.0))
    made.publish("b")
    made.run()
    assert due(made) == 30.0
    made.advance(30.0)
    made.publish("c")
    made.run()
    assert made.settlements.discarded(DiscardReason.QUEUE_FULL) == ["a"]


# ---------------------------------------------------------------------- a listener that answers


class Slow:
    """A listener that takes so many a second of those that are published."""

    def __init__(self, *, arrive: int, taken: int, **changes: object) -> None:
        self.made = Deliverer()
        self.made.answer = None
        self.made.apply([destination("ops", retry=RetryPolicy(attempts=None), **changes)])
        self.arrive, self.taken = arrive, taken
        self._number = 0

    def advance(self, seconds: int) -> None:
        for _ in range(seconds):
            for _ in range(self.arrive):
                self._number += 1
                self.made.publish(str(self._number))
            self.made.run()
            handler = self.made.handlers["ops"]
            for _ in range(self.taken):
                if handler.held:
                    handler.held.popleft()(SUCCESS)
                    self.made.run()
            self.made.advance(1)

    def until_a_loss(self, reason: DiscardReason) -> int:
        """Seconds until something is discarded."""
        seconds = 0
        while not self.made.settlements.discarded(reason):
            self.advance(1)
            seconds += 1
        return seconds

    @property
    def slow_since(self) -> float | None:
        return slow_since(self.made.queue("ops"))


def test_a_slow_listener_is_named_with_the_time_at_which_the_first_lifetime_ends() -> None:
    slow = Slow(arrive=10, taken=4, indication_lifetime_seconds=120.0)
    slow.advance(12)
    # Its deliveries are not late yet.
    assert (slow.slow_since, due(slow.made)) == (None, None)
    slow.advance(18)
    assert slow.slow_since is not None
    told = due(slow.made)
    assert told == pytest.approx(slow.until_a_loss(DiscardReason.LIFETIME_EXPIRED), rel=0.1)


def test_a_slow_listener_is_named_with_the_time_at_which_its_queue_is_full() -> None:
    slow = Slow(
        arrive=10,
        taken=4,
        indication_lifetime_seconds=0.0,
        queue_size=400,
        queue_full_policy=QueueFullPolicy.DISCARD_OLDEST,
    )
    slow.advance(30)
    told, now = due(slow.made), slow.made.time.monotonic()
    assert told is not None
    assert full_due(slow.made.queue("ops"), now) == now + told
    assert told == pytest.approx(slow.until_a_loss(DiscardReason.QUEUE_FULL), rel=0.1)


def test_a_full_queue_that_pushes_back_is_full_now_and_loses_nothing() -> None:
    slow = Slow(
        arrive=10,
        taken=4,
        indication_lifetime_seconds=0.0,
        queue_size=100,
        queue_full_policy=QueueFullPolicy.REJECT,
    )
    slow.advance(30)
    now = slow.made.time.monotonic()
    assert full_due(slow.made.queue("ops"), now) == pytest.approx(now, abs=2)
    assert due(slow.made) is None


def test_a_listener_that_catches_up_is_neither_slow_nor_about_to_lose() -> None:
    slow = Slow(arrive=10, taken=4, indication_lifetime_seconds=300.0)
    slow.advance(40)
    assert slow.slow_since is not None
    slow.arrive, slow.taken = 4, 10
    slow.advance(25)
    assert slow.made.queue("ops").depth
    assert (slow.slow_since, due(slow.made)) == (None, None)


def test_what_waits_too_long_for_a_listener_that_catches_up_is_due() -> None:
    slow = Slow(arrive=50, taken=4, indication_lifetime_seconds=100.0)
    slow.advance(20)
    slow.arrive = 0
    slow.advance(41)
    # Nothing arrives any more, and what waits takes longer than its lifetime.
    assert slow.slow_since is None
    told = due(slow.made)
    assert told == pytest.approx(slow.until_a_loss(DiscardReason.LIFETIME_EXPIRED), rel=0.1)


def test_a_listener_that_fails_is_not_slow_and_nor_is_it_when_it_is_back() -> None:
    slow = Slow(arrive=10, taken=4)
    slow.advance(30)
    assert slow.slow_since is not None
    handler = slow.made.handlers["ops"]
    handler.held.popleft()(ERROR)
    slow.made.run()
    assert slow.slow_since is None
    slow.arrive, slow.taken = 0, 30
    slow.advance(40)
    assert slow.made.queue("ops").health.failing_since is None
    assert slow.slow_since is None


@pytest.mark.parametrize("ending", ["suspended", "empty"])
def test_a_queue_that_is_suspended_or_empty_is_not_slow_and_begins_anew(ending: str) -> None:
    slow = Slow(arrive=10, taken=4)
    slow.advance(30)
    assert slow.slow_since is not None
    policy = RetryPolicy(attempts=None)
    if ending == "suspended":
        slow.made.apply([destination("ops", retry=policy, suspended=True)])
        assert slow.slow_since is None
        slow.made.apply([destination("ops", retry=policy)])
    else:
        slow.arrive, slow.taken = 0, 10_000
        slow.advance(1)
        assert slow.slow_since is None
        slow.made.publish("later")
    assert slow.slow_since is None
