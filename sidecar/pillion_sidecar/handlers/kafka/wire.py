"""One connection to a broker: authenticates, then writes a request and reads its answer, both with
their length in front."""

import asyncio
from collections.abc import Callable, Generator
from typing import ClassVar, TypeAlias

from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.handlers.errors import HandlerError, described
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.wire import RequestWire, WireOwner, has_ended

#: Maximum bytes of an answer. 10,000 partitions are half of it.
ANSWER_LIMIT = 1024 * 1024
LENGTH_BYTES = 4
#: The beginning of what a server says to a client without TLS; no length has it.
_TLS_ALERT = b"\x15\x03"


class AuthenticationError(HandlerError):
    """The broker does not accept the credentials. The text says why, and has no secret."""


class AnswerError(HandlerError):
    """An answer is not what the protocol says."""


#: Yields requests of a new connection, and gets their answers. Raises AuthenticationError and
#: AnswerError.
Authentication: TypeAlias = Generator[bytes, bytes, None]


class KafkaWire(RequestWire, asyncio.Protocol):
    peer: ClassVar[str] = "the broker"
    __slots__ = ("_authentication", "_handed_over", "_received", "_request", "_step", "_why")

    def __init__(
        self,
        *,
        owner: WireOwner,
        authentication: Authentication | None,
        handed_over: Callable[[], None],
    ) -> None:
        """``handed_over`` is called when a request is written."""
        super().__init__(owner)
        self._authentication = authentication
        # Computes what is sent next of the authentication.
        self._step: asyncio.Task[None] | None = None
        # Why the connection was lost during a step.
        self._why: str | None = None
        self._handed_over = handed_over
        self._request = b""
        self._received = bytearray()

    # Calls by the owner.

    def send(self, request: bytes) -> None:
        assert self._transport is not None
        self._busy = True
        self._request = request
        if has_ended(self._transport):
            self._ended(self._closed, untaken=True)
        elif self._authentication is None:
            self._write_request()
        else:
            self._begin_step(None)

    def close(self) -> None:
        self._request = b""
        step, self._step = self._step, None
        super().close()
        if step is not None:
            step.cancel()

    # asyncio.Protocol.

    def data_received(self, data: bytes) -> None:
        if not self._busy:
            # Nobody asked.
            self._lost(None)
            return
        received = self._received
        received += data
        if len(received) < LENGTH_BYTES:
            return
        end = LENGTH_BYTES + int.from_bytes(received[:LENGTH_BYTES], "big")
        if received.startswith(_TLS_ALERT):
            self._refuse("the broker expects TLS (kafkas://)")
        elif end > ANSWER_LIMIT:
            self._refuse(f"its answer has more than {ANSWER_LIMIT} bytes")
        elif len(received) > end or self._step is not None:
            self._refuse("it answers more than it was asked")
        elif len(received) == end:
            answer = bytes(received[LENGTH_BYTES:])
            received.clear()
            self._answered(answer)

    # A request and its answer.

    def _begin_step(self, answer: bytes | None) -> None:
        assert self._authentication is not None
        step = self._take_step(self._authentication, answer)
        self._step = asyncio.get_running_loop().create_task(step)

    async def _take_step(self, authentication: Authentication, answer: bytes | None) -> None:
        try:
            # SCRAM computes for longer than the event loop may wait.
            request = await asyncio.to_thread(_next, authentication, answer)
        except AuthenticationError as error:
            hold = HoldCause.REFUSED
            failure = Failure(DeliveryResult.FATAL_ERROR, str(error), hold=hold)
        except AnswerError as error:
            failure = Failure(DeliveryResult.ERROR, str(error))
        except Exception as error:  # noqa: BLE001 - a task ends here, and its attempt must not hang
            detail = f"the authentication failed: {described(error)}"
            failure = Failure(DeliveryResult.ERROR, detail)
        else:
            self._step = None
            if self._why is not None:
                self._ended(self._why, untaken=True)
            elif request is None:
                self._authentication = None
                self._write_request()
            else:
                self._write(request)
            return
        self._step = None
        self._lost(failure)

    def _ended(self, reason: str, *, untaken: bool) -> None:
        if self._step is None:
            super()._ended(reason, untaken=untaken)
        elif self._why is None:
            # The answer that came before may tell why.
            self._why = reason

    def _write_request(self) -> None:
        request, self._request = self._request, b""
        self._handed_over()
        self._write(request)

    def _write(self, request: bytes) -> None:
        assert self._transport is not None
        self._transport.write(request)
        if self._transport.is_closing():
            # connection_lost follows: the first write failed at once, and nothing was sent.
            self._flushed = False

    def _answered(self, answer: bytes) -> None:
        if self._authentication is not None:
            self._begin_step(answer)
            return
        owner = self._owner
        assert owner is not None
        self._busy = False
        owner.wire_answered(0, (), answer, keep=True)

    def _refuse(self, reason: str) -> None:
        """End the connection for an answer that is none."""
        may_have = self._authentication is None
        result = DeliveryResult.POST_DELIVERY_ERROR if may_have else DeliveryResult.ERROR
        self._lost(Failure(result, reason))

    def _failure(self, reason: str, *, untaken: bool) -> Failure:
        if self._authentication is not None:
            return Failure(DeliveryResult.ERROR, f"{reason} during the authentication")
        if untaken:
            return Failure(DeliveryResult.ERROR, f"{reason} before it had the request")
        return Failure(DeliveryResult.POST_DELIVERY_ERROR, f"{reason} without an answer")


def _next(authentication: Authentication, answer: bytes | None) -> bytes | None:
    """Return what is sent next; None at the end. Raises AuthenticationError and AnswerError."""
    try:
        return next(authentication) if answer is None else authentication.send(answer)
    except StopIteration:
        return None
