"""Answers that cost much, made one at a time and shared by those who wait for them."""

import asyncio
from collections.abc import Callable, Hashable
from itertools import count

from pillion_sidecar.clock import Clock, Timers

#: After an answer none is made for so many times as long as it took: the event loop has others to
#: serve, publishers first.
_PAUSES = 3


class SharedAnswers:
    """The answers of one endpoint. Those who wait for the same answer share one that was begun
    after they had come: many watchers cost little more than one."""

    def __init__(self, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._turn = asyncio.Lock()
        self._free_at = clock.monotonic()
        self._order = count()
        self._waiting = 0
        #: Each answer with its place in the order, while somebody waits.
        self._made: dict[Hashable, tuple[int, bytes]] = {}

    async def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return an answer that was begun after this call. Raises what ``make`` raises."""
        came = next(self._order)
        self._waiting += 1
        try:
            async with self._turn:
                place, answer = self._made.get(key, (-1, b""))
                if place > came:
                    return answer
                await self._pause()
                begun = self._clock.monotonic()
                place, answer = next(self._order), make()
                self._made[key] = place, answer
                ended = self._clock.monotonic()
                self._free_at = ended + _PAUSES * (ended - begun)
                return answer
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._made.clear()

    async def _pause(self) -> None:
        delay = self._free_at - self._clock.monotonic()
        if delay <= 0:
            return
        is_over = asyncio.Event()
        timer = self._timers.call_later(delay, is_over.set)
        try:
            await is_over.wait()
        finally:
            timer.cancel()
