"""Adapts what awaits to the interface of handlers."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from traceback import extract_tb
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from pillion_sidecar.clock import Slices, Timer, Timers
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
)
from pillion_sidecar.handlers.batches import Batches, Waiting, unsent
from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.transport.exchange import later
from pillion_sidecar.indication import Indication, Selection

logger = logging.getLogger("pillion.handlers")

#: Attempts that were told to end and have not. At so many, no further one begins.
MOST_OVERDUE = 8
Done: TypeAlias = Callable[[DeliveryOutcome], None]
_Result = TypeVar("_Result")


def _nothing() -> None: ...


@dataclass(slots=True, eq=False)
class Progress:
    """What a coroutine says of itself, for the outcome of an attempt that is ended."""

    #: Such as "connecting".
    doing: str = "delivering"
    #: From now on the listener may have the indication.
    is_handed_over: bool = False
    #: Requests of it that wait until they may open a connection.
    waiting: int = 0
    #: Begins the attempt's time anew.
    restart: Callable[[], None] = _nothing

    def wait(self, waits: bool) -> None:
        """A request begins to wait for a connection, or goes on. Meanwhile, the attempt's time does
        not run."""
        self.waiting += 1 if waits else -1
        if not self.waiting:
            self.restart()

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


class DeliverBatch(Protocol):
    def __call__(
        self, bodies: Sequence[bytes], progress: Progress, /
    ) -> Coroutine[Any, Any, Sequence[DeliveryOutcome]]:
        """Make one attempt for a batch: an outcome for each body. It is cancelled at the time-out,
        and by ``close``."""


#: Begins an attempt.
Attempt: TypeAlias = Callable[[Progress], Coroutine[Any, Any, _Result]]
#: Gets the result of an attempt or, where it has none, the outcome that tells why.
Ended: TypeAlias = Callable[[_Result | DeliveryOutcome], None]


class Attempts(Generic[_Result]):
    """Runs each attempt in a task of its own, and gives it the time-out of the destination."""

    def __init__(
        self, *, name: str, timers: Timers, timeout: float, slices: Slices | None = None
    ) -> None:
        """``name``: the destination's. ``slices``: see ``SharedParts``."""
        self._name = name
        self._timers = timers
        self._timeout = timeout
        self._slices = slices
        # Whether the last attempt that ended has timed out.
        self._is_failing = False
        self._attempts: dict[asyncio.Task[_Result], _Attempt[_Result]] = {}
        self._overdue: set[asyncio.Task[_Result]] = set()

    def begin(self, attempt: Attempt[_Result], ended: Ended[_Result]) -> None:
        """``ended`` is called once, later, and never after :meth:`close`: with the result or, where
        there is none, with the outcome that tells why."""
        if len(self._overdue) >= MOST_OVERDUE:
            detail = f"{len(self._overdue)} earlier attempts timed out and have not ended"
            later(ended, DeliveryResult.ERROR, detail, cause=FailureCause.TIMEOUT)
            return
        progress = Progress()
        task = asyncio.get_running_loop().create_task(attempt(progress))
        progress.restart = partial(self._restart, task)
        self._attempts[task] = _Attempt(ended, progress, self._set_timer(task))
        task.add_done_callback(self._ended)

    def close(self) -> None:
        attempts, self._attempts = self._attempts, {}
        for task, attempt in attempts.items():
            attempt.timer.cancel()
            task.cancel()
        # Kept until they end.
        self._overdue.update(attempts)

    def _set_timer(self, task: asyncio.Task[_Result]) -> Timer:
        return self._timers.call_later(self._timeout, partial(self._due, task))

    def _restart(self, task: asyncio.Task[_Result]) -> None:
        attempt = self._attempts.get(task)
        if attempt is not None:
            attempt.timer.cancel()
            attempt.timer = self._set_timer(task)

    def _due(self, task: asyncio.Task[_Result]) -> None:
        if task.done():
            # Its outcome follows in this turn.
            return
        attempt = self._attempts[task]
        if attempt.progress.waiting:
            self._restart(task)
        elif self._slices is not None and self._is_failing:
            self._slices.add(partial(self._time_out, task, attempt.timer))
        else:
            self._time_out(task, attempt.timer)

    def _time_out(self, task: asyncio.Task[_Result], timer: Timer) -> None:
        attempt = self._attempts.get(task)
        if task.done() or attempt is None or attempt.timer is not timer:
            # It has ended while it waited for its turn, or its time has begun anew.
            return
        del self._attempts[task]
        self._is_failing = True
        self._overdue.add(task)
        task.cancel()
        progress = attempt.progress
        detail = f"timed out after {self._timeout:g} s while {progress.doing}"
        attempt.ended(DeliveryOutcome(progress.failure, detail, cause=FailureCause.TIMEOUT))

    def _ended(self, task: asyncio.Task[_Result]) -> None:
        self._overdue.discard(task)
        attempt = self._attempts.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log(error)
        if attempt is None:
            return
        attempt.timer.cancel()
        self._is_failing = False
        attempt.ended(_result(task, error, attempt.progress))

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


def _result(
    task: asyncio.Task[_Result], error: BaseException | None, progress: Progress
) -> _Result | DeliveryOutcome:
    if task.cancelled():
        detail = f"was cancelled while {progress.doing}"
    elif error is not None:
        detail = f"failed with {type(error).__name__} while {progress.doing}"
    else:
        return task.result()
    return DeliveryOutcome(progress.failure, detail, cause=FailureCause.DELIVERER)


class CoroutineHandler:
    """Makes an attempt for each delivery."""

    def __init__(
        self,
        deliver: Deliver,
        *,
        name: str,
        timers: Timers,
        timeout: float,
        slices: Slices | None = None,
    ) -> None:
        """``name``: the destination's. ``slices``: see ``SharedParts``."""
        self._deliver = deliver
        self._attempts: Attempts[DeliveryOutcome] = Attempts(
            name=name, timers=timers, timeout=timeout, slices=slices
        )

    def deliver(self, delivery: Delivery, done: Done) -> None:
        self._attempts.begin(partial(self._deliver, delivery), done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: a coroutine encodes for itself."""

    def close(self) -> None:
        self._attempts.close()


class CoroutineBatchHandler:
    """Makes an attempt for each batch, one at a time, in order."""

    def __init__(
        self,
        deliver: DeliverBatch,
        *,
        render: Callable[[Delivery], bytes],
        most: int,
        name: str,
        timers: Timers,
        timeout: float,
        slices: Slices | None = None,
    ) -> None:
        """``most``: of a batch. ``render`` raises ``UNSAYABLE`` if nothing can express a delivery.
        ``name``: the destination's. ``slices``: see ``SharedParts``."""
        self._deliver = deliver
        self._render = render
        self._batches = Batches(self._send, most=most)
        self._attempts: Attempts[Sequence[DeliveryOutcome]] = Attempts(
            name=name, timers=timers, timeout=timeout, slices=slices
        )

    def deliver(self, delivery: Delivery, done: Done) -> None:
        try:
            body = self._render(delivery)
        except UNSAYABLE as error:
            later(done, DeliveryResult.FATAL_ERROR, f"this cannot be expressed: {error}")
            return
        self._batches.add(body, done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: each delivery is rendered at once."""

    def close(self) -> None:
        self._batches.close()
        self._attempts.close()

    def _send(self, batch: list[Waiting]) -> None:
        bodies = [waiting.body for waiting in batch]
        self._attempts.begin(partial(self._deliver, bodies), partial(self._conclude, batch))

    def _conclude(
        self, batch: list[Waiting], ended: Sequence[DeliveryOutcome] | DeliveryOutcome
    ) -> None:
        if isinstance(ended, DeliveryOutcome):
            may_have = ended.result is DeliveryResult.POST_DELIVERY_ERROR
            rest = ended if may_have else unsent(ended)
            ended = [ended, *[rest] * (len(batch) - 1)]
        self._batches.conclude(batch, ended)


@dataclass(slots=True, eq=False)
class _Attempt(Generic[_Result]):
    ended: Ended[_Result]
    progress: Progress
    timer: Timer
