"""What all that is sent over HTTP has in common, whoever it goes to."""

from dataclasses import dataclass, field

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.resources import TLSOptions
from pillion_sidecar.handlers.http.channel import Connect
from pillion_sidecar.handlers.http.connector import (
    NAME_ADVICE,
    AddressCheck,
    Connector,
    NameResolver,
)
from pillion_sidecar.handlers.http.exchange import USUAL, Reading
from pillion_sidecar.handlers.http.outgoing import OutgoingConnections
from pillion_sidecar.handlers.http.pace import OpeningPace
from pillion_sidecar.handlers.http.sender import IDLE_SECONDS, RECEIVE_BUFFER, HTTPSender
from pillion_sidecar.handlers.http.target import HTTPTarget
from pillion_sidecar.handlers.http.tls import TLSContexts


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
