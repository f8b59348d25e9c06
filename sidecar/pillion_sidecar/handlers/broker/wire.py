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
    loss_reason,
    queued_bytes,
)

_CLOSED = "the broker closed the connection"
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
    __slots__ = (
        "_buffer",
        "_busy",
        "_discreet",
        "_is_ready",
        "_is_sent",
        "_keep",
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
        self._busy = False
        # The request has been written.
        self._is_sent = False
        self._keep = True
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
            self._lost(None, untaken=False)

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None:
            transport.write(data)

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
        self._owner = None
        self._busy = False
        self._request = b""
        transport = self._transport
        if transport is not None and not transport.is_closing() and is_idle and self.farewell:
            transport.write(self.farewell)
        self.close_transport()

    def give_up(self, reason: str) -> Failure:
        failure = self._failure(reason, untaken=not self._flushed)
        self.close()
        return failure

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
        try:
            self.received(bytes(self._buffer[:nbytes]))
        except BrokerError as error:
            self._refused(error)

    def eof_received(self) -> None:
        transport = self._transport
        if transport is not None:
            # The peer's FIN acknowledges all that it received.
            untaken = not self._flushed or bool(queued_bytes(transport))
            self._lost(self._failure(_CLOSED, untaken=untaken), untaken=untaken)

    def connection_lost(self, exc: Exception | None) -> None:
        # A reset proves nothing about what the broker has read.
        untaken = not self._flushed
        self._lost(self._failure(loss_reason(exc), untaken=untaken), untaken=untaken)

    # Outcomes.

    def _publish(self) -> None:
        transport = self._transport
        if transport is None:
            return
        if has_ended(transport):
            self._lost(self._failure(_CLOSED, untaken=True), untaken=True)
            return
        request, self._request = self._request, b""
        self._is_sent = True
        self.publish(request)
        if transport.is_closing():
            # connection_lost follows: the first write failed at once, and nothing was sent.
            self._flushed = False

    def _refused(self, error: BrokerError) -> None:
        if error.is_refusal or not self._is_sent:
            failure = Failure(DeliveryResult.ERROR, str(error), hold=error.hold)
        else:
            failure = self._failure(str(error), untaken=False)
        self._lost(failure, untaken=False)

    def _lost(self, failure: Failure | None, *, untaken: bool) -> None:
        owner, failure = self._owner, failure if self._busy else None
        self.close()
        if owner is not None:
            owner.wire_lost(failure, untaken=untaken)

    def _failure(self, reason: str, *, untaken: bool) -> Failure:
        if not self._is_ready:
            return Failure(DeliveryResult.ERROR, f"{reason} while {self.doing}")
        if untaken or not self._is_sent:
            return Failure(DeliveryResult.ERROR, f"{reason} before it had the message")
        return Failure(
            DeliveryResult.POST_DELIVERY_ERROR, f"{reason}; the broker may have the message"
        )
