"""One slot of a destination: at most one request under way, at most one connection.

One timer per slot serves the attempt's deadline and the idle close. It is armed at most one
time-out ahead, so that the deadline of a later attempt is never before it: an attempt moves a
number and touches no heap.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.handlers.errors import HandlerError
from pillion_sidecar.handlers.http.exchange import (
    USUAL,
    Exchange,
    Failure,
    Headers,
    Reading,
)
from pillion_sidecar.handlers.http.outgoing import OutgoingConnections
from pillion_sidecar.handlers.http.wire import Wire

#: Seconds until a connection is tried again for which there was no descriptor.
SHORTAGE_SECONDS = 1.0
#: An answer is overdue after so many times the longest one of its destination, and so many seconds.
OVERDUE_TIMES = 10
LEAST_OVERDUE_SECONDS = 5.0
# Timers may fire this much early.
_SLACK = 0.001


class ConnectError(HandlerError):
    """There is no connection to be had. The text says why."""

    def __init__(self, message: str, *, hold: HoldCause | None = None) -> None:
        """``hold``: what is wrong with the destination, where that is why."""
        super().__init__(message)
        self.hold = hold


class DescriptorShortageError(HandlerError):
    """The process, or the machine, has no descriptor left for a connection."""


class Connect(Protocol):
    """Connects a protocol to the destination."""

    async def connect(self, wire: Wire, stage: Callable[[str], None]) -> None:
        """Return when the wire is open; tell ``stage`` what is being waited for.

        Raises:
            ConnectError: no address could be connected to.
            DescriptorShortageError: the process is short of them.
        """


class AnswerTimes:
    """How a destination answers, over all of its slots."""

    __slots__ = ("failing", "longest")

    def __init__(self) -> None:
        #: Whether the last attempt was not answered.
        self.failing = False
        #: Seconds that an answer took at most.
        self.longest = 0.0

    @property
    def overdue(self) -> float:
        """Seconds after which an answer takes far too long."""
        return max(LEAST_OVERDUE_SECONDS, OVERDUE_TIMES * self.longest)


class Channel:
    """A slot. ``released`` is called when it can take another request, before the exchange hears
    what became of its own."""

    __slots__ = (
        "_buffer", "_clock", "_connector", "_deadline", "_exchange", "_idle_seconds", "_opening",
        "_outgoing", "_queued", "_reading", "_released", "_request", "_reused", "_stage",
        "_timeout", "_timer", "_timers", "_times", "_wire",
    )  # fmt: skip

    def __init__(
        self,
        *,
        connector: Connect,
        clock: Clock,
        timers: Timers,
        buffer: memoryview,
        timeout: float,
        idle_seconds: float,
        released: Callable[["Channel"], None],
        outgoing: OutgoingConnections,
        times: AnswerTimes,
        reading: Reading = USUAL,
    ) -> None:
        """``times`` is that of all slots of the destination."""
        self._outgoing = outgoing
        self._times = times
        #: Whether it waits for its turn to open a connection.
        self._queued = False
        self._reading = reading
        self._connector = connector
        self._clock = clock
        self._timers = timers
        self._buffer = buffer
        self._timeout = timeout
        self._idle_seconds = idle_seconds
        self._released = released
        self._request = b""
        self._exchange: Exchange | None = None
        self._deadline = 0.0
        self._timer: Timer | None = None
        self._wire: Wire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reused = False
        self._stage = ""

    def start(self, request: bytes, exchange: Exchange) -> None:
        """Send a request, on the connection at hand or on a new one."""
        self._request = request
        self._exchange = exchange
        self._deadline = self._clock.monotonic() + self._timeout
        if self._timer is None:
            self._timer = self._timers.call_at(self._deadline, self._due)
        if self._wire is None:
            self._open()
        else:
            self._reused = True
            self._wire.send(request)

    def close(self) -> None:
        """Abandon what is under way and close; the exchange hears nothing."""
        self._exchange = None
        self._drop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # A holder of a connection.

    @property
    def is_idle(self) -> bool:
        return self._exchange is None and self._wire is not None

    @property
    def owner(self) -> object:
        return self._times

    @property
    def is_failing(self) -> bool:
        return self._times.failing

    @property
    def is_overdue(self) -> bool:
        if self._exchange is None or self._queued:
            return False
        return self._waited() >= self._times.overdue

    def _waited(self) -> float:
        return self._clock.monotonic() - (self._deadline - self._timeout)

    def close_idle(self) -> None:
        self._drop()

    def give_way(self) -> None:
        # It may have been answered in time, had there been descriptors: no attempt.
        reason = f"gave its connection to another destination after {self._waited():.0f} s"
        self._abandon(f"{reason}, since the limit of open files is low", gave_way=True)

    def admitted(self) -> None:
        self._queued = False
        # The attempt's time begins only now.
        self._deadline = self._clock.monotonic() + self._timeout
        self._open_now()

    # A wire's owner.

    def wire_opened(self, wire: Wire) -> None:
        # At once: the listener may close, or speak, before the connecting task has its next turn.
        self._opening = None
        wire.send(self._request)

    def wire_answered(self, status: int, headers: Headers, body: bytes, *, keep: bool) -> None:
        if not keep:
            self._forget_wire()
        times = self._times
        times.failing = False
        waited = self._clock.monotonic() - self._deadline + self._timeout
        if waited > times.longest:
            times.longest = waited
        exchange = self._finish()
        if exchange is not None:
            exchange.answered(status, headers, body)

    def wire_lost(self, failure: Failure | None, *, untaken: bool) -> None:
        self._forget_wire()
        if failure is None:
            return
        if untaken and self._reused:
            # The peer closed an idle connection just as it was used again. Nobody has read the
            # request, so sending it once more on a new connection repeats nothing.
            self._open()
        else:
            self._fail(failure)

    # Opening.

    def _open(self) -> None:
        self._reused = False
        if self._outgoing.take(self):
            self._open_now()
        else:
            self._queued = True

    def _open_now(self) -> None:
        self._stage = "connecting"
        self._wire = Wire(owner=self, buffer=self._buffer, reading=self._reading)
        self._opening = asyncio.get_running_loop().create_task(self._connect(self._wire))

    async def _connect(self, wire: Wire) -> None:
        try:
            await self._connector.connect(wire, self._enter)
        except DescriptorShortageError:
            wire.close()
            self._opening = None
            self._wait_for_descriptor()
            return
        except ConnectError as error:
            failure = Failure(DeliveryResult.ERROR, str(error), hold=error.hold)
        except Exception as error:  # noqa: BLE001 - a task ends here, and its attempt must not hang
            failure = Failure(DeliveryResult.ERROR, f"could not connect: {error!r}")
        else:
            return
        wire.close()
        self._opening = None
        self._forget_wire()
        self._fail(failure)

    def _enter(self, stage: str) -> None:
        self._stage = stage

    def _wait_for_descriptor(self) -> None:
        """The process has none left: that is no fault of the destination's, and no attempt."""
        self._forget_wire()
        self._queued = True
        self._timers.call_later(SHORTAGE_SECONDS, self._try_again)

    def _try_again(self) -> None:
        if self._exchange is not None and self._queued and self._outgoing.take(self):
            self.admitted()

    # Ending.

    def _forget_wire(self) -> None:
        self._wire = None
        self._outgoing.give(self)

    def _finish(self) -> Exchange | None:
        exchange, self._exchange = self._exchange, None
        self._request = b""
        if self._outgoing.is_crowded:
            # Others wait for a connection: it is their turn.
            self._drop()
        self._released(self)
        return exchange

    def _fail(self, failure: Failure) -> None:
        self._times.failing = True
        exchange = self._finish()
        if exchange is not None:
            exchange.failed(failure)

    def _drop(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        self._queued = False
        wire = self._wire
        self._forget_wire()
        if wire is not None:
            wire.close()

    def _due(self) -> None:
        self._timer = None
        now = self._clock.monotonic() + _SLACK
        if self._exchange is not None:
            if self._queued:
                self._timer = self._timers.call_at(now + self._timeout, self._due)
            elif now < self._deadline:
                self._timer = self._timers.call_at(self._deadline, self._due)
            else:
                self._time_out()
        elif self._wire is not None:
            idle_until = self._deadline - self._timeout + self._idle_seconds
            if now < idle_until:
                due = min(idle_until, now + self._timeout)
                self._timer = self._timers.call_at(due, self._due)
            else:
                self._drop()

    def _time_out(self) -> None:
        self._abandon(f"timed out after {self._timeout:g} s")

    def _abandon(self, reason: str, *, gave_way: bool = False) -> None:
        if self._opening is None and self._wire is not None:
            failure = self._wire.give_up(reason)
        else:
            failure = Failure(DeliveryResult.ERROR, f"{reason} while {self._stage}")
        self._times.failing = True
        self._drop()
        self._fail(replace(failure, gave_way=gave_way))
