"""The delivery service as PEP 324 describes it, row by row, on fake time."""

import logging

import pytest

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import RetryPolicy
from pillion_sidecar.delivery.dispatcher import ATTEMPTS_PER_TURN
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.indication import DiscardReason
from support.delivery import (
    ERROR,
    FATAL_ERROR,
    POST_DELIVERY_ERROR,
    SUCCESS,
    Deliverer,
    destination,
    subscription,
)
from support.outcomes import KeptOutcomes


@pytest.fixture
def deliverer() -> Deliverer:
    return Deliverer()


def failing(deliverer: Deliverer, name: str = "ops", **changes) -> None:
    deliverer.answer = ERROR
    deliverer.apply([destination(name, **changes)])


def failing_twice(deliverer: Deliverer, identifier: str, **changes) -> None:
    """An attempt and its retry have failed: it gives way where it is full."""
    failing(deliverer, **changes)
    deliverer.publish(identifier)
    deliverer.advance(31)


def test_an_indication_for_an_idle_destination_is_attempted_at_once(deliverer):
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a"]
    assert deliverer.settlements.delivered == ["a"]
    assert deliverer.queue("ops").depth == 0


def test_a_failed_indication_is_queued_and_those_behind_it_are_not_attempted(deliverer):
    failing(deliverer)
    deliverer.publish("a")
    deliverer.run()
    deliverer.publish("b")
    deliverer.publish("c")
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a"]
    assert deliverer.queue("ops").depth == 3


def test_order_holds_through_failures(deliverer):
    failing(deliverer)
    for identifier in "abcd":
        deliverer.publish(identifier)
    deliverer.advance(31)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(30)
    assert deliverer.settlements.delivered == ["a", "b", "c", "d"]


def test_no_attempt_is_made_before_the_retry_interval_has_passed(deliverer):
    failing(deliverer)
    deliverer.publish("a")
    deliverer.advance(29.9)
    assert len(deliverer.handlers["ops"].attempts) == 1
    deliverer.advance(0.2)
    assert len(deliverer.handlers["ops"].attempts) == 2


def test_after_a_success_the_next_is_attempted_without_a_wait(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.publish("b")
    deliverer.run()
    deliverer.answer_held("ops", SUCCESS)
    assert deliverer.handlers["ops"].identifiers == ["a", "b"]


def test_one_indication_is_in_flight_for_a_destination_at_a_time(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a"]
    assert deliverer.queue("ops").in_flight_count == 1


def test_each_turn_takes_one_indication_of_each_queue(deliverer):
    deliverer.apply([destination("one"), destination("two"), destination("three")])
    order: list[tuple[str, str]] = []
    for name, handler in deliverer.handlers.items():
        handler.now = lambda name=name: order.append(name) or 0.0  # type: ignore[func-returns-value]
    for identifier in "ab":
        for name in ("one", "two", "three"):
            deliverer.publish(identifier, name)
    deliverer.run()
    assert order == ["one", "two", "three"] * 2


def test_a_turn_is_bounded_so_that_the_event_loop_gets_its_own(deliverer):
    big = Deliverer(maximum_destinations=1000)
    big.apply([destination(f"d{number}") for number in range(200)])
    big.publish("a")
    big.step()
    assert sum(len(handler.attempts) for handler in big.handlers.values()) == ATTEMPTS_PER_TURN
    big.run()
    assert sum(len(handler.attempts) for handler in big.handlers.values()) == 200


def test_an_idle_deliverer_holds_no_timer_and_schedules_nothing(deliverer):
    deliverer.apply([destination("ops")])
    deliverer.turns = 0
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.turns == 1
    assert deliverer.idle


def test_a_hung_destination_costs_another_nothing(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("hung")])
    deliverer.answer = SUCCESS
    deliverer.apply([destination("hung"), destination("ops")])
    for number in range(100):
        deliverer.publish(str(number))
        deliverer.run()
    assert len(deliverer.handlers["ops"].attempts) == 100
    assert deliverer.queue("ops").depth == 0
    assert deliverer.queue("hung").depth == 100


def test_no_spike_when_a_listener_returns_each_waits_for_the_one_before(deliverer):
    failing(deliverer)
    for number in range(50):
        deliverer.publish(str(number))
    deliverer.run()
    deliverer.handlers["ops"].answer = None
    deliverer.advance(30)
    assert len(deliverer.handlers["ops"].held) == 1


def test_retry_attempts_exclude_the_original_attempt(deliverer):
    failing(deliverer)
    deliverer.publish("a")
    deliverer.advance(1000)
    assert deliverer.handlers["ops"].times == [1000, 1030, 1060, 1090]
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]


def test_an_indication_queued_without_an_attempt_gets_as_many_attempts(deliverer):
    failing(deliverer)
    deliverer.publish("a")
    deliverer.run()
    deliverer.publish("b")
    deliverer.advance(1000)
    assert deliverer.handlers["ops"].identifiers.count("b") == 4


def test_zero_retry_attempts_means_one_attempt(deliverer):
    failing(deliverer, retry=RetryPolicy(attempts=0))
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a"]
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]


def test_each_attempt_tells_its_number(deliverer):
    failing(deliverer)
    deliverer.publish("a")
    deliverer.advance(61)
    assert [delivery.attempt for delivery in deliverer.handlers["ops"].attempts] == [1, 2, 3]


def test_the_wait_that_a_listener_asks_for_is_kept(deliverer):
    deliverer.answer = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 503", 503, retry_after=100.0)
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.advance(120)
    assert deliverer.handlers["ops"].times == [1000, 1100]


def test_a_full_and_failing_queue_discards_its_oldest(deliverer):
    failing_twice(deliverer, "a", queue_size=3)
    for identifier in "bcde":
        assert deliverer.publish(identifier) is None
        deliverer.run()
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == ["a", "b"]
    assert deliverer.queue("ops").depth == 3


def test_a_failed_indication_for_which_there_is_no_room_is_discarded_itself(deliverer):
    deliverer.answer = None
    policy = QueueFullPolicy.DISCARD_OLDEST
    deliverer.apply([destination("ops", queue_size=2, queue_full_policy=policy)])
    for identifier in "abc":
        deliverer.publish(identifier)
        deliverer.run()
    deliverer.answer_held("ops", ERROR)
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == ["a"]


def test_a_full_queue_that_delivers_pushes_back_and_names_itself(deliverer):
    deliverer.apply([destination("ops", queue_size=2)])
    deliverer.publish("first")
    deliverer.run()
    deliverer.handlers["ops"].answer = None
    for identifier in "abc":
        deliverer.publish(identifier)
        deliverer.run()
    refusal = deliverer.publish("d")
    assert refusal is not None
    assert refusal.destination == "ops"
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == []


def test_an_adaptive_queue_gives_way_once_an_attempt_and_its_retry_have_failed(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops", queue_size=2)])
    for identifier in "abc":
        assert deliverer.publish(identifier) is None
        deliverer.run()
    deliverer.advance(29)
    assert deliverer.publish("hung") is not None
    deliverer.answer_held("ops", ERROR)
    assert deliverer.publish("failed once") is not None
    # What was in flight has its place back, one more than there are.
    assert deliverer.queue("ops").depth == 3
    deliverer.advance(31)
    assert deliverer.publish("its retry hangs") is not None
    deliverer.answer_held("ops", ERROR)
    assert deliverer.publish("d") is None
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == ["a"]
    deliverer.advance(31)
    deliverer.answer_held("ops", SUCCESS)
    assert deliverer.publish("e") is None
    assert deliverer.publish("f") is not None


@pytest.mark.parametrize("answer", [SUCCESS, ERROR])
def test_reject_refuses_whatever_the_listener_does(deliverer, answer):
    deliverer.apply([destination("ops", queue_size=1, queue_full_policy=QueueFullPolicy.REJECT)])
    deliverer.handlers["ops"].answer = None
    deliverer.publish("a")
    deliverer.run()
    deliverer.publish("b")
    assert deliverer.publish("c") is not None


def test_discard_oldest_never_refuses(deliverer):
    policy = QueueFullPolicy.DISCARD_OLDEST
    deliverer.apply([destination("ops", queue_size=1, queue_full_policy=policy)])
    deliverer.publish("first")
    deliverer.run()
    deliverer.handlers["ops"].answer = None
    for identifier in "abc":
        assert deliverer.publish(identifier) is None
        deliverer.run()
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == ["b"]


def test_an_indication_is_accepted_for_all_its_targets_or_for_none(deliverer):
    deliverer.answer = None
    deliverer.apply(
        [
            destination("full", queue_size=1, queue_full_policy=QueueFullPolicy.REJECT),
            destination("free"),
        ]
    )
    for identifier in "ab":
        deliverer.publish(identifier, "full")
        deliverer.run()
    assert deliverer.publish("c") is not None
    assert deliverer.queue("free").depth == 0


def test_two_subscriptions_to_one_destination_need_two_places(deliverer):
    deliverer.answer = None
    deliverer.apply(
        [destination("ops", queue_size=3, queue_full_policy=QueueFullPolicy.REJECT)],
        [subscription("warm", "ops"), subscription("cold", "ops")],
    )
    assert deliverer.publish("a") is None
    deliverer.run()
    assert deliverer.publish("b") is None
    assert deliverer.publish("c") is not None
    assert deliverer.queue("ops").depth == 4


def test_two_subscriptions_to_one_destination_give_two_entries_each_with_its_filter(deliverer):
    deliverer.apply(
        [destination("ops")], [subscription("warm", "ops"), subscription("cold", "ops")]
    )
    deliverer.publish("a")
    deliverer.run()
    names = [delivery.filter_name for delivery in deliverer.handlers["ops"].attempts]
    assert names == ["filter-of-warm", "filter-of-cold"]


def test_what_was_delivered_is_not_delivered_again(deliverer):
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.advance(10_000)
    assert deliverer.handlers["ops"].identifiers == ["a"]


def test_an_uncertain_outcome_is_retried(deliverer):
    deliverer.answer = POST_DELIVERY_ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(30)
    assert deliverer.handlers["ops"].identifiers == ["a", "a"]
    assert deliverer.settlements.delivered == ["a"]


def test_a_fatal_error_is_not_retried(deliverer):
    deliverer.answer = FATAL_ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.advance(1000)
    assert deliverer.handlers["ops"].identifiers == ["a"]
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == ["a"]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (DeliveryResult.FATAL_ERROR, DiscardReason.FATAL_ERROR),
        (DeliveryResult.ERROR, DiscardReason.ATTEMPTS_EXCEEDED),
    ],
)
def test_a_discard_has_the_detail_of_its_attempt_and_counts_it(caplog, result, reason):
    history = KeptOutcomes()
    deliverer = Deliverer(history=history)
    deliverer.answer = DeliveryOutcome(result, "never\n" + "x" * 1000)
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=0))])
    deliverer.publish("a")
    with caplog.at_level(logging.WARNING):
        deliverer.advance(100)
    (record,) = [one for one in caplog.records if one.event == "indication-discarded"]
    detail = "never " + "x" * 194
    assert record.getMessage() == f"indication discarded: {reason.value}: {detail}"
    assert (record.detail, record.attempts) == (detail, 1)
    assert [(one.reason, one.detail, one.attempts) for one in history.all] == [(reason, detail, 1)]


@pytest.mark.parametrize("marked", [True, False])
def test_retries_are_marked_only_where_the_service_says_so(deliverer, marked):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")], correlated_indications=marked)
    deliverer.publish("a")
    deliverer.advance(31)
    marks = [delivery.correlated for delivery in deliverer.handlers["ops"].attempts]
    assert marks == [False, marked]


def test_each_discard_is_logged_once_with_identifier_and_sequence(deliverer, caplog):
    with caplog.at_level(logging.WARNING, logger="pillion.delivery"):
        failing_twice(deliverer, "a", queue_size=1)
        deliverer.publish("b")
        deliverer.run()
    records = [record for record in caplog.records if record.event == "indication-discarded"]
    assert [
        (record.identifier, record.reason, record.sequence_number, record.destination)
        for record in records
    ] == [("a", "queue-full", 0, "ops")]
    assert records[0].sequence_context.startswith("default#run1#uid-ops#")


def test_the_queue_keeps_the_books_that_an_administrator_asks_for(deliverer):
    failing(deliverer)
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.run()
    queue = deliverer.queue("ops")
    assert (queue.depth, queue.statistics.high_water, queue.statistics.delivered) == (3, 3, 0)
    assert queue.statistics.attempts[DeliveryResult.ERROR] == 1
    assert queue.health.next_attempt_at == 1030
    assert queue.oldest_accepted_at == 1000
    assert queue.statistics.last_outcome == ERROR
    assert [(record.identifier, record.attempt) for record in queue.statistics.recent] == [("a", 1)]
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(30)
    assert (queue.depth, queue.statistics.high_water, queue.statistics.delivered) == (0, 3, 3)
    assert queue.statistics.last_success_at == 1030
    assert queue.oldest_accepted_at is None


def test_only_the_last_twenty_attempts_are_remembered(deliverer):
    deliverer.apply([destination("ops")])
    for number in range(30):
        deliverer.publish(str(number))
    deliverer.run()
    recent = [record.identifier for record in deliverer.queue("ops").statistics.recent]
    assert recent == [str(number) for number in range(10, 30)]


def test_more_destinations_than_allowed_are_refused_and_change_nothing():
    small = Deliverer(maximum_destinations=1)
    small.apply([destination("ops")])
    with pytest.raises(Exception, match="at most 1 destination queue"):
        small.apply([destination("ops"), destination("more")])
    assert [queue.name for queue in small.service.queues()] == ["ops"]


# ---------------------------------------------------------------- S0.18, as the document writes it


@pytest.mark.parametrize("count", [1, 7, 40])
def test_all_that_was_raised_while_the_listener_was_down_arrives_when_it_starts(deliverer, count):
    """Create the subscription, do not start the listener, raise n indications, start it: it gets
    all n before the attempts of the first are used up."""
    failing(deliverer)
    identifiers = [str(number) for number in range(count)]
    for identifier in identifiers:
        deliverer.publish(identifier)
    deliverer.advance(75)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(15)
    assert deliverer.settlements.delivered == identifiers
    assert deliverer.queue("ops").statistics.attempts[DeliveryResult.ERROR] == 3


def test_what_does_not_fit_while_the_listener_is_down_is_discarded_oldest_first(deliverer):
    failing_twice(deliverer, "0", queue_size=5)
    for number in range(1, 12):
        deliverer.publish(str(number))
        deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(31)
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == [
        str(number) for number in range(7)
    ]
    assert deliverer.settlements.delivered == [str(number) for number in range(7, 12)]


def test_after_a_success_the_next_is_under_way_before_the_first_is_settled(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.publish("b")
    deliverer.run()
    handler = deliverer.handlers["ops"]
    under_way = []
    deliverer.settlements.settled = lambda *_: under_way.append(len(handler.held))

    handler.held.popleft()(SUCCESS)

    assert under_way == [1]


def test_what_is_next_is_made_ready_while_the_listener_works(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.run()

    deliverer.answer_held("ops", SUCCESS)

    assert deliverer.handlers["ops"].prepared == ["c"]


def test_after_a_failure_nothing_is_attempted_before_the_retry(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.publish("b")
    deliverer.run()

    deliverer.answer_held("ops", ERROR)

    assert not deliverer.handlers["ops"].held


def test_reject_discards_nothing_to_make_room_for_what_was_in_flight(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops", queue_size=1, queue_full_policy=QueueFullPolicy.REJECT)])
    for identifier in "ab":
        assert deliverer.publish(identifier) is None
        deliverer.run()
    deliverer.answer_held("ops", ERROR)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(31)
    assert deliverer.settlements.delivered == ["a", "b"]


@pytest.mark.parametrize("policy", QueueFullPolicy)
def test_an_indication_that_needs_more_places_than_there_are_is_not_refused_for_ever(
    deliverer, policy
):
    deliverer.apply(
        [destination("ops", queue_size=1, queue_full_policy=policy)],
        [subscription("warm", "ops"), subscription("cold", "ops")],
    )
    assert deliverer.publish("a") is None
    deliverer.run()
    assert deliverer.settlements.delivered == ["a", "a"]


def test_the_entries_of_one_indication_do_not_displace_each_other(deliverer):
    failing(deliverer, queue_size=1)
    deliverer.apply(
        [destination("ops", queue_size=1)],
        [subscription("warm", "ops"), subscription("cold", "ops")],
    )
    deliverer.publish("old", "warm")
    deliverer.advance(31)
    deliverer.publish("new")
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == ["old"]
    assert deliverer.queue("ops").depth == 2
