"""Time, as a dependency: the clock and the one heap of timers that the deliverer runs on.

Nothing else in the deliverer reads the time or waits for it, so a test moves time by hand
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


@dataclass(slots=True, eq=False)
class Timer:
    """A call that is due once. Cancelling is idempotent and costs O(1)."""

    due: float
    #: None once it has been cancelled or made.
    callback: Callable[[], None] | None

    @property
    def cancelled(self) -> bool:
        """Whether the call has been cancelled or made."""
        return self.callback is None

    def cancel(self) -> None:
        """Make sure that the call is not made."""
        self.callback = None


class Timers:
    """One heap of timers (S0.17: one simple timed-event scheduler). A subclass moves it.

    Cancelled timers are dropped when they surface, and swept when they are more than half.
    """

    #: When a subclass wakes the timers next; it is told of one that is due before.
    _wakes_at = -math.inf

    def __init__(self, now: Callable[[], float]) -> None:
        self._clock = now
        self._heap: list[tuple[float, int, Timer]] = []
        self._ties = itertools.count()
        self._sweep_at = 64

    def call_at(self, due: float, callback: Callable[[], None]) -> Timer:
        """Call back once the clock's ``monotonic()`` has reached ``due``."""
        timer = Timer(due, callback)
        if len(self._heap) >= self._sweep_at:
            self._sweep()
        heapq.heappush(self._heap, (due, next(self._ties), timer))
        if due < self._wakes_at:
            self._arm(due)
        return timer

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call back after ``delay`` seconds."""
        return self.call_at(self._clock() + delay, callback)

    def next_due(self) -> float | None:
        """Return when the earliest live timer is due; None without one."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def _arm(self, due: float) -> None:
        raise NotImplementedError

    def _fire(self, now: float, *, limit: int = sys.maxsize) -> None:
        """Make the calls that are due at ``now``, earliest first, ``limit`` at most. What they
        arm is left for the next time. Cancelled timers before the first that is left are dropped.
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
        # In place: a call that is being made may arm so many.
        self._heap[:] = [entry for entry in self._heap if entry[2].callback is not None]
        heapq.heapify(self._heap)
        self._sweep_at = max(64, 2 * len(self._heap))


class LoopTimers(Timers):
    """Timers on an event loop: whatever their number, the loop holds one handle."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop.time)
        self._loop = loop
        self._armed: asyncio.TimerHandle | None = None
        self._wakes_at = math.inf

    def close(self) -> None:
        """Make no further call."""
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
            # The loop's resolution lets a handle run a little early; what is due within it is due.
            self._fire(self._clock() + 0.0005, limit=TIMERS_PER_TURN)
        finally:
            self._wakes_at = math.inf
            if self._heap:
                self._arm(self._heap[0][0])
