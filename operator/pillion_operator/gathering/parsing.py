"""The answer of ``GET /v1/queues``, read with suspicion: the pod may be anybody's.

Fields that are not known are passed over, and those that an older deliverer does not have yet may
be missing. What is there has the right type and keeps its bounds, or the whole answer is refused:
half of a truth would be written into status as if it were one.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from pillion_operator.gathering.reports import DeliveryResult, EndedSubscription, QueueReport
from pillion_sidecar.config.levels import FIRST_LEVEL
from pillion_sidecar.config.resources import Durability

#: The most queues, and ended subscriptions, in one answer.
MOST_ENTRIES = 1000
#: The most objects and lists, and the most values, in one answer, whatever stands in texts counted
#: too: a megabyte of nothing else would hold the event loop for a tenth of a second.
MOST_NODES = 16 * MOST_ENTRIES
MOST_VALUES = 64 * MOST_ENTRIES
#: The largest count: beyond it JSON's numbers are no longer exact.
LARGEST_COUNT = 2**53
#: Characters of a failure's detail that are kept.
LONGEST_DETAIL = 200
_LONGEST_TIME = 40
#: Seconds since the epoch at the end of the year 9999.
_LATEST = 253_402_300_799.0

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_REVISION = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WORD = re.compile(r"[A-Za-z]{1,64}")
_CAUSE = re.compile(r"[a-z-]{1,64}")
_UID = re.compile(r"[A-Za-z0-9._-]{0,64}")
_RESULTS = {
    "success": DeliveryResult.SUCCESS,
    "error": DeliveryResult.ERROR,
    "fatal-error": DeliveryResult.FATAL_ERROR,
    "post-delivery-error": DeliveryResult.POST_DELIVERY_ERROR,
}
_DURABILITIES = frozenset(Durability)


class ReportError(Exception):
    """An answer that no deliverer of this version, or of one before, would give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page of the answer."""

    revision: str | None
    durability: Durability | None
    queues: tuple[QueueReport, ...]
    ended: tuple[EndedSubscription, ...]
    schema_level: int
    #: What ``after`` of the following page is; None on the last one.
    next: str | None


def parse_page(body: bytes) -> Page:
    """Read one page; raises ReportError, and nothing else, where it is not one."""
    if body.count(b"{") + body.count(b"[") > MOST_NODES or body.count(b",") > MOST_VALUES:
        _refuse("the answer", "made of too many parts")
    try:
        document = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ReportError("the answer is not JSON") from None
    if not isinstance(document, Mapping):
        _refuse("the answer", "not an object")
    return Page(
        revision=_matching(document, "revision", _REVISION),
        durability=_durability(document),
        queues=tuple(_queue(entry) for entry in _entries(document, "queues", required=True)),
        ended=tuple(_ended(entry) for entry in _entries(document, "endedSubscriptions")),
        # The first release does not say it.
        schema_level=_count({"schemaLevel": FIRST_LEVEL, **document}, "schemaLevel"),
        next=_matching(document, "next", _NAME),
    )


def _durability(document: Mapping[str, Any]) -> Durability | None:
    text = _matching(document, "durability", _WORD)
    if text is None or document.get("revision") is None:
        # Settled with its first configuration.
        return None
    if text not in _DURABILITIES:
        _refuse("durability", "not one")
    return Durability(text)


def _queue(entry: Mapping[str, Any]) -> QueueReport:
    attempted = _moment(entry, "lastAttemptTime")
    result, detail = _outcome(entry)
    failing_since = _moment(entry, "failingSince")
    hold, hold_detail = _hold(entry)
    if result in (None, DeliveryResult.SUCCESS):
        failing_since = None
    elif failing_since is None:
        # A deliverer from before the field: the last failure is all that is known.
        failing_since = attempted
    return QueueReport(
        name=_required(entry, "name", _NAME),
        depth=_count(entry, "depth"),
        capacity=_count(entry, "capacity"),
        high_water=_count(entry, "highWater"),
        oldest_indication_time=_moment(entry, "oldestIndicationTime"),
        last_result=result,
        last_detail=detail,
        last_attempt_time=attempted,
        last_success_time=_moment(entry, "lastSuccessTime"),
        next_attempt_time=_moment(entry, "nextAttemptTime"),
        first_loss_due_time=_moment(entry, "firstLossDueTime"),
        failing_since=failing_since,
        discarded=_discarded(entry),
        last_discard_time=_moment(entry, "lastDiscardTime"),
        suspended=_flag(entry, "suspended"),
        hold=hold,
        hold_detail=hold_detail,
        draining=_flag(entry, "draining"),
        relay_to=_matching(entry, "relayTo", _NAME),
    )


def _outcome(entry: Mapping[str, Any]) -> tuple[DeliveryResult | None, str]:
    outcome = entry.get("lastResult")
    if outcome is None:
        return None, ""
    if not isinstance(outcome, Mapping):
        _refuse("lastResult", "not an object")
    result = outcome.get("result")
    if not isinstance(result, str) or result not in _RESULTS:
        _refuse("lastResult.result", "not a delivery result")
    detail = outcome.get("detail", "")
    if not isinstance(detail, str):
        _refuse("lastResult.detail", "not a text")
    known = _RESULTS[result]
    return known, "" if known is DeliveryResult.SUCCESS else _one_line(detail)


def _discarded(entry: Mapping[str, Any]) -> int:
    by_reason = entry.get("discarded", {})
    if not isinstance(by_reason, Mapping):
        _refuse("discarded", "not an object")
    return min(sum(_count(by_reason, reason) for reason in by_reason), LARGEST_COUNT)


def _hold(entry: Mapping[str, Any]) -> tuple[str | None, str]:
    hold = entry.get("hold")
    if hold is None:
        return None, ""
    if not isinstance(hold, Mapping):
        _refuse("hold", "not an object")
    message = hold.get("message", "")
    if not isinstance(message, str):
        _refuse("hold.message", "not a text")
    return _required(hold, "cause", _CAUSE), _one_line(message)


def _one_line(text: str) -> str:
    """``text`` as status may show it: what a terminal would take for a command is blanked."""
    return "".join(c if c.isprintable() else " " for c in text[:LONGEST_DETAIL]).strip()


def _ended(entry: Mapping[str, Any]) -> EndedSubscription:
    return EndedSubscription(
        name=_required(entry, "name", _NAME),
        reason=_required(entry, "reason", _WORD),
        # Resources in plain files have none.
        uid=_matching(entry, "uid", _UID) or None,
    )


def _entries(
    document: Mapping[str, Any], field: str, *, required: bool = False
) -> list[Mapping[str, Any]]:
    entries = document.get(field)
    if entries is None and not required:
        return []
    if not isinstance(entries, list):
        _refuse(field, "not a list")
    if len(entries) > MOST_ENTRIES:
        _refuse(field, f"longer than {MOST_ENTRIES}")
    for entry in entries:
        if not isinstance(entry, Mapping):
            _refuse(field, "a list of something else than objects")
    return entries


def _required(entry: Mapping[str, Any], field: str, pattern: re.Pattern[str]) -> str:
    text = _matching(entry, field, pattern)
    if text is None:
        _refuse(field, "missing")
    return text


def _matching(entry: Mapping[str, Any], field: str, pattern: re.Pattern[str]) -> str | None:
    text = entry.get(field)
    if text is None:
        return None
    if not isinstance(text, str) or not pattern.fullmatch(text):
        _refuse(field, "not what it should be")
    return text


def _count(entry: Mapping[str, Any], field: str) -> int:
    value = entry.get(field)
    if type(value) is not int or not 0 <= value <= LARGEST_COUNT:
        _refuse(field, f"not a whole number from 0 to {LARGEST_COUNT}")
    return value


def _flag(entry: Mapping[str, Any], field: str) -> bool:
    value = entry.get(field, False)
    if not isinstance(value, bool):
        _refuse(field, "neither true nor false")
    return value


def _moment(entry: Mapping[str, Any], field: str) -> float | None:
    text = entry.get(field)
    if text is None:
        return None
    seconds = math.nan
    if isinstance(text, str) and len(text) <= _LONGEST_TIME:
        try:
            moment = datetime.fromisoformat(text)
            # One without an offset would be read as this machine's local time.
            seconds = math.nan if moment.tzinfo is None else moment.timestamp()
        except (ValueError, OverflowError):
            pass
    if not 0 <= seconds <= _LATEST:
        _refuse(field, "not a time after RFC 3339")
    return seconds


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _refuse(field: str, what: str) -> NoReturn:
    """The value is left out: it is not ours, and ends in logs and status."""
    raise ReportError(f"{field} is {what}")
