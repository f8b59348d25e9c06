"""What a listener reports: events, a summary, and over HTTP the last indications."""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol

from pillion_cli.listener.arrival import Arrival
from pillion_cli.listener.sequence import Outcome, Verdict
from pillion_sidecar.config.problems import escape_controls

#: Characters of a value that a line for people shows.
_SHOWN = 60
#: Characters shown of each part of a sequence context.
_PART = 9
_SHOWN_PROPERTIES = ("EventID", "PerceivedSeverity", "Message", "Description")
#: The most in one answer.
MOST_AT_ONCE = 10_000


@dataclass(slots=True)
class Summary:
    #: Indications taken; each is then delivered, held, a duplicate or late.
    received: int = 0
    delivered: int = 0
    duplicates: int = 0
    late: int = 0
    #: Held now.
    held: int = 0
    #: Gaps that were skipped, and the numbers in them.
    gaps: int = 0
    missing: int = 0
    #: Requests with an injected fault, and invalid requests.
    refused: int = 0
    wrong: int = 0

    def add(self, outcome: Outcome[Arrival]) -> None:
        match outcome.verdict:
            case Verdict.DELIVERED:
                self.delivered += 1
            case Verdict.DUPLICATE:
                self.duplicates += 1
            case Verdict.LATE:
                self.late += 1
            case Verdict.HELD:
                pass
        if outcome.missing:
            self.gaps += 1
            self.missing += outcome.missing

    def as_json(self) -> dict[str, int]:
        return asdict(self)


class Reporter(Protocol):
    def started(self, url: str) -> None: ...

    def happened(self, outcome: Outcome[Arrival]) -> None: ...

    def answered(self, what: str, *, path: str) -> None: ...

    def ended(self, summary: Summary) -> None: ...


def outcome_as_json(outcome: Outcome[Arrival]) -> dict[str, Any]:
    """Return the report of an indication for programs."""
    arrival, identifier = outcome.item, outcome.identifier
    return {
        "verdict": outcome.verdict,
        "reason": outcome.reason,
        "class": arrival.class_name,
        "identifier": arrival.text("IndicationIdentifier"),
        "context": identifier.context if identifier else None,
        "number": identifier.number if identifier else None,
        "missing": outcome.missing,
        "filter": arrival.text("IndicationFilterName"),
        "protocol": arrival.protocol,
        "path": arrival.path,
        "properties": dict(arrival.properties),
    }


class JSONReporter:
    """One JSON object a line; a line for each outcome of an indication, none for refused requests.

    The first line is ``{"listening": URL}``, the last ``{"summary": {…}}``.
    """

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def started(self, url: str) -> None:
        self._line({"listening": url})

    def happened(self, outcome: Outcome[Arrival]) -> None:
        self._line(outcome_as_json(outcome))

    def answered(self, what: str, *, path: str) -> None:
        """Nothing: each line is about an indication. The summary counts it."""

    def ended(self, summary: Summary) -> None:
        self._line({"summary": summary.as_json()})

    def _line(self, line: dict[str, Any]) -> None:
        self._write(json.dumps(line) + "\n")


class TextReporter:
    """Lines for people. The first is the URL alone."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def started(self, url: str) -> None:
        self._write(f"{url}\n")

    def happened(self, outcome: Outcome[Arrival]) -> None:
        if outcome.missing:
            self._write(f"{'gap':<10} {outcome.missing} missing, {outcome.reason}\n")
        arrival, identifier = outcome.item, outcome.identifier
        parts = [f"{outcome.verdict.value:<10}", _plain(arrival.class_name)]
        name = arrival.text("IndicationIdentifier")
        parts.append("(no identifier)" if name is None else _plain(name))
        if identifier is not None:
            parts.append(f"{_plain(short(identifier.context))} #{identifier.number}")
        for name in _SHOWN_PROPERTIES:
            if (value := arrival.value(name)) is not None:
                parts.append(f"{name}={_plain(json.dumps(value, ensure_ascii=False))}")
        if outcome.verdict is not Verdict.DELIVERED:
            parts.append(f"({outcome.reason})")
        self._write("  ".join(parts) + "\n")

    def answered(self, what: str, *, path: str) -> None:
        self._write(f"{'answered':<10} {_plain(what, 200)}  {_plain(path)}\n")

    def ended(self, summary: Summary) -> None:
        counts = summary.as_json()
        self._write(", ".join(f"{name} {count}" for name, count in counts.items()) + "\n")


def short(context: str) -> str:
    """Cut each part of a deliverer's context (service#journal#destination#epoch) to its beginning;
    JSON output has the whole."""
    return "#".join(_cut(part, _PART) for part in context.split("#"))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _plain(text: str, longest: int = _SHOWN) -> str:
    """A text of a stranger for a terminal: short, its control characters escaped."""
    return escape_controls(_cut(text, longest))


class Arrivals:
    """Keeps the last ``keep`` outcomes, each under an index that counts from 1."""

    def __init__(self, *, keep: int) -> None:
        self._kept: deque[bytes] = deque(maxlen=keep)
        self._last = 0

    def add(self, outcome: Outcome[Arrival]) -> None:
        """Keep one; the oldest goes where there are too many."""
        self._last += 1
        if not self._kept.maxlen:
            return
        line = {"index": self._last, **outcome_as_json(outcome)}
        self._kept.append(json.dumps(line).encode() + b"\n")

    def after(self, index: int, *, limit: int = MOST_AT_ONCE) -> bytes:
        """A JSON object a line: those after ``index`` that are still kept, at most ``limit``."""
        first = self._last - len(self._kept)
        skipped = max(0, index - first)
        return b"".join(islice(self._kept, skipped, skipped + min(limit, MOST_AT_ONCE)))
