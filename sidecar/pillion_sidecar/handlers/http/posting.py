"""Handlers that send one POST for each delivery and need an answer's status only, or a little of
its body."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import (
    GONE,
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    HoldCause,
)
from pillion_sidecar.handlers.authorization import Authorizer
from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.http.answers import status_outcome
from pillion_sidecar.handlers.http.requests import AuthorizedRequests, common_fields
from pillion_sidecar.handlers.transport.exchange import (
    Failure,
    Headers,
    Sender,
    failure_outcome,
    later,
)
from pillion_sidecar.handlers.transport.target import HTTPTarget
from pillion_sidecar.indication import Indication, Selection

_SUCCESS = {
    status: DeliveryOutcome(DeliveryResult.SUCCESS, "", status) for status in (200, 202, 204)
}
_GONE = DeliveryOutcome(
    DeliveryResult.FATAL_ERROR,
    "HTTP 410: the listener wants nothing more; change the destination, or remove it",
    GONE,
    hold=HoldCause.DESTINATION,
)


class PostHandler(ABC):
    """Posts to one listener destination. Any 2xx is success unless :meth:`judge` says otherwise."""

    #: What is posted, for the text of an outcome.
    what: ClassVar[str]
    #: Whether 410 (Gone) holds the destination.
    heeds_gone: ClassVar[bool] = False

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        content_type: str,
        authorizer: Authorizer,
        clock: Clock,
    ) -> None:
        fields = f"Accept: */*\r\nContent-Type: {content_type}\r\n"
        head = target.post + fields.encode("ascii")
        self._requests = AuthorizedRequests(
            sender=sender, head=head, authorizer=authorizer, clock=clock
        )
        self._clock = clock

    @abstractmethod
    def read(self, indication: Indication, selection: Selection | None) -> object:
        """Make and keep what all deliveries of an indication with the same
        properties share."""

    @abstractmethod
    def render(self, delivery: Delivery) -> tuple[bytes, bytes]:
        """Return header lines, each with its CRLF, and the body."""

    def judge(self, status: int, headers: Headers, body: bytes) -> DeliveryOutcome:
        if 200 <= status < 300:
            return _SUCCESS.get(status) or DeliveryOutcome(DeliveryResult.SUCCESS, "", status)
        return status_outcome(status, headers, self._clock)

    def judge_incomplete(self, failure: Failure) -> DeliveryOutcome:
        """The outcome of an answer with a complete head and an incomplete body."""
        status = failure.status
        if status is not None and not 200 <= status < 300:
            return failure_outcome(failure)
        # The status decides, whatever happened to the rest of the answer.
        return DeliveryOutcome(DeliveryResult.SUCCESS, failure.detail, status)

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        try:
            common = common_fields(delivery)
            fields, body = self.render(delivery)
        except UNSAYABLE as error:
            self.refuse(done, error)
            return
        self.post(common + fields, body, done)

    def post(self, fields: bytes, body: bytes, done: Callable[[DeliveryOutcome], None]) -> None:
        self._requests.send(fields, body, _Attempt(self, done), done)

    def refuse(self, done: Callable[[DeliveryOutcome], None], error: Exception) -> None:
        """Report what :meth:`render` raised."""
        later(done, DeliveryResult.FATAL_ERROR, f"{self.what} cannot express this: {error}")

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        try:
            self.read(indication, selection)
        except UNSAYABLE:
            # ``deliver`` reports it.
            return

    def close(self) -> None:
        self._requests.close()

    def answered(self, status: int, headers: Headers, body: bytes) -> DeliveryOutcome:
        if status == GONE and self.heeds_gone:
            return _GONE
        outcome = self.judge(status, headers, body)
        if outcome.result is DeliveryResult.SUCCESS:
            return outcome
        return self._requests.heed(outcome)


class _Attempt(msgspec.Struct, eq=False):
    _handler: PostHandler
    _done: Callable[[DeliveryOutcome], None]

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        self._done(self._handler.answered(status, headers, body))

    def failed(self, failure: Failure) -> None:
        incomplete = failure.in_body
        judge = self._handler.judge_incomplete if incomplete else failure_outcome
        self._done(judge(failure))
