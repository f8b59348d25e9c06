"""Parses a deliverer's answers strictly: every row must be counted exactly once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark_pillion.errors import ProtocolError

#: Why an indication that was accepted goes to no listener.
UNREACHED = ("unrouted", "ended", "suppressed")


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer: status, header fields by lower-cased name, body (bounded)."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def retry_after(self) -> float:
        """Seconds that the deliverer asks to be left alone; 0 where it does not say, or says it as
        a date."""
        try:
            return max(0.0, float(self.headers.get("retry-after", "0")))
        except ValueError:
            return 0.0

    def document(self) -> Mapping[str, Any]:
        """Return the JSON object in the body. Raises ProtocolError where there is none."""
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ProtocolError(f"HTTP {self.status} without a JSON object: {self.excerpt()}")
        return found

    def excerpt(self) -> str:
        return shortened(self.body.decode("utf-8", "replace"), most=300) or "(empty)"


def shortened(text: str, *, most: int = 160) -> str:
    """Return the text on one line, cut to ``most`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


@dataclass(frozen=True, slots=True)
class Refused:
    """A line that was refused: its number in the request, whether only for now, and why."""

    line: int
    status: int
    reason: str
    field: str = ""
    destination: str = ""

    @property
    def for_now(self) -> bool:
        """Whether the same line may be accepted later."""
        return self.status == 429


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of the lines of one request. Lines from ``unread_from`` on were not read."""

    accepted: int
    duplicate: int
    refused: tuple[Refused, ...]
    unread_from: int
    #: Of the accepted: lines that go to no listener, by reason.
    unreached: Mapping[str, int] = field(default_factory=dict)
    #: The deliverer's name for what it knows of this publisher; "" with those of the first release.
    instance: str = ""


def read_accepted(reply: Reply, *, sent: int) -> Accepted:
    """Read the answer to ``sent`` lines.

    Raises ProtocolError where its numbers do not account for each line exactly once.
    """
    document = reply.document()
    unread, refused = document.get("unreadFrom"), document.get("refused") or []
    if not isinstance(refused, list):
        raise ProtocolError(f"the answer's refused is no list: {reply.excerpt()}")
    answer = Accepted(
        accepted=_count(document, "accepted"),
        duplicate=_count(document, "duplicate"),
        refused=tuple(_refused(item) for item in refused),
        unread_from=sent if unread is None else _count(document, "unreadFrom"),
        unreached={reason: count for reason in UNREACHED if (count := _count(document, reason))},
        instance=str(document.get("instance") or ""),
    )
    numbers = {refused.line for refused in answer.refused}
    read = answer.accepted + answer.duplicate + len(numbers)
    good = len(numbers) == len(answer.refused) and all(n < answer.unread_from for n in numbers)
    if not good or answer.unread_from > sent or read != answer.unread_from:
        raise ProtocolError(f"the answer to {sent} lines does not add up: {reply.excerpt()}")
    return answer


def _count(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProtocolError(f"the answer's {key} is {value!r}, not a count")
    return value


def _refused(item: Any) -> Refused:
    if not isinstance(item, dict):
        raise ProtocolError(f"the answer's refused has {item!r}, not an object")
    return Refused(
        line=_count(item, "line"),
        status=_count(item, "status"),
        reason=str(item.get("reason") or ""),
        field=str(item.get("field") or ""),
        destination=str(item.get("destination") or ""),
    )


@dataclass(frozen=True, slots=True)
class Flushed:
    """How far a publisher's indications have come, over all destinations.

    ``discarded`` counts by (destination, reason), ``waiting`` what is pending by destination and,
    whatever theirs, what duplicates wait for.
    """

    complete: bool
    delivered: int
    discarded: Mapping[tuple[str, str], int]
    waiting: Mapping[str, int]


def read_flushed(reply: Reply) -> Flushed:
    """Read the answer to a flush. Raises ProtocolError where it is none."""
    document = reply.document()
    complete, destinations = document.get("complete"), document.get("destinations") or {}
    if not isinstance(complete, bool) or not isinstance(destinations, dict):
        raise ProtocolError(f"this is no answer to a flush: {reply.excerpt()}")
    delivered = 0
    discarded: dict[tuple[str, str], int] = {}
    waiting: dict[str, int] = {}
    for name, counts in destinations.items():
        reasons = counts.get("discarded") or {} if isinstance(counts, dict) else None
        if not isinstance(reasons, dict):
            raise ProtocolError(f"this is no answer to a flush: {reply.excerpt()}")
        delivered += _count(counts, "delivered")
        discarded |= {(name, reason): _count(reasons, reason) for reason in reasons}
        if pending := _count(counts, "pending"):
            waiting[name] = pending
    if originals := _count(document, "pendingOriginals"):
        waiting["originals of duplicates"] = originals
    discarded = {key: count for key, count in discarded.items() if count}
    return Flushed(complete, delivered, discarded, waiting)
