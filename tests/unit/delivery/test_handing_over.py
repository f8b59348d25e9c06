"""What a deliverer that ends hands over to a gateway (the design's "Shutdown")."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pillion_sidecar.config.schema.destination import Ordering, RemovalPolicy, RetryPolicy
from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.config.schema.response_policy import Action, ResponseRule
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, HELD, SUCCESS, destination
from support.fake_journal import FakeJournal
from support.relaying import RelayingDeliverer, relayed

GRACE = 20.0
Left = Callable[[], int]


@pytest.fixture
def deliverer() -> RelayingDeliverer:
    made = RelayingDeliverer()
    made.answer = None
    return made


def publish(made: RelayingDeliverer, *numbers: int) -> None:
    for number in numbers:
        assert made.publish(str(number)) is None
    made.run()


@asynccontextmanager
async def ending(
    made: RelayingDeliverer, *, hand_over_to: str | None = "shared"
) -> AsyncIterator["asyncio.Future[int]"]:
    """Begin the drain at SIGTERM; it must have ended at the end of its grace period."""
    draining = asyncio.ensure_future(made.service.drain(GRACE, hand_over_to=hand_over_to))
    await asyncio.sleep(0)
    made.run()
    yield draining
    made.advance(GRACE)
    await asyncio.wait_for(draining, 5)


def records(caplog: pytest.LogCaptureFixture, event: str) -> list[Any]:
    return [one for one in caplog.records if getattr(one, "event", None) == event]


async def test_a_queue_that_fails_is_tried_once_and_handed_over(
    deliverer: RelayingDeliverer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    deliverer.apply([destination("dead"), destination("well")])
    publish(deliverer, 0, 1, 2)
    deliverer.answer_held("dead", ERROR)
    async with ending(deliverer) as draining:
        deliverer.answer_held("dead", ERROR)
        deliverer.answer_all()
        assert deliverer.gateway.identifiers == ["0", "1", "2"]
        for _ in range(3):
            deliverer.answer_held("well", SUCCESS)
        assert await draining == 0
    assert len(deliverer.handlers["dead"].attempts) == 2
    told = {one.destination: one for one in records(caplog, "handed-over")}
    dead, well = told["dead"], told["well"]
    assert (dead.delivered, dead.handed_over, dead.left, dead.gateway) == (0, 3, 0, "shared")
    assert (well.delivered, well.handed_over, well.left) == (3, 0, 0)
    queue = deliverer.queue("dead")
    assert (queue.statistics.delivered, queue.statistics.handed_over) == (0, 3)
    assert sorted(deliverer.settlements.delivered) == ["0", "0", "1", "1", "2", "2"]


async def test_a_queue_that_begins_to_fail_meanwhile_is_handed_over_then(
    deliverer: RelayingDeliverer,
) -> None:
    deliverer.apply([destination("ops")])
    publish(deliverer, 0, 1, 2)
    async with ending(deliverer) as draining:
        deliverer.answer_held("ops", SUCCESS)
        assert "shared" not in deliverer.gateways
        deliverer.answer_held("ops", ERROR)
        deliverer.answer_all()
        assert deliverer.gateway.identifiers == ["1", "2"]
        assert await draining == 0


async def test_what_hangs_is_abandoned_at_half_of_the_time_and_handed_over(
    deliverer: RelayingDeliverer,
) -> None:
    deliverer.apply([destination("hung")])
    publish(deliverer, 0, 1, 2)
    async with ending(deliverer) as draining:
        deliverer.advance(GRACE / 2 - 0.1)
        assert "shared" not in deliverer.gateways
        deliverer.advance(0.1)
        handler = deliverer.handlers["hung"]
        assert handler.closed
        deliverer.answer_all()
        assert deliverer.gateway.identifiers == ["0", "1", "2"]
        assert await draining == 0
        # An answer that comes after all changes nothing.
        deliverer.answer_held("hung", SUCCESS)
    assert deliverer.queue("hung").statistics.delivered == 0


async def test_what_several_attempts_had_begun_with_goes_in_its_order(
    deliverer: RelayingDeliverer,
) -> None:
    deliverer.apply([destination("hung", ordering=Ordering.NONE, max_in_flight=3)])
    publish(deliverer, *range(6))
    async with ending(deliverer) as draining:
        deliverer.advance(GRACE / 2)
        deliverer.answer_all()
        assert deliverer.gateway.identifiers == [str(number) for number in range(6)]
        assert await draining == 0


async def test_a_held_queue_is_tried_once_and_handed_over(deliverer: RelayingDeliverer) -> None:
    deliverer.apply([destination("ops")])
    publish(deliverer, 0, 1)
    deliverer.answer_held("ops", HELD)
    assert deliverer.queue("ops").health.hold is not None
    async with ending(deliverer) as draining:
        deliverer.answer_held("ops", HELD)
        deliverer.answer_all()
        assert deliverer.gateway.identifiers == ["0", "1"]
        assert await draining == 0
    assert sum(deliverer.queue("ops").statistics.discarded.values()) == 0


@pytest.mark.parametrize("attempts", [0, 1])
async def test_what_has_no_attempt_left_is_handed_over_too(
    deliverer: RelayingDeliverer, attempts: int
) -> None:
    retry = RetryPolicy(attempts=attempts, interval_seconds=1.0)
    deliverer.apply([destination("ops", retry=retry)])
    publish(deliverer, 0, 1, 2)
    if attempts:
        deliverer.answer_held("ops", ERROR)
    async with ending(deliverer) as draining:
        deliverer.answer_held("ops", ERROR)
        deliverer.answer_all()
        assert deliverer.gateway.identifiers == ["0", "1", "2"]
        assert await draining == 0
    assert sum(deliverer.queue("ops").statistics.discarded.values()) == 0


async def test_a_suspended_queue_waits_at_the_gateway_then(deliverer: RelayingDeliverer) -> None:
    deliverer.apply([destination("ops", suspended=True)])
    publish(deliverer, 0, 1)
    async with ending(deliverer) as draining:
        deliverer.answer_all()
        assert await draining == 0
    assert deliverer.gateway.identifiers == ["0", "1"]


@pytest.mark.parametrize("action", [Action.PAUSE, Action.DISABLE])
async def test_a_queue_that_is_paused_or_disabled_is_handed_over(
    deliverer: RelayingDeliverer, action: Action
) -> None:
    unavailable = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 503", 503)
    rules = (ResponseRule(answers=("503",), action=action),)
    deliverer.apply([destination("ops", response_policy=rules)])
    publish(deliverer, 0, 1)
    deliverer.answer_held("ops", unavailable)
    async with ending(deliverer) as draining:
        if action is Action.PAUSE:
            deliverer.answer_held("ops", unavailable)
        deliverer.answer_all()
        assert await draining == 0
    assert deliverer.gateway.identifiers == ["0", "1"]


@pytest.mark.parametrize("is_hung", [False, True])
async def test_a_gateway_that_is_away_or_hung_does_not_keep_it_from_ending(
    deliverer: RelayingDeliverer, is_hung: bool
) -> None:
    deliverer.apply([destination("dead")])
    publish(deliverer, 0, 1, 2)
    deliverer.answer_held("dead", ERROR)
    async with ending(deliverer) as draining:
        deliverer.answer_held("dead", ERROR)
        if not is_hung:
            deliverer.gateway.refuse_connection()
        deliverer.advance(GRACE)
        assert await draining == 3
    assert deliverer.queue("dead").depth == 3
    deliverer.service.close()
    assert deliverer.settlements.discarded(DiscardReason.SHUTDOWN) == ["0", "1", "2"]


async def test_a_listener_gets_on_what_the_gateway_does_not_take(
    deliverer: RelayingDeliverer,
) -> None:
    deliverer.apply([destination("slow")])
    publish(deliverer, *range(4))
    async with ending(deliverer) as draining:
        deliverer.answer_held("slow", SUCCESS)
        first = deliverer.handlers["slow"]
        deliverer.advance(GRACE / 2)
        deliverer.gateway.refuse_connection()
        deliverer.run()
        again = deliverer.handlers["slow"]
        assert again is not first
        for _ in range(3):
            deliverer.answer_held("slow", SUCCESS)
        assert await draining == 0
    assert again.identifiers == ["1", "2", "3"]
    assert again.attempts[0].sequence_number is not None
    queue = deliverer.queue("slow")
    assert (queue.statistics.delivered, queue.statistics.handed_over) == (4, 0)


async def test_a_listener_that_fails_then_too_is_not_asked_in_turns_with_the_gateway(
    deliverer: RelayingDeliverer,
) -> None:
    deliverer.apply([destination("slow")])
    publish(deliverer, 0)
    async with ending(deliverer) as draining:
        deliverer.advance(GRACE / 2)
        deliverer.gateway.refuse_connection()
        deliverer.run()
        deliverer.answer_held("slow", ERROR)
        deliverer.advance(GRACE)
        assert not deliverer.gateway.waiting
        assert await draining == 1


async def test_what_came_last_and_is_on_disk_only_then_is_handed_over_too() -> None:
    journal = FakeJournal()
    deliverer = RelayingDeliverer(journal=journal)
    deliverer.answer = None
    deliverer.apply([destination("dead")])
    publish(deliverer, 0, 1)
    async with ending(deliverer) as draining:
        journal.commit()
        deliverer.run()
        deliverer.answer_held("dead", ERROR)
        deliverer.answer_all()
        assert deliverer.gateway.identifiers == ["0", "1"]
        assert await draining == 0


async def test_what_is_relayed_anyway_or_was_removed_is_not_handed_over(
    deliverer: RelayingDeliverer,
) -> None:
    goes = destination("goes", removal_policy=RemovalPolicy.DRAIN)
    deliverer.apply([relayed("siem", relay_to="other"), goes])
    publish(deliverer, 0)
    deliverer.apply([relayed("siem", relay_to="other")])
    async with ending(deliverer) as draining:
        deliverer.advance(GRACE)
        assert await draining == 2
    assert "shared" not in deliverer.gateways


async def test_what_an_administrator_gave_up_is_not_handed_over(
    deliverer: RelayingDeliverer,
) -> None:
    deliverer.apply([destination("hung")])
    publish(deliverer, 0, 1)
    assert deliverer.service.skip("hung")
    async with ending(deliverer) as draining:
        deliverer.advance(GRACE / 2)
        deliverer.answer_all()
        assert await draining == 0
    assert deliverer.gateway.identifiers == ["1"]
    assert deliverer.settlements.discarded(DiscardReason.PURGED) == ["0"]


async def test_hastening_never_hands_over(deliverer: RelayingDeliverer) -> None:
    deliverer.apply([destination("dead")])
    publish(deliverer, 0)
    deliverer.answer_held("dead", ERROR)
    async with ending(deliverer, hand_over_to=None) as draining:
        deliverer.answer_held("dead", ERROR)
        deliverer.advance(GRACE)
        assert await draining == 1
    assert not deliverer.gateways


async def test_a_limited_queue_keeps_to_its_limit_and_is_handed_over_at_half_of_the_time(
    deliverer: RelayingDeliverer,
) -> None:
    deliverer.answer = SUCCESS
    deliverer.apply([destination("ops", rate_limit=RateLimit(per_second=0.001))])
    publish(deliverer, 0, 1, 2)
    async with ending(deliverer) as draining:
        deliverer.advance(GRACE / 2 - 0.25)
        assert deliverer.handlers["ops"].identifiers == ["0"]
        await asyncio.sleep(0)
        assert not draining.done()
        deliverer.advance(0.25)
        deliverer.answer_all()
        assert deliverer.gateway.identifiers == ["1", "2"]
    assert await draining == 0
