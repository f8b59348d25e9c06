"""The workers: each takes a key, reconciles it, and comes back to what has failed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, ApiError, Conflict
from pillion_operator.store import Key
from pillion_operator.telemetry.metrics import Metrics, Result
from pillion_operator.workqueue import WorkQueue

logger = logging.getLogger("pillion.operator")

#: Keys that are worked on at once.
WORKERS = 8

#: Has the status of an object say that its reconcile has failed, and takes note of its success.
Failed = Callable[[Key, Exception], Awaitable[None]]
Succeeded = Callable[[Key], None]
#: Reconciles one key. It may raise; it is then called again later.
Reconcile = Callable[[Key], Awaitable[None]]


class Engine:
    """Works on the queue until it is cancelled."""

    def __init__(
        self,
        *,
        queue: WorkQueue[Key],
        reconciles: Mapping[str, Reconcile],
        metrics: Metrics,
        clock: Clock,
        failed: Failed,
        succeeded: Succeeded,
    ) -> None:
        """``reconciles``: by kind of key; keys of other kinds are passed over. ``failed`` is called
        after an error of the operator itself."""
        self._failed = failed
        self._succeeded = succeeded
        self._queue = queue
        self._reconciles = reconciles
        self._metrics = metrics
        self._clock = clock

    async def run(self) -> None:
        """Work, with ``WORKERS`` workers."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(WORKERS):
                workers.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._once(key)
            finally:
                self._queue.done(key)
            # Many that have nothing to wait for must not keep all else waiting, the lease first.
            await asyncio.sleep(0)

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
            # Whatever is wrong with one object must not end the work for all others: it is told
            # with its trace, counted for an alert, and tried again ever more rarely.
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
            # It comes again with the key.
            logger.warning(
                "the status of %s cannot say that its reconcile failed: %s",
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
