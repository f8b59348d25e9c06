"""The packets of MQTT 5 that a publisher needs (OASIS Standard, 7 March 2019)."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from pillion_sidecar.handlers.broker.wire import BrokerError

#: Types of packets.
CONNACK, PUBACK, PUBREC, PUBCOMP, PINGRESP, DISCONNECT = 2, 4, 5, 7, 13, 14
PINGREQ = b"\xc0\x00"
NORMAL_DISCONNECTION = b"\xe0\x00"
#: Maximum bytes of a packet that is received: only acknowledgements are expected.
PACKET_LIMIT = 64 * 1024
# Bytes of a remaining length.
_LONGEST_LENGTH = 4
_CONTINUES = 0x80

#: Identifiers of properties.
EXPIRY, FORMAT, CONTENT_TYPE = 0x02, 0x01, 0x03
REASON_STRING, SERVER_KEEP_ALIVE = 0x1F, 0x13
MOST_QOS, RETAIN_AVAILABLE, MOST_PACKET_BYTES = 0x24, 0x25, 0x27
#: Bytes of a number by the identifier.
_NUMBERS = {
    **dict.fromkeys((0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A), 1),
    **dict.fromkeys((0x13, 0x21, 0x22, 0x23), 2),
    **dict.fromkeys((0x02, 0x11, 0x18, 0x27), 4),
}
#: Number of texts by the identifier.
_TEXTS = {**dict.fromkeys((0x03, 0x08, 0x09, 0x12, 0x15, 0x16, 0x1A, 0x1C, 0x1F), 1), 0x26: 2}
Properties: TypeAlias = Mapping[int, int | bytes]


class Packet(NamedTuple):
    type: int
    #: After the fixed header.
    body: bytes


class Answer(NamedTuple):
    """The body of PUBACK, PUBREC, PUBCOMP or DISCONNECT."""

    #: 0 in DISCONNECT.
    number: int
    reason: int
    #: The Reason String, or empty.
    text: bytes


def text(value: bytes) -> bytes:
    """With its length."""
    return len(value).to_bytes(2) + value


def length(value: int) -> bytes:
    """A variable byte integer."""
    encoded = bytearray()
    while value >= _CONTINUES:
        encoded.append(value % _CONTINUES | _CONTINUES)
        value //= _CONTINUES
    encoded.append(value)
    return bytes(encoded)


def connect(
    *,
    client: bytes,
    keep_alive: int,
    username: bytes | None,
    password: bytes | None,
) -> bytes:
    """``keep_alive``: seconds."""
    # Clean start.
    flags = 0x02 | (username is not None) << 7 | (password is not None) << 6
    limit = bytes([MOST_PACKET_BYTES]) + PACKET_LIMIT.to_bytes(4)
    head = text(b"MQTT") + bytes([5, flags]) + keep_alive.to_bytes(2) + length(len(limit)) + limit
    payload = b"".join(text(one) for one in (client, username, password) if one is not None)
    return b"\x10" + length(len(head) + len(payload)) + head + payload


def publish(
    payload: bytes, *, topic: bytes, qos: int, retain: bool, number: int, properties: bytes
) -> bytes:
    """``number``: the packet identifier, which QoS 0 has not."""
    identifier = number.to_bytes(2) if qos else b""
    head = text(topic) + identifier + length(len(properties)) + properties
    kind = 0x30 | qos << 1 | retain
    return b"%c%b%b%b" % (kind, length(len(head) + len(payload)), head, payload)


def release(number: int) -> bytes:
    """PUBREL."""
    return b"\x62\x02" + number.to_bytes(2)


def message_properties(content_type: bytes, expiry_seconds: int | None) -> bytes:
    """Of a message that is UTF-8."""
    properties = bytes([FORMAT, 1, CONTENT_TYPE]) + text(content_type)
    if expiry_seconds is not None:
        properties += bytes([EXPIRY]) + expiry_seconds.to_bytes(4)
    return properties


class Reader:
    """Takes what is received apart."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Raises BrokerError."""
        self._buffer += data
        while (packet := self._next()) is not None:
            yield packet

    def _next(self) -> Packet | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, begin = _length(buffer[: 1 + _LONGEST_LENGTH], 1)
        if size is None:
            return None
        if size > PACKET_LIMIT:
            raise BrokerError(f"the broker's packet is longer than {PACKET_LIMIT} bytes")
        end = begin + size
        if len(buffer) < end:
            return None
        self._buffer = buffer[end:]
        return Packet(buffer[0] >> 4, buffer[begin:end])


def read_connack(body: bytes) -> tuple[int, Properties]:
    """The reason, and the properties. Raises BrokerError."""
    if len(body) == 2 and body[1]:
        # Of an earlier version, as an earlier version's broker answers.
        return body[1], {}
    if len(body) < 3:
        raise BrokerError("the broker's CONNACK is not complete")
    return body[1], _properties(body[2:])


def read_answer(packet: Packet) -> Answer:
    """Raises BrokerError."""
    number, body = 0, packet.body
    if packet.type != DISCONNECT:
        if len(body) < 2:
            raise BrokerError("the broker's acknowledgement is not complete")
        number, body = int.from_bytes(body[:2]), body[2:]
    said = _properties(body[1:]).get(REASON_STRING, b"") if len(body) > 1 else b""
    return Answer(number, body[0] if body else 0, said if isinstance(said, bytes) else b"")


def _properties(data: bytes) -> Properties:
    """Of several with one identifier, the last."""
    size, at = _length(data, 0)
    if size is None or at + size > len(data):
        raise BrokerError("the broker's properties are not complete")
    end, found = at + size, dict[int, int | bytes]()
    while at < end:
        identifier = data[at]
        found[identifier], at = _value(identifier, data[:end], at + 1)
    return found


def _value(identifier: int, data: bytes, at: int) -> tuple[int | bytes, int]:
    value: int | bytes = 0
    if identifier in _NUMBERS:
        at, begin = at + _NUMBERS[identifier], at
        value = int.from_bytes(data[begin:at])
    elif identifier in _TEXTS:
        for _ in range(_TEXTS[identifier]):
            begin = at + 2
            at = begin + int.from_bytes(data[at:begin])
            value = data[begin:at]
    else:
        raise BrokerError(f"the broker sends an unknown property 0x{identifier:02x}")
    if at > len(data):
        raise BrokerError("the broker's properties are not complete")
    return value, at


def _length(data: bytes, at: int) -> tuple[int | None, int]:
    """A variable byte integer, None if it is not complete, and where it ends."""
    value = 0
    for place in range(_LONGEST_LENGTH):
        if at >= len(data):
            return None, at
        byte = data[at]
        at += 1
        value |= byte % _CONTINUES << 7 * place
        if byte < _CONTINUES:
            return value, at
    raise BrokerError("the peer does not speak MQTT")
