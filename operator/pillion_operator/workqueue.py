"""A queue of keys to reconcile: each key at most once in it, and never with two workers at once.

A key that is added while it is being worked on comes again afterwards, so nothing is missed and
nothing is done twice at a time.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

#: Seconds to the first repetition after a failure, and the most: after an outage of the API server,
#: everything is tried again within that time.
FIRST_BACKOFF = 0.25
MOST_BACKOFF = 60.0

K = TypeVar("K", bound=Hashable)


class Cancellable(Protocol):
    """A timer that can be called off."""

    def cancel(self) -> None: ...


#: Calls back after so many seconds.
CallLater = Callable[[float, Callable[[], None]], Cancellable]


class WorkQueue(Generic[K]):
    """De-duplicating, delaying, with exponential backoff for keys that fail."""

    def __init__(self, *, call_later: CallLater, time: Callable[[], float]) -> None:
        """``time`` is the clock that ``call_later`` runs by, in seconds."""
        self._call_later = call_later
        self._time = time
        self._waiting: deque[K] = deque()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._delayed: dict[K, tuple[float, Cancellable]] = {}
        self._failures: dict[K, int] = {}
        self._filled = asyncio.Event()

    def add(self, key: K, *, delay: float = 0.0) -> None:
        """Have ``key`` worked on, after ``delay`` seconds or earlier where somebody asks for it."""
        if delay > 0:
            self._add_later(key, delay)
            return
        self._undelay(key)
        if key in self._dirty:
            return
        self._dirty.add(key)
        if key not in self._working:
            self._waiting.append(key)
            self._filled.set()

    def _add_later(self, key: K, delay: float) -> None:
        if key in self._dirty:
            return
        due = self._time() + delay
        known = self._delayed.get(key)
        if known is not None and known[0] <= due:
            return
        self._undelay(key)
        self._delayed[key] = (due, self._call_later(delay, lambda: self.add(key)))

    def _undelay(self, key: K) -> None:
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            delayed[1].cancel()

    async def get(self) -> K:
        """The next key; whoever takes it calls ``done`` with it."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        key = self._waiting.popleft()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The key was worked on, well or not."""
        self._working.discard(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._filled.set()

    def succeeded(self, key: K) -> None:
        """Forget the failures of a key."""
        self._failures.pop(key, None)

    def failed(self, key: K, *, at_least: float = 0.0) -> float:
        """Have a key worked on again after its backoff; return how many seconds that is."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = max(at_least, min(MOST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(failures, 20)))
        self.add(key, delay=delay)
        return delay

    def close(self) -> None:
        """Call off what is delayed."""
        for key in list(self._delayed):
            self._undelay(key)

    @property
    def depth(self) -> int:
        """Keys that wait for a worker."""
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        """Whether nothing waits, now or later, and nothing is worked on."""
        return not (self._waiting or self._working or self._dirty or self._delayed)
