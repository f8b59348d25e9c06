"""What tests of the protocols of message brokers have in common."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, Protocol

import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery, indication
from support.protocol_peers import AMPLE, Attempt, destination, registry

SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)
ERROR, MAYBE = DeliveryResult.ERROR, DeliveryResult.POST_DELIVERY_ERROR
FATAL = DeliveryResult.FATAL_ERROR


@asynccontextmanager
async def handling(protocol: str, time: FakeTime, url: str, **given: Any) -> AsyncIterator[Handler]:
    async with registry(time, None) as made:
        chosen = {"timeout_seconds": AMPLE, **given}
        handler = made.create_handler(destination(protocol, url, **chosen))
        try:
            yield handler
        finally:
            handler.close()


async def turns(count: int = 50) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """The network may take its time."""
    while not condition():
        await turns(1)


def server_tls(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


async def check_unusable_url(protocol: str, time: FakeTime, url: str, words: str) -> None:
    async with handling(protocol, time, url) as handler:
        told = await Attempt(handler, time).outcome()
    assert (told.result, told.hold) == (FATAL, HoldCause.DESTINATION)
    assert words in told.detail
    assert "planted" not in told.detail


async def check_address_not_allowed(protocol: str, time: FakeTime, url: str) -> None:
    async with registry(time, None, address_policy=AddressPolicy()) as made:
        handler = made.create_handler(destination(protocol, url))
        told = await Attempt(handler, time).outcome()
        handler.close()
    assert told.hold is HoldCause.ADDRESS


class Broker(Protocol):
    """What the brokers of the tests have in common."""

    reached: asyncio.Event
    writers: Collection[object]

    def say(self, data: bytes) -> None: ...


async def acknowledge_twice(handler: Handler, broker: Broker, answer: bytes) -> None:
    """Two answers to one ping count as the answer to one message, and end the connection."""
    told: list[DeliveryOutcome] = []

    def then(outcome: DeliveryOutcome) -> None:
        # The next message is under way before the rest is read.
        told.append(outcome)
        handler.deliver(delivery(indication()), told.append)

    handler.deliver(delivery(indication()), then)
    await broker.reached.wait()
    broker.say(answer * 2)
    await until(lambda: len(told) == 2)
    assert told[0] == SUCCESS
    assert told[1].result is MAYBE
    assert "a ping that it did not get" in told[1].detail
    await until(lambda: not broker.writers)
