"""Adapts a library that awaits to the interface of handlers."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from traceback import extract_tb
from typing import Any, Protocol, TypeAlias

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.http.exchange import later
from pillion_sidecar.indication import Indication, Selection

logger = logging.getLogger("pillion.handlers")

#: Attempts that were told to end and have not. At so many, no further one begins.
MOST_OVERDUE = 8
Done: TypeAlias = Callable[[DeliveryOutcome], None]


@dataclass(slots=True, eq=False)
class Progress:
    """What a coroutine says of itself, for the outcome of an attempt that is ended."""

    #: Such as "connecting".
    doing: str = "delivering"
    #: From now on the listener may have the indication.
    is_handed_over: bool = False

    @property
    def failure(self) -> DeliveryResult:
        if self.is_handed_over:
            return DeliveryResult.POST_DELIVERY_ERROR
        return DeliveryResult.ERROR


class Deliver(Protocol):
    def __call__(
        self, delivery: Delivery, progress: Progress, /
    ) -> Coroutine[Any, Any, DeliveryOutcome]:
        """Make one attempt. It is cancelled at the time-out, and by ``close``."""


class CoroutineHandler:
    """Makes each attempt in a task of its own, and gives it the time-out of the destination."""

    def __init__(self, deliver: Deliver, *, name: str, timers: Timers, timeout: float) -> None:
        """``name``: the destination's."""
        self._deliver = deliver
        self._name = name
        self._timers = timers
        self._timeout = timeout
        self._attempts: dict[asyncio.Task[DeliveryOutcome], _Attempt] = {}
        self._overdue: set[asyncio.Task[DeliveryOutcome]] = set()

    def deliver(self, delivery: Delivery, done: Done) -> None:
        if len(self._overdue) >= MOST_OVERDUE:
            detail = f"{len(self._overdue)} earlier attempts timed out and have not ended"
            later(done, DeliveryResult.ERROR, detail)
            return
        progress = Progress()
        task = asyncio.get_running_loop().create_task(self._deliver(delivery, progress))
        timer = self._timers.call_later(self._timeout, partial(self._time_out, task))
        self._attempts[task] = _Attempt(done, progress, timer)
        task.add_done_callback(self._ended)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: a coroutine encodes for itself."""

    def close(self) -> None:
        attempts, self._attempts = self._attempts, {}
        for task, attempt in attempts.items():
            attempt.timer.cancel()
            task.cancel()
        # Kept until they end.
        self._overdue.update(attempts)

    def _time_out(self, task: asyncio.Task[DeliveryOutcome]) -> None:
        if task.done():
            # Its outcome follows in this turn.
            return
        attempt = self._attempts.pop(task)
        self._overdue.add(task)
        task.cancel()
        progress = attempt.progress
        detail = f"timed out after {self._timeout:g} s while {progress.doing}"
        attempt.done(DeliveryOutcome(progress.failure, detail))

    def _ended(self, task: asyncio.Task[DeliveryOutcome]) -> None:
        self._overdue.discard(task)
        attempt = self._attempts.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log(error)
        if attempt is None:
            return
        attempt.timer.cancel()
        attempt.done(_outcome(task, error, attempt.progress))

    def _log(self, error: BaseException) -> None:
        """Without the exception's text, which may quote anything."""
        place = extract_tb(error.__traceback__)[-1]
        logger.error(
            "an attempt failed with %s, raised in %s, line %s of %s",
            type(error).__name__,
            place.name,
            place.lineno,
            place.filename,
            extra={"event": "attempt-failed", "destination": self._name},
        )


def _outcome(
    task: asyncio.Task[DeliveryOutcome], error: BaseException | None, progress: Progress
) -> DeliveryOutcome:
    if task.cancelled():
        return DeliveryOutcome(progress.failure, f"was cancelled while {progress.doing}")
    if error is not None:
        detail = f"failed with {type(error).__name__} while {progress.doing}"
        return DeliveryOutcome(progress.failure, detail)
    return task.result()


@dataclass(slots=True, eq=False)
class _Attempt:
    done: Done
    progress: Progress
    timer: Timer
