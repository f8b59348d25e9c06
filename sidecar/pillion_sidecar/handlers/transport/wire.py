"""One connection: writes a request, parses the answer, and reports to its owner. It runs for each
delivery, so it uses plain attributes and flags, evaluated after the parser has returned."""

import asyncio
import fcntl
import select
import socket
import ssl
import sys
import termios
from collections.abc import Callable
from typing import ClassVar, Protocol, TypeAlias, cast

from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.transport.exchange import Failure, Headers

_ENDED = select.POLLRDHUP | select.POLLHUP | select.POLLERR


class RequestWire(asyncio.BaseProtocol):
    """One connection, one request at a time; what it learns it tells its ``WireOwner``."""

    #: Who is at the other end, for messages.
    peer: ClassVar[str] = "the listener"
    __slots__ = ("_busy", "_flushed", "_owner", "_transport")

    def __init__(self, owner: "WireOwner") -> None:
        self._owner: WireOwner | None = owner
        self._transport: asyncio.Transport | None = None
        self._flushed = True
        # A request is under way.
        self._busy = False

    async def before_tls(self, sock: socket.socket) -> None:
        """Exchange what precedes the TLS handshake, on the connected socket. Raises ConnectError
        and OSError."""

    def send(self, request: bytes) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Close at once; the owner hears nothing more."""
        self._owner = None
        self._busy = False
        self.close_transport()

    def give_up(self, reason: str) -> Failure:
        """Close with a request under way; return its failure."""
        failure = self._failure(reason, untaken=not self._flushed)
        self.close()
        return failure

    def conclude(self) -> None:
        """Close; the answer is what has come of it. Only after ``wire_awaits_body``."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._owner is None:
            self.close()
            return
        # Pausing at the first remaining byte shows that a write is not complete.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self._owner.wire_opened(self)

    def close_transport(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            # Over TLS, close() waits for the peer's close. Called twice on Python 3.11, it leaves a
            # transport that cannot be aborted.
            if not transport.is_closing():
                transport.close()
            transport.abort()

    def eof_received(self) -> None:
        transport = self._transport
        if transport is not None:
            # The peer's FIN acknowledges all that it received.
            untaken = not self._flushed or bool(queued_bytes(transport))
            self._ended(self._closed, untaken=untaken)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._owner is not None:
            # A reset proves nothing about what the peer has read.
            self._ended(loss_reason(exc), untaken=not self._flushed or is_alert(exc))

    def pause_writing(self) -> None:
        self._flushed = False

    def resume_writing(self) -> None:
        self._flushed = True

    # Outcomes of a connection that is lost.

    @property
    def _closed(self) -> str:
        return f"{self.peer} closed the connection"

    def _failure(self, reason: str, *, untaken: bool) -> Failure:
        """The failure of the request under way."""
        if untaken:
            return Failure(DeliveryResult.ERROR, f"{reason} before it had the message")
        detail = f"{reason}; {self.peer} may have the message"
        return Failure(DeliveryResult.POST_DELIVERY_ERROR, detail)

    def _ended(self, reason: str, *, untaken: bool) -> None:
        failure = self._failure(reason, untaken=untaken) if self._busy else None
        self._lost(failure, untaken=untaken)

    def _lost(self, failure: Failure | None, *, untaken: bool = False) -> None:
        """Close, and tell the owner; see ``WireOwner.wire_lost``."""
        owner = self._owner
        self.close()
        if owner is not None:
            owner.wire_lost(failure, untaken=untaken)


class DatagramWire(RequestWire, asyncio.DatagramProtocol):
    """An open socket says nothing of the peer, so the wire tells whether it was reached."""

    __slots__ = ("reached",)

    def __init__(self, owner: "WireOwner") -> None:
        super().__init__(owner)
        #: The connector's.
        self.reached: Callable[[bool], None] = _ignore


def _ignore(_: bool) -> None: ...


class WireOwner(Protocol):
    """After ``wire_lost``, and after an answer without ``keep``, the wire is closed and calls
    nothing more."""

    def wire_opened(self, wire: RequestWire) -> None: ...

    def wire_answered(self, status: int, headers: Headers, body: bytes, *, keep: bool) -> None: ...

    def wire_awaits_body(self, seconds: float) -> None:
        """The answer's head is complete: ``conclude`` after so many seconds. It may be called
        again for the same answer."""

    def wire_lost(self, failure: Failure | None, *, untaken: bool) -> None:
        """The connection is closed. ``failure`` None: no request was under way; ``untaken``: the
        peer certainly did not get the whole request."""


#: Makes a wire for its owner.
NewWire: TypeAlias = Callable[[WireOwner], RequestWire]


def loss_reason(exc: Exception | None) -> str:
    """Return why a connection is lost, for a message. ``exc``: of ``connection_lost``."""
    if isinstance(exc, ssl.SSLError):
        return f"TLS: {(exc.reason or 'error').replace('_', ' ').lower()}"
    if isinstance(exc, OSError):
        return f"the connection broke: {exc.strerror or exc}"
    return "the connection was closed"


def is_alert(exc: Exception | None) -> bool:
    """Whether the peer refuses the TLS connection. With TLS 1.3 it refuses a client's certificate
    only after the handshake."""
    return isinstance(exc, ssl.SSLError) and "ALERT" in (exc.reason or "")


def queued_bytes(transport: asyncio.Transport) -> int | None:
    """Return the bytes written that the peer's system has not acknowledged; None if unknown."""
    sock = transport.get_extra_info("socket")
    if sock is None:
        return None
    try:
        queued = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return None
    return int.from_bytes(queued, sys.byteorder)


def has_ended(transport: asyncio.Transport) -> bool:
    """Whether the peer has closed or broken the connection, also if the event loop has not told
    yet."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return True
    poll = select.poll()
    poll.register(sock.fileno(), _ENDED)
    return bool(poll.poll(0))
