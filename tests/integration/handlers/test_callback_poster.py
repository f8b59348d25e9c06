"""Receipts posted to listeners that behave, more or less (S1.9)."""

import asyncio
import json

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.handlers.callbacks import MAXIMUM_PLACES, TIMEOUT_SECONDS, HTTPCallbackPoster
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, listening, ok


class Posting:
    """A poster, and what it is answered."""

    def __init__(self, time: FakeTime, *, allow_loopback: bool = True) -> None:
        self.resolver = Resolver()
        self.poster = HTTPCallbackPoster(
            clock=time,
            timers=time,
            resolver=self.resolver,
            address_policy=AddressPolicy(allow_loopback=allow_loopback),
        )

    def begin(self, url: str, body: bytes = b"{}") -> "asyncio.Future[str | None]":
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.poster.post(url, body, future.set_result)
        return future

    async def close(self) -> None:
        self.poster.close()
        await self.resolver.close()


async def test_a_receipt_is_posted_as_json_and_success_is_told(fake_time: FakeTime) -> None:
    heads: list[bytes] = []
    bodies: list[bytes] = []

    async def script(peer: Peer) -> None:
        while True:
            head, body = await peer.request()
            heads.append(head)
            bodies.append(body)
            await peer.send(ok())

    posting = Posting(fake_time)
    async with listening(script) as listener:
        url = f"{listener.url.rstrip('/')}/jobs/7?k=v"
        for _ in range(2):
            assert await posting.begin(url, b'{"receipt":"r"}') is None
        assert listener.connections == 1
        await posting.close()
    assert json.loads(bodies[0]) == {"receipt": "r"}
    assert heads[0].startswith(b"POST /jobs/7?k=v HTTP/1.1\r\n")
    assert b"\r\nContent-Type: application/json\r\n" in heads[0]


async def test_another_status_is_no_success_and_a_redirect_is_not_followed(
    fake_time: FakeTime,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n")
        await peer.closed()

    posting = Posting(fake_time)
    async with listening(script) as listener:
        assert await posting.begin(listener.url) == "HTTP 302"
        assert listener.connections == 1
        await posting.close()


async def test_one_that_hangs_is_given_up_in_time(fake_time: FakeTime) -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.closed()

    posting = Posting(fake_time)
    async with listening(script) as listener:
        answered = posting.begin(listener.url)
        await asked.wait()
        fake_time.advance(TIMEOUT_SECONDS + 1)
        assert await answered is not None
        await posting.close()


async def test_addresses_that_the_deliverer_may_not_connect_to_are_not_called(
    fake_time: FakeTime,
) -> None:
    async def script(peer: Peer) -> None:
        raise AssertionError("connected")

    posting = Posting(fake_time, allow_loopback=False)
    async with listening(script) as listener:
        why = await posting.begin(listener.url)
        assert why is not None
        assert "loopback" in why
        assert listener.connections == 0
        await posting.close()


async def test_places_that_are_called_no_more_give_way(fake_time: FakeTime) -> None:
    posting = Posting(fake_time, allow_loopback=False)
    for number in range(MAXIMUM_PLACES + 10):
        assert await posting.begin(f"http://127.0.0.1:{number + 1}/") is not None
    assert posting.poster.places == MAXIMUM_PLACES
    await posting.close()
