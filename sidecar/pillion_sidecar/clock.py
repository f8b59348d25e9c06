"""Time, as a dependency: the clock and the one heap of timers that the deliverer runs on.

Nothing else in the deliverer reads the time or waits for it, so a test moves time by hand
(:mod:`pillion_sidecar.testing`).
"""

import asyncio
import heapq
import itertools
import sys
import time
from collections.abc import Callable
from typing import Protocol

#: Timers fired before the event loop gets its turn: a thousand time-outs at one moment must not
#: hold up those who have nothing to do with them.
TIMERS_PER_TURN = 2


class Clock(Protocol):
    """What the time is."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""

    def time(self) -> float:
        """Seconds since the epoch (UTC)."""


class SystemClock:
    """The machine's own clock."""

    # The functions themselves: the clock is read for every line and every attempt.
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)


class Timer:
    """A call that is due once. Cancelling is idempotent and costs O(1)."""

    __slots__ = ("callback", "due")

    def __init__(self, due: float, callback: Callable[[], None]) -> None:
        self.due = due
        #: None once it has been cancelled or made.
        self.callback: Callable[[], None] | None = callback

    @property
    def cancelled(self) -> bool:
        """Whether the call has been cancelled or made."""
        return self.callback is None

    def cancel(self) -> None:
        """Make sure that the call is not made."""
        self.callback = None

    def fire(self) -> None:
        """Make the call now, unless it was cancelled or made before."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class Timers(Protocol):
    """The heap of timers (S0.17: one simple timed-event scheduler)."""

    def call_at(self, due: float, callback: Callable[[], None]) -> Timer:
        """Call back once the clock's ``monotonic()`` has reached ``due``."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call back after ``delay`` seconds."""


class TimerHeap:
    """The heap itself, apart from what wakes it.

    Cancelled timers are dropped when they surface, and swept when they are more than half.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._ties = itertools.count()
        self._sweep_at = 64

    def push(self, due: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(due, callback)
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        heapq.heappush(self._heap, (due, next(self._ties), timer))
        return timer

    def _sweep(self) -> None:
        self._heap = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._sweep_at = max(64, 2 * len(self._heap))

    def next_due(self) -> float | None:
        """When the earliest live timer is due; None without one."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float, *, limit: int = sys.maxsize) -> list[Timer]:
        """Remove and return live timers that are due at ``now``, earliest first, ``limit`` at
        most."""
        due: list[Timer] = []
        while len(due) < limit and (when := self.next_due()) is not None and when <= now:
            due.append(heapq.heappop(self._heap)[2])
        return due


class LoopTimers:
    """Timers on an event loop: whatever their number, the loop holds one handle."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap = TimerHeap()
        self._armed: asyncio.TimerHandle | None = None

    def call_at(self, due: float, callback: Callable[[], None]) -> Timer:
        timer = self._heap.push(due, callback)
        if self._armed is None or due < self._armed.when():
            self._arm(due)
        return timer

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self.call_at(self._loop.time() + delay, callback)

    def close(self) -> None:
        """Make no further call."""
        if self._armed is not None:
            self._armed.cancel()
        self._heap = TimerHeap()

    def _arm(self, due: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed = self._loop.call_at(due, self._wake)

    def _wake(self) -> None:
        self._armed = None
        # The loop's resolution lets a handle run a little early; what is due within it is due.
        for timer in self._heap.pop_due(self._loop.time() + 0.0005, limit=TIMERS_PER_TURN):
            timer.fire()
        following = self._heap.next_due()
        if following is not None:
            self._arm(following)
