"""An attempt whose connection another destination got is no failure of the listener."""

import pytest

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import RemovalPolicy
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.indication import DiscardReason
from support.delivery import SUCCESS, Deliverer, destination, subscription

GAVE_WAY = DeliveryOutcome(
    DeliveryResult.POST_DELIVERY_ERROR,
    "gave its connection to another destination",
    spends_attempt=False,
    preempted=True,
)


@pytest.fixture
def deliverer() -> Deliverer:
    deliverer = Deliverer()
    deliverer.answer = None
    policy = {"queue_full_policy": QueueFullPolicy.DISCARD_OLDEST, "queue_size": 1}
    deliverer.apply([destination("ops", removal_policy=RemovalPolicy.DRAIN, **policy)])
    deliverer.publish("a")
    deliverer.run()
    deliverer.publish("b")
    deliverer.run()
    return deliverer


def test_it_fails_nothing_and_is_next_again_at_once(deliverer, caplog):
    deliverer.answer_held("ops", GAVE_WAY)
    queue = deliverer.queue("ops")
    assert sum(queue.statistics.attempts.values()) == queue.health.failures == 0
    assert (
        queue.health.failing_since,
        queue.health.troubled_since,
        queue.statistics.last_outcome,
    ) == (None, None, None)
    assert [one.detail for one in queue.statistics.recent] == [GAVE_WAY.detail]
    assert not caplog.records
    handler = deliverer.handlers["ops"]
    assert handler.identifiers == ["a", "a"]
    assert handler.attempts[1].attempt == 1
    deliverer.answer_held("ops", SUCCESS)
    deliverer.answer_held("ops", SUCCESS)
    assert deliverer.settlements.delivered == ["a", "b"]
    assert not any(queue.statistics.discarded.values())


def test_one_that_was_purged_meanwhile_does_not_come_back(deliverer):
    deliverer.service.purge("ops")
    deliverer.answer_held("ops", GAVE_WAY)
    assert deliverer.queue("ops").depth == 0
    assert deliverer.settlements.of("a") == [("ops", DiscardReason.PURGED)]


def test_one_whose_subscription_has_ended_does_not_come_back(deliverer):
    deliverer.apply([deliverer.queue("ops").destination], [])
    deliverer.answer_held("ops", GAVE_WAY)
    assert deliverer.settlements.of("a") == [("ops", DiscardReason.SUBSCRIPTION_NOT_ACTIVE)]


def test_a_destination_that_drains_keeps_what_it_has(deliverer):
    deliverer.apply([destination("other")], [subscription("other", "other")])
    deliverer.answer_held("ops", GAVE_WAY)
    assert deliverer.handlers["ops"].identifiers == ["a", "a"]
