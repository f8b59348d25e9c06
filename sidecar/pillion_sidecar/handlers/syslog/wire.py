"""One syslog connection. Syslog has no answer, so TCP's acknowledgement of the last byte stands for
it: then the listener's system has the message, whether or not its program has read it."""

import asyncio
import socket
import struct

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.wire import (
    RequestWire,
    WireOwner,
    has_ended,
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


class SyslogWire(RequestWire, asyncio.Protocol):
    __slots__ = (
        "_is_new",
        "_looks",
        "_seen",
        "_timer",
        "_timers",
    )

    def __init__(self, *, owner: WireOwner, timers: Timers) -> None:
        super().__init__(owner)
        self._timers = timers
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
            self._ended(self._closed, untaken=True)
            return
        transport.write(request)
        if transport.is_closing():
            # connection_lost follows: the first write failed at once, and nothing was sent.
            self._flushed = False
            return
        asyncio.get_running_loop().call_soon(self._look)

    def close(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        super().close()

    def give_up(self, reason: str) -> Failure:
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is not None:
            # The repeat would be the second one for a listener that reads again.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARDING)
        return super().give_up(reason)

    # asyncio.Protocol.

    def data_received(self, data: bytes) -> None:
        """Nothing: syslog has no answers."""

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
