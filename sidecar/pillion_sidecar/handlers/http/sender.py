"""The sender of one destination: its slots, and which of them is free."""

from dataclasses import dataclass, field

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.handlers.http.channel import AnswerTimes, Channel, Connect
from pillion_sidecar.handlers.http.connector import (
    NAME_ADVICE,
    AddressCheck,
    Connector,
    NameResolver,
    OpeningPace,
    TLSContexts,
)
from pillion_sidecar.handlers.http.exchange import USUAL, Exchange, Reading
from pillion_sidecar.handlers.http.outgoing import OutgoingConnections
from pillion_sidecar.handlers.http.target import HTTPTarget

#: Seconds after which an idle connection is closed.
IDLE_SECONDS = 60.0
#: Bytes of the buffer that a loop's connections receive into.
RECEIVE_BUFFER = 16 * 1024


class HTTPSender:
    """Sends requests to one destination, each on a connection of its own, kept for the next.

    How many are under way at once is the caller's to bound (``maxInFlight``).
    """

    def __init__(
        self,
        *,
        connector: Connect,
        clock: Clock,
        timers: Timers,
        buffer: memoryview,
        timeout: float,
        idle_seconds: float = IDLE_SECONDS,
        reading: Reading = USUAL,
        outgoing: OutgoingConnections | None = None,
    ) -> None:
        """``outgoing``: the connections of all destinations; None: without a bound."""
        self._outgoing = outgoing or OutgoingConnections()
        self._reading = reading
        self._connector = connector
        self._clock = clock
        self._timers = timers
        self._buffer = buffer
        self._timeout = timeout
        self._idle_seconds = idle_seconds
        self._times = AnswerTimes()
        self._channels: list[Channel] = []
        # Last in, first out: under less load, the rest grow idle and close.
        self._free: list[Channel] = []

    def send(self, request: bytes, exchange: Exchange) -> None:
        """Begin to send a request, head and body, and return at once."""
        channel = self._free.pop() if self._free else self._new()
        channel.start(request, exchange)

    def _new(self) -> Channel:
        channel = Channel(
            connector=self._connector,
            clock=self._clock,
            timers=self._timers,
            buffer=self._buffer,
            timeout=self._timeout,
            idle_seconds=self._idle_seconds,
            released=self._free.append,
            outgoing=self._outgoing,
            times=self._times,
            reading=self._reading,
        )
        self._channels.append(channel)
        return channel

    def renew(self) -> None:
        """Close the connections that are idle: whoever is sent to next shows who he is again."""
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
    """The parts that connectors and senders of one event loop are made from."""

    clock: Clock
    timers: Timers
    resolver: NameResolver
    #: Seconds after which an idle connection is closed.
    idle_seconds: float = IDLE_SECONDS
    tls_contexts: TLSContexts = field(default_factory=TLSContexts)
    #: Connections to all targets are opened at this pace.
    pace: OpeningPace = field(default_factory=OpeningPace)
    #: How many connections there may be to all targets.
    outgoing: OutgoingConnections = field(default_factory=OutgoingConnections)
    #: What connections receive into, one at a time.
    buffer: memoryview = field(default_factory=_receive_buffer)

    def connector(
        self,
        target: HTTPTarget,
        *,
        address_policy: AddressCheck,
        tls: TLSOptions,
        name_advice: str = NAME_ADVICE,
        silence_seconds: float | None = None,
        discreet: bool = False,
    ) -> Connector:
        """Make what connects to one target; ``tls`` counts where the target asks for TLS.

        ``name_advice`` ends the message about a certificate made out to another name;
        ``discreet``: nothing that is told shows where the target is.

        Raises:
            InvalidDestinationError: ``tls`` cannot be used.
        """
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
        )

    def sender(self, connector: Connect, *, timeout: float, reading: Reading = USUAL) -> HTTPSender:
        """Make what sends to one target; ``timeout`` is that of one exchange, in seconds."""
        return HTTPSender(
            connector=connector,
            clock=self.clock,
            timers=self.timers,
            buffer=self.buffer,
            timeout=timeout,
            idle_seconds=self.idle_seconds,
            reading=reading,
            outgoing=self.outgoing,
        )
