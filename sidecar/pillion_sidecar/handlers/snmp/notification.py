"""The values of pillionIndication (PILLION-MIB, ``docs/assets/PILLION-MIB.txt``).

No value can end a message or become another value, since each has its length in front. Control
characters are escaped, since receivers write lines.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.delivery.handler import Delivery
from pillion_sidecar.handlers.content import (
    content_of,
    data_parts,
    identifier_of,
    occurred,
    plain_properties,
    text_of,
)
from pillion_sidecar.handlers.snmp.ber import (
    COUNTER64,
    TIME_TICKS,
    integer,
    object_identifier,
    octets,
    sequence,
)
from pillion_sidecar.protocols.snmp import SNMPOptions

SYS_UP_TIME = "1.3.6.1.2.1.1.3.0"
SNMP_TRAP_OID = "1.3.6.1.6.3.1.1.4.1.0"
#: Below pillionMIB; objects are below 1.
NOTIFICATION = "0.1"
#: In the order of the MIB, which is that of a message.
OBJECTS = (
    "pillionIdentifier",
    "pillionClass",
    "pillionTime",
    "pillionSeverity",
    "pillionMessage",
    "pillionSystem",
    "pillionSource",
    "pillionService",
    "pillionFilter",
    "pillionProperties",
    "pillionTruncated",
)
#: Beyond those of the notification, if sequence identifiers are sent.
SEQUENCE_OBJECTS = ("pillionSequenceContext", "pillionSequenceNumber")
#: Bytes of texts but pillionMessage and pillionProperties (SnmpAdminString).
MOST_TEXT = 255
_TRUE, _FALSE = 1, 2
_MOST_SEVERITY = 7
_CENTISECONDS = 100
#: Bytes that the lengths of a longer value take more, in its value and around it.
_LENGTHS = 4


class NotificationFormat:
    """Makes the values for one destination."""

    def __init__(
        self, options: SNMPOptions, *, clock: Clock, service_name: str, overhead: int
    ) -> None:
        """``overhead``: bytes of a message around its values."""
        self._clock = clock
        self._started = clock.monotonic()
        self._service = service_name
        self._room = options.max_bytes - overhead
        names = (*OBJECTS, *SEQUENCE_OBJECTS)
        self._oids = {
            name: object_identifier(f"{options.oid}.1.{number}.0")
            for number, name in enumerate(names, start=1)
        }
        kind = object_identifier(f"{options.oid}.{NOTIFICATION}")
        self._up_time = object_identifier(SYS_UP_TIME)
        self._kind = sequence(object_identifier(SNMP_TRAP_OID), kind)

    def bindings(self, delivery: Delivery) -> bytes:
        """Raises ``UNSAYABLE`` if the body is no instance."""
        content = content_of(delivery.indication, delivery.selection)
        properties = plain_properties(b"".join(data_parts(content, delivery)))
        time = _date_and_time(occurred(content, delivery.indication, self._clock))
        fixed = {
            "pillionTime": octets(time),
            "pillionSeverity": integer(_severity(properties)),
            "pillionTruncated": integer(_FALSE),
        }
        number = delivery.sequence_number
        if delivery.sequence_context is not None and number is not None:
            fixed["pillionSequenceNumber"] = integer(number, tag=COUNTER64)
        up_time = int((self._clock.monotonic() - self._started) * _CENTISECONDS) % 2**32
        head = sequence(self._up_time, integer(up_time, tag=TIME_TICKS)) + self._kind
        identifier = identifier_of(content, delivery)
        texts = dict(self._texts(delivery, properties, identifier=identifier))
        names = [name for name in self._oids if name in fixed or name in texts]
        empty = {name: octets(b"") for name in texts}
        used = len(head) + len(self._joined(names, {**fixed, **empty}))
        values, is_cut = _fill(texts, properties, room=self._room - used)
        if is_cut:
            fixed["pillionTruncated"] = integer(_TRUE)
        return head + self._joined(names, {**fixed, **values})

    def _joined(self, names: list[str], values: Mapping[str, bytes]) -> bytes:
        return b"".join(sequence(self._oids[name], values[name]) for name in names)

    def _texts(
        self, delivery: Delivery, properties: Mapping[str, Any], *, identifier: str
    ) -> Iterator[tuple[str, str]]:
        """Texts by object, in the order in which they get room. Properties get the rest."""
        indication = delivery.indication
        system = properties.get("SystemName")
        yield "pillionIdentifier", identifier
        yield "pillionClass", indication.class_name
        yield "pillionSystem", system if isinstance(system, str) else ""
        yield "pillionSource", indication.source or ""
        yield "pillionService", self._service
        yield "pillionFilter", delivery.filter_name
        if delivery.sequence_context is not None and delivery.sequence_number is not None:
            yield "pillionSequenceContext", delivery.sequence_context
        yield "pillionMessage", text_of(indication, properties)
        yield "pillionProperties", ""


def _fill(
    texts: Mapping[str, str], properties: Mapping[str, Any], *, room: int
) -> tuple[dict[str, bytes], bool]:
    """Encode ``texts`` into so many bytes, and as many of ``properties`` as fit; return whether
    something was left out."""
    values, is_cut = {}, False
    for name, text in texts.items():
        most = max(0, room - _LENGTHS)
        if name == "pillionProperties":
            value, is_whole = _json(properties, most)
        else:
            limit = most if name == "pillionMessage" else min(most, MOST_TEXT)
            value, is_whole = _cut(text, limit)
        is_cut = is_cut or not is_whole
        values[name] = octets(value)
        room -= len(value) + _LENGTHS
    return values, is_cut


def _cut(text: str, most: int) -> tuple[bytes, bool]:
    value = escape_controls(text).encode(errors="replace")
    if len(value) <= most:
        return value, True
    # Not in the middle of a character.
    return value[:most].decode(errors="ignore").encode(), False


def _json(properties: Mapping[str, Any], most: int) -> tuple[bytes, bool]:
    """Those of ``properties`` that fit into so many bytes, as an object."""
    members, is_whole = [], True
    room = most - len("{}")
    for name, value in properties.items():
        member = f"{_dump(name)}:{_dump(value)}"
        size = len(member.encode()) + 1
        if size <= room:
            members.append(member)
            room -= size
        else:
            is_whole = False
    text = f"{{{','.join(members)}}}".encode()
    return (text, is_whole) if len(text) <= most else (b"", False)


def _dump(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return escape_controls(text).encode(errors="replace").decode()


def _severity(properties: Mapping[str, Any]) -> int:
    """PerceivedSeverity; 0 (unknown) if it is none."""
    stated = properties.get("PerceivedSeverity")
    is_severity = isinstance(stated, int) and 0 <= stated <= _MOST_SEVERITY
    return int(stated) if is_severity and stated is not None else 0


def _date_and_time(time: str) -> bytes:
    """DateAndTime (RFC 2579) of a time in RFC 3339."""
    moment = datetime.fromisoformat(time)
    offset = moment.utcoffset()
    minutes = 0 if offset is None else int(offset.total_seconds()) // 60
    hours, rest = divmod(abs(minutes), 60)
    return moment.year.to_bytes(2) + bytes(
        (
            moment.month,
            moment.day,
            moment.hour,
            moment.minute,
            moment.second,
            moment.microsecond // 100_000,
            ord("-" if minutes < 0 else "+"),
            hours,
            rest,
        )
    )
