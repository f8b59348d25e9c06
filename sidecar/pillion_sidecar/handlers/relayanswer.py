"""What a gateway's answer to ``POST /v1/relay`` means for each of the lines that it was sent.

Every doubt is decided against loss: only what the answer says was taken, and is on the gateway's
disk, was. What comes back is sent again, and the gateway knows it by its identity.
"""

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.http.exchange import Failure, Headers
from pillion_sidecar.handlers.http.fields import retry_after

#: Characters of a reason that are kept.
_DETAIL_LIMIT = 300
#: Statuses of an answer that tells of lines; 400 and 429 where all were refused for one reason.
_TELLING = frozenset((200, 207, 400, 429))
_WRONG = 400
_SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS, "", 200)


class _Refused(msgspec.Struct):
    line: int
    status: int
    reason: str = ""


class _Answer(msgspec.Struct, rename="camel"):
    accepted: int = 0
    duplicate: int = 0
    refused: list[_Refused] = []
    #: The first line that was not read.
    unread_from: int | None = None
    #: Whether all that was taken is on disk.
    durable: bool = False
    #: Why a request was not taken up.
    reason: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


def line_outcomes(
    lines: int, *, status: int, headers: Headers, body: bytes, clock: Clock
) -> list[DeliveryOutcome]:
    """Return the outcome of each of so many lines.

    In order: what was taken or is refused for good comes first, and from the first line on that is
    refused for now all come back.
    """
    answer = _parsed(body)
    wait = retry_after(headers, clock.time())
    if status not in _TELLING or answer is None:
        reason = f": {answer.reason}" if answer is not None and answer.reason else ""
        return [_back(f"the gateway answered HTTP {status}{reason}", status, wait)] * lines
    if not _adds_up(answer, lines):
        told = answer.reason or "its answer does not say what became of each line"
        return [_back(f"the gateway answered HTTP {status}: {told}", status, wait)] * lines
    if (answer.accepted or answer.duplicate) and not answer.durable:
        return [_back("the gateway does not say that it is on its disk", status, wait)] * lines
    return _of_lines(answer, lines, status=status, wait=wait)


def failed_outcome(failure: Failure) -> DeliveryOutcome:
    """Return the outcome of all lines of a request without an answer."""
    return DeliveryOutcome(
        failure.result,
        f"the gateway: {failure.detail}",
        failure.status,
        spends_attempt=False,
        gave_way=failure.gave_way,
    )


def unsent_outcome(reason: str) -> DeliveryOutcome:
    """Return the outcome of what could not be sent."""
    return DeliveryOutcome(DeliveryResult.ERROR, reason, spends_attempt=False)


def _parsed(body: bytes) -> _Answer | None:
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _adds_up(answer: _Answer, lines: int) -> bool:
    """Whether the answer accounts for every line once."""
    told = {refused.line for refused in answer.refused}
    read = lines if answer.unread_from is None else answer.unread_from
    return (
        0 <= read <= lines
        and len(told) == len(answer.refused)
        and all(0 <= line < read for line in told)
        and answer.accepted + answer.duplicate + len(told) == read
    )


def _of_lines(
    answer: _Answer, lines: int, *, status: int, wait: float | None
) -> list[DeliveryOutcome]:
    refused = sorted(answer.refused, key=lambda one: one.line)
    for_now = next((one for one in refused if one.status != _WRONG), None)
    taken = lines if answer.unread_from is None else answer.unread_from
    if for_now is not None:
        taken = for_now.line
    outcomes = [_SUCCESS] * taken
    for one in refused:
        if one.line < taken:
            reason = f"the gateway refuses it for good: {_shown(one.reason)}"
            outcomes[one.line] = DeliveryOutcome(DeliveryResult.FATAL_ERROR, reason, one.status)
    reason = for_now.reason if for_now is not None else "it did not read all"
    back = _back(f"the gateway refuses it for now: {reason}", status, wait)
    return outcomes + [back] * (lines - taken)


def _back(detail: str, status: int, wait: float | None) -> DeliveryOutcome:
    return DeliveryOutcome(DeliveryResult.ERROR, _shown(detail), status, wait, spends_attempt=False)


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:_DETAIL_LIMIT])
