"""Time as a dependency: the clock and the one heap of timers.

No other code of the deliverer reads the time or waits for it, so that tests control it
(:mod:`pillion_sidecar.testing`).
"""

import asyncio
import heapq
import itertools
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

#: Timers fired per turn of the event loop: a thousand simultaneous time-outs must not block the
#: rest.
TIMERS_PER_TURN = 2


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds; never goes back, and only differences have a meaning."""

    def time(self) -> float:
        """Seconds since the epoch (UTC)."""


class SystemClock:
    # The functions themselves: the clock is read for every line and every attempt.
    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)


@dataclass(slots=True, eq=False)
class Timer:
    """A call that is due once. Cancelling is idempotent and costs O(1)."""

    due: float
    #: None after the call or the cancellation.
    callback: Callable[[], None] | None

    @property
    def cancelled(self) -> bool:
        return self.callback is None

    def cancel(self) -> None:
        self.callback = None


class Timers:
    """One heap of timers (S0.17: one simple timed-event scheduler). A subclass fires them.

    Cancelled timers are dropped at the top of the heap, and removed when they are more than half.
    """

    #: The next wake-up of a subclass, which is notified of earlier timers.
    _wakes_at = -math.inf

    def __init__(self, now: Callable[[], float]) -> None:
        self._clock = now
        self._heap: list[tuple[float, int, Timer]] = []
        self._ties = itertools.count()
        self._sweep_at = 64

    def call_at(self, due: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(due, callback)
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        heapq.heappush(self._heap, (due, next(self._ties), timer))
        if due < self._wakes_at:
            self._arm(due)
        return timer

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self.call_at(self._clock() + delay, callback)

    def next_due(self) -> float | None:
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _arm(self, due: float) -> None:
        raise NotImplementedError

    def _fire(self, now: float, *, limit: int = sys.maxsize) -> None:
        """Make the calls due at ``now``, earliest first, ``limit`` at most; timers that they set
        wait.

        Drops cancelled timers up to the first live one.
        """
        heap, timers = self._heap, list[Timer]()
        while heap and (heap[0][2].callback is None or (heap[0][0] <= now and len(timers) < limit)):
            timer = heapq.heappop(heap)[2]
            if timer.callback is not None:
                timers.append(timer)
        for timer in timers:
            # An earlier one may have cancelled it.
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

    def _sweep(self) -> None:
        # In place: a running call may set many timers.
        self._heap[:] = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._sweep_at = max(64, 2 * len(self._heap))


class LoopTimers(Timers):
    """Timers on an event loop, which holds one handle for all."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop.time)
        self._loop = loop
        self._armed: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf

    def close(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._heap.clear()

    def _arm(self, due: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._wakes_at = due
        self._armed = self._loop.call_at(due, self._wake)

    def _wake(self) -> None:
        # Armed once, below, whatever the calls add.
        self._armed, self._wakes_at = None, -math.inf
        try:
            # The loop may run a handle early, by its resolution.
            self._fire(self._clock() + 0.0005, limit=TIMERS_PER_TURN)
        finally:
            self._wakes_at = math.inf
            if self._heap:
                self._arm(self._heap[0][0])
