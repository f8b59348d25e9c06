"""Answers whose body is late or never comes, where the status alone decides."""

import asyncio

import pytest

from pillion_sidecar.delivery.handler import DeliveryResult, Handler
from pillion_sidecar.handlers.http.answers import BODY_SECONDS
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.protocols.webhook import Preset, WebhookOptions
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, listening, ok
from support.protocol_peers import TIMEOUT, Attempt, destination, registry

LENGTH = b"HTTP/1.1 202 X\r\nContent-Length: 5\r\n\r\nab"
ENDLESS = b"HTTP/1.1 200 X\r\n\r\nab"
CHUNKED = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"
REFUSED = b"HTTP/1.1 503 X\r\nRetry-After: 7\r\nContent-Length: 50\r\n\r\nbusy"


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


class Slow:
    """Answers with a head, and with more when it is told."""

    def __init__(self, *heads: bytes) -> None:
        self._heads = list(heads)
        self.answered = asyncio.Event()
        self.more: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(self, peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(self._heads.pop(0) if self._heads else ok())
            self.answered.set()
            while more := await self.more.get():
                await peer.send(more)


def handler_of(
    handlers: HandlerRegistry, protocol: str, url: str, preset: Preset | None = None
) -> Handler:
    given = destination(protocol, url, timeout_seconds=TIMEOUT)
    if preset is not None:
        given = destination(
            protocol, url, timeout_seconds=TIMEOUT, options=WebhookOptions(preset=preset)
        )
    return handlers.create_handler(given)


@pytest.mark.parametrize("protocol", ["CloudEvents", "StandardWebhooks", "Webhook"])
@pytest.mark.parametrize("head", [LENGTH, ENDLESS, CHUNKED])
async def test_after_a_second_the_status_counts(
    fake_time: FakeTime, protocol: str, head: bytes
) -> None:
    slow = Slow(head)
    async with registry(fake_time, None) as handlers, listening(slow.serve) as listener:
        handler = handler_of(handlers, protocol, listener.url)
        attempt = Attempt(handler, fake_time)
        await slow.answered.wait()
        await turns()
        fake_time.advance(BODY_SECONDS - 0.01)
        assert attempt.told == []
        fake_time.advance(0.02)
        (told,) = attempt.told
        assert (told.result, told.status) == (DeliveryResult.SUCCESS, int(head[9:12]))
        # The rest would be taken for the next answer: there is a new connection.
        again = Attempt(handler, fake_time)
        assert (await again.outcome(turn=0.0)).result is DeliveryResult.SUCCESS
        assert listener.connections == 2
        handler.close()


async def test_a_body_in_time_keeps_the_connection(fake_time: FakeTime) -> None:
    slow = Slow(LENGTH, LENGTH)
    async with registry(fake_time, None) as handlers, listening(slow.serve) as listener:
        handler = handler_of(handlers, "CloudEvents", listener.url)
        for _ in range(2):
            slow.answered.clear()
            attempt = Attempt(handler, fake_time)
            await slow.answered.wait()
            await turns()
            # The timer of the first one is due within the second's time.
            fake_time.advance(BODY_SECONDS * 0.7)
            assert attempt.told == []
            slow.more.put_nowait(b"cde")
            slow.more.put_nowait(b"")
            assert (await attempt.outcome(turn=0.0)).result is DeliveryResult.SUCCESS
        assert listener.connections == 1
        handler.close()
        assert fake_time.next_due() is None


async def test_a_reason_that_never_comes_leaves_the_status(fake_time: FakeTime) -> None:
    slow = Slow(REFUSED)
    async with registry(fake_time, None) as handlers, listening(slow.serve) as listener:
        handler = handler_of(handlers, "Webhook", listener.url)
        attempt = Attempt(handler, fake_time)
        await slow.answered.wait()
        await turns()
        fake_time.advance(BODY_SECONDS)
        (told,) = attempt.told
        assert (told.detail, told.status, told.retry_after) == ("HTTP 503: busy", 503, 7.0)
        handler.close()


async def test_a_body_that_decides_is_waited_for(fake_time: FakeTime) -> None:
    slow = Slow(b"HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n")
    async with registry(fake_time, None) as handlers, listening(slow.serve) as listener:
        handler = handler_of(handlers, "Webhook", listener.url, Preset.SLACK)
        attempt = Attempt(handler, fake_time)
        await slow.answered.wait()
        await turns()
        fake_time.advance(TIMEOUT - 1)
        assert attempt.told == []
        slow.more.put_nowait(b"ok")
        assert (await attempt.outcome(turn=0.0)).result is DeliveryResult.SUCCESS
        handler.close()
