"""Subscriptions end when their time without a success is over, not at the next attempt (D.3)."""

from collections.abc import Callable
from typing import Any

import pytest

from pillion_sidecar.config.schema.common import RemovalAction
from pillion_sidecar.config.schema.destination import DestinationFault, HoldCause, RetryPolicy
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, HELD, SUCCESS, Deliverer, destination, subscription
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk

#: Seconds: no attempt comes between.
RETRY = RetryPolicy(attempts=None, interval_seconds=300.0)
TRIGGER = 100.0
ENDED = DiscardReason.SUBSCRIPTION_NOT_ACTIVE
FAULT = DestinationFault(cause=HoldCause.DESTINATION, message="a port of 99999")


@pytest.fixture
def deliverer() -> Deliverer:
    return Deliverer()


def ops(**changes: Any) -> Any:
    return destination("ops", retry=RETRY, indication_lifetime_seconds=None, **changes)


def ending(name: str = "ops", *, to: str = "ops", seconds: float = TRIGGER) -> Any:
    return subscription(
        name,
        to,
        on_fatal_error_policy=RemovalAction.DISABLE,
        failure_trigger_time_interval_seconds=seconds,
    )


def removal(seconds: float = TRIGGER) -> dict[str, Any]:
    return {
        "subscription_removal_action": RemovalAction.REMOVE,
        "subscription_removal_time_interval_seconds": seconds,
    }


@pytest.mark.parametrize("answer", [ERROR, HELD])
def test_the_policy_acts_once_its_time_is_over(deliverer, answer):
    deliverer.answer = answer
    deliverer.apply([ops(), destination("more")], [ending(), ending("later", seconds=TRIGGER + 2)])
    deliverer.publish("a")
    deliverer.advance(TRIGGER - 1)
    assert deliverer.settlements.discarded(ENDED) == []
    deliverer.advance(1)
    assert deliverer.settlements.of("a") == [("ops", ENDED)]
    deliverer.advance(2)
    assert deliverer.settlements.of("a") == [("ops", ENDED), ("ops", ENDED)]
    assert deliverer.queue("ops").depth == 0


def test_the_services_removal_action_acts_once_its_time_is_over(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([ops()], **removal())
    deliverer.publish("a")
    deliverer.advance(TRIGGER - 1)
    assert deliverer.settlements.discarded(ENDED) == []
    deliverer.advance(1)
    assert deliverer.settlements.discarded(ENDED) == ["a"]


def test_a_held_destination_is_no_failing_one_for_the_service(deliverer):
    deliverer.answer = HELD
    deliverer.apply([ops()], **removal())
    deliverer.publish("a")
    deliverer.advance(10 * TRIGGER)
    assert deliverer.settlements.discarded(ENDED) == []


def test_listeners_that_begin_to_fail_one_after_another_each_have_their_time(deliverer):
    deliverer.answer = ERROR
    names = ["a", "b", "c"]
    deliverer.apply(
        [destination(name, retry=RETRY) for name in names],
        [ending(name, to=name) for name in names],
    )
    for name in names:
        deliverer.publish(name, name)
        deliverer.advance(5)
    # It is 15 s after the first failure.
    deliverer.advance(TRIGGER - 15)
    for count in (1, 2, 3):
        assert deliverer.settlements.discarded(ENDED) == names[:count]
        deliverer.advance(5)


def test_a_success_ends_the_watch(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")], [ending()])
    deliverer.publish("a")
    deliverer.advance(1)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(10 * TRIGGER)
    deliverer.publish("b")
    deliverer.run()
    assert deliverer.settlements.delivered == ["a", "b"]


def test_a_suspended_destination_is_not_tried_and_ends_nothing(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([ops()], [ending()])
    deliverer.publish("a")
    deliverer.advance(1)
    deliverer.apply([ops(suspended=True)], [ending()])
    deliverer.advance(10 * TRIGGER)
    assert deliverer.queue("ops").depth == 1
    deliverer.apply([ops()], [ending()])
    deliverer.advance(TRIGGER - 1)
    assert deliverer.queue("ops").depth == 1
    deliverer.advance(1)
    assert deliverer.settlements.discarded(ENDED) == ["a"]


def test_a_destination_with_nothing_to_deliver_says_nothing_of_its_listener(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([ops()], [ending()])
    deliverer.publish("a")
    deliverer.advance(1)
    deliverer.service.purge("ops")
    deliverer.advance(10 * TRIGGER)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.publish("b")
    deliverer.run()
    assert deliverer.settlements.delivered == ["b"]


def test_a_faulty_destination_ends_its_subscription_with_an_empty_queue_too(deliverer):
    deliverer.answer = HELD
    deliverer.apply([ops(fault=FAULT)], [ending()])
    deliverer.advance(TRIGGER)
    (subscribed,) = deliverer.service.ended_subscriptions()
    assert subscribed.resource.name == "ops"


def test_a_fault_that_was_mended_before_anything_came_is_forgotten(deliverer):
    deliverer.answer = HELD
    deliverer.apply([ops(fault=FAULT)], [ending()])
    deliverer.advance(TRIGGER - 1)
    deliverer.answer = ERROR
    deliverer.apply([ops()], [ending()])
    deliverer.publish("a")
    deliverer.advance(TRIGGER - 1)
    assert deliverer.queue("ops").depth == 1
    deliverer.advance(1)
    assert deliverer.settlements.discarded(ENDED) == ["a"]


def test_a_shorter_time_in_a_new_revision_counts_at_once(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([ops()], [ending(seconds=10 * TRIGGER)])
    deliverer.publish("a")
    deliverer.advance(TRIGGER + 1)
    deliverer.apply([ops()], [ending()])
    assert deliverer.settlements.discarded(ENDED) == ["a"]


def test_many_that_become_due_in_turn_are_looked_at_once_a_second(deliverer):
    deliverer.answer = ERROR
    names = [f"d{number}" for number in range(20)]
    deliverer.apply(
        [destination(name, retry=RETRY) for name in names],
        [ending(name, to=name) for name in names],
    )
    for name in names:
        deliverer.publish(name, name)
        deliverer.advance(0.1)
    looks = counted(deliverer.service._triggers, "_look")
    deliverer.advance(TRIGGER + 5)
    assert deliverer.settlements.discarded(ENDED) == names
    assert len(looks) <= 4


def counted(thing: Any, name: str) -> list[None]:
    calls: list[None] = []
    inner: Callable[[], None] = getattr(thing, name)

    def call() -> None:
        calls.append(None)
        inner()

    setattr(thing, name, call)
    return calls


@pytest.mark.parametrize("answer", [ERROR, HELD])
def test_after_a_restart_the_listener_is_tried_before_anything_ends(answer):
    first = OnDisk(MemoryFiles())
    first.answer = answer
    first.apply([ops()], [ending()])
    assert first.give("a") is None
    first.rest()
    first.time.advance(10 * TRIGGER)
    again = first.restart()
    again.answer = None
    again.apply([ops()], [ending()])
    again.advance(1)
    again.answer_held("ops", SUCCESS)
    assert (again.settlements.delivered, again.settlements.discarded(ENDED)) == (["a"], [])


def test_after_a_restart_the_time_before_counts():
    first = OnDisk(MemoryFiles())
    first.answer = ERROR
    first.apply([ops()], [ending()])
    assert first.give("a") is None
    first.advance(TRIGGER - 2)
    again = first.restart()
    again.answer = ERROR
    again.apply([ops()], [ending()])
    again.service.hasten()
    again.advance(1)
    assert again.queue("ops").depth == 1
    again.advance(1)
    assert again.settlements.discarded(ENDED) == ["a"]


def test_a_fault_that_was_mended_while_nothing_ran_is_forgotten():
    first = OnDisk(MemoryFiles())
    first.answer = HELD
    first.apply([ops(fault=FAULT)], [ending()])
    first.advance(TRIGGER - 2)
    again = first.restart()
    again.answer = ERROR
    again.apply([ops()], [ending()])
    assert again.give("a") is None
    again.advance(TRIGGER - 1)
    assert again.queue("ops").depth == 1
