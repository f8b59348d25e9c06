"""One connection to a message broker: it logs in, and then publishes one message at a time."""

import asyncio
from typing import ClassVar

from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.handlers.errors import HandlerError
from pillion_sidecar.handlers.transport.exchange import Failure, shown
from pillion_sidecar.handlers.transport.wire import (
    RequestWire,
    WireOwner,
    has_ended,
)

_NOT_SHOWN = "its words may quote the URL, which is in a Secret, so they are not shown"


class BrokerError(HandlerError):
    """The connection cannot go on. The text says why."""

    def __init__(
        self, message: str, *, hold: HoldCause | None = None, is_refusal: bool = False
    ) -> None:
        """``is_refusal``: the broker certainly did not take the message. ``hold``: the fault of the
        destination, if that is the cause."""
        super().__init__(message)
        self.hold = hold
        self.is_refusal = is_refusal or hold is not None


class BrokerWire(RequestWire, asyncio.BufferedProtocol):
    """Subclasses speak the protocol: they call :meth:`logged_in` and :meth:`answered`, and raise
    BrokerError from :meth:`received`."""

    #: Sent before an idle connection is closed.
    farewell: ClassVar[bytes] = b""
    peer: ClassVar[str] = "the broker"
    __slots__ = (
        "_buffer",
        "_discreet",
        "_is_ready",
        "_is_sent",
        "_keep",
        "_pings",
        "_pongs",
        "_request",
        "doing",
    )

    def __init__(self, owner: WireOwner, *, buffer: memoryview, discreet: bool) -> None:
        """``buffer``: all connections may share it; it is unused once ``buffer_updated`` returns.
        ``discreet``: no text of the broker is shown."""
        super().__init__(owner)
        self._buffer = buffer
        self._discreet = discreet
        #: What a connection that is not ready waits for.
        self.doing = "logging in"
        self._is_ready = False
        # The request has been written.
        self._is_sent = False
        self._keep = True
        # Pings without an answer, and how many of them the data being read may answer: an answer
        # may lead to the next ping at once.
        self._pings = self._pongs = 0
        self._request = b""

    # Subclasses.

    def log_in(self) -> None:
        """The connection is open."""

    def publish(self, request: bytes) -> None:
        """Write a message."""
        raise NotImplementedError

    def received(self, data: bytes) -> None:
        """Raises BrokerError."""
        raise NotImplementedError

    def logged_in(self) -> None:
        self._is_ready = True
        if self._busy:
            self._publish()

    def answered(self, status: int, body: bytes = b"") -> None:
        owner = self._owner
        if owner is None or not self._busy:
            return
        self._busy = self._is_sent = False
        keep = self._keep and self._flushed
        if not keep:
            self.close()
        owner.wire_answered(status, (), body, keep=keep)

    def retire(self) -> None:
        """Close the connection when no message is under way: the broker wants it."""
        self._keep = False
        if self._is_ready and not self._busy:
            self._lost(None)

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None:
            transport.write(data)

    def pinged(self) -> None:
        """A ping is about to be written."""
        self._pings += 1

    def ponged(self) -> None:
        """A ping is answered. Raises BrokerError if there is none."""
        if not self._pongs:
            raise BrokerError("the broker answers a ping that it did not get")
        self._pings -= 1
        self._pongs -= 1

    def said(self, text: bytes) -> str:
        """The words of the broker, for a message."""
        return _NOT_SHOWN if self._discreet else shown(text)

    # Calls by the owner.

    def send(self, request: bytes) -> None:
        self._busy = True
        self._request = request
        if self._is_ready:
            self._publish()

    def close(self) -> None:
        is_idle = self._is_ready and not self._busy
        self._request = b""
        transport = self._transport
        if transport is not None and not transport.is_closing() and is_idle and self.farewell:
            transport.write(self.farewell)
        super().close()

    # asyncio.BufferedProtocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._owner is not None:
            self.log_in()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._owner is None:
            return
        self._pongs = self._pings
        try:
            self.received(bytes(self._buffer[:nbytes]))
        except BrokerError as error:
            self._refused(error)

    # Outcomes.

    def _publish(self) -> None:
        transport = self._transport
        if transport is None:
            return
        if has_ended(transport):
            self._ended(self._closed, untaken=True)
            return
        request, self._request = self._request, b""
        self._is_sent = True
        self.publish(request)
        if transport.is_closing():
            # connection_lost follows: the first write failed at once, and nothing was sent.
            self._flushed = False

    def _refused(self, error: BrokerError) -> None:
        if self._busy and (error.is_refusal or not self._is_sent):
            self._lost(Failure(DeliveryResult.ERROR, str(error), hold=error.hold))
        else:
            self._ended(str(error), untaken=False)

    def _failure(self, reason: str, *, untaken: bool) -> Failure:
        if not self._is_ready:
            return Failure(DeliveryResult.ERROR, f"{reason} while {self.doing}")
        return super()._failure(reason, untaken=untaken or not self._is_sent)
