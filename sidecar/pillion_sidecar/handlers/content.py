"""An indication as JSON: its instance with the properties that a delivery sets, its identifier and
its time. Usual instances are spliced from bytes; one with a property that a delivery sets is
decoded and encoded again."""

import json
import re
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

import msgspec

from pillion_cim.datetimes import to_rfc3339
from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.delivery.handler import Delivery
from pillion_sidecar.indication import Indication, Selection

#: Raised by a body that is no instance, or has a value that JSON cannot express.
UNSAYABLE = (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
)
_FORM = "JSON"
_RANDOM_ID = "random id"
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder().decode
_OPENING_BRACE = ord("{")

_SPLICED_NAMES = frozenset(
    ("indicationfiltername", "sequencecontext", "sequencenumber", "correlatedindications")
)
#: A spliced name in quotes; names are case-insensitive. Its first letter tells most quotes apart.
_SPLICED = re.compile(
    rb'"[iIsScC](?i:ndicationfiltername|equence(?:context|number)|orrelatedindications)"'
)
_CANONICAL = re.compile(rb'\{"class": ?"[^"\\]*", ?"properties": ?\{')


class _Times(msgspec.Struct):
    time: Any = msgspec.field(name="IndicationTime", default=None)


class _Glance(msgspec.Struct):
    """All that is read of a spliceable body; msgspec skips the rest."""

    properties: _Times


_glance = msgspec.json.Decoder(_Glance)


class Content(msgspec.Struct, kw_only=True, eq=False):
    """The part of an indication's JSON that its deliveries share."""

    #: The instance without the spliced properties: ``{"class":…,"properties":{…}}``.
    body: bytes
    identifier: str | None
    #: As published.
    correlated: list[Any] | None
    #: IndicationTime in RFC 3339, if it is a point in time.
    time: str | None
    #: RFC 3339; see :func:`occurred`.
    accepted: str | None = None


def content_of(indication: Indication, selection: Selection | None) -> Content:
    """Kept. Raises as :func:`read_content` does."""
    return indication.form(_FORM, selection, partial(read_content, indication))


def read_content(indication: Indication, body: bytes) -> Content:
    """``body`` has the properties to deliver. Raises ValueError, TypeError, KeyError or
    AttributeError if it is not the JSON form of an instance."""
    correlated = None
    if (
        _SPLICED.search(body) is not None
        # An escape might hide one of the names.
        or (b"\\" in body and b"\\u" in body)
        or _CANONICAL.match(body) is None
        or not body.endswith(b"}}")
    ):
        body, correlated = _without_spliced(body)
    time = (
        point_in_time(_glance.decode(body).properties.time) if b"IndicationTime" in body else None
    )
    return Content(body=body, identifier=indication.identifier, correlated=correlated, time=time)


def _without_spliced(body: bytes) -> tuple[bytes, list[Any] | None]:
    """Return the canonical body without the properties that a delivery sets, and
    CorrelatedIndications, if any."""
    instance = json.loads(body)
    properties, correlated = split(instance)
    return _encode({"class": instance["class"], "properties": properties}), correlated


def split(instance: Any) -> tuple[dict[str, Any], list[Any] | None]:
    """Return the properties without those that a delivery sets, and CorrelatedIndications, if any.
    Raises TypeError, KeyError or AttributeError if it is no instance."""
    correlated = None
    properties = {}
    for name, value in instance["properties"].items():
        lowered = name.lower()
        if lowered == "correlatedindications":
            stated = value.get("value") if isinstance(value, dict) else value
            correlated = stated if isinstance(stated, list) else None
        elif lowered not in _SPLICED_NAMES:
            properties[name] = value
    return properties, correlated


def point_in_time(value: object) -> str | None:
    """Convert IndicationTime to RFC 3339; None for an interval or wildcards."""
    text = value.get("value") if isinstance(value, dict) else value
    if not isinstance(text, str):
        return None
    # The JSON form also accepts RFC 3339.
    return to_rfc3339(text) or _in_utc(text)


def _in_utc(text: str) -> str | None:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return None
        return _zulu(moment.astimezone(UTC))
    except (ValueError, OverflowError):
        return None


def identifier_of(content: Content, delivery: Delivery) -> str:
    """IndicationIdentifier, else ``SequenceContext#SequenceNumber``, else a random one, which
    retries keep."""
    if content.identifier is not None:
        return content.identifier
    if delivery.sequence_context is None:
        return _random_id(delivery.indication)
    return f"{delivery.sequence_context}#{delivery.sequence_number}"


def _random_id(indication: Indication) -> str:
    """Kept with the indication, so that a retry has the same one, whatever properties it has."""
    rendered = indication.rendered
    if rendered is None:
        rendered = indication.rendered = {}
    kept = rendered.get(_RANDOM_ID)
    if not isinstance(kept, str):
        kept = rendered[_RANDOM_ID] = str(uuid.uuid4())
    return kept


def data_parts(content: Content, delivery: Delivery) -> list[bytes]:
    """The instance with the properties that the delivery sets, to be joined."""
    context, number = delivery.sequence_context, delivery.sequence_number
    body = content.body
    # Further properties can follow before the two closing braces.
    parts = [body[:-2]]
    if body[-3] != _OPENING_BRACE:
        parts.append(b",")
    if context is None or number is None:
        parts += (b'"IndicationFilterName":', _encode(delivery.filter_name))
    else:
        parts.append(b"%b%d" % (_until_number(delivery.filter_name, context), number))
    correlated = content.correlated
    if delivery.correlated:
        correlated = [*(correlated or ()), delivery.indication.identifier]
    if correlated is not None:
        parts += (b',"CorrelatedIndications":', _encode(correlated))
    parts.append(b"}}")
    return parts


# A few for each destination.
@lru_cache(maxsize=4096)
def _until_number(filter_name: str, context: str) -> bytes:
    """The properties that a delivery sets, up to the value of SequenceNumber."""
    values = _encode(filter_name), _encode(context)
    return b'"IndicationFilterName":%b,"SequenceContext":%b,"SequenceNumber":' % values


def plain_properties(instance: bytes) -> dict[str, Any]:
    """The values by name of an instance in JSON, without their stated types."""
    properties = _decode(instance)["properties"]
    return {
        name: value["value"] if isinstance(value, dict) and "value" in value else value
        for name, value in properties.items()
    }


def text_of(indication: Indication, properties: Mapping[str, Any]) -> str:
    """One line for people: Message, Description, or else the class."""
    for name in ("Message", "Description"):
        text = properties.get(name)
        if isinstance(text, str) and text.strip():
            return one_line(text, len(text))
    return indication.class_name


def occurred(content: Content, indication: Indication, clock: Clock) -> str:
    """IndicationTime in RFC 3339, else the time of acceptance."""
    if content.time is not None:
        return content.time
    if content.accepted is None:
        # Kept, so that a retry has the same one.
        age = clock.monotonic() - indication.accepted_at
        content.accepted = rfc3339(clock.time() - age)
    return content.accepted


def rfc3339(seconds: float) -> str:
    """``seconds``: since the epoch."""
    return _zulu(datetime.fromtimestamp(int(seconds), UTC))


def _zulu(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
