"""Messages of indications (RFC 5322): a text for people, and a JSON attachment.

No value can end a header or begin another one: it is on one line before it comes into a header, and
``=?``, which begins an encoded word, is taken apart. All lines are 7-bit.
"""

import base64
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.header import Header
from email.utils import format_datetime
from typing import Any

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.delivery.handler import Delivery
from pillion_sidecar.handlers.file import render_line
from pillion_sidecar.handlers.filling import Filling, values_of, without_type
from pillion_sidecar.protocols.smtp import SMTPOptions
from pillion_sidecar.templates import parse_text

#: Maximum characters of a subject, of a property's name and value, and of an indication's text.
SUBJECT_LIMIT = 200
NAME_LIMIT = 100
VALUE_LIMIT = 800
TEXT_LIMIT = 4096
#: Bytes of a message for its header, with as many recipients as there may be, and its MIME parts.
HEADER_BYTES = 28 * 1024
FILE_NAME = "indications.json"
_BASE64_LINE = 76
_PLAIN = b'Content-Type: text/plain; charset="utf-8"\r\nContent-Transfer-Encoding: %b\r\n\r\n%b'
_ATTACHED = (
    b"Content-Type: application/json\r\n"
    b'Content-Disposition: attachment; filename="%b"\r\n'
    b"Content-Transfer-Encoding: base64\r\n\r\n"
) % FILE_NAME.encode()
#: Words of each indication, in order.
_WORDS = ("class", "severity", "time", "source", "filterName", "identifier", "sequenceNumber")
_RULE = "\n" + 72 * "-" + "\n\n"


class Item(msgspec.Struct, frozen=True, array_like=True):
    """The part of a message for one delivery."""

    #: Equal for a retry only.
    key: str
    subject: str
    text: str
    #: Empty if it is too long.
    instance: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Item).decode


class MessageFormat:
    """Makes the messages of one destination."""

    def __init__(self, options: SMTPOptions, *, uid: str, clock: Clock, service_name: str) -> None:
        """``uid``: the destination's. Raises TemplateError."""
        self._options = options
        self._subject = parse_text(options.subject)
        self._uid = uid
        self._clock = clock
        names = {*_WORDS, *self._subject.names}
        self._filling = Filling(names, service_name=service_name, clock=clock)
        #: Maximum bytes of the items of a message: base64 adds 37 %.
        self.most_bytes = (options.max_bytes - HEADER_BYTES) * 72 // 100

    def item(self, delivery: Delivery) -> bytes:
        """Return an item of :meth:`message`. Raises ``UNSAYABLE`` if the body is no instance."""
        values = values_of(delivery.indication, delivery.selection)
        words, properties = self._filling.of(values, delivery)
        subject = _decode_json(self._subject.fill(words, properties))
        subject = one_line(subject, SUBJECT_LIMIT).replace("=?", "= ?").strip()
        instance = render_line(delivery)[:-1]
        text = _text(words, values.properties)
        if len(instance) + 4 * TEXT_LIMIT > self.most_bytes:
            text += f"\nThe JSON of this indication, {len(instance)} bytes, is left out.\n"
            instance = b""
        key = json.dumps([words["identifier"], delivery.filter_name])
        return _encode(Item(key, subject, text, instance))

    def message(self, encoded: Sequence[bytes]) -> bytes:
        """Return the message for some items. Equal items have an equal Message-ID."""
        items = [_decode(one) for one in encoded]
        options = self._options
        subject = items[0].subject or "Indication"
        if len(items) > 1:
            subject = f"[{len(items)} indications] {subject}"
        # Nobody can guess it, so no text contains it.
        boundary = uuid.uuid4().hex
        headers = (
            ("From", options.sender),
            ("To", ",\r\n ".join(options.recipients)),
            ("Subject", _encoded_words(subject)),
            ("Date", format_datetime(datetime.fromtimestamp(int(self._clock.time()), UTC))),
            ("Message-ID", self._message_id(items)),
            # RFC 3834: nobody answers it automatically.
            ("Auto-Submitted", "auto-generated"),
            ("MIME-Version", "1.0"),
            ("Content-Type", f'multipart/mixed; boundary="{boundary}"'),
        )
        head = "".join(f"{name}: {value}\r\n" for name, value in headers).encode("ascii")
        parts = [_text_part(_RULE.join(item.text for item in items))]
        instances = [item.instance for item in items if item.instance]
        if instances:
            parts.append(_ATTACHED + _base64(b"[" + b",\n".join(instances) + b"]\n"))
        mark = boundary.encode()
        body = b"".join(b"\r\n--%b\r\n%b" % (mark, part) for part in parts)
        return b"%b%b\r\n--%b--\r\n" % (head, body, mark)

    def _message_id(self, items: Sequence[Item]) -> str:
        named = json.dumps([self._uid, *(item.key for item in items)])
        digest = hashlib.sha256(named.encode()).hexdigest()
        return f"<{digest[:40]}@{self._options.sender.rpartition('@')[2]}>"


def _encoded_words(subject: str) -> str:
    """RFC 2047."""
    if subject.isascii():
        return subject
    # Of email.policy, 200 characters would take 12 ms.
    return Header(subject, "utf-8", header_name="Subject").encode(linesep="\r\n")


def _text_part(text: str) -> bytes:
    encoded = text.encode()
    if text.isascii():
        return _PLAIN % (b"7bit", encoded.replace(b"\n", b"\r\n"))
    return _PLAIN % (b"base64", _base64(encoded))


def _base64(data: bytes) -> bytes:
    encoded = base64.b64encode(data)
    lines = range(0, len(encoded), _BASE64_LINE)
    return b"\r\n".join([encoded[start : start + _BASE64_LINE] for start in lines])


def _decode_json(text: bytes) -> str:
    decoded: str = msgspec.json.decode(text, type=str)
    return decoded


def _text(words: Mapping[str, object], properties: Mapping[str, Any]) -> str:
    text = ""
    for line in _lines(words, properties):
        if len(text) + len(line) >= TEXT_LIMIT:
            return f"{text}...\n"
        text += f"{line}\n"
    return text


def _lines(words: Mapping[str, object], properties: Mapping[str, Any]) -> Iterator[str]:
    for word in _WORDS:
        if words[word] is not None:
            yield f"{word}: {_shown(words[word])}"
    yield ""
    for name, value in properties.items():
        plain = without_type(value)
        if plain is not None:
            yield f"{one_line(name, NAME_LIMIT)}: {_shown(plain)}"


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return one_line(text, VALUE_LIMIT)
