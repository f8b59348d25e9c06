"""Reload, administration, ordering and the end of a deliverer."""

import asyncio
import logging

import pytest

from pillion_sidecar.config.schema.common import RemovalAction
from pillion_sidecar.config.schema.destination import Ordering, RemovalPolicy, RetryPolicy
from pillion_sidecar.delivery import table
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, HELD, SUCCESS, Deliverer, destination, subscription
from support.fake_journal import FakeJournal


@pytest.fixture
def deliverer() -> Deliverer:
    return Deliverer()


def test_a_reload_leaves_unchanged_queues_alone(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.advance(10)
    queue, handler = deliverer.queue("ops"), deliverer.handlers["ops"]
    deliverer.apply([destination("ops"), destination("new")])
    assert deliverer.queue("ops") is queue
    assert queue.handler is handler
    assert not handler.closed
    deliverer.advance(19)
    assert len(handler.attempts) == 1
    deliverer.advance(2)
    assert len(handler.attempts) == 2


def test_a_changed_retry_keeps_the_connection_and_the_queue(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=1, interval_seconds=30.0))])
    assert len(deliverer.created) == 1
    deliverer.advance(30)
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]


def on_disk() -> Deliverer:
    """A deliverer whose listener fails, with a journal on disk and no retry field written."""
    journal = FakeJournal()
    made = Deliverer(journal=journal)
    made.answer = ERROR
    made.apply([destination("ops", retry=None)])
    made.publish("a")
    journal.commit()
    made.run()
    return made


def test_on_disk_the_default_retry_loses_nothing_for_a_day():
    deliverer = on_disk()
    deliverer.advance(86_399)
    assert deliverer.queue("ops").depth == 1
    assert len(deliverer.handlers["ops"].attempts) > 288
    deliverer.advance(1)
    assert deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == ["a"]


def test_a_retry_that_is_written_during_an_outage_counts_from_acceptance_and_attempts_made():
    deliverer = on_disk()
    deliverer.advance(60)
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=100, interval_seconds=1.0))])
    assert deliverer.queue("ops").lifetime == 1000.0
    deliverer.apply([destination("ops", retry=None)])
    assert deliverer.queue("ops").lifetime == 86_400.0
    deliverer.advance(86_339)
    assert deliverer.queue("ops").depth == 1
    deliverer.advance(1)
    assert deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == ["a"]


async def test_what_is_left_at_the_end_is_counted_by_destination_the_most_first(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("few"), destination("many"), destination("none")])
    for number, to in enumerate(("few", "many", "many")):
        deliverer.publish(str(number), to)
    deliverer.run()
    assert await deliverer.service.drain(0) == 3
    assert deliverer.service.left() == {"many": 2, "few": 1}
    assert list(deliverer.service.left()) == ["many", "few"]


def test_an_attempt_under_way_ends_with_the_handler_that_it_began_with(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.publish("b")
    deliverer.run()
    old = deliverer.handlers["ops"]
    deliverer.answer = SUCCESS
    deliverer.apply([destination("ops", timeout_seconds=5.0)])
    assert not old.closed
    old.held.popleft()(SUCCESS)
    deliverer.run()
    assert old.closed
    assert deliverer.settlements.delivered == ["a", "b"]
    assert deliverer.handlers["ops"].identifiers == ["b"]


@pytest.mark.parametrize(
    "url",
    [
        "http://listener.example:5988/",
        "HTTP://LISTENER.example",
        "http://listener.example.:5988",
        "http://listener.example/",
    ],
)
def test_two_spellings_of_one_listener_get_no_identifiers(deliverer, url):
    deliverer.apply(
        [
            destination("ops", destination="http://listener.example:5988"),
            destination("two", destination=url),
        ]
    )
    deliverer.publish("a", "ops", "two")
    deliverer.run()
    for name in ("ops", "two"):
        assert not deliverer.queue(name).sends_identifiers
        assert deliverer.handlers[name].attempts[0].sequence_number is None


def test_another_spelling_of_its_url_keeps_a_context(deliverer):
    deliverer.apply([destination("ops", destination="http://listener.example:5988")])
    deliverer.publish("a")
    deliverer.run()
    context = deliverer.queue("ops").sequence_context
    deliverer.apply([destination("ops", destination="http://LISTENER.example/")])
    assert deliverer.queue("ops").sequence_context == context


def test_a_removed_destination_discards_what_it_holds(deliverer, caplog):
    deliverer.answer = None
    deliverer.apply([destination("ops"), destination("gone")])
    deliverer.publish("a", "gone")
    deliverer.publish("b", "gone")
    deliverer.run()
    handler = deliverer.handlers["gone"]
    with caplog.at_level(logging.WARNING):
        deliverer.apply([destination("ops")])
    assert handler.closed
    assert deliverer.settlements.discarded(DiscardReason.DESTINATION_REMOVED) == ["a", "b"]
    assert deliverer.service.queue("gone") is None
    handler.held.popleft()(SUCCESS)
    assert deliverer.settlements.delivered == []


def test_a_removed_destination_that_drains_delivers_what_it_holds_and_takes_no_more(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("gone", removal_policy=RemovalPolicy.DRAIN)])
    deliverer.publish("a")
    deliverer.publish("b")
    deliverer.run()
    handler = deliverer.handlers["gone"]
    deliverer.apply([])
    assert [queue.name for queue in deliverer.service.queues()] == ["gone"]
    handler.answer = SUCCESS
    deliverer.advance(31)
    assert deliverer.settlements.delivered == ["a", "b"]
    assert handler.closed
    assert list(deliverer.service.queues()) == []


def test_draining_ends_with_the_attempts_of_what_it_holds(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("gone", removal_policy=RemovalPolicy.DRAIN)])
    deliverer.publish("a")
    deliverer.run()
    deliverer.apply([])
    deliverer.advance(1000)
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]
    assert list(deliverer.service.queues()) == []


def test_draining_ends_with_the_lifetime_of_what_it_holds(deliverer):
    deliverer.answer = ERROR
    deliverer.apply(
        [destination("gone", removal_policy=RemovalPolicy.DRAIN, indication_lifetime_seconds=20.0)]
    )
    deliverer.publish("a")
    deliverer.run()
    deliverer.apply([])
    deliverer.advance(20.0)
    assert deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == ["a"]
    assert deliverer.created[0].closed
    assert list(deliverer.service.queues()) == []


def test_a_suspended_destination_that_is_removed_has_nothing_to_wait_for(deliverer):
    removal = RemovalPolicy.DRAIN
    deliverer.apply([destination("gone", removal_policy=removal, suspended=True)])
    deliverer.publish("a")
    deliverer.apply([])
    assert deliverer.settlements.discarded(DiscardReason.DESTINATION_REMOVED) == ["a"]
    assert list(deliverer.service.queues()) == []


@pytest.mark.parametrize("give_up", ["skip", "purge"])
def test_a_queue_that_drains_can_be_given_up(deliverer, give_up):
    deliverer.answer = ERROR
    deliverer.apply([destination("gone", removal_policy=RemovalPolicy.DRAIN)])
    deliverer.publish("a")
    deliverer.run()
    deliverer.apply([])
    assert getattr(deliverer.service, give_up)("gone")
    assert deliverer.settlements.discarded(DiscardReason.PURGED) == ["a"]
    assert deliverer.created[0].closed
    assert list(deliverer.service.queues()) == []


def test_a_queue_that_drains_ends_no_subscription_of_a_new_one_of_its_name(deliverer):
    action = {
        "subscription_removal_action": RemovalAction.DISABLE,
        "subscription_removal_time_interval_seconds": 45.0,
    }
    drains = destination("ops", removal_policy=RemovalPolicy.DRAIN)
    deliverer.answer = ERROR
    deliverer.apply([drains], **action)
    deliverer.publish("a")
    deliverer.run()
    deliverer.answer = SUCCESS
    deliverer.apply([destination("ops", uid="another")], **action)
    deliverer.advance(60)
    deliverer.publish("b")
    deliverer.run()
    assert deliverer.settlements.delivered == ["b"]


def test_a_revision_whose_handlers_cannot_all_be_made_changes_nothing(deliverer, monkeypatch):
    deliverer.apply([destination("ops")])
    create = deliverer.service._table._create_handler

    def fail(resource):
        if resource.name == "bad":
            raise RuntimeError("no handler")
        return create(resource)

    monkeypatch.setattr(deliverer.service._table, "_create_handler", fail)
    with pytest.raises(RuntimeError, match="no handler"):
        deliverer.apply([destination("ops", timeout_seconds=1.0), destination("bad")])
    assert [queue.destination.timeout_seconds for queue in deliverer.service.queues()] == [30.0]
    assert [handler.closed for handler in deliverer.created] == [False, True]
    deliverer.publish("a", "ops")
    deliverer.run()
    assert deliverer.settlements.delivered == ["a"]


# ---------------------------------------------------------------- administration


def test_skip_gives_up_the_first_and_goes_on_with_the_next(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("poison")
    deliverer.publish("b")
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    queue = deliverer.service.queue("ops")
    assert queue is not None
    assert queue.front_identifiers == ["poison"]
    assert deliverer.service.skip("ops")
    deliverer.run()
    assert deliverer.settlements.discarded(DiscardReason.PURGED) == ["poison"]
    assert deliverer.settlements.delivered == ["b"]


@pytest.mark.parametrize(("outcome", "arrives"), [(SUCCESS, True), (ERROR, False)])
def test_skip_lets_an_attempt_under_way_arrive_but_does_not_repeat_it(deliverer, outcome, arrives):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.service.skip("ops")
    deliverer.answer_held("ops", outcome)
    assert deliverer.settlements.delivered == (["a"] if arrives else [])
    assert deliverer.settlements.discarded(DiscardReason.PURGED) == ([] if arrives else ["a"])


def test_a_retry_by_hand_is_made_now_and_spends_no_attempt(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=1))])
    deliverer.publish("a")
    deliverer.run()
    for _ in range(3):
        deliverer.advance(10)
        assert deliverer.service.retry("ops")
        deliverer.run()
    assert deliverer.handlers["ops"].times == [1000, 1010, 1020, 1030]
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == []
    deliverer.advance(30)
    assert deliverer.handlers["ops"].times[-1] == 1060
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a"]


def test_a_retry_by_hand_spends_no_refusal(deliverer):
    deliverer.answer = DeliveryOutcome(
        DeliveryResult.ERROR, "HTTP 422", 422, refuses_indication=True
    )
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    for _ in range(5):
        assert deliverer.service.retry("ops")
        deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a"] * 6
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == []


def test_a_retry_by_hand_that_succeeds_changes_nothing_for_the_next(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=1))])
    deliverer.publish("a")
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    assert deliverer.service.retry("ops")
    deliverer.run()
    assert deliverer.settlements.delivered == ["a"]
    deliverer.handlers["ops"].answer = ERROR
    deliverer.publish("b")
    deliverer.advance(30)
    assert deliverer.handlers["ops"].identifiers == ["a", "a", "b", "b"]
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["b"]


def test_nothing_is_retried_by_hand_that_no_retry_waits_for(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    assert not deliverer.service.retry("ops")
    assert not deliverer.service.retry("nobody")
    deliverer.publish("a")
    deliverer.run()
    deliverer.apply([destination("ops", suspended=True)])
    assert not deliverer.service.retry("ops")
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a"]


def test_skip_gives_up_one_of_several_under_way(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops", ordering=Ordering.NONE, max_in_flight=3)])
    for identifier in ("a", "b", "c"):
        deliverer.publish(identifier)
    deliverer.run()
    queue = deliverer.service.queue("ops")
    assert queue is not None
    assert queue.front_identifiers == ["a"]
    assert deliverer.service.skip("ops")
    assert queue.front_identifiers == ["b"]
    for _ in range(3):
        deliverer.answer_held("ops", ERROR)
    assert deliverer.settlements.discarded(DiscardReason.PURGED) == ["a"]
    assert queue.depth == 2


def test_what_is_given_up_already_is_not_skipped_again(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.service.skip("ops")
    assert not deliverer.service.skip("ops")


def test_purge_discards_all_that_waits(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.run()
    assert deliverer.service.purge("ops") == 3
    assert deliverer.queue("ops").depth == 0
    assert deliverer.service.purge("nobody") is None
    assert not deliverer.service.skip("nobody")


# ---------------------------------------------------------------- ordering


def test_without_order_as_many_are_in_flight_as_allowed(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops", ordering=Ordering.NONE, max_in_flight=3)])
    for identifier in "abcde":
        deliverer.publish(identifier)
    deliverer.run()
    assert deliverer.queue("ops").in_flight_count == 3
    deliverer.answer_held("ops", SUCCESS)
    assert deliverer.handlers["ops"].identifiers == ["a", "b", "c", "d"]


def test_group_order_holds_inside_a_group_and_not_across(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops", ordering=Ordering.GROUP, max_in_flight=4)])
    for identifier, group in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("x", None), ("y", None)]:
        deliverer.publish(identifier, group=group)
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a1", "b1", "x", "y"]
    deliverer.answer_held("ops", SUCCESS)
    assert deliverer.handlers["ops"].identifiers[-1] == "a2"


def test_what_fails_in_any_order_is_tried_again_in_that_of_acceptance(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops", ordering=Ordering.NONE, max_in_flight=3)])
    for identifier in "abcd":
        deliverer.publish(identifier)
    deliverer.run()
    handler = deliverer.handlers["ops"]
    deliverer.apply([destination("ops")])
    for place in (1, 0, 0):
        handler.held.rotate(-place)
        deliverer.answer_held("ops", ERROR)
    handler.attempts.clear()
    handler.answer = SUCCESS
    deliverer.advance(31)
    assert handler.identifiers == ["a", "b", "c", "d"]


# ---------------------------------------------------------------- the end (S0.14)


async def test_drain_delivers_at_once_what_waits_for_its_retry(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    draining = asyncio.ensure_future(deliverer.service.drain(10.0))
    await asyncio.sleep(0)
    deliverer.run()
    assert await draining == 0
    assert deliverer.settlements.delivered == ["a"]


async def test_drain_ends_with_its_grace_period_and_tells_what_is_left(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("hung")])
    deliverer.publish("a")
    deliverer.publish("b")
    deliverer.run()
    draining = asyncio.ensure_future(deliverer.service.drain(10.0))
    await asyncio.sleep(0)
    deliverer.advance(10.0)
    assert await draining == 2


@pytest.mark.parametrize("why", ["suspended", "failing", "held"])
async def test_drain_tries_each_queue_once_and_does_not_wait_for_what_cannot_come(deliverer, why):
    deliverer.answer = HELD if why == "held" else ERROR
    deliverer.apply([destination("ops", suspended=why == "suspended"), destination("slow")])
    deliverer.handlers["slow"].answer = None
    deliverer.publish("a")
    deliverer.run()
    began, attempts = deliverer.time.monotonic(), len(deliverer.handlers["ops"].attempts)
    draining = asyncio.ensure_future(deliverer.service.drain(20.0))
    await asyncio.sleep(0)
    deliverer.run()
    # Another one still delivers: that is waited for.
    deliverer.advance(3.0)
    await asyncio.sleep(0)
    assert not draining.done()
    deliverer.answer_held("slow", SUCCESS)
    while not draining.done():
        deliverer.advance(0.25)
        await asyncio.sleep(0)
    assert await draining == 1
    assert deliverer.time.monotonic() - began <= 4.0
    more = 0 if why == "suspended" else 1
    assert len(deliverer.handlers["ops"].attempts) == attempts + more
    assert deliverer.service.left() == {"ops": 1}


async def test_drain_goes_on_with_a_retry_that_comes_within_the_grace(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", retry=RetryPolicy(attempts=9, interval_seconds=4.0))])
    deliverer.publish("a")
    deliverer.run()
    draining = asyncio.ensure_future(deliverer.service.drain(10.0))
    for _ in range(24):
        await asyncio.sleep(0)
        deliverer.advance(0.25)
    deliverer.handlers["ops"].answer = SUCCESS
    for _ in range(10):
        await asyncio.sleep(0)
        deliverer.advance(0.25)
    assert await draining == 0


def test_what_is_left_at_shutdown_is_discarded_and_logged_with_a_line_for_each_destination(
    deliverer, caplog
):
    deliverer.answer = None
    deliverer.apply([destination("hung"), destination("other")])
    deliverer.publish("a", "hung")
    deliverer.publish("b", "hung")
    deliverer.run()
    with caplog.at_level(logging.WARNING):
        deliverer.service.close()
    assert deliverer.settlements.discarded(DiscardReason.SHUTDOWN) == ["a", "b"]
    assert all(handler.closed for handler in deliverer.created)
    events = [record.event for record in caplog.records]
    assert events == ["indication-discarded", "indication-discarded", "left-at-shutdown"]
    assert caplog.records[-1].count == 2
    assert deliverer.service.pending == 0


def test_hasten_attempts_at_once_whatever_waits(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")], [subscription("ops", "ops")])
    deliverer.publish("a")
    deliverer.run()
    deliverer.service.hasten()
    deliverer.run()
    assert len(deliverer.handlers["ops"].attempts) == 2


def test_a_large_purge_gives_the_event_loop_its_turns(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops", queue_size=10_000)])
    for number in range(1001):
        deliverer.publish(str(number))
    deliverer.run()
    deliverer.service.purge("ops")
    assert len(deliverer.settlements.seen) < 200
    assert deliverer.queue("ops").depth == 1
    deliverer.run()
    assert len(deliverer.settlements.discarded(DiscardReason.PURGED)) == 1000


def test_a_queue_that_drains_is_hidden_by_a_new_one_of_its_name(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", removal_policy=RemovalPolicy.DRAIN)])
    deliverer.publish("a")
    deliverer.run()
    deliverer.apply([])
    deliverer.apply([destination("ops", uid="another")])
    assert [queue.depth for queue in deliverer.service.queues()] == [0]
    deliverer.service.close()
    assert deliverer.settlements.discarded(DiscardReason.SHUTDOWN) == ["a"]


async def test_two_who_drain_are_both_told_when_nothing_is_left(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    both = asyncio.gather(deliverer.service.drain(10.0), deliverer.service.drain(10.0))
    await asyncio.sleep(0)
    deliverer.answer_held("ops", SUCCESS)
    assert await both == [0, 0]


def test_what_is_being_purged_in_turns_is_settled_before_the_end(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    for number in range(1001):
        deliverer.publish(str(number))
    deliverer.run()
    deliverer.service.purge("ops")
    deliverer.service.close()
    assert len(deliverer.settlements.discarded(DiscardReason.PURGED)) == 1000
    assert deliverer.service.pending == 0


def test_after_the_end_nothing_is_accepted_and_no_timer_is_left(deliverer):
    timed = subscription("ops", "ops", duration_seconds=60.0)
    deliverer.apply([destination("ops")], [timed])
    deliverer.service.close()
    assert deliverer.publish("late") is not None
    assert deliverer.idle


def test_a_purge_lets_an_attempt_under_way_arrive_but_does_not_repeat_it(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.service.purge("ops") == 0
    deliverer.answer_held("ops", ERROR)
    assert deliverer.settlements.discarded(DiscardReason.PURGED) == ["a"]


def test_a_destination_that_is_suspended_before_its_turn_gets_no_attempt(deliverer):
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.apply([destination("ops", suspended=True)])
    assert deliverer.handlers["ops"].attempts == []


def test_an_attempt_ahead_of_its_time_leaves_no_timer(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.service.hasten()
    deliverer.run()
    assert deliverer.idle


def test_a_queue_that_is_made_ready_twice_has_one_place_in_the_round(deliverer):
    deliverer.answer = None
    many = destination("many", ordering=Ordering.NONE, max_in_flight=3)
    deliverer.apply([many, destination("one")])
    order: list[str] = []
    for name, handler in deliverer.handlers.items():
        handler.now = lambda name=name: order.append(name) or 0.0  # type: ignore[func-returns-value]
    for identifier in "abc":
        deliverer.publish(identifier, "many")
    deliverer.publish("d", "one")
    deliverer.run()
    assert order == ["many", "one", "many", "many"]


def test_a_destination_that_works_again_is_told_once(deliverer, caplog):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    with caplog.at_level(logging.INFO):
        deliverer.advance(31)
        deliverer.publish("b")
        deliverer.run()
    assert [record.event for record in caplog.records] == [
        "delivery-failing",
        "delivery-resumed",
    ]
    assert deliverer.queue("ops").health.failing_since is None


def test_a_listener_that_flaps_does_not_flood_the_log(deliverer, caplog):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    handler = deliverer.handlers["ops"]
    with caplog.at_level(logging.INFO):
        # Five outages of less than a minute, and one that lasts.
        for _ in range(5):
            deliverer.publish("a")
            deliverer.run()
            handler.answer = SUCCESS
            deliverer.service.hasten()
            deliverer.run()
            deliverer.advance(1)
            handler.answer = ERROR
        assert [record.event for record in caplog.records] == [
            "delivery-failing",
            "delivery-resumed",
        ]
        caplog.clear()
        deliverer.publish("b")
        deliverer.advance(70)
        assert [record.event for record in caplog.records] == ["delivery-failing"]


def test_a_removed_queue_that_still_stands_in_the_round_gets_no_attempt(deliverer):
    deliverer.apply([destination("ops"), destination("gone")])
    deliverer.publish("a", "gone")
    deliverer.apply([destination("ops")])
    assert deliverer.created[1].attempts == []
    assert deliverer.settlements.discarded(DiscardReason.DESTINATION_REMOVED) == ["a"]


def test_discards_of_a_removed_destination_are_remembered(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops"), destination("gone")])
    for _ in range(300):
        deliverer.publish("a", "gone")
    deliverer.apply([destination("ops")])
    deliverer.run()
    former = deliverer.service.former_discards()
    assert former["gone"][DiscardReason.DESTINATION_REMOVED] == 300
    # A destination of the same name goes on counting.
    deliverer.apply([destination("ops"), destination("gone", uid="another")])
    assert "gone" not in former
    discarded = deliverer.queue("gone").statistics.discarded
    assert discarded[DiscardReason.DESTINATION_REMOVED] == 300


def test_discards_of_a_drained_destination_count_for_its_successor(deliverer):
    deliverer.answer = ERROR
    drains = destination("ops", removal_policy=RemovalPolicy.DRAIN)
    deliverer.apply([drains])
    deliverer.publish("a")
    deliverer.run()
    deliverer.apply([destination("ops", uid="another")])
    deliverer.advance(1000)
    assert deliverer.service.former_discards() == {}
    discarded = deliverer.queue("ops").statistics.discarded
    assert discarded[DiscardReason.ATTEMPTS_EXCEEDED] == 1


def test_only_so_many_removed_destinations_are_remembered(deliverer, monkeypatch):
    monkeypatch.setattr(table, "MOST_FORMER", 2)
    for name in ("one", "two", "three"):
        deliverer.apply([destination(name)])
    deliverer.apply([])
    assert list(deliverer.service.former_discards()) == ["two", "three"]


def test_what_is_discarded_in_turns_goes_first_come_first(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("one"), destination("two")])
    for number in range(300):
        deliverer.publish(f"{number}", "one")
        deliverer.publish(f"{number}", "two")
    deliverer.run()
    deliverer.service.purge("one")
    deliverer.service.purge("two")
    deliverer.run()
    order = [name for _, name, _ in deliverer.settlements.seen]
    assert order == ["one"] * 299 + ["two"] * 299
