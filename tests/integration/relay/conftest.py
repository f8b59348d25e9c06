"""A sidecar and a gateway as they are run, two processes, and a listener that the test is."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from support.relayhouse import House, Listener


@pytest_asyncio.fixture
async def listening() -> AsyncIterator[Listener]:
    listener = Listener()
    app = web.Application(client_max_size=4 << 20)
    app.router.add_post("/{name}", listener.take)
    async with TestServer(app) as server:
        listener.url = str(server.make_url("/"))
        yield listener
        listener.let_go()


@pytest_asyncio.fixture
async def house(tmp_path: Path, listening: Listener) -> AsyncIterator[House]:
    async with AsyncExitStack() as stack:
        yield House(tmp_path, listening, stack)
