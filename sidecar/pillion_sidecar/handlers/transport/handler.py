"""Handlers that send one message for each delivery."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.transport.exchange import (
    Failure,
    Headers,
    Sender,
    failure_outcome,
    later,
)
from pillion_sidecar.indication import Indication, Selection

SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)


class MessageHandler:
    #: What cannot express every indication, for a message.
    form: ClassVar[str]

    def __init__(self, *, sender: Sender) -> None:
        self._sender = sender

    def render(self, delivery: Delivery) -> bytes:
        """What the wire sends. Raises ``UNSAYABLE``."""
        raise NotImplementedError

    def judge(self, status: int, body: bytes) -> DeliveryOutcome:
        """The outcome of what the wire was answered."""
        return SUCCESS

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        try:
            message = self.render(delivery)
        except UNSAYABLE as error:
            detail = f"{self.form} cannot express this: {error}"
            later(done, DeliveryResult.FATAL_ERROR, detail)
            return
        self._sender.send(message, _Attempt(self, done))

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: destinations differ in their options."""

    def close(self) -> None:
        self._sender.close()


@dataclass(slots=True, eq=False)
class _Attempt:
    _handler: MessageHandler
    _done: Callable[[DeliveryOutcome], None]

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        self._done(self._handler.judge(status, body))

    def failed(self, failure: Failure) -> None:
        self._done(failure_outcome(failure))
