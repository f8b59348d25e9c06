"""What the handler tests share: deliveries, and a sender that sends nothing."""

from typing import Any

from pillion_sidecar.delivery.handler import Delivery
from pillion_sidecar.handlers.transport.exchange import Exchange
from pillion_sidecar.indication import Indication

BODY = b'{"class":"CIM_AlertIndication","properties":{"AlertType":5}}'


class FakeSender:
    """Keeps what it is given to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Exchange]] = []
        self.spent: list[float] = []
        self.closed = False
        self.renewals = 0

    def send(self, request: bytes, exchange: Exchange, spent: float = 0.0) -> None:
        self.spent.append(spent)
        self.sent.append((request, exchange))

    def renew(self) -> None:
        self.renewals += 1

    def close(self) -> None:
        self.closed = True

    @property
    def heads(self) -> list[list[str]]:
        """The lines of each request's head."""
        return [
            request.partition(b"\r\n\r\n")[0].decode("ascii").split("\r\n")
            for request, _ in self.sent
        ]

    @property
    def bodies(self) -> list[bytes]:
        """The body of each request."""
        return [request.partition(b"\r\n\r\n")[2] for request, _ in self.sent]


def indication(body: bytes = BODY, **given: Any) -> Indication:
    """An alert, unless the body says otherwise."""
    values: dict[str, Any] = {"class_name": "CIM_AlertIndication", "accepted_at": 0.0}
    return Indication(body=body, **(values | given))


def delivery(of: Indication | None = None, **given: Any) -> Delivery:
    """An original attempt without sequence identifiers, unless stated otherwise."""
    values: dict[str, Any] = {
        "indication": of or indication(),
        "filter_name": "severe",
        "sequence_context": None,
        "sequence_number": None,
        "attempt": 1,
        "correlated": False,
    }
    return Delivery(**(values | given))
