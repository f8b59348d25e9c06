"""What an answer means for a delivery, as far as HTTP alone can tell (S0.8)."""

import asyncio
from collections.abc import Callable
from urllib.parse import unquote

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.handlers.http.exchange import Failure, Headers, field
from pillion_sidecar.handlers.http.fields import retry_after

#: Statuses that say what is wrong with the request, and nothing of the next one: bad request,
#: content too large, unsupported media type, unprocessable content.
INDICATION_REFUSED = frozenset((400, 413, 415, 422))
_DETAIL_LIMIT = 200
#: Fields in which listeners say what was wrong (DSP0200; OpenPegasus; pywbem).
_REASONS = (b"cimerror", b"pgerrordetail", b"cimerrordetails")


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
