"""What is wrong with a destination holds its queue, what is wrong with an indication costs that
indication alone (S0.8, docs/decisions/0022)."""

import logging
from dataclasses import replace
from typing import Any

import pytest

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import (
    WITHHELD_URL,
    DestinationFault,
    RemovalPolicy,
    RetryPolicy,
)
from pillion_sidecar.config.schema.response_policy import REFUSALS
from pillion_sidecar.delivery.handler import (
    HOLD_RETRY_SECONDS,
    DeliveryOutcome,
    DeliveryResult,
    HoldCause,
)
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, HELD, SUCCESS, Deliverer, ScriptedHandler, destination
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk

REFUSED_ADDRESS = DeliveryOutcome(
    DeliveryResult.ERROR, "10.0.0.1 is a private address", hold=HoldCause.ADDRESS
)
REFUSED = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 422", 422, refuses_indication=True)
HOUR = 3600.0


@pytest.fixture
def deliverer() -> Deliverer:
    return Deliverer()


def held(deliverer: Deliverer, *identifiers: str, **changes: Any) -> None:
    deliverer.answer = HELD
    deliverer.apply([destination("ops", **changes)])
    for identifier in identifiers:
        assert deliverer.publish(identifier) is None
        deliverer.run()


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[Any]:
    return [one for one in caplog.records if getattr(one, "event", None) == name]


@pytest.mark.parametrize("outcome", [HELD, REFUSED_ADDRESS])
def test_a_fault_of_the_destination_discards_nothing_and_spends_nothing(deliverer, outcome, caplog):
    caplog.set_level(logging.INFO)
    deliverer.answer = outcome
    deliverer.apply([destination("ops", indication_lifetime_seconds=60.0)])
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.advance(24 * HOUR)
    queue = deliverer.queue("ops")
    assert (queue.depth, sum(queue.statistics.discarded.values())) == (3, 0)
    assert queue.health.hold is not None
    assert (queue.health.hold.cause, queue.health.hold.since) == (outcome.hold, 1000.0)
    (began,) = events(caplog, "destination-held")
    assert (began.destination, began.cause) == ("ops", outcome.hold.value)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(HOLD_RETRY_SECONDS)
    assert deliverer.settlements.delivered == ["a", "b", "c"]
    assert [one.attempt for one in deliverer.handlers["ops"].attempts[-3:]] == [1, 1, 1]
    (ended,) = events(caplog, "destination-released")
    assert ended.seconds >= 24 * HOUR
    assert (queue.health.hold, queue.health.pauses.began) == (None, None)


def test_a_held_destination_is_tried_at_a_bounded_pace(deliverer):
    held(deliverer, "a")
    deliverer.advance(10 * HOLD_RETRY_SECONDS)
    assert len(deliverer.handlers["ops"].attempts) == 11


def test_a_change_of_configuration_is_tried_at_once(deliverer, caplog):
    caplog.set_level(logging.INFO)
    held(deliverer, "a", "b")
    deliverer.advance(HOUR + 1)
    deliverer.answer = SUCCESS
    deliverer.apply([destination("ops", timeout_seconds=5.0)])
    assert deliverer.settlements.delivered == ["a", "b"]
    assert len(events(caplog, "destination-released")) == 1


def test_a_change_during_an_attempt_is_tried_at_once(deliverer, caplog):
    caplog.set_level(logging.INFO)
    held(deliverer, "a", "b")
    before = deliverer.handlers["ops"]
    before.answer = None
    deliverer.advance(HOLD_RETRY_SECONDS)
    deliverer.answer = SUCCESS
    deliverer.apply([destination("ops", timeout_seconds=5.0)])
    # The attempt with the former configuration ends only now.
    before.held.popleft()(HELD)
    deliverer.run()
    assert deliverer.settlements.delivered == ["a", "b"]
    assert before.closed
    assert len(events(caplog, "destination-held")) == 1
    assert deliverer.queue("ops").health.hold is None


def test_an_attempt_before_a_change_does_not_hold(deliverer, caplog):
    caplog.set_level(logging.INFO)
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    before = deliverer.handlers["ops"]
    deliverer.answer = HELD
    deliverer.apply([destination("ops", timeout_seconds=5.0)])
    before.held.popleft()(REFUSED_ADDRESS)
    deliverer.run()
    (began,) = events(caplog, "destination-held")
    assert began.cause == HELD.hold.value
    assert [one.attempt for one in deliverer.handlers["ops"].attempts] == [1]


def test_a_change_that_mends_nothing_goes_on_with_the_same_hold(deliverer, caplog):
    held(deliverer, "a")
    deliverer.advance(HOUR)
    deliverer.apply([destination("ops", timeout_seconds=5.0)])
    queue = deliverer.queue("ops")
    assert queue.health.hold is not None
    assert queue.health.hold.since == 1000.0
    assert len(events(caplog, "destination-held")) == 1


def test_an_empty_queue_is_released_by_a_change_of_configuration(deliverer):
    held(deliverer, "a")
    deliverer.service.purge("ops")
    deliverer.apply([destination("ops", timeout_seconds=5.0)])
    assert deliverer.queue("ops").health.hold is None


def test_what_the_hold_was_for_can_change(deliverer, caplog):
    held(deliverer, "a")
    deliverer.handlers["ops"].answer = REFUSED_ADDRESS
    deliverer.advance(HOLD_RETRY_SECONDS)
    causes = [one.cause for one in events(caplog, "destination-held")]
    assert causes == ["invalid-certificates", "refused-address"]


def test_a_listener_that_fails_after_the_hold_fails_by_its_policy(deliverer):
    held(deliverer, "a", indication_lifetime_seconds=10_000.0)
    deliverer.advance(2 * HOUR)
    deliverer.handlers["ops"].answer = ERROR
    deliverer.advance(HOLD_RETRY_SECONDS)
    queue = deliverer.queue("ops")
    assert queue.health.hold is None
    assert queue.health.failing_since == 1000.0 + 2 * HOUR + HOLD_RETRY_SECONDS
    deliverer.advance(100)
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]


@pytest.mark.parametrize("stop", ["held", "suspended"])
def test_a_full_queue_that_sends_nothing_gives_way(deliverer, stop):
    if stop == "held":
        held(deliverer, "a", "b", queue_size=2)
    else:
        deliverer.apply([destination("ops", queue_size=2, suspended=True)])
        deliverer.publish("a")
        deliverer.publish("b")
    assert deliverer.publish("c") is None
    deliverer.run()
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == ["a"]


def test_a_full_held_queue_with_reject_refuses(deliverer):
    held(deliverer, "a", "b", queue_size=2, queue_full_policy=QueueFullPolicy.REJECT)
    refusal = deliverer.publish("c")
    assert refusal is not None
    assert refusal.destination == "ops"
    assert deliverer.queue("ops").depth == 2


def test_what_was_in_flight_keeps_its_place_in_a_full_queue_that_discards_its_oldest(deliverer):
    deliverer.answer = None
    policy = QueueFullPolicy.DISCARD_OLDEST
    deliverer.apply([destination("ops", queue_size=1, queue_full_policy=policy)])
    for identifier in "ab":
        deliverer.publish(identifier)
        deliverer.run()
    deliverer.answer_held("ops", HELD)
    assert deliverer.queue("ops").depth == 2
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == []


def test_a_destination_that_was_removed_to_drain_does_not_wait_for_a_mend(deliverer):
    held(deliverer, "a", "b", removal_policy=RemovalPolicy.DRAIN)
    deliverer.apply([], [])
    deliverer.advance(HOUR)
    reasons = (DiscardReason.ATTEMPTS_EXCEEDED, DiscardReason.LIFETIME_EXPIRED)
    gone = [one for reason in reasons for one in deliverer.settlements.discarded(reason)]
    assert gone == ["a", "b"]


def test_a_held_destination_that_was_removed_to_drain_is_tried_at_once(deliverer):
    held(deliverer, "a", removal_policy=RemovalPolicy.DRAIN)
    deliverer.advance(1)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.apply([], [])
    deliverer.run()
    assert deliverer.settlements.delivered == ["a"]


# ---------------------------------------------------------------- what is wrong with an indication


class Choosy(ScriptedHandler):
    """A listener that refuses what it calls poison."""

    def deliver(self, delivery: Any, done: Any) -> None:
        poison = (delivery.indication.identifier or "").startswith("poison")
        self.answer = REFUSED if poison else SUCCESS
        super().deliver(delivery, done)


class ChoosyDeliverer(Deliverer):
    def _create_handler(self, resource: Any) -> ScriptedHandler:
        handler = self.handlers[resource.name] = Choosy(SUCCESS)
        handler.now = self.time.monotonic
        return handler


@pytest.mark.parametrize("attempts", [3, 10_000])
def test_a_poison_indication_is_given_up_and_the_good_ones_beside_it_arrive(attempts):
    deliverer = ChoosyDeliverer()
    retry = RetryPolicy(attempts=attempts, interval_seconds=30.0)
    deliverer.apply([destination("ops", retry=retry, queue_size=5)])
    for identifier in ("a", "poison", "b", "c", "d"):
        assert deliverer.publish(identifier) is None
    deliverer.run()
    assert deliverer.publish("e") is None
    # Its queue is full meanwhile, and does not give way for it.
    assert deliverer.publish("f") is not None
    deliverer.advance(60)
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == ["poison"]
    assert deliverer.settlements.delivered == ["a", "b", "c", "d", "e"]
    assert deliverer.handlers["ops"].identifiers.count("poison") == REFUSALS
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == []


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize(("attempts", "made"), [(0, 1), (1, 2), (2, 3), (3, 3), (None, 3)], ids=str)
def test_an_indication_that_its_listener_refuses_last_is_told_as_refused(kind, attempts, made):
    deliverer = Deliverer() if kind == "memory" else OnDisk(MemoryFiles())
    deliverer.answer = REFUSED
    retry = RetryPolicy(attempts=attempts, interval_seconds=30.0)
    deliverer.apply([destination("ops", retry=retry)])
    give = deliverer.give if isinstance(deliverer, OnDisk) else deliverer.publish
    assert give("poison") is None
    deliverer.advance(100)
    queue = deliverer.queue("ops")
    assert queue.statistics.discarded[DiscardReason.FATAL_ERROR] == 1
    assert sum(queue.statistics.discarded.values()) == 1
    assert len(deliverer.handlers["ops"].attempts) == made


def test_attempts_that_end_in_another_failure_are_told_as_attempts(deliverer):
    deliverer.answer = REFUSED
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=2, interval_seconds=30.0))])
    deliverer.publish("a")
    deliverer.advance(30)
    deliverer.handlers["ops"].answer = ERROR
    deliverer.advance(30)
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]


def test_a_listener_without_retries_that_refuses_everything_is_left_its_interval(deliverer):
    deliverer.answer = REFUSED
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=0, interval_seconds=30.0))])
    for number in range(5):
        deliverer.publish(str(number))
    deliverer.advance(65)
    assert deliverer.handlers["ops"].times == [1000, 1030, 1060]


def test_a_listener_that_refuses_everything_is_left_its_interval_between_attempts(deliverer):
    deliverer.answer = REFUSED
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=100, interval_seconds=30.0))])
    for number in range(10):
        deliverer.publish(str(number))
    deliverer.advance(600)
    # Two at one moment: the last at one indication, and the first at the next.
    assert len(deliverer.handlers["ops"].attempts) <= 31


# ---------------------------------------------------------------------- a wait ends with its queue


def test_with_no_retry_the_next_indication_of_an_empty_queue_is_tried_at_once(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=0, interval_seconds=30.0))])
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]
    assert deliverer.queue("ops").health.next_attempt_at is None
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.publish("b")
    deliverer.run()
    assert deliverer.settlements.delivered == ["b"]


def test_with_no_retry_a_backlog_is_still_paced(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=0, interval_seconds=30.0))])
    for number in range(5):
        deliverer.publish(str(number))
    deliverer.advance(125)
    assert deliverer.handlers["ops"].times == [1000, 1030, 1060, 1090, 1120]


def test_a_wait_ends_with_what_waited_for_it(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    deliverer.service.purge("ops")
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.publish("b")
    deliverer.run()
    assert deliverer.settlements.delivered == ["b"]


# ---------------------------------------------------------------------- over a restart


FAULT = DestinationFault(HoldCause.DESTINATION, "spec.destination: names no host")
GOOD = destination("ops")
FAULTY = replace(GOOD, destination="", fault=FAULT)
ELSEWHERE = replace(GOOD, destination="http://elsewhere.example:5990/")


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(("mended", "is_same"), [(GOOD, True), (ELSEWHERE, False)])
def test_a_listener_knows_again_what_a_crash_repeats_after_a_fault(mended, is_same, is_restarted):
    made = OnDisk(MemoryFiles())
    made.answer = None
    made.apply([GOOD])
    assert made.give("a") is None
    made.run()
    (first,) = made.handlers["ops"].attempts
    # The listener has taken it, and the deliverer ends before it knows.
    again = made.restart()
    again.answer = HELD
    again.apply([FAULTY])
    assert again.give("b") is None
    again.run()
    if is_restarted:
        again = again.restart()
    again.answer = SUCCESS
    again.apply([mended])
    again.handlers["ops"].answer = SUCCESS
    again.run()
    repeated, following = again.handlers["ops"].attempts[-2:]
    assert (repeated.indication.identifier, following.indication.identifier) == ("a", "b")
    known = (first.sequence_context, first.sequence_number)
    assert ((repeated.sequence_context, repeated.sequence_number) == known) is is_same
    assert following.sequence_context == repeated.sequence_context


def test_a_fault_that_is_gone_ends_the_hold_though_nothing_else_has_changed(deliverer):
    deliverer.answer = HELD
    deliverer.apply([replace(GOOD, fault=FAULT)])
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.queue("ops").health.hold is not None
    deliverer.answer = SUCCESS
    deliverer.apply([GOOD])
    deliverer.run()
    assert deliverer.queue("ops").health.hold is None
    assert deliverer.settlements.delivered == ["a"]


def test_a_hold_and_its_pause_survive_a_restart():
    made = OnDisk(MemoryFiles())
    made.answer = HELD
    ops = destination("ops", indication_lifetime_seconds=60.0)
    made.apply([ops])
    for identifier in "abc":
        assert made.give(identifier) is None
    made.advance(HOUR)
    again = made.restart()
    again.answer = HELD
    again.apply([ops])
    again.advance(HOUR)
    queue = again.queue("ops")
    assert queue.health.hold is not None
    assert (queue.health.hold.cause, queue.health.hold.since) == (HoldCause.CERTIFICATES, 1000.0)
    assert (queue.depth, sum(queue.statistics.discarded.values())) == (3, 0)
    mended = again.restart()
    mended.apply([ops])
    mended.run()
    queue = mended.queue("ops")
    assert (
        queue.health.hold,
        queue.statistics.delivered,
        sum(queue.statistics.discarded.values()),
    ) == (None, 3, 0)


def test_a_url_that_is_withheld_for_a_while_is_no_other_listener(deliverer):
    """As an operator writes it while the Secret is not there: what is sent later goes on."""
    url = "https://hooks.example.com/a"
    deliverer.apply([destination("ops", destination=url, url_is_secret=True)])
    deliverer.publish("a")
    deliverer.run()
    queue = deliverer.queue("ops")
    before = (queue.listener_id, queue.sequence.context, queue.next_sequence_number)
    deliverer.apply([destination("ops", destination=WITHHELD_URL, suspended=True)])
    deliverer.publish("b")
    deliverer.run()
    assert queue.depth == 1
    deliverer.apply([destination("ops", destination=url, url_is_secret=True)])
    deliverer.run()
    assert deliverer.settlements.delivered == ["a", "b"]
    after = (queue.listener_id, queue.sequence.context, queue.next_sequence_number)
    assert after == (*before[:2], before[2] + 1)
    # Another URL in the Secret is another listener.
    moved = "https://hooks.example.com/b"
    deliverer.apply([destination("ops", destination=moved, url_is_secret=True)])
    assert queue.sequence.context != before[1]
    assert url not in before[0]
