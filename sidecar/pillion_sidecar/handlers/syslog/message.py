"""Syslog messages of indications (RFC 5424), framed by octet counting (RFC 6587 3.4.1).

No value can end a message or begin another one: the length comes first, and control characters are
escaped or replaced.
"""

import json
import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.delivery.handler import Delivery
from pillion_sidecar.handlers.content import (
    content_of,
    data_parts,
    occurred,
    plain_properties,
    text_of,
)
from pillion_sidecar.indication import Indication
from pillion_sidecar.protocols.syslog import FACILITIES, SyslogMessage, SyslogOptions

#: PerceivedSeverity to severity, as RFC 5674 2 does for the severities of ITU: Critical is alert.
#: Nothing is emergency, which rsyslog writes to the terminals of all users.
SEVERITIES = {2: 6, 3: 4, 4: 3, 5: 2, 6: 1, 7: 1}
#: Notice: unknown, other or no severity.
OTHER_SEVERITY = 5
#: RFC 5424 6: maximum characters.
HOSTNAME_LIMIT = 255
MSGID_LIMIT = 32
NAME_LIMIT = 32
_NIL = "-"
_NOT_PRINTABLE_ASCII = re.compile(r"[^!-~]")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
#: The delivery's properties have parameters of their own.
_OF_THE_DELIVERY = frozenset(
    ("indicationidentifier", "indicationfiltername", "sequencecontext", "sequencenumber")
)


class MessageFormat:
    """Makes the messages of one destination."""

    def __init__(self, options: SyslogOptions, *, clock: Clock) -> None:
        self._facility = FACILITIES[options.facility]
        self._app_name = options.app_name
        self._id = options.structured_data_id
        self._is_json = options.message is SyslogMessage.JSON
        self._limit = options.max_bytes
        self._clock = clock
        self._host = socket.gethostname()

    def frame(self, delivery: Delivery) -> bytes:
        """Raises ``UNSAYABLE`` if the body is no instance."""
        indication = delivery.indication
        content = content_of(indication, delivery.selection)
        instance = b"".join(data_parts(content, delivery))
        properties = plain_properties(instance)
        head = (
            f"<{self._priority(properties)}>1",
            occurred(content, indication, self._clock),
            self._hostname(indication, properties),
            self._app_name,
            # PROCID
            _NIL,
            _ascii(indication.class_name, MSGID_LIMIT),
        )
        header = " ".join(head)
        data = self._structured_data(delivery, properties, room=self._limit - len(header) - 2)
        text = (
            escape_controls(instance.decode()) if self._is_json else text_of(indication, properties)
        )
        message = _cut(f"{header} {data} {text}".encode(), self._limit)
        return b"%d %b" % (len(message), message)

    def _priority(self, properties: Mapping[str, Any]) -> int:
        stated = properties.get("PerceivedSeverity")
        severity = SEVERITIES.get(stated, OTHER_SEVERITY) if isinstance(stated, int) else None
        return self._facility * 8 + (OTHER_SEVERITY if severity is None else severity)

    def _hostname(self, indication: Indication, properties: Mapping[str, Any]) -> str:
        """The system that the indication is about, its source, or the deliverer's host."""
        for name in (properties.get("SystemName"), indication.source, self._host):
            if isinstance(name, str) and name:
                return _ascii(name, HOSTNAME_LIMIT)
        return _NIL

    def _structured_data(
        self, delivery: Delivery, properties: Mapping[str, Any], *, room: int
    ) -> str:
        """``room``: maximum bytes; parameters that do not fit are left out."""
        language = delivery.indication.languages[:1]
        # RFC 5424 7.3.4 has room for one.
        meta = f'[meta language="{_value(language[0])}"]' if language else ""
        data = f"[{self._id}"
        room -= len(data) + len("]") + len(meta)
        for name, value in self._parameters(delivery, properties):
            parameter = f' {name}="{_value(value)}"'
            size = len(parameter) if parameter.isascii() else len(parameter.encode())
            if size <= room:
                room -= size
                data += parameter
        return f"{data}]{meta}"

    def _parameters(
        self, delivery: Delivery, properties: Mapping[str, Any]
    ) -> Iterator[tuple[str, object]]:
        indication = delivery.indication
        yield "class", indication.class_name
        if indication.identifier is not None:
            yield "identifier", indication.identifier
        yield "filter", delivery.filter_name
        if delivery.sequence_context is not None and delivery.sequence_number is not None:
            yield "context", delivery.sequence_context
            yield "sequence", delivery.sequence_number
        if self._is_json:
            return
        for name, value in properties.items():
            usable = len(name) <= NAME_LIMIT and _NAME.fullmatch(name) is not None
            if usable and value is not None and name.lower() not in _OF_THE_DELIVERY:
                yield name, value


def _cut(message: bytes, most: int) -> bytes:
    # Not in the middle of a character.
    return message if len(message) <= most else message[:most].decode(errors="ignore").encode()


def _ascii(text: str, most: int) -> str:
    return _NOT_PRINTABLE_ASCII.sub("_", text[:most])


def _value(value: object) -> str:
    """Escape a parameter's value (RFC 5424 6.3.3)."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    escaped = escape_controls(text).replace("\\", "\\\\")
    return escaped.replace('"', '\\"').replace("]", "\\]")
