"""The brokers of one destination: a connection to each that is used."""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from pillion_sidecar.config.schema.urls import LOOPBACK
from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.fields import whole
from pillion_sidecar.handlers.coroutine import Progress
from pillion_sidecar.handlers.errors import HandlerError, InvalidDestinationError
from pillion_sidecar.handlers.kafka.wire import Authentication, KafkaWire
from pillion_sidecar.handlers.transport.exchange import Failure, Headers, Sender
from pillion_sidecar.handlers.transport.sender import Waits
from pillion_sidecar.handlers.transport.target import NetworkTarget
from pillion_sidecar.handlers.transport.wire import NewWire, RequestWire, WireOwner

#: Makes the sender for a target, with wires of a kind. Raises InvalidDestinationError.
NewSender = Callable[[NetworkTarget, NewWire, Waits], Sender]
_is_host = whole(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*")
_is_loopback = whole(LOOPBACK)


class NoAnswerError(HandlerError):
    """A broker did not answer. Its text is in the failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class Broker:
    """One broker. At most one request is under way."""

    def __init__(
        self,
        target: NetworkTarget,
        *,
        new_sender: NewSender,
        authentication: Callable[[], Authentication | None],
        is_shown: bool,
    ) -> None:
        """``is_shown``: failures name it. Raises InvalidDestinationError."""
        self._name = f"broker {target.host} port {target.port}" if is_shown else "a broker"
        self._authentication = authentication
        self._progress: Progress | None = None
        self._has_records = False
        self._sender = new_sender(target, self._new_wire, self._wait)

    async def ask(self, request: bytes, progress: Progress, *, has_records: bool = False) -> bytes:
        """Return the answer. ``has_records``: the request has those of the attempt. Raises
        NoAnswerError."""
        self._progress, self._has_records = progress, has_records
        if has_records:
            progress.doing = f"waiting for {self._name}"
        exchange = _Exchange(asyncio.get_running_loop().create_future())
        self._sender.send(request, exchange)
        try:
            return await exchange.answer
        except NoAnswerError as error:
            failure = error.failure
            raise NoAnswerError(
                replace(failure, detail=f"{self._name}: {failure.detail}")
            ) from None
        except asyncio.CancelledError:
            # The answer may still come, and is not that of the next request.
            self.close()
            raise
        finally:
            self._progress = None

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        self._sender.close()

    def _new_wire(self, owner: WireOwner) -> RequestWire:
        return KafkaWire(
            owner=owner, authentication=self._authentication(), handed_over=self._hand_over
        )

    def _wait(self, waits: bool) -> None:
        if self._progress is not None:
            self._progress.wait(waits)

    def _hand_over(self) -> None:
        if self._progress is not None and self._has_records:
            self._progress.is_handed_over = True


@dataclass(slots=True, eq=False)
class _Exchange:
    answer: "asyncio.Future[bytes]"

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result(body)

    def failed(self, failure: Failure) -> None:
        if not self.answer.done():
            self.answer.set_exception(NoAnswerError(failure))


class Brokers:
    """Those that the destination names, and those that lead partitions."""

    def __init__(
        self,
        named: Sequence[NetworkTarget],
        *,
        new_broker: Callable[[NetworkTarget], Broker],
        is_secret: bool,
    ) -> None:
        """``is_secret``: credentials are sent. Raises InvalidDestinationError."""
        self._new_broker = new_broker
        self._tls = named[0].tls
        self._is_secret = is_secret
        self._brokers: dict[tuple[str, int], Broker] = {}
        self._named = deque((one.host, one.port) for one in named)
        for host, port in self._named:
            self.at(host, port)

    def at(self, host: str, port: int) -> Broker:
        """``host``: as a broker may state it. Raises InvalidDestinationError."""
        broker = self._brokers.get((host, port))
        if broker is None:
            self._check(host, port)
            target = NetworkTarget(host, port, self._tls)
            broker = self._brokers[host, port] = self._new_broker(target)
        return broker

    async def ask_any(self, request: bytes, progress: Progress) -> bytes:
        """Ask the named brokers in turn. Raises NoAnswerError if none answers."""
        failures = []
        for _ in range(len(self._named)):
            host, port = self._named[0]
            # If it hangs, the next attempt begins with another one.
            self._named.rotate(-1)
            try:
                answer = await self.at(host, port).ask(request, progress)
            except NoAnswerError as error:
                failures.append(error.failure)
                if error.failure.hold is HoldCause.REFUSED:
                    break
            else:
                self._named.rotate(1)
                return answer
        raise NoAnswerError(_none(failures))

    def keep(self, leaders: Collection[tuple[str, int]]) -> None:
        """Close the connections to brokers that lead nothing."""
        for address in [one for one in self._brokers if one not in leaders]:
            self._brokers[address].close()
            if address not in self._named:
                del self._brokers[address]

    def close(self) -> None:
        for broker in self._brokers.values():
            broker.close()

    def _check(self, host: str, port: int) -> None:
        if not (_is_host(host) and 0 < port <= 65_535):
            raise InvalidDestinationError("a broker states an address that is none")
        shown = f"[{host}]" if ":" in host else host
        if self._is_secret and not self._tls and not _is_loopback(f"kafka://{shown}:{port}"):
            raise InvalidDestinationError(
                "a broker would get the credentials unencrypted: use kafkas://"
            )


def _none(failures: Sequence[Failure]) -> Failure:
    """Return the failure of an attempt whose requests all failed; it has delivered nothing."""
    holds = {failure.hold for failure in failures}
    last = failures[-1]
    hold = last.hold if last.hold is HoldCause.REFUSED or len(holds) == 1 else None
    result = DeliveryResult.ERROR if hold is None else last.result
    detail = "; ".join(dict.fromkeys(failure.detail for failure in failures))
    return replace(last, result=result, detail=detail, hold=hold)
