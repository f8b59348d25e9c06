"""What delivery asks of a handler, and what a handler answers (S0.8, S0.13)."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from pillion_sidecar.config.schema.destination import HoldCause as HoldCause
from pillion_sidecar.indication import Indication

#: What stands for the protocol of a destination that is relayed to a gateway.
RELAY = "Relay"
#: Seconds between two attempts at a destination that is held. They spend nothing.
HOLD_RETRY_SECONDS = 30.0


class DeliveryResult(StrEnum):
    """The result of one attempt, as PEP 324 names them (S0.8)."""

    #: The listener has it.
    SUCCESS = "success"
    #: It did not get there; a later attempt may.
    ERROR = "error"
    #: It can never get there: the indication cannot be written, or the destination is wrong (see
    #: ``DeliveryOutcome.hold``).
    FATAL_ERROR = "fatal-error"
    #: The connection ended after the request was written: the listener may or may not have it.
    POST_DELIVERY_ERROR = "post-delivery-error"


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """What came of one attempt."""

    result: DeliveryResult
    #: One line for people: "connection refused", "HTTP 503", "CIM error 1: queue is full".
    detail: str = ""
    #: The status of the HTTP answer, where there was one.
    status: int | None = None
    #: Seconds that the listener asked to be left alone (Retry-After), where it did.
    retry_after: float | None = None
    #: Whether a failure counts against the delivery retry attempts. One of the way to a gateway
    #: does not: the listener has not been asked (the design's "The relay").
    spends_attempt: bool = True
    #: Whether another destination got its connection: neither a failure nor an attempt.
    gave_way: bool = False
    #: What is wrong with the destination, where that is why: its queue is held, and the indication
    #: keeps its place (S0.8).
    hold: HoldCause | None = None
    #: Whether the listener refuses this indication, and may take the next one.
    refuses_indication: bool = False


class Delivery(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """One attempt to deliver an indication for a subscription."""

    indication: Indication
    #: The value of IndicationFilterName (S0.20).
    filter_name: str
    #: SequenceContext and SequenceNumber (D.2); both None where identifiers are omitted.
    sequence_context: str | None
    sequence_number: int | None
    #: 1 for the original attempt.
    attempt: int
    #: Whether to mark the retry in CorrelatedIndications (S0.9).
    correlated: bool
    #: The uid of the subscription, by which a gateway knows it.
    subscription: str = ""


class Handler(Protocol):
    """Delivers to one listener destination. It never retries by itself; order, retry, discards and
    metrics are the dispatcher's."""

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        """Begin an attempt and return at once; ``done`` is called exactly once, on the event loop,
        within the destination's time-out. Never raises.

        A call-back, not a coroutine: a task for each attempt would cost a third of the throughput
        (``docs/decisions/``).
        """

    def prepare(self, indication: Indication) -> None:
        """Make ready what of an indication's deliveries is the same, since it is next.

        Called while the listener works on the one before, so that it need not wait. Never raises:
        what cannot be made ready is ``deliver``'s to report.
        """

    def close(self) -> None:
        """Release connections. Attempts under way are abandoned, and ``done`` is not called."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a queue is held, and since when.

    What is wrong with the destination itself stops its queue, and costs no indication anything
    (S0.8, docs/decisions/0022).
    """

    cause: HoldCause
    #: One line for people.
    message: str
    #: ``Clock.monotonic()``.
    since: float
