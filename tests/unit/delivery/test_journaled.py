"""Delivery with a journal on disk: what waits for a commit, what is packed, what a restart brings
back (S3.1, D.2)."""

import logging

import pytest
from msgspec.structs import replace

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import Ordering, RemovalPolicy
from pillion_sidecar.delivery.backlog import FRONT_ENTRIES
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, FailureCause
from pillion_sidecar.indication import DiscardReason, Indication, Target
from pillion_sidecar.journal.ports import (
    Place,
    QueueState,
)
from support.delivery import ERROR, SUCCESS, Deliverer, destination, subscription
from support.fake_journal import FakeJournal
from support.journaled import restarted, settle_loads


@pytest.fixture
def journal():
    return FakeJournal()


@pytest.fixture
def deliverer(journal):
    return Deliverer(journal=journal)


def held_indication(deliverer):
    return Indication(
        body=b"{}",
        class_name="CIM_AlertIndication",
        accepted_at=deliverer.time.monotonic(),
        identifier="held",
        trackers=(deliverer.settlements,),
    )


def deliveries(deliverer, name="ops"):
    return [
        (attempt.indication.identifier, attempt.sequence_number)
        for attempt in deliverer.handlers[name].attempts
    ]


# ---------------------------------------------------------------------- commits


def test_nothing_is_sent_before_it_is_on_disk(deliverer, journal):
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.publish("b")
    deliverer.run()
    assert not deliverer.handlers["ops"].attempts
    journal.commit(1)
    deliverer.run()
    assert deliveries(deliverer) == [("a", 0)]
    journal.commit()
    deliverer.run()
    assert deliveries(deliverer) == [("a", 0), ("b", 1)]
    assert deliverer.service.pending == 0


def test_a_barrier_is_passed_with_the_commit_of_all_before_it(deliverer, journal):
    passed = []
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.service.barrier(lambda: passed.append("a"))
    deliverer.publish("b")
    journal.commit(1)
    assert passed == ["a"]


def test_what_waits_for_its_commit_takes_its_place_in_the_queue(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", queue_size=2, queue_full_policy=QueueFullPolicy.REJECT)])
    assert deliverer.publish("a") is None
    assert deliverer.publish("b") is None
    refusal = deliverer.publish("c")
    assert refusal is not None
    assert refusal.destination == "ops"


def test_what_was_committed_for_a_destination_removed_meanwhile_is_discarded(deliverer, journal):
    deliverer.apply([destination("ops"), destination("other")])
    deliverer.publish("a")
    deliverer.apply([destination("other")])
    journal.commit()
    deliverer.run()
    assert deliverer.settlements.of("a") == [
        ("ops", DiscardReason.DESTINATION_REMOVED),
        ("other", None),
    ]


def test_beside_a_queue_that_drains_nothing_is_settled_cumulatively(deliverer, journal):
    ops = destination("ops", removal_policy=RemovalPolicy.DRAIN)
    deliverer.answer = None
    deliverer.apply([ops])
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    draining = deliverer.handlers["ops"]
    deliverer.apply([])
    deliverer.apply([ops])
    deliverer.publish("b")
    journal.commit()
    deliverer.run()
    assert deliverer.handlers["ops"] is not draining
    deliverer.answer_held("ops", SUCCESS)
    # The other one's is older, and still under way.
    assert journal.settled == [(0, 1, None, False)]


def test_what_was_committed_for_a_subscription_that_ended_meanwhile_is_discarded(
    deliverer, journal
):
    deliverer.apply([destination("ops")], [subscription("one", "ops"), subscription("two", "ops")])
    deliverer.publish("a")
    deliverer.apply([destination("ops")], [subscription("two", "ops")])
    journal.commit()
    deliverer.run()
    assert deliverer.settlements.of("a") == [
        ("ops", None),
        ("ops", DiscardReason.SUBSCRIPTION_NOT_ACTIVE),
    ]
    (attempt,) = deliverer.handlers["ops"].attempts
    assert attempt.filter_name == "filter-of-two"


def test_a_draining_destination_waits_for_what_is_not_on_disk_yet(deliverer, journal):
    deliverer.apply([destination("ops", removal_policy=RemovalPolicy.DRAIN)])
    deliverer.publish("a")
    deliverer.apply([])
    journal.commit()
    deliverer.run()
    assert deliveries(deliverer) == [("a", 0)]
    assert not list(deliverer.service.all_queues())


def test_settlements_in_order_are_cumulative_and_discards_are_not(deliverer, journal):
    deliverer.apply([destination("ops")])
    for identifier in "ab":
        deliverer.publish(identifier)
    journal.commit()
    deliverer.run()
    deliverer.handlers["ops"].answer = None
    deliverer.publish("c")
    deliverer.publish("d")
    journal.commit()
    deliverer.run()
    deliverer.service.purge("ops")
    deliverer.run()
    deliverer.answer_held("ops", SUCCESS)
    assert journal.settled == [
        (0, 0, None, True),
        (0, 1, None, True),
        (0, 3, DiscardReason.PURGED, False),
        (0, 2, None, True),
    ]


def test_out_of_order_deliveries_are_settled_one_by_one(deliverer, journal):
    deliverer.answer = None
    deliverer.apply([destination("ops", ordering=Ordering.NONE, max_in_flight=3)])
    for identifier in "abc":
        deliverer.publish(identifier)
    journal.commit()
    deliverer.run()
    held = deliverer.handlers["ops"].held
    held[1](SUCCESS)
    held[2](SUCCESS)
    held[0](SUCCESS)
    deliverer.run()
    assert journal.settled == [(0, 1, None, False), (0, 2, None, False), (0, 0, None, True)]


def test_two_subscriptions_to_one_destination_are_two_places(deliverer, journal):
    deliverer.answer = None
    deliverer.apply([destination("ops")], [subscription("one", "ops"), subscription("two", "ops")])
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    deliverer.answer_held("ops", SUCCESS)
    assert journal.settled == [(0, 0, None, True)]
    assert journal.records[1][1] == (Place(0, 0, 0), Place(0, 1, 1))


# ---------------------------------------------------------------------- packing


def test_a_long_queue_is_packed_and_delivered_in_order_all_the_same(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", queue_size=10_000)])
    count = 5 * FRONT_ENTRIES
    for number in range(count):
        deliverer.publish(str(number))
    journal.commit()
    deliverer.run()
    queue = deliverer.queue("ops")
    assert queue.depth == count
    assert len(queue.waiting.front) <= FRONT_ENTRIES
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.handlers["ops"].attempts.clear()
    deliverer.advance(31)
    settle_loads(deliverer, journal)
    assert deliveries(deliverer) == [(str(number), number) for number in range(count)]
    assert deliverer.service.pending == 0
    assert all(through for _, _, _, through in journal.settled)


def test_trackers_are_told_of_what_was_packed(journal):
    class Follower:
        def __init__(self):
            self.settled_ids = []

        def settled(self, indication, destination, discarded):
            self.settled_ids.append(indication.id)

    deliverer = Deliverer(journal=journal)
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", queue_size=10_000)])
    follower = Follower()
    trackers = (deliverer.settlements, follower)
    for number in range(3 * FRONT_ENTRIES):
        indication = Indication(
            body=b"{}",
            class_name="CIM_AlertIndication",
            accepted_at=deliverer.time.monotonic(),
            identifier=str(number),
            trackers=trackers if number % 2 else (deliverer.settlements,),
        )
        deliverer.service.offer(indication, [Target("ops", "filter-of-ops", "ops")])
    journal.commit()
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(31)
    settle_loads(deliverer, journal)
    assert follower.settled_ids == list(range(2, 3 * FRONT_ENTRIES + 1, 2))


def test_a_full_packed_queue_discards_its_oldest_each_logged(deliverer, journal, caplog):
    caplog.set_level(logging.WARNING)
    deliverer.answer = ERROR
    size = 2 * FRONT_ENTRIES
    deliverer.apply([destination("ops", queue_size=size)])
    for number in range(size + 10):
        assert deliverer.publish(str(number)) is None
        journal.commit()
        deliverer.run()
        # An attempt and its retry have failed before it is full.
        deliverer.advance(0.0 if number else 31)
    settle_loads(deliverer, journal)
    gone = [
        record.identifier
        for record in caplog.records
        if getattr(record, "event", "") == "indication-discarded"
    ]
    assert gone == [str(number) for number in range(10)]
    assert deliverer.queue("ops").depth == size


def test_a_full_queue_discards_its_oldest_while_none_of_it_is_loaded(deliverer, journal):
    deliverer.answer = ERROR
    size = 2 * FRONT_ENTRIES
    deliverer.apply([destination("ops", queue_size=size)])
    over = FRONT_ENTRIES + 10
    for number in range(size + over):
        assert deliverer.publish(str(number)) is None
        journal.commit()
        deliverer.run()
        deliverer.advance(0.0 if number else 31)
    queue = deliverer.queue("ops")
    assert (len(queue.waiting.front), queue.depth) == (0, size)
    deliverer.answer = deliverer.handlers["ops"].answer = SUCCESS
    deliverer.handlers["ops"].attempts.clear()
    # What is read back by now was discarded meanwhile in part.
    settle_loads(deliverer, journal)
    deliverer.advance(31)
    settle_loads(deliverer, journal)
    assert queue.statistics.discarded[DiscardReason.QUEUE_FULL] == over
    assert deliveries(deliverer) == [(str(number), number) for number in range(over, size + over)]
    assert deliverer.service.pending == 0


def test_a_packed_queue_that_is_purged_is_discarded_whole(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", queue_size=10_000)])
    count = 7 * FRONT_ENTRIES
    for number in range(count):
        deliverer.publish(str(number))
    journal.commit()
    deliverer.run()
    assert deliverer.service.purge("ops") == count
    settle_loads(deliverer, journal)
    assert deliverer.service.pending == 0
    assert sorted(number for _, number, _, _ in journal.settled) == list(range(count))


def test_entries_that_are_being_discarded_block_no_newer_one_but_its_cumulative_settlement(
    deliverer, journal
):
    deliverer.answer = ERROR
    deliverer.apply(
        [destination("ops", queue_size=10_000)],
        [subscription("one", "ops"), subscription("two", "ops")],
    )
    for number in range(3 * FRONT_ENTRIES):
        deliverer.publish(f"old-{number}", "one")
    deliverer.publish("new", "two")
    journal.commit()
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.apply([destination("ops", queue_size=10_000)], [subscription("two", "ops")])
    # The reads of what is discarded have not come back when the newest entry is delivered.
    deliverer.run()
    while journal._loads and "new" not in deliverer.handlers["ops"].identifiers:
        journal._loads.rotate(1)
        journal._loads.popleft()()
        deliverer.run()
        deliverer.advance(31)
    newest = [entry for entry in journal.settled if entry[2] is None]
    assert newest
    if len(journal.settled) <= 3 * FRONT_ENTRIES:
        assert newest[0][3] is False
    settle_loads(deliverer, journal)
    assert deliverer.service.pending == 0


def test_a_damaged_indication_is_discarded_and_the_rest_delivered(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", queue_size=10_000)])
    count = 3 * FRONT_ENTRIES
    for number in range(count):
        deliverer.publish(str(number))
    journal.commit()
    deliverer.run()
    journal.damaged = {count - 5}
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.handlers["ops"].attempts.clear()
    deliverer.advance(31)
    settle_loads(deliverer, journal)
    expected = [str(number) for number in range(count) if number != count - 6]
    assert deliverer.handlers["ops"].identifiers == expected
    assert (0, count - 6, DiscardReason.DAMAGED, False) in journal.settled
    assert deliverer.service.pending == 0


@pytest.mark.parametrize("where", ["flying", "front", "packed", "held", "discarding"])
def test_a_record_that_is_copied_forward_is_found_where_it_is(deliverer, journal, where):
    deliverer.answer = None if where == "flying" else ERROR
    deliverer.apply([destination("ops", queue_size=10_000)])
    count = 3 * FRONT_ENTRIES
    held = None
    if where == "held":
        held = held_indication(deliverer)
        deliverer.service.hold(held, [Target("ops", "filter-of-ops", "ops")])
    for number in range(count):
        deliverer.publish(str(number))
    journal.commit()
    deliverer.run()
    if where == "discarding":
        deliverer.service.purge("ops")
    moved = {"flying": 1, "front": 2, "packed": count, "held": 1, "discarding": count}[where]
    journal.move(moved)
    if held is not None:
        assert held.position == 1001
        deliverer.service.release(held)
        journal.commit()
    deliverer.handlers["ops"].answer = SUCCESS
    while deliverer.handlers["ops"].held:
        deliverer.answer_held("ops", SUCCESS)
    deliverer.advance(31)
    settle_loads(deliverer, journal)
    assert deliverer.service.pending == 0
    assert not deliverer.journal_listener().unsettled(moved, journal.records[moved][1])


def test_a_record_that_is_copied_forward_while_it_is_read_is_found_where_it_is(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", queue_size=10_000)])
    for number in range(2 * FRONT_ENTRIES):
        deliverer.publish(str(number))
    journal.commit()
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(31)
    assert not deliverer.queue("ops").waiting.front
    deliverer.handlers["ops"].answer = None
    moved = FRONT_ENTRIES + 1
    journal.move(moved)
    settle_loads(deliverer, journal)
    (entry,) = deliverer.queue("ops").in_flight
    assert entry.indication.id == moved
    assert journal.positions[entry.indication.position] == moved


# ---------------------------------------------------------------------- holding (S1.5)


def test_a_held_indication_is_delivered_when_it_is_released(deliverer, journal):
    deliverer.apply([destination("ops")])
    held = held_indication(deliverer)
    assert deliverer.service.hold(held, [Target("ops", "filter-of-ops", "ops")]) is None
    assert held.unsettled == 1
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    assert deliveries(deliverer) == [("a", 0)]
    deliverer.service.release(held)
    journal.commit()
    deliverer.run()
    assert deliveries(deliverer) == [("a", 0), ("held", 1)]
    assert journal.released == {1: 3}
    assert deliverer.service.pending == 0


def test_a_held_indication_that_is_discarded_is_told_once_for_each_target(deliverer, journal):
    deliverer.apply([destination("ops"), destination("other")])
    held = held_indication(deliverer)
    targets = [Target(name, f"filter-of-{name}", name) for name in ("ops", "other")]
    deliverer.service.hold(held, targets)
    deliverer.service.discard_held(held, DiscardReason.OUT_OF_ORDER)
    assert deliverer.settlements.of("held") == [
        ("ops", DiscardReason.OUT_OF_ORDER),
        ("other", DiscardReason.OUT_OF_ORDER),
    ]
    assert journal.ended_holds == [(1, DiscardReason.OUT_OF_ORDER)]
    assert deliverer.service.pending == 0


def test_a_held_indication_has_its_place_beside_a_queue(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", queue_size=2, queue_full_policy=QueueFullPolicy.REJECT)])
    held = held_indication(deliverer)
    assert deliverer.service.hold(held, [Target("ops", "filter-of-ops", "ops")]) is None
    assert deliverer.publish("a") is None
    assert deliverer.publish("b") is None
    assert deliverer.publish("c") is not None


def test_a_held_indication_leaves_a_place_for_the_one_that_it_waits_for(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", queue_size=2, queue_full_policy=QueueFullPolicy.REJECT)])
    targets = [Target("ops", "filter-of-ops", "ops")]
    assert deliverer.service.hold(held_indication(deliverer), targets) is None
    assert deliverer.service.hold(held_indication(deliverer), targets) is not None
    assert deliverer.publish("predecessor") is None


# ---------------------------------------------------------------------- restarts


def test_a_restart_delivers_what_is_left_under_the_same_numbers(deliverer, journal):
    deliverer.apply([destination("ops")])
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.handlers["ops"].answer = None
    journal.commit()
    deliverer.run()
    deliverer.answer_held("ops", SUCCESS)
    context = deliverer.queue("ops").sequence_context
    again = restarted(journal)
    again.apply([destination("ops")])
    settle_loads(again, journal)
    assert deliveries(again) == [("b", 1), ("c", 2)]
    assert {attempt.sequence_context for attempt in again.handlers["ops"].attempts} == {context}
    again.publish("d")
    journal.commit()
    again.run()
    assert deliveries(again)[-1] == ("d", 3)


def test_after_damage_every_context_ends(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    for identifier in "ab":
        deliverer.publish(identifier)
    journal.commit()
    deliverer.run()
    context = deliverer.queue("ops").sequence_context
    again = restarted(journal, damaged=True)
    again.apply([destination("ops")])
    assert again.queue("ops").sequence_context != context
    settle_loads(again, journal)
    again.advance(31)
    assert deliveries(again) == [("a", 0), ("b", 1)]


def test_after_damage_no_number_is_given_twice(deliverer, journal):
    deliverer.apply([destination("ops")])
    for identifier in "ab":
        deliverer.publish(identifier)
    again = restarted(journal, damaged=True)
    again.apply([destination("ops")])
    again.publish("c")
    assert [place.number for _, places in journal.records.values() for place in places] == [0, 1, 2]


def test_a_listener_that_gets_identifiers_since_a_restart_gets_them_from_0(deliverer, journal):
    url = "http://one.example:5988/"
    # Two destinations with one URL send none.
    deliverer.apply([destination("ops", destination=url), destination("twin", destination=url)])
    for identifier in "ab":
        deliverer.publish(identifier)
    journal.commit(1)
    deliverer.run()
    assert deliverer.queue("ops").sequence_context is None
    again = restarted(journal)
    again.apply([destination("ops", destination=url)])
    settle_loads(again, journal)
    assert again.queue("ops").sequence_context is not None
    assert deliveries(again) == [("b", 0)]


def test_another_listener_after_a_restart_gets_a_new_context(deliverer, journal):
    deliverer.apply([destination("ops")])
    for identifier in "ab":
        deliverer.publish(identifier)
    journal.commit(1)
    deliverer.run()
    context = deliverer.queue("ops").sequence_context
    again = restarted(journal)
    again.apply([destination("ops", destination="http://elsewhere.example:5988/")])
    settle_loads(again, journal)
    assert again.queue("ops").sequence_context != context
    assert deliveries(again) == [("b", 0)]


@pytest.mark.parametrize(
    "url", ["http://OPS.example:5988/", "HTTP://ops.example", "http://ops.example.:5988/"]
)
def test_another_spelling_of_a_listener_keeps_its_context(deliverer, journal, url):
    # The journal of the first release has the URL as the resource spelled it.
    deliverer.apply([destination("ops", destination="http://ops.example:5988/")])
    for identifier in "ab":
        deliverer.publish(identifier)
    journal.commit(1)
    deliverer.run()
    queue = deliverer.queue("ops")
    noted = queue.state(offset=journal.offset)
    journal.note(replace(noted, listener=f"CIM-XML {url}"))
    again = restarted(journal)
    again.apply([destination("ops", destination="http://ops.example:5988")])
    settle_loads(again, journal)
    assert again.queue("ops").sequence_context == queue.sequence_context
    assert deliveries(again) == [("b", 1)]


def test_attempts_and_the_retry_interval_live_over_a_restart(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    deliverer.advance(31)
    assert len(deliverer.handlers["ops"].attempts) == 2
    again = restarted(journal, time=deliverer.time)
    again.answer = ERROR
    again.apply([destination("ops")])
    settle_loads(again, journal)
    assert not again.handlers["ops"].attempts
    again.advance(31)
    settle_loads(again, journal)
    assert [attempt.attempt for attempt in again.handlers["ops"].attempts] == [3]
    again.advance(31)
    assert again.settlements.of("a") == [("ops", DiscardReason.ATTEMPTS_EXCEEDED)]


def test_why_it_fails_is_known_after_a_restart(deliverer, journal):
    refused = DeliveryOutcome(
        DeliveryResult.ERROR, "connection refused", cause=FailureCause.REFUSED
    )
    deliverer.answer = refused
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    for _ in range(2):
        again = restarted(journal, time=deliverer.time)
        again.apply([destination("ops")])
        queue = again.queue("ops")
        assert queue.health.failing_since is not None
        assert queue.statistics.last_outcome == refused
        # This run has not tried it yet.
        assert not queue.statistics.is_tried
        journal.note(queue.state(offset=journal.offset))
    settle_loads(again, journal)
    again.advance(31)
    settle_loads(again, journal)
    assert again.settlements.of("a") == [("ops", None)]
    recovered = journal.states[queue.index]
    assert (recovered.failing_since, recovered.last_failure) == (None, None)


@pytest.mark.parametrize(
    "failure", [None, ("exploded", "refused", "", None), ("error", "of-a-later-version", "", None)]
)
def test_a_failure_of_another_version_is_unknown_after_a_restart(deliverer, journal, failure):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    noted = journal.states[deliverer.queue("ops").index]
    journal.note(replace(noted, last_failure=failure))
    again = restarted(journal, time=deliverer.time)
    again.apply([destination("ops")])
    queue = again.queue("ops")
    assert queue.health.failing_since is not None
    assert queue.statistics.last_outcome is None


def test_attempts_live_over_a_restart_that_ends_before_anything_is_read_back(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    deliverer.advance(31)
    again = restarted(journal, time=deliverer.time)
    again.apply([destination("ops")])
    assert journal.states[0].attempts == ((0, 2),)


def test_the_attempts_of_a_group_are_kept_behind_those_that_were_not_tried(deliverer, journal):
    deliverer.answer = None
    deliverer.apply([destination("ops", ordering=Ordering.GROUP, max_in_flight=2)])
    for identifier, group in (("a", "x"), ("b", "x"), ("c", "y")):
        deliverer.publish(identifier, group=group)
    journal.commit()
    deliverer.run()
    deliverer.handlers["ops"].held[1](ERROR)
    deliverer.run()
    assert journal.states[0].attempts == ((2, 1),)


def test_a_clock_set_back_makes_nothing_wait_for_longer_than_the_interval(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    state = journal.states[0]
    assert state.next_attempt_at is not None
    journal.states[0] = QueueState(
        **{name: getattr(state, name) for name in state.__struct_fields__}
        | {"next_attempt_at": state.next_attempt_at + 1e6}
    )
    again = restarted(journal)
    again.apply([destination("ops")])
    settle_loads(again, journal)
    queue = again.queue("ops")
    assert queue.health.next_attempt_at is not None
    longest = queue.destination.retry.maximum_interval_seconds
    assert queue.health.next_attempt_at - again.time.monotonic() <= longest


def test_lifetime_counts_from_acceptance_over_a_restart(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", indication_lifetime_seconds=100.0)])
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    deliverer.time.advance(101)
    again = restarted(journal, time=deliverer.time)
    again.apply([destination("ops", indication_lifetime_seconds=100.0)])
    settle_loads(again, journal)
    again.advance(0)
    assert again.settlements.of("a") == [("ops", DiscardReason.LIFETIME_EXPIRED)]


def test_what_was_for_a_destination_that_is_gone_is_discarded_with_that_reason(deliverer, journal):
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    again = restarted(journal)
    again.apply([destination("other")])
    settle_loads(again, journal)
    assert again.settlements.of("a") == [("ops", DiscardReason.DESTINATION_REMOVED)]
    assert journal.settled == [(0, 0, DiscardReason.DESTINATION_REMOVED, False)]


def test_what_was_for_a_subscription_that_is_gone_is_discarded_with_that_reason(deliverer, journal):
    deliverer.apply([destination("ops")], [subscription("one", "ops"), subscription("two", "ops")])
    deliverer.publish("a")
    again = restarted(journal)
    again.apply([destination("ops")], [subscription("two", "ops")])
    settle_loads(again, journal)
    assert again.settlements.of("a") == [
        ("ops", None),
        ("ops", DiscardReason.SUBSCRIPTION_NOT_ACTIVE),
    ]


def test_a_held_indication_is_held_after_a_restart(deliverer, journal):
    deliverer.apply([destination("ops")])
    held = held_indication(deliverer)
    deliverer.service.hold(held, [Target("ops", "filter-of-ops", "ops")])
    again = restarted(journal)
    again.apply([destination("ops")])
    found = journal.records[1][0]
    assert again.service.pending == 1
    again.service.release(found)
    journal.commit()
    again.run()
    assert deliveries(again) == [("held", 0)]


def test_numbers_go_on_where_a_destination_is_made_anew_under_its_uid(deliverer, journal):
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    journal.commit()
    deliverer.run()
    deliverer.apply([])
    deliverer.apply([destination("ops")])
    deliverer.publish("b")
    journal.commit()
    deliverer.run()
    assert deliveries(deliverer) == [("b", 0)]
    assert [place.number for _, places in journal.records.values() for place in places] == [0, 1]


def test_at_the_end_what_is_left_stays_in_the_journal(deliverer, journal, caplog):
    caplog.set_level(logging.INFO)
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    for identifier in "ab":
        deliverer.publish(identifier)
    journal.commit()
    deliverer.run()
    deliverer.service.close()
    assert not journal.settled
    assert [
        (record.destination, record.count)
        for record in caplog.records
        if getattr(record, "event", "") == "kept-at-shutdown"
    ] == [("ops", 2)]


# ---------------------------------------------------------------------- the journal's bounds


def test_a_journal_that_takes_nothing_refuses_all_and_says_why(deliverer, journal):
    deliverer.apply([destination("ops")])
    journal.refuses = "the journal's disk is full"
    refusal = deliverer.publish("a")
    assert refusal is not None
    assert (refusal.destination, refusal.reason) == (None, "the journal's disk is full")
    assert not journal.records


def test_at_the_byte_bound_the_fullest_queue_gives_way_where_it_fails(deliverer, journal):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops"), destination("other")])
    for number in range(5):
        deliverer.publish(str(number), "ops")
    journal.commit()
    deliverer.advance(31)
    deliverer.handlers["other"].answer = SUCCESS
    journal.over = True
    assert deliverer.publish("x", "other") is None
    settle_loads(deliverer, journal)
    # It is over until nothing more can be given up.
    assert [reason for _, _, reason, _ in journal.settled] == [DiscardReason.QUEUE_FULL] * 5


def test_at_the_byte_bound_the_fullest_queue_pushes_back_where_it_delivers(deliverer, journal):
    deliverer.apply([destination("ops"), destination("other")])
    deliverer.handlers["ops"].answer = None
    for number in range(5):
        deliverer.publish(str(number), "ops")
    journal.commit()
    deliverer.run()
    journal.over = True
    refusal = deliverer.publish("x", "ops")
    assert refusal is not None
    assert refusal.destination == "ops"
    assert deliverer.publish("y", "other") is None
