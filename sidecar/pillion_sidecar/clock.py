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
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

#: Timers fired per turn of the event loop: a thousand simultaneous time-outs must not block the
#: rest.
TIMERS_PER_TURN = 2
#: Seconds between two slices of work that can wait, and of a slice at most.
BETWEEN_SLICES = 0.001
MOST_OF_SLICE = 0.0005
#: Calls that are made at once after a time without any.
MOST_AT_ONCE = 32
#: For so many that wait, a slice has one call more.
WAITING_PER_CALL = 128


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


class Slices:
    """Work that can wait. Little of it is done at once; of much, a slice and then a millisecond of
    none, in order: what must not wait passes several turns of the event loop, and meets a slice in
    one of them at most.

    The more waits, the more of it goes in a slice: a thousand have their turn in half a second.
    """

    def __init__(self, *, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_armed = False
        # How many may be done at once, and when that was so.
        self._left = float(MOST_AT_ONCE)
        self._at = clock.monotonic()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, call: Callable[[], None]) -> None:
        """Make ``call`` at once, or when it is its turn. It checks for itself whether it is still
        wanted."""
        if self.takes():
            call()
            return
        self._waiting.append(call)
        self._arm()

    def takes(self) -> bool:
        """Whether a call may be made at once; then it counts."""
        if self._waiting:
            return False
        now = self._clock.monotonic()
        left = min(self._left + (now - self._at) / BETWEEN_SLICES, MOST_AT_ONCE)
        is_little = left >= 1.0
        self._left, self._at = left - is_little, now
        return is_little

    def _arm(self) -> None:
        if self._waiting and not self._is_armed:
            self._is_armed = True
            self._timers.call_later(BETWEEN_SLICES, self._slice)

    def _slice(self) -> None:
        self._is_armed = False
        count = 1 + len(self._waiting) // WAITING_PER_CALL
        until = self._clock.monotonic() + MOST_OF_SLICE
        try:
            for _ in range(count):
                self._waiting.popleft()()
                if self._clock.monotonic() >= until:
                    break
        finally:
            self._left, self._at = 0.0, self._clock.monotonic()
            self._arm()


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
