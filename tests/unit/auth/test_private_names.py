"""The private names of aiohttp that the acceptor and connections read.

Where one of these tests fails, aiohttp has changed: see what ``auth/acceptor.py`` and
``connections.py`` make of the name, then mend both, and move the bound in ``pyproject.toml``.
"""

import asyncio
import re
import tomllib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path

import aiohttp
from aiohttp import EMPTY_PAYLOAD, web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import _ErrInfo

from pillion_sidecar.connections import handlers

ROOT = Path(__file__).resolve().parents[3]
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing is held."""

    def pause_reading(self) -> None:
        """Nothing comes by itself."""

    def resume_reading(self) -> None:
        """Nothing comes by itself."""


@asynccontextmanager
async def connection() -> AsyncIterator[tuple[web.RequestHandler, Transport]]:
    """A handler of requests whose connection is made, and that waits for the first."""

    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="answered")

    server = web.Server(answer)
    handler, transport = handlers(server)(), Transport()
    handler.connection_made(transport)
    await turns()
    try:
        yield handler, transport
    finally:
        handler.connection_lost(None)
        await server.shutdown()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_waiter_is_there_while_a_request_or_its_head_is_missing() -> None:
    async with connection() as (handler, transport):
        assert handler._waiter is not None
        assert not handler._waiter.done()
        handler.data_received(HEAD[:20])
        await turns()
        assert not handler._waiter.done()
        handler.data_received(HEAD[20:])
        assert handler._waiter.done()
        await turns()
        assert transport.written.endswith(b"answered")
        assert not handler._waiter.done()


async def test_whole_heads_are_counted_at_once_and_kept_with_their_bodies() -> None:
    async with connection() as (handler, _):
        assert handler._request_count == 0
        handler.data_received(HEAD[:20])
        assert handler._request_count == 0
        handler.data_received(HEAD[20:] + HEAD)
        assert handler._request_count == 2
        assert isinstance(handler._messages, deque)
        for message, payload in handler._messages:
            assert isinstance(message, RawRequestMessage)
            assert (message.method, message.path) == ("POST", "/")
            assert (b"Host", b"a") in message.raw_headers
            assert payload.at_eof()


async def test_an_error_in_a_requests_place_is_answered_with_its_status() -> None:
    async with connection() as (handler, transport):
        handler.data_received(HEAD)
        handler._messages.clear()
        error = _ErrInfo(431, HttpProcessingError(code=431), "")
        handler._messages.append((error, EMPTY_PAYLOAD))
        await turns()
        assert transport.written.split()[1] == b"431"


async def test_the_end_of_idle_time_is_set_anew_with_each_answer() -> None:
    async with connection() as (handler, _):
        times = []
        for _ in range(2):
            handler.data_received(HEAD)
            await turns()
            times.append(handler._next_keepalive_close_time)
        assert 0 < times[0] < times[1]


def test_a_version_that_was_not_tried_is_not_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = chain(project["dependencies"], *project["optional-dependencies"].values())
    bounds = {one for one in requirements if re.match(r"aiohttp\b", one)}
    major, minor = map(int, aiohttp.__version__.split(".")[:2])
    assert bounds == {f"aiohttp>={major}.{minor},<{major}.{minor + 1}"}
