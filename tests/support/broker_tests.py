"""What tests of the protocols of message brokers have in common."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.testing import FakeTime
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
