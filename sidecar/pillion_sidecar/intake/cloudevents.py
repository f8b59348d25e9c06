"""CloudEvents 1.0 with a CIM instance in JSON as data: structured, batched, or binary.

``source``, ``id`` and ``time`` are the source, IndicationIdentifier and IndicationTime where the
instance has none. ``EXTENSIONS`` replace the other members of a line. CloudEvents has no fractions
and no integers above 32 bits, and binary mode has only text, so text is accepted for all.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from pillion_cim.schema import Schema
from pillion_sidecar.intake.decoding import Decoded, LineError, decode_object, parse_json
from pillion_sidecar.trace_context import PARENT, STATE, read_trace

_REQUIRED = ("id", "source", "type")
_FLAGS = {"true": True, "false": False}
_INTEGER = re.compile(r"[0-9]{1,19}")
_DECIMAL = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,19})?")

_EVENT = (
    'write {"specversion": "1.0", "id": TEXT, "source": URI, "type": TEXT,'
    ' "data": {"class": NAME, "properties": {…}}}'
)
_DATA = 'send the data as one JSON object: {"class": NAME, "properties": {…}}'
_NO_BATCH = "not a batch of CloudEvents, a JSON array"
_SPACE = b" \t\r\n"
_OPENING = re.compile(rb"[ \t\r\n]*+\[[ \t\r\n]*+")
_CLOSING = re.compile(rb"\][ \t\r\n]*+\Z")
_BETWEEN = re.compile(rb"[ \t\r\n]*+(?P<comma>,[ \t\r\n]*+)?")
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALAR = re.compile(_STRING + rb'|[^ \t\r\n,\[\]{}"]++', re.DOTALL)
#: All before the next bracket outside a string.
_TO_BRACKET = re.compile(rb'[^"\[\]{}]*+(?:' + _STRING + rb'[^"\[\]{}]*+)*+', re.DOTALL)
#: Bytes at a batch's end that must contain the last bracket.
_TAIL = 1024
_BRACKETS_PER_TURN = 4096


def _integer(text: str) -> Any:
    return int(text) if _INTEGER.fullmatch(text) else text


def _decimal(text: str) -> Any:
    return float(text) if _DECIMAL.fullmatch(text) else text


def _flag(text: str) -> Any:
    return _FLAGS.get(text, text)


#: Extension attributes: the member of a line, and the conversion of text. Unconvertible text is
#: left for the line's check.
EXTENSIONS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "expirytime": ("expires", str),
    "group": ("group", str),
    "groupsequence": ("sequence", _integer),
    "grouplast": ("last", _flag),
    "groupordered": ("ordered", _flag),
    "groupexpires": ("groupExpires", str),
    "groupmaxidleseconds": ("groupMaxIdleSeconds", _decimal),
}


def decode_event(event: Any, *, schema: Schema) -> Decoded:
    """Decode a CloudEvent in JSON. Raises :class:`LineError`."""
    if not isinstance(event, dict):
        raise LineError("not a CloudEvent: not an object")
    _check_attributes(event)
    data = event.get("data")
    if not isinstance(data, dict):
        raise LineError(
            'data: not an object; give the instance, {"class": …, "properties": {…}}', field="data"
        )
    line = {"source": event["source"], **_extensions(event), **data}
    properties = line.get("properties")
    if isinstance(properties, dict):
        line["properties"] = _completed(properties, event)
    decoded = decode_object(line, schema=schema)
    trace = read_trace(event.get(PARENT), event.get(STATE))
    return decoded if trace is None else msgspec.structs.replace(decoded, trace=trace)


def split_batch(body: bytes) -> Iterator[tuple[int, int] | None]:
    """Yield begin and end of each event; now and then None, for the event loop.

    Nothing is decoded here: 16 MiB may hold eight million elements. Raises :class:`LineError` for
    what is between events, when it is reached.
    """
    opening = _OPENING.match(body)
    if opening is None or not body[-_TAIL:].rstrip(_SPACE).endswith(b"]"):
        wrong = "it does not begin with [" if opening is None else "it does not end with ]"
        raise LineError(f"{_NO_BATCH}: {wrong}")
    position, comma = opening.end(), False
    while body[position : position + 1] != b"]" or comma:
        start = position
        if body[position : position + 1] in (b"{", b"["):
            for end in _closings(body, position):
                if end < 0:
                    yield None
            position = end
        elif scalar := _SCALAR.match(body, position):
            position = scalar.end()
        else:
            raise LineError(f"{_NO_BATCH}: no event at byte {position}")
        yield start, position
        between = _BETWEEN.match(body, position)
        assert between is not None
        position, comma = between.end(), between["comma"] is not None
        if not comma and body[position : position + 1] != b"]":
            raise LineError(f"{_NO_BATCH}: no comma at byte {position}")
    if _CLOSING.match(body, position) is None:
        raise LineError(f"{_NO_BATCH}: more than an array at byte {position + 1}")


def _closings(body: bytes, position: int) -> Iterator[int]:
    """Yield -1 now and then, and last the end of the object or array at ``position``. Raises
    :class:`LineError`."""
    depth = brackets = 0
    while True:
        step = _TO_BRACKET.match(body, position)
        assert step is not None
        position = step.end() + 1
        match body[position - 1 : position]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
                if not depth:
                    yield position
                    return
            case _:
                raise LineError(f"{_NO_BATCH}: its last event has no end")
        brackets += 1
        if not brackets % _BRACKETS_PER_TURN:
            yield -1


def parse_event(text: bytes) -> Any:
    """Parse one event in structured mode. Raises :class:`LineError`."""
    return parse_json(text, where=" of the event", remedy=_EVENT)


def binary_event(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return a binary-mode event (``ce-`` headers) in the JSON format. Raises
    :class:`LineError`."""
    event: dict[str, Any] = {
        name[3:].lower(): unquote(value)
        for name, value in headers.items()
        if name[:3].lower() == "ce-"
    }
    event["data"] = parse_json(body, where=" of the data", remedy=_DATA)
    return event


def _check_attributes(event: Mapping[str, Any]) -> None:
    version = event.get("specversion")
    if version != "1.0":
        raise LineError(
            f'specversion: {str(version)[:20]!r}; this is CloudEvents "1.0"', field="specversion"
        )
    for name in _REQUIRED:
        value = event.get(name)
        if not isinstance(value, str) or not value:
            raise LineError(
                f"{name}: a CloudEvent needs it, a text of at least one character", field=name
            )
    if "data_base64" in event:
        raise LineError(
            "data_base64: the data is an instance in JSON; give it as data", field="data_base64"
        )


def _extensions(event: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, (member, read) in EXTENSIONS.items():
        value = event.get(name)
        if value is not None:
            found[member] = read(value) if isinstance(value, str) else value
    return found


def _completed(properties: dict[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
    given = {name.casefold() for name in properties}
    completed = dict(properties)
    # Types are stated, since an unknown class gives none.
    if "indicationidentifier" not in given:
        completed["IndicationIdentifier"] = {"type": "string", "value": event["id"]}
    if "indicationtime" not in given and "time" in event:
        completed["IndicationTime"] = {"type": "datetime", "value": event["time"]}
    return completed
