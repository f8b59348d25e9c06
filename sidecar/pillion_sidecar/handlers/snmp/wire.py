"""One UDP socket to a receiver. An inform is answered; of a trap nobody tells more than that a
system refuses it (ICMP)."""

import asyncio
import secrets

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.snmp.ber import BERError
from pillion_sidecar.handlers.snmp.messages import INFORM, REPORT, TRAP, Security, make_pdu
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.wire import DatagramWire, WireOwner

#: Seconds that the first trap of a socket waits for a refusal.
PROBATION = 0.25
#: Seconds of a socket. Then the name is resolved again, since no receiver of traps closes it.
SOCKET_SECONDS = 60.0
#: Messages of one attempt: a question for the engine ID, one for its time, and the same after a
#: change of the receiver.
MOST_MESSAGES = 5


class SNMPWire(DatagramWire):
    """A request is the values of a notification."""

    __slots__ = (
        "_bindings",
        "_clock",
        "_ignored",
        "_is_handed_over",
        "_is_new",
        "_kind",
        "_messages",
        "_number",
        "_opened_at",
        "_security",
        "_timer",
        "_timers",
    )

    def __init__(
        self, *, owner: WireOwner, clock: Clock, timers: Timers, security: Security, confirmed: bool
    ) -> None:
        """``confirmed``: by inform."""
        super().__init__(owner)
        self._clock = clock
        self._timers = timers
        self._security = security
        self._kind = INFORM if confirmed else TRAP
        self._opened_at = clock.monotonic()
        self._timer: Timer | None = None
        # No trap was delivered by it.
        self._is_new = True
        self._bindings = b""
        self._number = 0
        self._messages = 0
        self._is_handed_over = False
        #: Why the last datagram is no answer.
        self._ignored = ""

    # Calls by the owner.

    def send(self, request: bytes) -> None:
        self._busy = True
        self._bindings = request
        self._messages = 0
        self._ignored = ""
        self._send_message()

    def close(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        super().close()

    def give_up(self, reason: str) -> Failure:
        self.reached(False)
        return super().give_up(reason)

    # asyncio.DatagramProtocol.

    def datagram_received(self, data: bytes, addr: object) -> None:
        if not self._busy or self._kind != INFORM:
            return
        try:
            answer = self._security.open(data, self._number)
        except BERError as error:
            # Anybody may send one. The answer may still come.
            self._ignored = str(error)
            return
        if answer.tag != REPORT:
            self._answered(answer.error_status)
            return
        of_question, self._is_handed_over = not self._is_handed_over, False
        refusal = self._security.learn(answer, of_question=of_question)
        if refusal is None and self._messages < MOST_MESSAGES:
            self._send_message()
        else:
            refusal = refusal or "it sends reports without end"
            self._ended(f"the receiver refused the message: {refusal}", untaken=False)

    def error_received(self, exc: Exception) -> None:
        # A system on the way refused what was sent last.
        self.reached(False)
        self._is_handed_over = False
        text = getattr(exc, "strerror", None) or str(exc)
        self._ended(f"the message was refused: {text}", untaken=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended("the socket was closed", untaken=False)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._busy and self._kind == TRAP:
            self._sent()

    def _send_message(self) -> None:
        transport = self._transport
        assert transport is not None
        self._messages += 1
        self._number = secrets.randbits(31)
        self._is_handed_over = self._security.is_ready
        pdu = make_pdu(self._kind, self._number, self._bindings)
        message = self._security.seal(pdu, self._number)
        # Typed as a stream's.
        transport.sendto(message)  # type: ignore[attr-defined]
        if self._kind == INFORM or not self._busy:
            return
        if self._is_new:
            self._timer = self._timers.call_later(PROBATION, self._sent)
        else:
            asyncio.get_running_loop().call_soon(self._sent)

    def _sent(self) -> None:
        """The network has a trap, unless the system still holds it back."""
        self._timer = None
        if self._busy and self._flushed:
            self._is_new = False
            self._answered(0)

    def _answered(self, status: int) -> None:
        owner = self._owner
        assert owner is not None
        self._busy = False
        self.reached(True)
        keep = self._clock.monotonic() - self._opened_at < SOCKET_SECONDS
        if not keep:
            self.close()
        owner.wire_answered(status, (), b"", keep=keep)

    def _failure(self, reason: str, *, untaken: bool) -> Failure:
        ignored = f" (an answer was ignored: {self._ignored})" if self._ignored else ""
        if self._is_handed_over:
            detail = f"{reason}{ignored}; the receiver may have the notification"
            return Failure(DeliveryResult.POST_DELIVERY_ERROR, detail)
        detail = f"{reason}{ignored} before the receiver had the notification"
        return Failure(DeliveryResult.ERROR, detail)
