"""The sender of one destination: slots with at most one connection each."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeAlias

from pillion_sidecar.clock import Clock, Slices, Timer, Timers
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.config.schema.proxy import Proxy
from pillion_sidecar.delivery.handler import DeliveryResult, FailureCause
from pillion_sidecar.handlers.errors import ConnectError, DescriptorShortageError, described
from pillion_sidecar.handlers.transport.connector import (
    NAME_ADVICE,
    AddressCheck,
    Connector,
    NameResolver,
    OpeningPace,
    TLSContexts,
)
from pillion_sidecar.handlers.transport.exchange import Exchange, Failure, Headers
from pillion_sidecar.handlers.transport.outgoing import AnswerTimes, OutgoingConnections
from pillion_sidecar.handlers.transport.proxy import ProxyConnector, proxy_target
from pillion_sidecar.handlers.transport.target import NetworkTarget
from pillion_sidecar.handlers.transport.wire import NewWire, RequestWire

IDLE_SECONDS = 60.0
#: Bytes of the receive buffer that a loop's connections share.
RECEIVE_BUFFER = 16 * 1024
#: Seconds before a retry without descriptors.
SHORTAGE_SECONDS = 1.0
# Timers may fire this much early.
_SLACK = 0.001


#: Told True when a request begins to wait until it may open a connection, and False when it ends.
#: Meanwhile, its time does not run.
Waits: TypeAlias = Callable[[bool], None]


class Connect(Protocol):
    async def connect(self, wire: asyncio.BaseProtocol, stage: Callable[[str], None]) -> None:
        """Return when the wire is open; report to ``stage`` what is awaited. Raises ConnectError
        and DescriptorShortageError."""


class Channel:
    """A slot: at most one request under way, at most one connection. ``released`` is called when it
    is free again, before the exchange gets its outcome.

    One timer per slot serves the deadline and the idle close. It is set at most one time-out ahead,
    so no later deadline precedes it: an attempt changes a number and no heap.
    """

    __slots__ = (
        "_body_by", "_body_of", "_body_timer",
        "_clock", "_connector", "_deadline", "_exchange", "_idle_seconds", "_new_wire", "_opening",
        "_outgoing", "_queued", "_released", "_request", "_reused", "_slices", "_stage",
        "_timeout", "_timer", "_timers", "_times", "_waits", "_wire",
    )  # fmt: skip

    def __init__(
        self,
        *,
        connector: Connect,
        clock: Clock,
        timers: Timers,
        new_wire: NewWire,
        timeout: float,
        idle_seconds: float,
        released: Callable[["Channel"], None],
        outgoing: OutgoingConnections,
        times: AnswerTimes,
        waits: Waits | None,
        slices: Slices | None,
    ) -> None:
        """``times``: shared by all slots of the destination. ``slices``: see ``SharedParts``."""
        self._outgoing = outgoing
        self._waits = waits
        self._times = times
        self._slices = slices
        self._queued = False
        self._connector = connector
        self._clock = clock
        self._timers = timers
        self._new_wire = new_wire
        self._timeout = timeout
        self._idle_seconds = idle_seconds
        self._released = released
        self._request = b""
        self._exchange: Exchange | None = None
        self._deadline = 0.0
        self._timer: Timer | None = None
        self._wire: RequestWire | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reused = False
        self._stage = ""
        # One timer for the bodies of all answers, as for deadlines. An attempt is known by its
        # deadline, so that no attempt has more to do.
        self._body_timer: Timer | None = None
        self._body_of = self._body_by = 0.0

    def start(self, request: bytes, exchange: Exchange, spent: float = 0.0) -> None:
        """``spent``: see ``Sender``."""
        self._request = request
        self._exchange = exchange
        self._deadline = self._clock.monotonic() + self._timeout - spent
        if spent and self._timer is not None:
            # It may be set for later.
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._timers.call_at(self._deadline, self._due)
        if self._wire is None:
            self._open()
        else:
            self._reused = True
            self._wire.send(request)

    def close(self) -> None:
        """Abandon the request and close; the exchange hears nothing."""
        self._exchange = None
        self._drop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    # Holder.

    @property
    def is_idle(self) -> bool:
        return self._exchange is None and self._wire is not None

    @property
    def owner(self) -> object:
        return self._times

    @property
    def failures(self) -> int:
        return self._times.failures

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
        # With descriptors it might have been answered in time: no attempt.
        reason = f"gave its connection to another destination after {self._waited():.0f} s"
        self._abandon(f"{reason}, since the limit of open files is low", preempted=True)

    def admitted(self) -> None:
        self._queue(False)
        # The attempt's time begins only now.
        self._deadline = self._clock.monotonic() + self._timeout
        self._open_now()

    # WireOwner.

    def wire_opened(self, wire: RequestWire) -> None:
        # At once: the listener may close or send before the connecting task's next turn.
        self._opening = None
        wire.send(self._request)

    def wire_answered(self, status: int, headers: Headers, body: bytes, *, keep: bool) -> None:
        if not keep:
            self._forget_wire()
        self._times.answered(self._waited())
        exchange = self._finish()
        if exchange is not None:
            exchange.answered(status, headers, body)

    def wire_awaits_body(self, seconds: float) -> None:
        if self._body_of == self._deadline:
            return
        self._body_of = self._deadline
        self._body_by = self._clock.monotonic() + seconds
        if self._body_timer is None:
            self._body_timer = self._timers.call_at(self._body_by, self._body_due)

    def _body_due(self) -> None:
        self._body_timer = None
        if self._exchange is None or self._wire is None or self._body_of != self._deadline:
            return
        if self._clock.monotonic() + _SLACK < self._body_by:
            self._body_timer = self._timers.call_at(self._body_by, self._body_due)
        else:
            self._wire.conclude()

    def wire_lost(self, failure: Failure | None, *, untaken: bool) -> None:
        self._forget_wire()
        if failure is None:
            return
        if untaken and self._reused:
            # The peer closed an idle connection just as it was reused. Nobody has read the request,
            # so it can be sent again on a new connection.
            self._open()
        else:
            self._fail(failure)

    def _open(self) -> None:
        self._reused = False
        if not self._outgoing.take(self):
            self._queue(True)
        elif (slices := self._slices_for_failing()) is None or slices.takes():
            self._open_now()
        else:
            self._queue(True)
            slices.add(partial(self._open_in_turn, self._deadline, self._clock.monotonic()))

    def _slices_for_failing(self) -> Slices | None:
        """None: its last attempt was answered, so it does not wait."""
        return self._slices if self._times.failures else None

    def _open_in_turn(self, deadline: float, since: float) -> None:
        if self._exchange is not None and self._queued and self._deadline == deadline:
            self._queue(False)
            # Its time did not run while it waited.
            self._deadline += self._clock.monotonic() - since
            self._open_now()

    def _queue(self, queued: bool) -> None:
        if queued is not self._queued:
            self._queued = queued
            if self._waits is not None:
                self._waits(queued)

    def _open_now(self) -> None:
        self._stage = "connecting"
        self._wire = self._new_wire(self)
        self._opening = asyncio.get_running_loop().create_task(self._connect(self._wire))

    async def _connect(self, wire: RequestWire) -> None:
        try:
            await self._connector.connect(wire, self._enter)
        except DescriptorShortageError:
            wire.close()
            self._opening = None
            self._wait_for_descriptor()
            return
        except ConnectError as error:
            failure = Failure(DeliveryResult.ERROR, str(error), hold=error.hold, cause=error.cause)
        except Exception as error:  # noqa: BLE001 - a task ends here, and its attempt must not hang
            failure = Failure(
                DeliveryResult.ERROR,
                f"could not connect: {described(error)}",
                cause=FailureCause.DELIVERER,
            )
        else:
            return
        wire.close()
        self._opening = None
        self._forget_wire()
        self._fail(failure)

    def _enter(self, stage: str) -> None:
        self._stage = stage

    def _wait_for_descriptor(self) -> None:
        """No descriptor is left: not the destination's fault, and no attempt."""
        self._forget_wire()
        self._queue(True)
        self._timers.call_later(SHORTAGE_SECONDS, self._try_again)

    def _try_again(self) -> None:
        if self._exchange is not None and self._queued and self._outgoing.take(self):
            self.admitted()

    def _forget_wire(self) -> None:
        self._wire = None
        self._outgoing.give(self)

    def _finish(self) -> Exchange | None:
        exchange, self._exchange = self._exchange, None
        self._request = b""
        if self._outgoing.is_crowded:
            # Others wait for a connection.
            self._drop()
        self._released(self)
        return exchange

    def _fail(self, failure: Failure) -> None:
        began_at = self._deadline - self._timeout
        self._times.failed(began_at=began_at, now=self._clock.monotonic())
        exchange = self._finish()
        if exchange is not None:
            exchange.failed(failure)

    def _drop(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        self._queue(False)
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
            elif (slices := self._slices_for_failing()) is None:
                self._time_out()
            else:
                slices.add(partial(self._time_out_in_turn, self._deadline))
        elif self._wire is not None:
            idle_until = self._deadline - self._timeout + self._idle_seconds
            if now < idle_until:
                due = min(idle_until, now + self._timeout)
                self._timer = self._timers.call_at(due, self._due)
            else:
                self._drop()

    def _time_out_in_turn(self, deadline: float) -> None:
        # It may have been answered meanwhile.
        if self._exchange is not None and self._deadline == deadline:
            self._time_out()

    def _time_out(self) -> None:
        self._abandon(f"timed out after {self._timeout:g} s")

    def _abandon(self, reason: str, *, preempted: bool = False) -> None:
        if self._opening is None and self._wire is not None:
            failure = self._wire.give_up(reason)
        else:
            failure = Failure(DeliveryResult.ERROR, f"{reason} while {self._stage}")
        self._drop()
        self._fail(replace(failure, preempted=preempted, cause=FailureCause.TIMEOUT))


class PooledSender:
    """Sends requests to one destination, each on its own kept connection. The caller limits their
    number (``maxInFlight``)."""

    def __init__(
        self,
        *,
        connector: Connect,
        clock: Clock,
        timers: Timers,
        new_wire: NewWire,
        timeout: float,
        idle_seconds: float = IDLE_SECONDS,
        outgoing: OutgoingConnections | None = None,
        waits: Waits | None = None,
        slices: Slices | None = None,
    ) -> None:
        """``outgoing``: the connections of all destinations; None: no limit. ``slices``: see
        ``SharedParts``."""
        self._channels: list[Channel] = []
        # Last in, first out: under less load the rest become idle and close.
        self._free: list[Channel] = []
        self._new_channel = partial(
            Channel,
            connector=connector,
            clock=clock,
            timers=timers,
            new_wire=new_wire,
            timeout=timeout,
            idle_seconds=idle_seconds,
            released=self._free.append,
            outgoing=outgoing or OutgoingConnections(),
            times=AnswerTimes(),
            waits=waits,
            slices=slices,
        )

    def send(self, request: bytes, exchange: Exchange, spent: float = 0.0) -> None:
        channel = self._free.pop() if self._free else self._new()
        channel.start(request, exchange, spent)

    def _new(self) -> Channel:
        channel = self._new_channel()
        self._channels.append(channel)
        return channel

    def renew(self) -> None:
        """Close idle connections, so that the next request authenticates the peer again."""
        for channel in self._free:
            channel.close()

    def close(self) -> None:
        """Close all connections; exchanges under way hear nothing more."""
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        self._free.clear()


def _receive_buffer() -> memoryview:
    return memoryview(bytearray(RECEIVE_BUFFER))


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """Shared by the connectors and senders of one event loop."""

    clock: Clock
    timers: Timers
    resolver: NameResolver
    idle_seconds: float = IDLE_SECONDS
    tls_contexts: TLSContexts = field(default_factory=TLSContexts)
    pace: OpeningPace = field(default_factory=OpeningPace)
    outgoing: OutgoingConnections = field(default_factory=OutgoingConnections)
    #: Where destinations whose last attempt was not answered open connections and time out, so that
    #: the others meet little of it; None: at once.
    slices: Slices | None = None
    #: Connections receive into it, one at a time.
    buffer: memoryview = field(default_factory=_receive_buffer)

    def connector(
        self,
        target: NetworkTarget,
        *,
        address_policy: AddressCheck,
        tls: TLSOptions,
        name_advice: str = NAME_ADVICE,
        silence_seconds: float | None = None,
        discreet: bool = False,
        datagrams: bool = False,
    ) -> Connector:
        """``tls`` applies if the target uses TLS. ``name_advice`` ends the message about a
        certificate for another name. ``discreet``: no text shows the target.
        ``datagrams``: UDP. Raises InvalidDestinationError for unusable ``tls``."""
        return Connector(
            target=target,
            resolver=self.resolver,
            address_policy=address_policy,
            pace=self.pace,
            tls=self.tls_contexts.context(tls) if target.tls else None,
            server_name=tls.server_name,
            name_advice=name_advice,
            silence_seconds=silence_seconds,
            discreet=discreet,
            datagrams=datagrams,
        )

    def connect(
        self,
        target: NetworkTarget,
        *,
        proxy: Proxy | None,
        address_policy: AddressCheck,
        tls: TLSOptions,
        name_advice: str = NAME_ADVICE,
        discreet: bool = False,
        datagrams: bool = False,
    ) -> Connect:
        """:meth:`connector`, through ``proxy``. Raises InvalidDestinationError."""
        listener = self.connector(
            target,
            address_policy=address_policy,
            tls=tls,
            name_advice=name_advice,
            discreet=discreet,
            datagrams=datagrams,
        )
        if proxy is None:
            return listener
        to_proxy = self.connector(
            proxy_target(proxy), address_policy=address_policy, tls=TLSOptions()
        )
        return ProxyConnector(
            target=target, listener=listener, to_proxy=to_proxy, proxy=proxy, pace=self.pace
        )

    def sender(
        self,
        connector: Connect,
        *,
        new_wire: NewWire,
        timeout: float,
        waits: Waits | None = None,
    ) -> PooledSender:
        """``timeout``: seconds for one exchange."""
        return PooledSender(
            connector=connector,
            clock=self.clock,
            timers=self.timers,
            new_wire=new_wire,
            timeout=timeout,
            idle_seconds=self.idle_seconds,
            outgoing=self.outgoing,
            waits=waits,
            slices=self.slices,
        )
