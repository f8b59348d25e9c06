"""A gateway that is no process: it takes lines as it is told, and keeps what it took."""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import DeliverThrough, ListenerDestination
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.handlers.authorization import StaticAuthorizer
from pillion_sidecar.handlers.relay import RelayHandler
from pillion_sidecar.handlers.transport.exchange import Exchange, Failure
from pillion_sidecar.handlers.transport.target import parse_target
from support.delivery import Deliverer, destination

RELAY_URL = "http://gateway.example:8288/v1/relay?ack=durable"


@dataclass(frozen=True, slots=True)
class Refuse:
    """How a line is refused."""

    status: int
    reason: str = "no room"


@dataclass(slots=True)
class Request:
    """One request under way."""

    lines: list[dict[str, Any]]
    exchange: Exchange
    sender: "GatewaySender"


@dataclass
class Gateway:
    """Takes lines once each, by their identity, and in order."""

    #: Requests that are not answered yet.
    waiting: deque[Request] = field(default_factory=deque)
    #: The identities of what was taken, in order, and how often each came.
    taken: list[tuple[Any, ...]] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    requests: list[list[dict[str, Any]]] = field(default_factory=list)
    duplicates: int = 0

    def answer(self, verdict: Callable[[int, dict[str, Any]], Refuse | None] | None = None) -> None:
        """Answer the request that came first: what ``verdict`` does not refuse is taken."""
        request = self.waiting.popleft()
        refused: list[dict[str, Any]] = []
        accepted = duplicate = 0
        stopped = False
        for number, line in enumerate(request.lines):
            why = None if verdict is None else verdict(number, line)
            if stopped:
                why = Refuse(429, "one before it was refused")
            if why is None:
                taken = self.take(line)
                accepted, duplicate = accepted + taken, duplicate + (not taken)
                continue
            stopped = stopped or why.status != 400
            refused.append({"line": number, "status": why.status, "reason": why.reason})
        document = {"accepted": accepted, "duplicate": duplicate, "refused": refused}
        if accepted or duplicate:
            document["durable"] = True
        self.tell(request, 207 if refused else 200, document)

    def take(self, line: dict[str, Any]) -> bool:
        """Take a line; return whether it is new."""
        identity = identity_of(line)
        if identity in self.taken:
            self.duplicates += 1
            return False
        self.taken.append(identity)
        self.lines.append(line)
        return True

    def lose_answer(self, *, take: int) -> None:
        """Take some of the first lines, and be gone before the answer."""
        request = self.waiting.popleft()
        for line in request.lines[:take]:
            self.take(line)
        self.fail(request, DeliveryResult.POST_DELIVERY_ERROR)

    def refuse_connection(self) -> None:
        """Be away."""
        self.fail(self.waiting.popleft(), DeliveryResult.ERROR)

    def tell(
        self, request: Request, status: int, document: object, *headers: tuple[bytes, bytes]
    ) -> None:
        """Answer as stated."""
        if not request.sender.closed:
            request.exchange.answered(status, headers, json.dumps(document).encode())

    def fail(self, request: Request, result: DeliveryResult) -> None:
        """Give no answer."""
        if not request.sender.closed:
            request.exchange.failed(Failure(result, "connection refused"))

    @property
    def identifiers(self) -> list[str]:
        """IndicationIdentifier of what was taken, in order."""
        return [line["properties"]["IndicationIdentifier"] for line in self.lines]


def identity_of(line: dict[str, Any]) -> tuple[Any, ...]:
    """The identity under which a gateway knows a line."""
    relay, identifier = line["relay"], line["properties"].get("IndicationIdentifier")
    if identifier is not None and "source" in line:
        return line["source"], identifier, relay["subscription"]
    return relay["context"], relay["number"]


class GatewaySender:
    """Brings requests to the gateway, one at a time."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.closed = False

    def send(self, request: bytes, exchange: Exchange, spent: float = 0.0) -> None:
        body = request.partition(b"\r\n\r\n")[2]
        lines = [json.loads(line) for line in body.splitlines()]
        self._gateway.requests.append(lines)
        self._gateway.waiting.append(Request(lines, exchange, self))

    def renew(self) -> None:
        """There is no connection."""

    def close(self) -> None:
        self.closed = True


def relay_handler(gateway: Gateway, resource: ListenerDestination, clock: Clock) -> RelayHandler:
    """The handler of a destination that is relayed to it."""
    return RelayHandler(
        sender=GatewaySender(gateway),
        target=parse_target(RELAY_URL),
        authorizer=StaticAuthorizer(),
        clock=clock,
        in_group=resource.deliver_through is DeliverThrough.GATEWAY,
    )


class RelayingDeliverer(Deliverer):
    """A delivery service whose relayed destinations lead to gateways that are no processes."""

    def __init__(self, **given: Any) -> None:
        #: By the name of their service.
        self.gateways: dict[str, Gateway] = {}
        super().__init__(**given)

    def _create_handler(self, resource: ListenerDestination) -> Any:
        if resource.relay_to is None:
            return super()._create_handler(resource)
        gateway = self.gateways.setdefault(resource.relay_to, Gateway())
        return relay_handler(gateway, resource, self.time)

    def body_of(self, identifier: str) -> bytes:
        document = {
            "class": "CIM_AlertIndication",
            "properties": {"IndicationIdentifier": identifier},
        }
        return json.dumps(document).encode()

    @property
    def gateway(self) -> Gateway:
        """The gateway named ``shared``."""
        return self.gateways["shared"]

    def answer_all(self) -> None:
        """Have the gateway take all that comes."""
        while self.gateway.waiting:
            self.gateway.answer()
            self.run()


def relayed(name: str, **changes: Any) -> ListenerDestination:
    """A destination that is relayed to the gateway named ``shared``."""
    given = {"relay_to": "shared", "deliver_through": DeliverThrough.GATEWAY}
    return destination(name, **(given | changes))
