"""Indications that arrive at a listener, and their reports."""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol
from urllib.parse import quote

from aiohttp import web

from pillion_cim.cimxml.request import ExportMethodError, ExportRequestError, parse_export_request
from pillion_cim.cimxml.response import (
    RESPONSE_HEADERS,
    render_export_error,
    render_export_response,
)
from pillion_cim.jsonform import encode_instance
from pillion_cim.schema import Schema
from pillion_cli.exits import CLIError
from pillion_cli.listener.sequence import Outcome, SequenceIdentifier, Verdict
from pillion_sidecar.config.problems import escape_controls

_SINT64 = range(-(2**63), 2**63)


class ArrivalError(CLIError, ValueError): ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One indication that has arrived. ``properties`` are in their JSON form."""

    class_name: str
    properties: Mapping[str, Any]
    #: ``CIM-XML`` or ``CloudEvents``.
    protocol: str
    path: str

    def text(self, name: str) -> str | None:
        value = self.value(name)
        return value if isinstance(value, str) else None

    def sequence(self) -> SequenceIdentifier | None:
        """Return None if either property is missing. Raises ArrivalError for another type."""
        context, number = self.value("SequenceContext"), self.value("SequenceNumber")
        if context is None or number is None:
            return None
        if isinstance(number, str) and number.isdecimal() and number.isascii() and len(number) < 20:
            number = int(number)
        if not isinstance(context, str):
            raise ArrivalError(f"SequenceContext is no string: {context!r:.80}")
        if not isinstance(number, int) or isinstance(number, bool) or number not in _SINT64:
            raise ArrivalError(f"SequenceNumber is no sint64: {number!r:.80}")
        return SequenceIdentifier(context, number)

    def value(self, name: str) -> Any:
        """A property's value without its stated type; None if there is none."""
        value = self.properties.get(name)
        if value is None:
            wanted = name.lower()
            found = (key for key in self.properties if key.lower() == wanted)
            value = self.properties.get(next(found, ""))
        # A value may state its type: {"type": "sint64", "value": 7}.
        return value.get("value") if isinstance(value, dict) and "type" in value else value


def read_cloud_events(body: bytes, *, is_batch: bool, path: str) -> list[Arrival]:
    """Read one event in structured mode (JSON), or a batch of them. Raises ArrivalError."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ArrivalError(f"the body is not JSON: {error}") from None
    if not is_batch:
        return [_read_event(document, path)]
    if not isinstance(document, list):
        raise ArrivalError("the body is no JSON array")
    return [_read_event(event, path) for event in document]


def _read_event(event: object, path: str) -> Arrival:
    if not isinstance(event, dict):
        raise ArrivalError("the CloudEvent is no JSON object")
    for attribute in ("specversion", "id", "source", "type"):
        if not isinstance(event.get(attribute), str) or not event[attribute]:
            raise ArrivalError(f"the CloudEvent has no {attribute}")
    if event["specversion"] != "1.0":
        raise ArrivalError(f"specversion is {event['specversion']!r:.40}, and only 1.0 is known")
    return read_document(event.get("data"), protocol="CloudEvents", path=path)


def read_document(document: object, *, protocol: str, path: str) -> Arrival:
    """Read ``{"class": …, "properties": {…}}``. Raises ArrivalError."""
    given = document if isinstance(document, dict) else {}
    class_name, properties = given.get("class"), given.get("properties")
    if not isinstance(class_name, str) or not isinstance(properties, dict):
        raise ArrivalError('the data is no indication, which is {"class": …, "properties": {…}}')
    return Arrival(class_name=class_name, properties=properties, protocol=protocol, path=path)


class ExportRefusedError(CLIError):
    """``answer`` is the response to the sender."""

    def __init__(self, answer: web.Response, detail: str) -> None:
        super().__init__(detail)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Export:
    message_id: str
    arrival: Arrival

    def success(self) -> web.Response:
        return _answer(render_export_response(self.message_id))

    def failure(self, code: int, description: str) -> web.Response:
        """A CIM error has HTTP status 200."""
        return _answer(render_export_error(self.message_id, code, description))


def read_export(headers: Mapping[str, str], body: bytes, *, schema: Schema, path: str) -> Export:
    """Raises ExportRefusedError or ArrivalError."""
    try:
        request = parse_export_request(headers, body, schema=schema)
    except ExportRequestError as error:
        raise ExportRefusedError(_http_failure(error), str(error)) from error
    except ExportMethodError as error:
        answer = _answer(render_export_error(error.message_id, error.code, error.description))
        raise ExportRefusedError(answer, str(error)) from error
    document = encode_instance(request.instance, schema=schema)
    return Export(request.message_id, read_document(document, protocol="CIM-XML", path=path))


def _http_failure(error: ExportRequestError) -> web.Response:
    # Encoded, since it may quote untrusted input.
    headers = {"CIMErrorDetails": quote(error.detail, safe=" ,.:;()'/=")}
    if error.cim_error is not None:
        headers["CIMError"] = error.cim_error
    return web.Response(status=error.status, headers=headers)


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, headers=dict(RESPONSE_HEADERS))


_SHOWN = 60
#: Characters shown of each part of a sequence context.
_PART = 9
_SHOWN_PROPERTIES = ("EventID", "PerceivedSeverity", "Message", "Description")
MOST_AT_ONCE = 10_000


@dataclass(slots=True)
class Summary:
    #: Each of these is then delivered, held, a duplicate or late.
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


class Reporter(Protocol):
    def started(self, url: str) -> None: ...

    def happened(self, outcome: Outcome[Arrival]) -> None: ...

    def answered(self, what: str, *, path: str) -> None: ...

    def ended(self, summary: Summary) -> None: ...


def outcome_as_json(outcome: Outcome[Arrival]) -> dict[str, Any]:
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
    """Prints a JSON object per outcome: first ``{"listening": URL}``, last ``{"summary": {…}}``."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write

    def started(self, url: str) -> None:
        self._line({"listening": url})

    def happened(self, outcome: Outcome[Arrival]) -> None:
        self._line(outcome_as_json(outcome))

    def answered(self, what: str, *, path: str) -> None:
        """Print nothing: each line is about an indication. The summary counts refused requests."""

    def ended(self, summary: Summary) -> None:
        self._line({"summary": asdict(summary)})

    def _line(self, line: dict[str, Any]) -> None:
        self._write(json.dumps(line) + "\n")


class TextReporter:
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
        counts = asdict(summary)
        self._write(", ".join(f"{name} {count}" for name, count in counts.items()) + "\n")


def short(context: str) -> str:
    """Cut each part of a deliverer's context (service#journal#destination#epoch)."""
    return "#".join(_cut(part, _PART) for part in context.split("#"))


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _plain(text: str, longest: int = _SHOWN) -> str:
    """Return untrusted text for a terminal: short, with control characters escaped."""
    return escape_controls(_cut(text, longest))


class Arrivals:
    """Keeps the last ``keep`` outcomes, indexed from 1."""

    def __init__(self, *, keep: int) -> None:
        self._kept: deque[bytes] = deque(maxlen=keep)
        self._last = 0

    def add(self, outcome: Outcome[Arrival]) -> None:
        self._last += 1
        if not self._kept.maxlen:
            return
        line = {"index": self._last, **outcome_as_json(outcome)}
        self._kept.append(json.dumps(line).encode() + b"\n")

    def after(self, index: int, *, limit: int = MOST_AT_ONCE) -> bytes:
        """At most ``limit`` outcomes after ``index``, as NDJSON."""
        first = self._last - len(self._kept)
        skipped = max(0, index - first)
        return b"".join(islice(self._kept, skipped, skipped + min(limit, MOST_AT_ONCE)))
