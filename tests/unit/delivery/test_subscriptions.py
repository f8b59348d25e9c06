"""Subscriptions while they run: state, duration, fatal errors, removal, repeats (D.3, S0.10)."""

import logging

import pytest

from pillion_sidecar.config.schema.common import RemovalAction
from pillion_sidecar.config.schema.destination import RetryPolicy
from pillion_sidecar.config.schema.subscription import (
    IndicationSubscription,
    RepeatNotification,
    RepeatPolicy,
    SubscriptionState,
)
from pillion_sidecar.delivery import entries
from pillion_sidecar.delivery.entries import RepeatNotifications, SubscriptionEnd
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, FATAL_ERROR, HELD, SUCCESS, Deliverer, destination, subscription


@pytest.fixture
def deliverer() -> Deliverer:
    return Deliverer()


def ending(name: str, policy: RemovalAction) -> IndicationSubscription:
    """A subscription that ends with the second failure in a row."""
    return subscription(
        name, "ops", on_fatal_error_policy=policy, failure_trigger_time_interval_seconds=1.0
    )


def backlog(deliverer: Deliverer, *names: str) -> None:
    """A failing destination with one indication queued for each of its subscriptions."""
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")], [subscription(name, "ops") for name in names])
    for name in names:
        deliverer.publish(f"for-{name}", name)
    deliverer.run()


@pytest.mark.parametrize("how", ["disabled", "deleted"])
def test_what_waits_for_a_subscription_that_is_not_active_is_discarded_and_logged(
    deliverer, how, caplog
):
    backlog(deliverer, "kept", "gone")
    rest = [subscription("kept", "ops")]
    if how == "disabled":
        rest.append(subscription("gone", "ops", state=SubscriptionState.DISABLED))
    with caplog.at_level(logging.WARNING):
        deliverer.apply([destination("ops")], rest)
    assert deliverer.settlements.seen == [
        ("for-gone", "ops", DiscardReason.SUBSCRIPTION_NOT_ACTIVE)
    ]
    discards = [record for record in caplog.records if record.event == "indication-discarded"]
    assert [record.subscription for record in discards] == ["gone"]
    assert deliverer.queue("ops").depth == 1


def test_an_attempt_under_way_for_a_deleted_subscription_is_not_repeated(deliverer):
    deliverer.answer = None
    deliverer.apply([destination("ops")], [subscription("gone", "ops")])
    deliverer.publish("a")
    deliverer.run()
    deliverer.apply([destination("ops")], [])
    deliverer.answer_held("ops", ERROR)
    assert deliverer.settlements.discarded(DiscardReason.SUBSCRIPTION_NOT_ACTIVE) == ["a"]
    assert deliverer.queue("ops").depth == 0


def test_a_disabled_subscription_is_no_target(deliverer):
    off = subscription("off", "ops", state=SubscriptionState.DISABLED)
    deliverer.apply([destination("ops")], [off])
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.handlers["ops"].attempts == []


def test_a_changed_subscription_keeps_what_is_queued_for_it(deliverer):
    backlog(deliverer, "ops")
    changed = subscription("ops", "ops", on_fatal_error_policy=RemovalAction.DISABLE)
    deliverer.apply([destination("ops")], [changed])
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(31)
    assert deliverer.settlements.delivered == ["for-ops"]


def test_a_subscription_ends_with_its_duration(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")], [subscription("ops", "ops", duration_seconds=50.0)])
    deliverer.publish("a")
    deliverer.advance(49)
    assert deliverer.settlements.seen == []
    deliverer.advance(2)
    assert deliverer.settlements.discarded(DiscardReason.SUBSCRIPTION_NOT_ACTIVE) == ["a"]
    deliverer.publish("b")
    assert deliverer.queue("ops").depth == 0


def test_a_duration_counts_from_the_creation_of_the_resource(deliverer):
    created = deliverer.time.time() - 40
    old = subscription("ops", "ops", duration_seconds=50.0, created_at=created)
    deliverer.apply([destination("ops")], [old])
    deliverer.advance(9)
    deliverer.publish("a")
    deliverer.advance(2)
    deliverer.publish("b")
    deliverer.run()
    assert deliverer.settlements.delivered == ["a"]


def test_a_reload_does_not_start_a_duration_again(deliverer):
    resource = subscription("ops", "ops", duration_seconds=50.0)
    deliverer.apply([destination("ops")], [resource])
    deliverer.advance(40)
    deliverer.apply([destination("ops"), destination("more")], [resource])
    deliverer.advance(11)
    deliverer.publish("a")
    deliverer.run()
    assert deliverer.handlers["ops"].attempts == []


@pytest.mark.parametrize(
    ("policy", "active"),
    [(RemovalAction.IGNORE, True), (RemovalAction.DISABLE, False), (RemovalAction.REMOVE, False)],
)
@pytest.mark.parametrize("answer", [ERROR, HELD])
def test_a_lasting_failure_does_to_the_subscription_what_its_policy_says(
    deliverer, answer, policy, active
):
    deliverer.answer = answer
    bad = subscription(
        "bad", "ops", on_fatal_error_policy=policy, failure_trigger_time_interval_seconds=600.0
    )
    ops = destination("ops", retry=RetryPolicy(attempts=100, interval_seconds=30.0))
    deliverer.apply([ops], [bad, subscription("other", "ops")])
    deliverer.publish("a", "bad")
    deliverer.publish("x", "other")
    deliverer.advance(590)
    assert deliverer.queue("ops").depth == 2
    deliverer.advance(31)
    assert deliverer.queue("ops").depth == (2 if active else 1)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.publish("b")
    deliverer.advance(31)
    assert deliverer.settlements.delivered == (["a", "x", "b", "b"] if active else ["x", "b"])


def test_a_success_in_between_begins_the_failure_trigger_anew(deliverer):
    deliverer.answer = ERROR
    bad = subscription(
        "bad",
        "ops",
        on_fatal_error_policy=RemovalAction.DISABLE,
        failure_trigger_time_interval_seconds=65.0,
    )
    deliverer.apply([destination("ops")], [bad])
    deliverer.publish("a")
    deliverer.advance(40)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(31)
    deliverer.handlers["ops"].answer = HELD
    deliverer.publish("b")
    deliverer.advance(50)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(31)
    assert deliverer.settlements.delivered == ["a", "b"]


def test_a_fatal_error_of_one_indication_ends_no_subscription(deliverer):
    deliverer.answer = FATAL_ERROR
    bad = subscription(
        "bad",
        "ops",
        on_fatal_error_policy=RemovalAction.DISABLE,
        failure_trigger_time_interval_seconds=1.0,
    )
    deliverer.apply([destination("ops")], [bad])
    for identifier in "ab":
        deliverer.publish(identifier)
        deliverer.advance(10)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.publish("c")
    deliverer.run()
    assert deliverer.settlements.delivered == ["c"]


def test_a_subscription_that_ended_stays_ended_until_its_resource_changes(deliverer):
    deliverer.answer = ERROR
    bad = ending("bad", RemovalAction.DISABLE)
    deliverer.apply([destination("ops")], [bad])
    deliverer.publish("a")
    deliverer.advance(31)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.apply([destination("ops"), destination("more")], [bad])
    deliverer.publish("b")
    deliverer.run()
    assert deliverer.settlements.delivered == []
    deliverer.apply([destination("ops")], [subscription("bad", "ops")])
    deliverer.publish("c")
    deliverer.run()
    assert deliverer.settlements.delivered == ["c"]


@pytest.mark.parametrize("action", [RemovalAction.DISABLE, RemovalAction.REMOVE])
def test_the_removal_action_is_taken_after_its_interval_without_a_success(deliverer, action):
    deliverer.answer = ERROR
    settings = {
        "subscription_removal_action": action,
        "subscription_removal_time_interval_seconds": 300.0,
    }
    deliverer.apply([destination("ops"), destination("other")], **settings)
    deliverer.publish("a", "ops")
    deliverer.advance(290)
    deliverer.publish("b", "ops")
    assert deliverer.queue("ops").depth == 1
    deliverer.advance(31)
    assert deliverer.settlements.discarded(DiscardReason.SUBSCRIPTION_NOT_ACTIVE) == ["b"]
    deliverer.publish("c", "ops")
    deliverer.publish("d", "other")
    assert (deliverer.queue("ops").depth, deliverer.queue("other").depth) == (0, 1)


def test_a_success_starts_the_removal_interval_again(deliverer):
    deliverer.answer = ERROR
    deliverer.apply(
        [destination("ops")],
        subscription_removal_action=RemovalAction.DISABLE,
        subscription_removal_time_interval_seconds=300.0,
    )
    deliverer.publish("a")
    deliverer.advance(80)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(20)
    deliverer.handlers["ops"].answer = ERROR
    deliverer.publish("b")
    deliverer.advance(299)
    deliverer.publish("c")
    deliverer.run()
    assert deliverer.settlements.discarded(DiscardReason.SUBSCRIPTION_NOT_ACTIVE) == []


def test_removal_is_ignored_by_default(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")], subscription_removal_time_interval_seconds=1.0)
    for identifier in "abc":
        deliverer.publish(identifier)
        deliverer.advance(200)
    assert deliverer.settlements.discarded(DiscardReason.SUBSCRIPTION_NOT_ACTIVE) == []


# ---------------------------------------------------------------- repeat notification


def repeating(deliverer: Deliverer, policy: RepeatPolicy, **values) -> None:
    repeat = RepeatNotification(policy=policy, **values)
    deliverer.apply([destination("ops")], [subscription("ops", "ops", repeat_notification=repeat)])


def test_suppress_sends_the_first_of_each_interval(deliverer):
    repeating(deliverer, RepeatPolicy.SUPPRESS, interval_seconds=60.0, count=2)
    for identifier in "abcd":
        deliverer.publish(identifier, event="disk-1")
        deliverer.advance(10)
    deliverer.advance(20)
    deliverer.publish("e", event="disk-1")
    deliverer.run()
    assert deliverer.settlements.delivered == ["a", "b", "e"]


def test_suppress_tells_events_apart(deliverer):
    repeating(deliverer, RepeatPolicy.SUPPRESS, interval_seconds=60.0, count=1)
    deliverer.publish("a", event="disk-1")
    deliverer.publish("b", event="disk-2")
    deliverer.publish("c", event="disk-1")
    deliverer.run()
    assert deliverer.settlements.delivered == ["a", "b"]


def test_delay_sends_what_exceeds_the_count_inside_an_interval_and_then_keeps_the_gap(deliverer):
    repeating(deliverer, RepeatPolicy.DELAY, interval_seconds=60.0, count=2, gap_seconds=100.0)
    for identifier in "abcdefg":
        deliverer.publish(identifier, event="disk-1")
        deliverer.advance(10)
    assert deliverer.settlements.delivered == ["c"]
    deliverer.advance(50)
    for identifier in "hij":
        deliverer.publish(identifier, event="disk-1")
        deliverer.advance(1)
    assert deliverer.settlements.delivered == ["c", "j"]


def test_delay_forgets_what_lies_before_the_interval(deliverer):
    repeating(deliverer, RepeatPolicy.DELAY, interval_seconds=60.0, count=1, gap_seconds=1.0)
    for identifier in "abc":
        deliverer.publish(identifier, event="disk-1")
        deliverer.advance(61)
    assert deliverer.settlements.delivered == []


def test_a_refused_indication_does_not_count_as_an_occurrence(deliverer):
    repeat = RepeatNotification(policy=RepeatPolicy.SUPPRESS, interval_seconds=60.0, count=1)
    deliverer.apply(
        [destination("ops", queue_size=1)],
        [subscription("ops", "ops", repeat_notification=repeat), subscription("fill", "ops")],
    )
    deliverer.publish("first", "fill")
    deliverer.run()
    deliverer.handlers["ops"].answer = None
    for identifier in "xy":
        deliverer.publish(identifier, "fill")
        deliverer.run()
    assert deliverer.publish("a", "ops", event="disk-1") is not None
    deliverer.answer_held("ops", SUCCESS)
    assert deliverer.publish("a", "ops", event="disk-1") is None
    assert deliverer.queue("ops").depth == 2


def test_the_times_that_delay_remembers_are_bounded(monkeypatch):
    monkeypatch.setattr(entries, "REMEMBERED_TIMES", 10)
    policy = RepeatNotification(
        policy=RepeatPolicy.DELAY, interval_seconds=60.0, gap_seconds=5.0, count=8
    )
    notifications = RepeatNotifications(policy)
    for event in range(4):
        for _ in range(8):
            assert not notifications.admits(event, now=1.0)
    # The last event has its eight still, the first ones gave way.
    assert notifications.admits(3, now=2.0)
    assert not notifications.admits(0, now=2.0)


def test_times_that_have_passed_do_not_count_against_the_bound(monkeypatch):
    monkeypatch.setattr(entries, "REMEMBERED_TIMES", 4)
    policy = RepeatNotification(
        policy=RepeatPolicy.DELAY, interval_seconds=10.0, gap_seconds=1.0, count=1
    )
    notifications = RepeatNotifications(policy)
    for number in range(20):
        # One interval after the other passes; each second occurrence in one is sent.
        assert not notifications.admits("passing", now=100.0 * number)
        assert notifications.admits("passing", now=100.0 * number + 1.0)
        assert not notifications.admits("single", now=100.0 * number + 2.0)
    assert not notifications.admits("kept", now=5000.0)
    assert not notifications.admits("single", now=5001.0)
    assert notifications.admits("kept", now=5002.0)


def test_a_subscription_that_is_gone_or_lasts_longer_leaves_no_timer(deliverer):
    ops = destination("ops")
    deliverer.apply([ops], [subscription("ops", "ops", duration_seconds=60.0)])
    deliverer.apply([ops], [subscription("ops", "ops")])
    assert deliverer.idle
    deliverer.apply([ops], [subscription("ops", "ops", duration_seconds=60.0)])
    deliverer.apply([ops], [])
    assert deliverer.idle


@pytest.mark.parametrize(
    ("policy", "end"),
    [
        (RemovalAction.DISABLE, SubscriptionEnd.FATAL_ERROR),
        (RemovalAction.REMOVE, SubscriptionEnd.REMOVED),
    ],
)
def test_what_ended_by_itself_is_told_with_its_cause_until_its_resource_changes(
    deliverer, policy, end
):
    deliverer.answer = ERROR
    bad = ending("bad", policy)
    deliverer.apply([destination("ops")], [bad, subscription("good", "ops")])
    assert list(deliverer.service.ended_subscriptions()) == []
    deliverer.publish("a", "bad")
    deliverer.advance(31)
    (ended,) = deliverer.service.ended_subscriptions()
    assert (ended.resource.name, ended.end, ended.cause) == (
        "bad",
        end,
        SubscriptionEnd.FATAL_ERROR,
    )
    changed = subscription("bad", "ops", duration_seconds=60.0)
    deliverer.apply([destination("ops")], [changed])
    assert list(deliverer.service.ended_subscriptions()) == []


def test_a_subscription_that_its_own_resource_disables_has_not_ended_by_itself(deliverer):
    disabled = subscription("off", "ops", state=SubscriptionState.DISABLED)
    deliverer.apply([destination("ops")], [disabled, subscription("gone", "ops")])
    deliverer.apply([destination("ops")], [disabled])
    assert list(deliverer.service.ended_subscriptions()) == []


def test_the_removal_action_is_the_cause_whatever_it_does(deliverer):
    deliverer.answer = ERROR
    deliverer.apply(
        [destination("ops")],
        subscription_removal_action=RemovalAction.REMOVE,
        subscription_removal_time_interval_seconds=30.0,
    )
    deliverer.publish("a")
    deliverer.run()
    deliverer.advance(61)
    (ended,) = deliverer.service.ended_subscriptions()
    assert (ended.end, ended.cause) == (SubscriptionEnd.REMOVED, SubscriptionEnd.REMOVAL_ACTION)
