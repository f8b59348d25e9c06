"""Time, as a dependency: nothing else in the operator reads it or waits for it.

A test moves time by hand (``tests/support/operator_time.py``). The operator's own: of the sidecar
it may import the configuration alone.
"""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")


class Clock(Protocol):
    """What the time is, and waiting until it is later."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""

    def time(self) -> float:
        """Seconds since the epoch (UTC)."""

    async def sleep(self, seconds: float) -> None:
        """Return once so many seconds of ``monotonic()`` are over; at once if there are none."""


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def within(clock: Clock, seconds: float, work: Coroutine[Any, Any, Result]) -> Result:
    """What ``work`` returns or raises, or TimeoutError where it takes longer than ``seconds``.

    Unlike ``asyncio.timeout`` it goes by the clock that is given. Work that is late is cancelled,
    and has ended by the time that this returns.
    """
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


class Bell:
    """Rung by many, heard by one."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def heard(self) -> None:
        """Return once it was rung since the last time."""
        await self._rung.wait()
        self._rung.clear()
