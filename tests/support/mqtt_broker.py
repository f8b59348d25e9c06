"""An MQTT 5 broker of a test's own: CONNACK and acknowledgements, and bad days."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.syslog_listener import end_at_once

ACCEPTED = b"\x20\x03\x00\x00\x00"
#: An acknowledgement that names the packet's identifier.
PUBACK, PUBREC, PUBCOMP = b"\x40\x02ID", b"\x50\x02ID", b"\x70\x02ID"


def puback(reason: int, text: bytes = b"") -> bytes:
    """With a reason and, perhaps, a Reason String."""
    properties = b"\x1f" + len(text).to_bytes(2) + text if text else b""
    body = b"ID" + bytes([reason, len(properties)]) + properties
    return bytes([0x40, len(body)]) + body


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    topic: str
    qos: int
    retain: bool
    #: By identifier; of those that are numbers, the bytes.
    properties: dict[int, bytes]
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    name: str
    keep_alive: int
    username: bytes | None
    password: bytes | None


@dataclass(slots=True, eq=False)
class MQTTBroker:
    """Keeps what it receives. Attributes may change at any time."""

    connack: bytes = ACCEPTED
    #: For each message; ID is its identifier. None: no answer.
    answer: bytes | None = PUBACK
    url: str = ""
    clients: list[Client] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    #: Types of all other packets.
    others: list[int] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def hang_up(self) -> None:
        while self.writers:
            end_at_once(self.writers.pop())

    def say(self, data: bytes) -> None:
        self.writers[-1].write(data)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                kind = (await reader.readexactly(1))[0]
                self._took(kind, await reader.readexactly(await _length(reader)), writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            if writer in self.writers:
                self.writers.remove(writer)
            writer.close()

    def _took(self, kind: int, body: bytes, writer: asyncio.StreamWriter) -> None:
        match kind >> 4:
            case 1:
                self.clients.append(_client(body))
                writer.write(self.connack)
            case 3:
                message, identifier = _message(kind, body)
                self.messages.append(message)
                self.reached.set()
                if self.answer is not None and message.qos:
                    writer.write(self.answer.replace(b"ID", identifier))
            case 6:
                assert kind == 0x62
                writer.write(PUBCOMP.replace(b"ID", body[:2]))
            case 12 if self.answer is not None:
                writer.write(b"\xd0\x00")
            case other:
                self.others.append(other)


async def _length(reader: asyncio.StreamReader) -> int:
    value = 0
    for place in range(4):
        byte = (await reader.readexactly(1))[0]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return value


def _text(data: bytes) -> tuple[bytes, bytes]:
    """A text with its length before it, and what follows."""
    end = 2 + int.from_bytes(data[:2])
    assert len(data) >= end
    return data[2:end], data[end:]


def _client(body: bytes) -> Client:
    protocol, rest = _text(body)
    version, flags = rest[:2]
    assert (protocol, version, flags & 0x3F) == (b"MQTT", 5, 2)
    keep_alive = int.from_bytes(rest[2:4])
    assert rest[4] < 0x80
    name, rest = _text(rest[5 + rest[4] :])
    username = password = None
    if flags & 0x80:
        username, rest = _text(rest)
    if flags & 0x40:
        password, rest = _text(rest)
    assert rest == b""
    return Client(
        name=name.decode("ascii"), keep_alive=keep_alive, username=username, password=password
    )


def _message(kind: int, body: bytes) -> tuple[Message, bytes]:
    topic, rest = _text(body)
    qos, identifier = kind >> 1 & 3, b""
    if qos:
        identifier, rest = rest[:2], rest[2:]
        assert identifier != b"\0\0"
    size = rest[0]
    assert size < 0x80
    told, payload, properties = rest[1 : 1 + size], rest[1 + size :], dict[int, bytes]()
    while told:
        name, told = told[0], told[1:]
        if name == 3:
            properties[name], told = _text(told)
        else:
            length = {1: 1, 2: 4}[name]
            properties[name], told = told[:length], told[length:]
    message = Message(
        topic=topic.decode(),
        qos=qos,
        retain=bool(kind & 1),
        properties=properties,
        payload=payload,
    )
    return message, identifier


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None, **given: Any) -> AsyncIterator[MQTTBroker]:
    """Listen on a port of loopback while the context lasts."""
    made = MQTTBroker(**given)
    server = await asyncio.start_server(made.take, "127.0.0.1", 0, ssl=tls)
    scheme = "mqtt" if tls is None else "mqtts"
    made.url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        made.hang_up()
        await server.wait_closed()
        for _ in range(5):
            await asyncio.sleep(0)
