"""The operator's only access to time, so that a test can move it by hand."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Clock(Protocol):
    def monotonic(self) -> float: ...

    def time(self) -> float:
        """Seconds since the epoch (UTC)."""

    async def sleep(self, seconds: float) -> None:
        """Return once ``monotonic()`` has advanced by ``seconds``."""


class SystemClock:
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """Return or raise what ``work`` does; TimeoutError after ``seconds`` of this clock. Late work
    is cancelled, and has ended on return."""
    task = asyncio.ensure_future(work)
    alarm = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((task, alarm), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise TimeoutError(f"not done within {seconds:g} seconds")
    finally:
        for either in (task, alarm):
            either.cancel()
        await asyncio.gather(task, alarm, return_exceptions=True)
