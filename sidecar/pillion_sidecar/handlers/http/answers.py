"""What is read of an answer, and what its status and fields mean."""

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.response_policy import Action, default_of
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.handlers.transport.exchange import Headers, shown
from pillion_sidecar.handlers.transport.proxy import refusal

#: Maximum bytes of an answer's body.
BODY_LIMIT = 64 * 1024
#: Maximum bytes of a whole answer with interim answers, chunk sizes and trailers, in bodies.
ANSWER_BODIES = 8
#: Maximum seconds of Retry-After that are respected.
RETRY_AFTER_LIMIT = 86_400.0
#: Header fields with a listener's reason (DSP0200; OpenPegasus; pywbem).
_REASONS = (b"cimerror", b"pgerrordetail", b"cimerrordetails")


@dataclass(frozen=True, slots=True)
class Reading:
    #: Maximum bytes of the body; beyond, the answer is invalid.
    body: int = BODY_LIMIT
    #: Also read the body of an answer other than 2xx, if it has a length.
    errors: bool = False
    #: Maximum seconds from the head to the end of the body; then the answer is what has come. None:
    #: until the time-out.
    body_seconds: float | None = None


#: For a listener's answer.
USUAL = Reading()
#: Seconds for a body that does not matter. It is read so that the connection can be kept.
BODY_SECONDS = 1.0
#: The same, if the body does not matter.
STATUS = Reading(body_seconds=BODY_SECONDS)


def field(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a field, or None; ``name`` is in lower case."""
    for candidate, value in headers:
        if candidate.lower() == name:
            return value
    return None


def retry_after(headers: Headers, now: float) -> float | None:
    """Return the seconds of Retry-After, 0 to RETRY_AFTER_LIMIT, or None if missing or invalid (RFC
    9110 10.2.3). ``now``: seconds since the epoch."""
    value = field(headers, b"retry-after")
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        # Longer is above the limit, and int() of a very long text is slow.
        return min(float(text[:9]), RETRY_AFTER_LIMIT)
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return min(max(date.timestamp() - now, 0.0), RETRY_AFTER_LIMIT)


def status_outcome(
    status: int, headers: Headers, clock: Clock, *, body: bytes = b""
) -> DeliveryOutcome:
    """The outcome of a status other than 2xx, by the table of defaults. ``body``: the listener's
    reason."""
    if status == 407:
        # Only a proxy answers so (RFC 9110 15.5.8).
        return DeliveryOutcome(
            DeliveryResult.FATAL_ERROR, refusal(status), status, hold=HoldCause.REFUSED
        )
    detail = f"HTTP {status}"
    if 300 <= status < 400:
        location = field(headers, b"location")
        if location is not None:
            detail += f", a redirect to {shown(location)}, which is not followed"
    reasons = [shown(value) for name in _REASONS if (value := field(headers, name)) is not None]
    if body:
        reasons.append(shown(body))
    if reasons:
        detail += ": " + ", ".join(reasons)
    default = default_of(status)
    wait = retry_after(headers, clock.time()) if default.heeds_retry_after else None
    return DeliveryOutcome(
        DeliveryResult.ERROR,
        detail,
        status,
        wait,
        hold=HoldCause.REFUSED if default.action is Action.PAUSE else None,
        refuses_indication=default.action is Action.DISCARD,
    )
