"""The operator's clock, moved by hand."""

import asyncio
import heapq
import itertools

#: Turns of the event loop in which everybody who was woken may do what follows in memory.
SETTLING_TURNS = 30


class FakeClock:
    """A ``pillion_operator.clock.Clock`` whose time passes only when a test says so."""

    def __init__(self, *, now: float = 1000.0, epoch: float = 1_700_000_000.0) -> None:
        self._now = now
        self._epoch = epoch - now
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._ties = itertools.count()
        self._changed = asyncio.Event()

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._epoch + self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._ties), woken))
        self._changed.set()
        await woken

    @property
    def sleeping(self) -> int:
        """How many wait for a later time."""
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def until_sleeping(self, number: int = 1) -> None:
        """Wait until at least so many wait for a later time: those under test have come to rest."""
        while self.sleeping < number:
            self._changed.clear()
            await self._changed.wait()

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking each sleeper at its moment, in order, and letting it go on."""
        end = self._now + seconds
        await self.settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                self._now = max(self._now, due)
                woken.set_result(None)
                await self.settle()
        self._now = end

    def skip(self, seconds: float) -> None:
        """Let time pass without waking anybody, as when the process was not running."""
        self._now += seconds

    async def settle(self) -> None:
        """Let those who can go on without input or a later time do so."""
        for _ in range(SETTLING_TURNS):
            await asyncio.sleep(0)
