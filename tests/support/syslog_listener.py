"""A syslog listener of a test's own: frames by octet counting (RFC 6587), and messages taken
apart."""

import asyncio
import os
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

_MESSAGE = re.compile(
    r"<(?P<priority>[0-9]{1,3})>1 (?P<time>[!-~]+) (?P<host>[!-~]{1,255}) (?P<app>[!-~]{1,48})"
    r" (?P<process>[!-~]{1,128}) (?P<id>[!-~]{1,32})"
    r' (?P<data>(\[[!-<>-Z^-~]{1,32}( [!-<>-Z^-~]{1,32}="([^"\\\]]|\\.)*")*\])+) (?P<text>.*)',
    re.DOTALL,
)
_ELEMENT = re.compile(r'\[([!-<>-Z^-~]{1,32})((?: [!-<>-Z^-~]{1,32}="(?:[^"\\\]]|\\.)*")*)\]')
_PARAMETER = re.compile(r' ([!-<>-Z^-~]{1,32})="((?:[^"\\\]]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    facility: int
    severity: int
    time: str
    host: str
    app: str
    id: str
    #: SD-ELEMENTs by ID, with their parameters.
    data: dict[str, dict[str, str]]
    text: str


def message(raw: bytes) -> Message:
    """Take a message apart; nothing of it may be outside RFC 5424's grammar."""
    found = _MESSAGE.fullmatch(raw.decode())
    assert found is not None, raw
    facility, severity = divmod(int(found["priority"]), 8)
    elements = {
        name: {one: re.sub(r"\\(.)", r"\1", value) for one, value in _PARAMETER.findall(given)}
        for name, given in _ELEMENT.findall(found["data"])
    }
    return Message(
        facility=facility,
        severity=severity,
        time=found["time"],
        host=found["host"],
        app=found["app"],
        id=found["id"],
        data=elements,
        text=found["text"],
    )


def frames(data: bytes) -> list[bytes]:
    """Take whole frames apart."""
    found = []
    while data:
        length, _, rest = data.partition(b" ")
        assert length.isdigit(), data[:40]
        found.append(rest[: int(length)])
        assert len(found[-1]) == int(length), data[:40]
        data = rest[int(length) :]
    return found


def end_at_once(writer: asyncio.StreamWriter) -> None:
    """End a connection before the event loop's next turn."""
    descriptor = writer.get_extra_info("socket").fileno()
    if descriptor >= 0:
        with socket.socket(fileno=os.dup(descriptor)) as same, suppress(OSError):
            same.shutdown(socket.SHUT_WR)
    writer.close()


class SyslogListener:
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.messages: list[Message] = []
        self.raw: list[bytes] = []
        self._writers: list[asyncio.StreamWriter] = []

    def hang_up(self) -> None:
        """End all connections at once, before the event loop's next turn."""
        while self._writers:
            end_at_once(self._writers.pop())

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while length := await reader.readuntil(b" "):
                raw = await reader.readexactly(int(length))
                self.raw.append(raw)
                self.messages.append(message(raw))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            if writer in self._writers:
                self._writers.remove(writer)
            writer.close()


@asynccontextmanager
async def listening(tls: ssl.SSLContext | None = None) -> AsyncIterator[SyslogListener]:
    """Listen on a port of loopback while the context lasts."""
    listener = SyslogListener()
    server = await asyncio.start_server(
        listener.take, "127.0.0.1", 0, ssl=tls, limit=64 * 1024 * 1024
    )
    scheme = "syslog" if tls is None else "syslogs"
    listener.url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield listener
    finally:
        server.close()
        listener.hang_up()
        await server.wait_closed()
        for _ in range(5):
            await asyncio.sleep(0)
