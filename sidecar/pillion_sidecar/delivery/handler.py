"""The interface between delivery and a protocol handler (S0.8, S0.13)."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from pillion_sidecar.config.schema.destination import HoldCause as HoldCause
from pillion_sidecar.config.schema.response_policy import NoAnswer as NoAnswer
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.trace_context import TraceContext

#: Protocol of a destination that is relayed to a gateway.
RELAY = "Relay"
#: Seconds between attempts at a held destination. They spend no retry.
HOLD_RETRY_SECONDS = 30.0
#: HTTP 410 (Gone), and the same seconds after it from a listener whose protocol heeds it.
GONE = 410
GONE_SECONDS = 3600.0


class FailureCause(StrEnum):
    """Why an attempt fails; a closed set for queues, outcomes and metrics."""

    #: The listener's machine refuses the connection.
    REFUSED = "refused"
    #: The name cannot be resolved.
    DNS = "dns"
    #: There is no way to the address.
    UNREACHABLE = "unreachable"
    #: The TLS handshake fails for another reason than the certificate.
    TLS = "tls"
    #: The listener's certificate is not accepted, or those of the destination are unusable.
    CERTIFICATE = "certificate"
    TIMEOUT = "timeout"
    #: The connection ends without a valid answer.
    RESET = "reset"
    #: The listener answers with an error: an HTTP status, or what another protocol has instead.
    STATUS = "status"
    CIM_ERROR = "cim-error"
    #: The listener or the proxy refuses the credentials, or they are unusable.
    CREDENTIALS = "credentials"
    #: The address policy forbids the address.
    ADDRESS = "address"
    #: The destination itself is wrong.
    DESTINATION = "destination"
    #: The indication cannot be encoded.
    INDICATION = "indication"
    #: A fault of the deliverer, or of the library that delivers.
    DELIVERER = "deliverer"


_NO_ANSWER = {
    FailureCause.REFUSED: NoAnswer.CONNECTION,
    FailureCause.DNS: NoAnswer.CONNECTION,
    FailureCause.UNREACHABLE: NoAnswer.CONNECTION,
    FailureCause.RESET: NoAnswer.CONNECTION,
    FailureCause.TLS: NoAnswer.TLS,
    FailureCause.CERTIFICATE: NoAnswer.TLS,
    FailureCause.TIMEOUT: NoAnswer.TIMEOUT,
}
_OF_HOLD = {
    HoldCause.REFUSED: FailureCause.CREDENTIALS,
    HoldCause.CREDENTIALS: FailureCause.CREDENTIALS,
    HoldCause.CERTIFICATES: FailureCause.CERTIFICATE,
    HoldCause.ADDRESS: FailureCause.ADDRESS,
}


class DeliveryResult(StrEnum):
    """The result of one attempt, in the words of PEP 324 (S0.8)."""

    SUCCESS = "success"
    #: Not delivered; a later attempt may succeed.
    ERROR = "error"
    #: Never deliverable: the indication cannot be encoded, or the destination is wrong
    #: (``DeliveryOutcome.hold``).
    FATAL_ERROR = "fatal-error"
    #: The connection ended after the request was written: the listener may have the indication.
    POST_DELIVERY_ERROR = "post-delivery-error"


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    result: DeliveryResult
    #: One line: "connection refused", "HTTP 503", "CIM error 1: queue is full".
    detail: str = ""
    #: HTTP status of the answer.
    status: int | None = None
    #: Seconds of the listener's Retry-After.
    retry_after: float | None = None
    #: Whether a failure counts against the retry attempts. A failure to reach a gateway does not:
    #: the listener was not asked (docs/decisions/0016).
    spends_attempt: bool = True
    #: Neither a failure nor an attempt: another destination got the connection, the batch was
    #: refused and is sent in parts, or the one before it failed.
    preempted: bool = False
    #: Why the destination itself is at fault: its queue is held or paused, and the indication keeps
    #: its place (S0.8).
    hold: HoldCause | None = None
    #: The listener refuses this indication but may accept the next.
    refuses_indication: bool = False
    #: Why it fails, where the rest does not say it.
    cause: FailureCause | None = None

    @property
    def no_answer(self) -> NoAnswer | None:
        """Why there is no answer, in the words of a rule."""
        return None if self.cause is None else _NO_ANSWER.get(self.cause)

    @property
    def failure_cause(self) -> FailureCause | None:
        """None: a success."""
        if self.result is DeliveryResult.SUCCESS:
            return None
        if self.hold is not None:
            return _OF_HOLD.get(self.hold, FailureCause.DESTINATION)
        if self.cause is not None:
            return self.cause
        if self.result is DeliveryResult.FATAL_ERROR and self.status is None:
            return FailureCause.INDICATION
        return FailureCause.STATUS


class Delivery(msgspec.Struct, kw_only=True, eq=False, gc=False):
    indication: Indication
    #: IndicationFilterName (S0.20).
    filter_name: str
    #: SequenceContext and SequenceNumber (D.2); None if identifiers are omitted.
    sequence_context: str | None
    sequence_number: int | None
    attempt: int
    #: Whether to mark the retry in CorrelatedIndications (S0.9).
    correlated: bool
    #: uid of the subscription, by which a gateway knows it.
    subscription: str = ""
    #: The properties that the filter lists; None: all. The relay ignores it: its gateway selects.
    selection: Selection | None = None
    #: The attempt's own place in the trace, for headers; None: it is not recorded.
    span: TraceContext | None = None


class Handler(Protocol):
    """Delivers to one listener destination. It never retries; order, retry, discards and metrics
    are the dispatcher's."""

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        """Begin an attempt and return immediately. Never raises.

        ``done`` is called exactly once, on the event loop, within the destination's time-out; that
        of a plug-in begins when it takes the command up (S2.3, S2.5). A
        call-back: a task per attempt would cost a third of the throughput (``docs/decisions/``).
        """

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Encode ahead what the deliveries of the next indication with ``selection`` share. Never
        raises: ``deliver`` reports errors.

        Called while the listener works on the previous one.
        """

    def close(self) -> None:
        """Release connections. Attempts under way are abandoned without ``done``."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why and since when a queue is held: it stops, and no indication spends attempts or lifetime
    (S0.8, docs/decisions/0022). If the cause is a pause, lifetimes go on."""

    cause: HoldCause
    message: str
    #: ``Clock.monotonic()``.
    since: float
    #: Whether the log has its begin.
    is_told: bool = True
