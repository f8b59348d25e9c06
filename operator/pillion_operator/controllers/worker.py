"""The work queue, and the workers that reconcile its keys and retry failures."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Generic, TypeVar

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, ApiError, Conflict
from pillion_operator.store import Key
from pillion_operator.telemetry.metrics import Metrics, Result

#: Minimum and maximum seconds to a retry, unless the API server names a longer one. After its
#: outage everything is retried within the maximum.
FIRST_BACKOFF = 0.25
MOST_BACKOFF = 60.0
K = TypeVar("K", bound=Hashable)
logger = logging.getLogger("pillion.operator")
WORKERS = 8
#: Seconds of work in one turn of the event loop after which the other workers wait for the next.
SHARE = 0.02


class WorkQueue(Generic[K]):
    """Deduplicates and delays keys, with exponential backoff after failures.

    A key is in it at most once and never with two workers: one that is added while it is processed
    comes again afterwards.
    """

    def __init__(
        self,
        *,
        call_later: Callable[[float, Callable[[], None]], asyncio.TimerHandle],
        time: Callable[[], float],
    ) -> None:
        self._call_later = call_later
        self._time = time
        self._waiting: deque[K] = deque()
        self._dirty: set[K] = set()
        self._working: set[K] = set()
        self._delayed: dict[K, tuple[float, asyncio.TimerHandle]] = {}
        self._failures: dict[K, int] = {}
        self._filled = asyncio.Event()

    def add(self, key: K, *, delay: float = 0.0) -> None:
        """Process ``key`` after ``delay`` seconds, or earlier if it is due earlier."""
        if key in self._dirty:
            return
        due = self._time() + delay
        if delay > 0 and key in self._delayed and self._delayed[key][0] <= due:
            return
        self._undelay(key)
        if delay > 0:
            self._delayed[key] = (due, self._call_later(delay, lambda: self.add(key)))
            return
        self._dirty.add(key)
        if key not in self._working:
            self._waiting.append(key)
            self._filled.set()

    def _undelay(self, key: K) -> None:
        delayed = self._delayed.pop(key, None)
        if delayed is not None:
            delayed[1].cancel()

    async def get(self) -> K:
        """Return the next key; call ``done`` with it afterwards."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        key = self._waiting.popleft()
        self._dirty.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        self._working.discard(key)
        if key in self._dirty:
            self._waiting.append(key)
            self._filled.set()

    def succeeded(self, key: K) -> None:
        self._failures.pop(key, None)

    def failed(self, key: K, *, at_least: float = 0.0) -> float:
        """Requeue a key after its backoff; return the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = max(at_least, min(MOST_BACKOFF, FIRST_BACKOFF * 2.0 ** min(failures, 20)))
        self.add(key, delay=delay)
        return delay

    def close(self) -> None:
        for key in list(self._delayed):
            self._undelay(key)

    @property
    def depth(self) -> int:
        return len(self._waiting)

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._working or self._dirty or self._delayed)


class Engine:
    def __init__(
        self,
        *,
        queue: WorkQueue[Key],
        reconciles: Mapping[str, Callable[[Key], Awaitable[None]]],
        metrics: Metrics,
        clock: Clock,
        failed: Callable[[Key, Exception], Awaitable[None]],
        succeeded: Callable[[Key], None],
    ) -> None:
        """``reconciles`` is by kind; keys of other kinds are ignored. A key whose reconcile raises
        is retried; ``failed`` is called if the error is none of the API server's."""
        self._failed = failed
        self._succeeded = succeeded
        self._queue = queue
        self._reconciles = reconciles
        self._metrics = metrics
        self._clock = clock
        #: When the first reconcile began in the present turn of the event loop; and set unless that
        #: is too long ago.
        self._since: float | None = None
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(WORKERS):
                workers.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                while not self._has_time():
                    await self._may_go_on.wait()
                await self._once(key)
            finally:
                self._queue.done(key)
            if not self._has_time():
                # Once more, to come behind the others, which wait for the next turn.
                await asyncio.sleep(0)
            await asyncio.sleep(0)

    def _has_time(self) -> bool:
        """Whether another reconcile may begin in this turn of the event loop: many that begin
        together, or never wait, must not block it, above all the lease."""
        now = self._clock.monotonic()
        if self._since is None:
            self._since = now
            asyncio.get_running_loop().call_soon(self._begin_turn)
        if now - self._since > SHARE:
            self._may_go_on.clear()
        return self._may_go_on.is_set()

    def _begin_turn(self) -> None:
        self._since = None
        self._may_go_on.set()

    async def _once(self, key: Key) -> None:
        reconcile = self._reconciles.get(key.kind)
        if reconcile is None:
            return
        began = self._clock.monotonic()
        result = Result.SUCCESS
        try:
            await reconcile(key)
        except FAILURES as error:
            result = Result.RETRY
            self._put_off(key, error)
        except Exception as error:
            # An error with one object must not stop the others: it is logged with its trace,
            # counted for an alert, and retried with backoff.
            result = Result.FAILED
            delay = self._queue.failed(key)
            logger.exception(
                "the reconcile of %s failed; again in %.1f s",
                key,
                delay,
                extra={"event": "reconcile-failed", "object": str(key)},
            )
            await self._tell(key, error)
        else:
            self._succeeded(key)
            self._queue.succeeded(key)
        self._metrics.reconciles.labels(key.kind, result.value).inc()
        self._metrics.reconcile_seconds.labels(key.kind).observe(self._clock.monotonic() - began)

    async def _tell(self, key: Key, error: Exception) -> None:
        try:
            await self._failed(key, error)
        except Exception as untold:  # noqa: BLE001 - the worker has other objects to serve
            logger.warning(
                "cannot write to the status of %s that its reconcile failed: %s",
                key,
                type(untold).__name__,
                extra={"event": "failure-untold", "object": str(key)},
            )

    def _put_off(self, key: Key, error: Exception) -> None:
        if isinstance(error, Conflict):
            self._metrics.conflicts.inc()
        wanted = error.retry_after if isinstance(error, ApiError) else None
        delay = self._queue.failed(key, at_least=wanted or 0.0)
        logger.warning(
            "the reconcile of %s is put off for %.1f s: %s",
            key,
            delay,
            str(error) or type(error).__name__,
            extra={"event": "reconcile-put-off", "object": str(key)},
        )
