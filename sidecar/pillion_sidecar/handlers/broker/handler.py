"""Handlers that publish CloudEvents, one message for each delivery."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.cloudevents import kept_event, render
from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.transport.exchange import (
    Failure,
    Headers,
    Sender,
    failure_outcome,
    later,
)
from pillion_sidecar.indication import Indication, Selection

#: Of a message with one event in structured mode.
MEDIA_TYPE = "application/cloudevents+json"
SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)


class BrokerHandler(ABC):
    """Delivers to one broker."""

    def __init__(self, *, sender: Sender, service_name: str) -> None:
        self._sender = sender
        self.service_name = service_name

    def message(self, delivery: Delivery, event: bytes) -> bytes:
        """What the wire publishes, of an event in JSON."""
        return event

    @abstractmethod
    def judge(self, status: int, body: bytes) -> DeliveryOutcome:
        """The outcome of what the wire was answered."""

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        try:
            kept = kept_event(delivery.indication, delivery.selection, self.service_name)
            message = self.message(delivery, render(kept, delivery))
        except UNSAYABLE as error:
            detail = f"a CloudEvent cannot express this: {error}"
            later(done, DeliveryResult.FATAL_ERROR, detail)
            return
        self._sender.send(message, _Attempt(self, done))

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        with contextlib.suppress(*UNSAYABLE):
            kept_event(indication, selection, self.service_name)

    def close(self) -> None:
        self._sender.close()


@dataclass(slots=True, eq=False)
class _Attempt:
    _handler: BrokerHandler
    _done: Callable[[DeliveryOutcome], None]

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        self._done(self._handler.judge(status, body))

    def failed(self, failure: Failure) -> None:
        self._done(failure_outcome(failure))
