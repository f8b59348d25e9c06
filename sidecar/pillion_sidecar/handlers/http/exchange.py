"""One request and its answer: the types that sender and handlers share."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeAlias
from urllib.parse import unquote

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause

#: As received: names in any case, values stripped.
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
#: Maximum bytes of an answer's head; beyond, the connection is closed.
HEAD_LIMIT = 16 * 1024
#: Maximum bytes of an answer's body.
BODY_LIMIT = 64 * 1024
#: Maximum bytes of a whole answer with interim answers, chunk sizes and trailers, in bodies.
ANSWER_BODIES = 8
#: Maximum seconds of Retry-After that are respected.
RETRY_AFTER_LIMIT = 86_400.0
#: Statuses about this request, not the next one: bad request, content too large, unsupported media
#: type, unprocessable content.
INDICATION_REFUSED = frozenset((400, 413, 415, 422))
_DETAIL_LIMIT = 200
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


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there was no usable answer."""

    result: DeliveryResult
    detail: str
    #: The answer's status, if received.
    status: int | None = None
    #: The head of the answer was complete and valid.
    in_body: bool = False
    #: The fault of the destination, if that is the cause.
    hold: HoldCause | None = None
    #: See ``DeliveryOutcome.preempted``.
    preempted: bool = False


class Exchange(Protocol):
    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        """Called with the answer. The body is read for a 2xx only, unless ``Reading`` says
        otherwise: OpenPegasus ends error answers neither by length nor by closing."""

    def failed(self, failure: Failure) -> None: ...


class Sender(Protocol):
    """Test doubles implement it too; see
    :class:`pillion_sidecar.handlers.http.sender.HTTPSender`."""

    def send(self, request: bytes, exchange: Exchange, spent: float = 0.0) -> None:
        """``spent``: seconds of the attempt's time that have passed before."""

    def renew(self) -> None:
        """Close idle connections, so that the next request authenticates the peer again."""

    def close(self) -> None:
        """Close all connections; exchanges under way hear nothing more."""


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


def failure_outcome(failure: Failure) -> DeliveryOutcome:
    return DeliveryOutcome(
        failure.result,
        failure.detail,
        failure.status,
        spends_attempt=not failure.preempted,
        preempted=failure.preempted,
        hold=failure.hold,
    )


def status_outcome(
    status: int, headers: Headers, clock: Clock, *, body: bytes = b""
) -> DeliveryOutcome:
    """The outcome of a status other than 2xx: always retried; ``INDICATION_REFUSED`` are about the
    indication. ``body``: the listener's reason."""
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
    if status == 407:
        # Only a proxy answers so (RFC 9110 15.5.8).
        return DeliveryOutcome(
            DeliveryResult.FATAL_ERROR, detail, status, hold=HoldCause.CREDENTIALS
        )
    wait = retry_after(headers, clock.time()) if status in (429, 503) else None
    return DeliveryOutcome(
        DeliveryResult.ERROR,
        detail,
        status,
        wait,
        refuses_indication=status in INDICATION_REFUSED,
    )


def shown(value: bytes) -> str:
    """The beginning of a listener's text, on one line."""
    text = unquote(value[: 2 * _DETAIL_LIMIT].decode("utf-8", "replace"))
    return one_line(text, _DETAIL_LIMIT)


def later(
    done: Callable[[DeliveryOutcome], None],
    result: DeliveryResult,
    detail: str,
    *,
    hold: HoldCause | None = None,
) -> None:
    """Report an outcome from the event loop, not within ``deliver``: the caller is in the middle of
    its own turn."""
    asyncio.get_running_loop().call_soon(done, DeliveryOutcome(result, detail, hold=hold))
