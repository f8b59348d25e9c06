"""CloudEvents 1.0 whose data is an instance in its JSON form: structured, batched, or binary.

The event's ``source`` is the source, its ``id`` the IndicationIdentifier and its ``time`` the
IndicationTime, each where the instance has none of its own. So are the extension attributes of
``EXTENSIONS``, which give what a line gives beside its instance. CloudEvents has no number with a
fraction and no integer beyond 32 bits, and in binary mode text only: text will do for all of them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from pillion_cim.schema import Schema
from pillion_sidecar.intake.decoding import Decoded, InvalidLine, decode_object
from pillion_sidecar.intake.jsontext import parse_json

_REQUIRED = ("id", "source", "type")
_FLAGS = {"true": True, "false": False}
_INTEGER = re.compile(r"[0-9]{1,19}")
_DECIMAL = re.compile(r"[0-9]{1,19}(?:\.[0-9]{1,19})?")


def _integer(text: str) -> Any:
    return int(text) if _INTEGER.fullmatch(text) else text


def _decimal(text: str) -> Any:
    return float(text) if _DECIMAL.fullmatch(text) else text


def _flag(text: str) -> Any:
    return _FLAGS.get(text, text)


#: Extension attributes: the member of a line that each stands for, and how its text is read. Text
#: that is none of its kind is left for the line's own check to refuse.
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
    """Decode one CloudEvent in its JSON format. Raises :class:`InvalidLine`."""
    if not isinstance(event, dict):
        raise InvalidLine("not a CloudEvent: not an object")
    _check_attributes(event)
    data = event.get("data")
    if not isinstance(data, dict):
        raise InvalidLine(
            'data: not an object; give the instance, {"class": …, "properties": {…}}', field="data"
        )
    line = {"source": event["source"], **_extensions(event), **data}
    properties = line.get("properties")
    if isinstance(properties, dict):
        line["properties"] = _completed(properties, event)
    return decode_object(line, schema=schema)


def split_batch(body: bytes) -> list[bytes]:
    """Return the events of a batch as they are written. Raises :class:`InvalidLine`."""
    try:
        events = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidLine(f"not a batch of CloudEvents, a JSON array: {error}") from None
    return [bytes(event) for event in events]


def binary_event(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    """Return an event in binary content mode (``ce-`` headers) as one in the JSON format.

    Raises :class:`InvalidLine`.
    """
    event: dict[str, Any] = {
        name[3:].lower(): unquote(value)
        for name, value in headers.items()
        if name[:3].lower() == "ce-"
    }
    event["data"] = parse_json(body)
    return event


def _check_attributes(event: Mapping[str, Any]) -> None:
    version = event.get("specversion")
    if version != "1.0":
        raise InvalidLine(
            f'specversion: {str(version)[:20]!r}; this is CloudEvents "1.0"', field="specversion"
        )
    for name in _REQUIRED:
        value = event.get(name)
        if not isinstance(value, str) or not value:
            raise InvalidLine(
                f"{name}: a CloudEvent needs it, a text of at least one character", field=name
            )
    if "data_base64" in event:
        raise InvalidLine(
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
    # The types are stated, since a class that the schema does not know gives none.
    if "indicationidentifier" not in given:
        completed["IndicationIdentifier"] = {"type": "string", "value": event["id"]}
    if "indicationtime" not in given and "time" in event:
        completed["IndicationTime"] = {"type": "datetime", "value": event["time"]}
    return completed
