"""One request and what comes of it: the words that the sender and the handlers share."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeAlias
from urllib.parse import unquote

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause

#: The answer's header fields as they came: names in any case, values without white space around.
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
#: Bytes of an answer's head (S "bounded response bodies"): beyond, the connection is closed.
HEAD_LIMIT = 16 * 1024
#: Bytes of an answer's body.
BODY_LIMIT = 64 * 1024
#: Bytes of an answer in all, with interim answers, chunk sizes and trailers: so many bodies.
ANSWER_BODIES = 8
#: The longest that a Retry-After is believed, in seconds.
RETRY_AFTER_LIMIT = 86_400.0
#: Statuses that say what is wrong with the request, and nothing of the next one: bad request,
#: content too large, unsupported media type, unprocessable content.
INDICATION_REFUSED = frozenset((400, 413, 415, 422))
_DETAIL_LIMIT = 200
#: Fields in which listeners say what was wrong (DSP0200; OpenPegasus; pywbem).
_REASONS = (b"cimerror", b"pgerrordetail", b"cimerrordetails")


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of an answer is read."""

    #: Bytes of the body: beyond, the answer is invalid.
    body: int = BODY_LIMIT
    #: Whether the body of an answer other than 2xx is read too, where that says how long it is.
    errors: bool = False


#: What is read of a listener's answer.
USUAL = Reading()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there was no answer that could be used."""

    result: DeliveryResult
    detail: str
    #: The status of the answer, where that much of it had come.
    status: int | None = None
    #: Whether the head of the answer had come, whole and valid.
    in_body: bool = False
    #: What is wrong with the destination, where that is why.
    hold: HoldCause | None = None
    #: See ``DeliveryOutcome.gave_way``.
    gave_way: bool = False


class Exchange(Protocol):
    """Whoever sent a request. Exactly one of the two is called, once, on the event loop, and never
    from within ``send``."""

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        """There is an answer.

        The body is read for a 2xx alone, unless ``Reading`` says otherwise; any other status is
        told as soon as the head is there, since OpenPegasus ends error answers neither by length
        nor by closing.
        """

    def failed(self, failure: Failure) -> None:
        """There is none."""


class Sender(Protocol):
    """What a handler asks of :class:`pillion_sidecar.handlers.http.sender.HTTPSender`; tests stand
    in others."""

    def send(self, request: bytes, exchange: Exchange) -> None:
        """Begin to send a request, head and body, and return at once."""

    def renew(self) -> None:
        """Close the connections that are idle: whoever is sent to next shows who he is again."""

    def close(self) -> None:
        """Close all connections; exchanges under way hear nothing more."""


def field(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header field; ``name`` is in lower case. None without one."""
    for candidate, value in headers:
        if candidate.lower() == name:
            return value
    return None


def retry_after(headers: Headers, now: float) -> float | None:
    """Seconds that Retry-After asks for, 0 to RETRY_AFTER_LIMIT; ``now`` is the epoch time.

    None where it is missing or is neither seconds nor a date (RFC 9110 10.2.3).
    """
    value = field(headers, b"retry-after")
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        # Longer is beyond the limit anyway, and int() of a very long text is slow.
        return min(float(text[:9]), RETRY_AFTER_LIMIT)
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return min(max(date.timestamp() - now, 0.0), RETRY_AFTER_LIMIT)


def failure_outcome(failure: Failure) -> DeliveryOutcome:
    """The outcome of an attempt without an answer."""
    return DeliveryOutcome(
        failure.result,
        failure.detail,
        failure.status,
        spends_attempt=not failure.gave_way,
        gave_way=failure.gave_way,
        hold=failure.hold,
    )


def status_outcome(status: int, headers: Headers, clock: Clock) -> DeliveryOutcome:
    """The outcome of an attempt answered with a status other than 2xx: all are worth a retry, and
    ``INDICATION_REFUSED`` are about the indication."""
    detail = f"HTTP {status}"
    if 300 <= status < 400:
        location = field(headers, b"location")
        if location is not None:
            detail += f", a redirect to {_shown(location)}, which is not followed"
    reasons = [_shown(value) for name in _REASONS if (value := field(headers, name)) is not None]
    if reasons:
        detail += ": " + ", ".join(reasons)
    wait = retry_after(headers, clock.time()) if status in (429, 503) else None
    return DeliveryOutcome(
        DeliveryResult.ERROR,
        detail,
        status,
        wait,
        refuses_indication=status in INDICATION_REFUSED,
    )


def _shown(value: bytes) -> str:
    text = unquote(value[: 2 * _DETAIL_LIMIT].decode("utf-8", "replace"))
    return "".join(c if c.isprintable() else " " for c in text)[:_DETAIL_LIMIT]


def later(
    done: Callable[[DeliveryOutcome], None],
    result: DeliveryResult,
    detail: str,
    *,
    hold: HoldCause | None = None,
) -> None:
    """Tell an outcome that is known at once, but not from within ``deliver``: whoever delivers is
    still in the middle of its own turn."""
    asyncio.get_running_loop().call_soon(done, DeliveryOutcome(result, detail, hold=hold))
