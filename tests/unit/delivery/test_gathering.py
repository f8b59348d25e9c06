"""``maxDelaySeconds``: when the entries of a batch that is not full are attempted."""

import asyncio
from typing import Any

import pytest

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.protocols import BatchOptions
from support.delivery import ERROR, SUCCESS, Deliverer, destination


def gathering(*, answers: bool = True, **changes: Any) -> Deliverer:
    """A deliverer with a destination that gathers three for ten seconds."""
    deliverer = Deliverer()
    if not answers:
        deliverer.answer = None
    options = BatchOptions(max_batch=3, max_delay_seconds=10.0)
    deliverer.apply([destination("d", protocol="CloudEvents", options=options, **changes)])
    return deliverer


def publish(deliverer: Deliverer, *identifiers: str) -> None:
    for identifier in identifiers:
        assert deliverer.publish(identifier) is None
    deliverer.run()


def test_they_wait_for_the_delay_and_go_in_one_turn() -> None:
    deliverer = gathering()
    publish(deliverer, "a")
    deliverer.advance(4)
    publish(deliverer, "b")
    deliverer.advance(5.9)
    assert deliverer.handlers["d"].attempts == []
    deliverer.advance(0.2)
    assert deliverer.handlers["d"].identifiers == ["a", "b"]
    began, ended = deliverer.handlers["d"].times
    assert began == ended


def test_a_full_batch_goes_at_once() -> None:
    deliverer = gathering(answers=False)
    publish(deliverer, "a", "b")
    assert deliverer.handlers["d"].attempts == []
    turns = deliverer.turns
    publish(deliverer, "c")
    assert deliverer.handlers["d"].identifiers == ["a", "b", "c"]
    assert deliverer.turns == turns + 1


def test_nothing_waits_while_a_request_is_under_way_and_a_rest_waits_after_it() -> None:
    deliverer = gathering(answers=False)
    publish(deliverer, "a", "b", "c", "d")
    assert deliverer.handlers["d"].identifiers == ["a", "b", "c", "d"]
    for _ in range(4):
        deliverer.answer_held("d", SUCCESS)
    publish(deliverer, "e")
    assert deliverer.handlers["d"].identifiers[4:] == []
    deliverer.advance(10)
    assert deliverer.handlers["d"].identifiers[4:] == ["e"]


def test_a_retry_does_not_wait_again() -> None:
    deliverer = gathering(answers=False)
    publish(deliverer, "a", "b", "c")
    for outcome in (ERROR, ERROR, ERROR):
        deliverer.answer_held("d", outcome)
    deliverer.advance(30)
    assert deliverer.handlers["d"].identifiers[3:4] == ["a"]


@pytest.mark.parametrize("how", ["skip", "purge"])
def test_who_waits_can_be_discarded(how: str) -> None:
    deliverer = gathering()
    publish(deliverer, "a")
    getattr(deliverer.service, how)("d")
    deliverer.advance(20)
    assert deliverer.handlers["d"].attempts == []
    assert deliverer.settlements.discarded(DiscardReason.PURGED) == ["a"]


def test_half_of_a_lifetime_is_left_for_attempts() -> None:
    deliverer = gathering(indication_lifetime_seconds=5.0)
    publish(deliverer, "a")
    deliverer.advance(2.4)
    assert deliverer.handlers["d"].attempts == []
    deliverer.advance(0.2)
    assert deliverer.handlers["d"].identifiers == ["a"]


def test_a_full_queue_does_not_wait() -> None:
    deliverer = gathering(queue_size=2)
    publish(deliverer, "a", "b")
    assert deliverer.handlers["d"].identifiers == ["a", "b"]


def test_a_suspended_destination_attempts_nothing_when_the_delay_ends() -> None:
    deliverer = gathering()
    publish(deliverer, "a")
    options = BatchOptions(max_batch=3, max_delay_seconds=10.0)
    deliverer.apply([destination("d", protocol="CloudEvents", options=options, suspended=True)])
    deliverer.advance(20)
    assert deliverer.handlers["d"].attempts == []
    deliverer.apply([destination("d", protocol="CloudEvents", options=options)])
    assert deliverer.handlers["d"].identifiers == ["a"]


async def test_a_drain_does_not_wait() -> None:
    deliverer = gathering()
    publish(deliverer, "a")
    draining = asyncio.ensure_future(deliverer.service.drain(5.0))
    await asyncio.sleep(0)
    deliverer.run()
    assert await draining == 0
    assert deliverer.handlers["d"].identifiers == ["a"]


def test_what_is_relayed_does_not_wait() -> None:
    deliverer = gathering(relay_to="gateway")
    publish(deliverer, "a")
    assert deliverer.handlers["d"].identifiers == ["a"]


def test_a_batch_grows_with_each_delivery_without_a_turn_of_the_event_loop() -> None:
    deliverer = Deliverer()
    deliverer.answer = None
    deliverer.apply([destination("d", protocol="CloudEvents", options=BatchOptions(max_batch=4))])
    for identifier in "abcdefgh":
        assert deliverer.publish(identifier) is None
    deliverer.step()
    handler = deliverer.handlers["d"]
    assert handler.identifiers == ["a", "b"]
    handler.held.popleft()(SUCCESS)
    assert handler.identifiers == ["a", "b", "c", "d"]
    handler.held.popleft()(SUCCESS)
    assert handler.identifiers == ["a", "b", "c", "d", "e", "f"]
