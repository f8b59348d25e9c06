"""One syslog connection. Syslog has no answer, so TCP's acknowledgement of the last byte stands for
it: then the listener's system has the message, whether or not its program has read it."""

import asyncio
import socket
import struct

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.wire import (
    RequestWire,
    WireOwner,
    has_ended,
    is_alert,
    loss_reason,
    queued_bytes,
)

#: No event reports an acknowledgement. So many turns of the event loop look for it, then a timer,
#: whose seconds double.
TURNS = 16
FIRST_SECONDS = 0.001
LONGEST_SECONDS = 1.0
#: Below TLS, a transport may hold the rest of a message for one more turn.
LOOKS = 2
#: Seconds that the first message of a connection waits after its acknowledgement. A listener that
#: refuses the client (TLS 1.3 tells it only after the handshake) closes the connection meanwhile.
PROBATION = 0.25
#: A close that discards what is not sent yet.
_DISCARDING = struct.pack("ii", 1, 0)
_CLOSED = "the listener closed the connection"


class SyslogWire(RequestWire, asyncio.Protocol):
    __slots__ = (
        "_busy",
        "_is_new",
        "_looks",
        "_seen",
        "_timer",
        "_timers",
    )

    def __init__(self, *, owner: WireOwner, timers: Timers) -> None:
        super().__init__(owner)
        self._timers = timers
        self._busy = False
        # No message was delivered by it.
        self._is_new = True
        self._timer: Timer | None = None
        # Looks at the current message; those in a row that saw all of it acknowledged.
        self._looks = 0
        self._seen = 0

    # Calls by the owner.

    def send(self, request: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._busy = True
        self._looks = self._seen = 0
        if has_ended(transport):
            self._ended(_CLOSED, untaken=True)
            return
        transport.write(request)
        if transport.is_closing():
            # connection_lost follows: the first write failed at once, and nothing was sent.
            self._flushed = False
            return
        asyncio.get_running_loop().call_soon(self._look)

    def close(self) -> None:
        self._owner = None
        self._busy = False
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self.close_transport()

    def give_up(self, reason: str) -> Failure:
        failure = self._failure(reason, untaken=not self._flushed)
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is not None:
            # The repeat would be the second one for a listener that reads again.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARDING)
        self.close()
        return failure

    # asyncio.Protocol.

    def data_received(self, data: bytes) -> None:
        """Nothing: syslog has no answers."""

    def eof_received(self) -> None:
        if self._transport is not None:
            # The peer's FIN acknowledges all that it received.
            untaken = not self._flushed or bool(queued_bytes(self._transport))
            self._ended(_CLOSED, untaken=untaken)

    def connection_lost(self, exc: Exception | None) -> None:
        # A reset proves nothing about what the listener has read.
        untaken = not self._flushed or is_alert(exc)
        self._ended(loss_reason(exc), untaken=untaken)

    # Acknowledgement.

    def _look(self) -> None:
        self._timer = None
        transport = self._transport
        if not self._busy or transport is None or has_ended(transport):
            # eof_received or connection_lost tells.
            return
        self._looks += 1
        is_acknowledged = self._flushed and queued_bytes(transport) == 0
        self._seen = self._seen + 1 if is_acknowledged else 0
        if self._seen == LOOKS and self._is_new:
            self._is_new, self._seen = False, LOOKS - 1
            self._timer = self._timers.call_later(PROBATION, self._look)
        elif self._seen == LOOKS:
            self._busy = False
            assert self._owner is not None
            self._owner.wire_answered(0, (), b"", keep=True)
        elif self._seen or self._looks <= TURNS:
            asyncio.get_running_loop().call_soon(self._look)
        else:
            doubled: float = FIRST_SECONDS * 2 ** min(self._looks - TURNS - 1, 10)
            self._timer = self._timers.call_later(min(doubled, LONGEST_SECONDS), self._look)

    def _ended(self, reason: str, *, untaken: bool) -> None:
        owner = self._owner
        failure = self._failure(reason, untaken=untaken) if self._busy else None
        self.close()
        if owner is not None:
            owner.wire_lost(failure, untaken=untaken)

    def _failure(self, reason: str, *, untaken: bool) -> Failure:
        if untaken:
            return Failure(DeliveryResult.ERROR, f"{reason} before it had the message")
        return Failure(
            DeliveryResult.POST_DELIVERY_ERROR, f"{reason}; the listener may have the message"
        )
