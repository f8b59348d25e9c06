"""A queue that drains, whose last indications expire while one is in flight."""

import pytest

from pillion_sidecar.config.schema.destination import RemovalPolicy
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, SUCCESS, Deliverer, DeliveryOutcome, destination


@pytest.mark.parametrize("outcome", [SUCCESS, ERROR])
def test_it_ends_once(outcome: DeliveryOutcome) -> None:
    deliverer = Deliverer()
    deliverer.answer = None
    lifetime = {"indication_lifetime_seconds": 100.0}
    deliverer.apply([destination("ops", removal_policy=RemovalPolicy.DRAIN, **lifetime)])
    for identifier in "abc":
        assert deliverer.publish(identifier) is None
    deliverer.run()
    deliverer.apply([])
    deliverer.time.advance(101.0)
    deliverer.answer_held("ops", outcome)
    deliverer.advance(200.0)
    assert deliverer.settlements.delivered == (["a"] if outcome is SUCCESS else [])
    expired = deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED)
    assert expired == (["b", "c"] if outcome is SUCCESS else ["a", "b", "c"])
    assert not list(deliverer.service.all_queues())
    assert deliverer.service.pending == 0
