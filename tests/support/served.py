"""An application of aiohttp that is served beside a test that blocks."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def served(make: Callable[[], web.Application]) -> Iterator[str]:
    """Make it in a thread's loop, and serve it there while the context lasts; yields its URL."""
    urls: list[str] = []
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        runner = web.AppRunner(make())
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        urls.append(f"http://{host}:{port}")
        started.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    started.wait()
    try:
        yield urls[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
