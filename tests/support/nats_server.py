"""A NATS server of a test's own: INFO, CONNECT, SUB, HPUB and acknowledgements, and bad days."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from support.syslog_listener import end_at_once

INFO = {"server_id": "test", "version": "2.11.0", "headers": True, "max_payload": 4 * 1024 * 1024}
STORED = {"stream": "alerts", "seq": 1}


@dataclass(frozen=True, slots=True)
class Message:
    subject: str
    headers: dict[str, str]
    payload: bytes


Script: TypeAlias = Callable[[Message], Awaitable[bytes]]


@dataclass(slots=True, eq=False)
class NATSServer:
    """Keeps what it receives. Attributes may change at any time."""

    info: dict[str, Any] = field(default_factory=lambda: dict(INFO))
    #: After INFO, at once.
    injected: bytes = b""
    #: After CONNECT, instead of PONG.
    refusal: bytes = b""
    #: For each message: JSON, or what is sent as it is; None: no answer.
    answer: dict[str, Any] | bytes | None = field(default_factory=lambda: dict(STORED))
    #: For each message instead of ``answer``: what is sent, with REPLY for the subject.
    script: Script | None = None
    url: str = ""
    connections: int = 0
    logins: list[dict[str, Any]] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    def hang_up(self) -> None:
        while self.writers:
            end_at_once(self.writers.pop())

    def say(self, data: bytes) -> None:
        self.writers[-1].write(data)

    async def take(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``tls``: for the handshake after INFO."""
        self.connections += 1
        self.writers.append(writer)
        writer.write(b"INFO %b\r\n" % json.dumps(self.info).encode() + self.injected)
        try:
            if tls is not None:
                await writer.start_tls(tls)
            while line := await reader.readuntil(b"\r\n"):
                await self._took(line.split(), reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            if writer in self.writers:
                self.writers.remove(writer)
            writer.close()

    async def _took(
        self, words: list[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        match words:
            case [b"CONNECT", *rest]:
                self.logins.append(json.loads(b" ".join(rest)))
                writer.write(self.refusal)
            case [b"PING"] if not self.refusal and self.answer is not None:
                writer.write(b"PONG\r\n")
            case [b"PING"] if not self.refusal and not self.messages:
                # Of the login.
                writer.write(b"PONG\r\n")
            case [b"HPUB", subject, *reply, head, size]:
                data = await reader.readexactly(int(size) + 2)
                assert data.endswith(b"\r\n")
                self.messages.append(_message(subject, data[:-2], int(head)))
                self.reached.set()
                if self.script is not None:
                    self.answer = await self.script(self.messages[-1])
                if reply:
                    self._acknowledge(reply[0], writer)
            case [b"SUB", *_] | [b"PONG"] | [b"PING"]:
                pass
            case _:
                raise AssertionError(words)

    def _acknowledge(self, reply: bytes, writer: asyncio.StreamWriter) -> None:
        if isinstance(self.answer, bytes):
            writer.write(self.answer.replace(b"REPLY", reply))
        elif self.answer is not None:
            payload = json.dumps(self.answer).encode()
            writer.write(b"MSG %b 1 %d\r\n%b\r\n" % (reply, len(payload), payload))


def _message(subject: bytes, data: bytes, head: int) -> Message:
    version, *lines = data[:head].decode("ascii").removesuffix("\r\n\r\n").split("\r\n")
    assert version == "NATS/1.0"
    headers = dict(line.split(": ", 1) for line in lines)
    return Message(subject.decode("ascii"), headers, data[head:])


@asynccontextmanager
async def listening(
    tls: ssl.SSLContext | None = None, *, tls_first: bool = False, **given: Any
) -> AsyncIterator[NATSServer]:
    """Listen on a port of loopback while the context lasts."""
    made = NATSServer(**given)
    if tls is not None:
        made.info["tls_required"] = True

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made.take(reader, writer, None if tls_first else tls)

    context = tls if tls_first else None
    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=context, limit=64 * 1024 * 1024)
    scheme = "nats" if tls is None else "tls"
    made.url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        made.hang_up()
        await server.wait_closed()
        for _ in range(5):
            await asyncio.sleep(0)
