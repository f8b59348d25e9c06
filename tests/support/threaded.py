"""The whole deliverer on fake time in a thread with a loop of its own, for clients that block."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from support.resources import JSON
from support.running import Running, running

T = TypeVar("T")


class Threaded:
    """A deliverer that runs elsewhere. Time passes only in ``advance``."""

    def __init__(self, run: Running, loop: asyncio.AbstractEventLoop) -> None:
        self._run = run
        self._loop = loop
        self.url = run.deliverer.intake_url

    def wait(self, work: Callable[[Running], Coroutine[Any, Any, T]]) -> T:
        """Have something done on the deliverer's loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work(self._run), self._loop).result()

    def advance(self, seconds: float) -> None:
        """Let time pass."""

        async def advance(run: Running) -> None:
            run.time.advance(seconds)

        self.wait(advance)

    def settled(self) -> None:
        """Wait until nothing is pending."""
        self.wait(lambda run: run.settled())

    def retry(self, name: str, failures: int) -> None:
        """Wait for so many failures in a row at a destination, and let its next attempt be due."""

        async def retry(run: Running) -> None:
            await run.failed(name, failures)
            run.retry(name)

        self.wait(retry)


@contextmanager
def threaded(folder: Path, *documents: JSON) -> Iterator[Threaded]:
    """Run a deliverer on these resources while the context lasts."""
    started = threading.Event()
    made: list[Threaded] = []
    ending: list[Callable[[], object]] = []

    async def serve() -> None:
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        async with running(folder, *documents) as run:
            made.append(Threaded(run, loop))
            ending.append(lambda: loop.call_soon_threadsafe(end.set))
            started.set()
            await end.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        finally:
            started.set()

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    try:
        assert made, "the deliverer did not start"
        yield made[0]
    finally:
        for end in ending:
            end()
        thread.join()
