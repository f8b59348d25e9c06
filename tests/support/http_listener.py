"""A listener that does as its script says, and the sender that is set against it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.handlers.http.answers import USUAL, Reading
from pillion_sidecar.handlers.http.wire import http_wires
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.handlers.transport.connector import Connector
from pillion_sidecar.handlers.transport.exchange import Failure, Headers
from pillion_sidecar.handlers.transport.outgoing import OutgoingConnections
from pillion_sidecar.handlers.transport.sender import RECEIVE_BUFFER, PooledSender
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.testing import FakeTime

Answer = tuple[int, Headers, bytes]


def ok(body: bytes = b"ok") -> bytes:
    """A plain answer that keeps the connection."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def request(body: bytes = b"hello") -> bytes:
    """A plain request."""
    return b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Recorder:
    """An exchange that keeps what it is told, and must be told once."""

    def __init__(self, then: Callable[[], None] | None = None) -> None:
        self.future: asyncio.Future[Answer | Failure] = asyncio.get_running_loop().create_future()
        self._then = then

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        self.future.set_result((status, headers, body))
        if self._then is not None:
            self._then()

    def failed(self, failure: Failure) -> None:
        self.future.set_result(failure)

    async def answer(self) -> Answer:
        told = await self.future
        assert isinstance(told, tuple), told
        return told

    async def failure(self) -> Failure:
        told = await self.future
        assert isinstance(told, Failure), told
        return told


class Peer:
    """One connection, seen from the listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def request(self) -> tuple[bytes, bytes]:
        """Wait for a request: head and body."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return head, await self._reader.readexactly(length)

    async def some(self) -> bytes:
        """Wait for whatever comes first."""
        return await self._reader.read(65536)

    async def closed(self) -> None:
        """Wait until the sender has closed the connection."""
        try:
            await self._reader.read()
        except ConnectionError:
            return

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


Script = Callable[[Peer], Coroutine[Any, Any, None]]


class Listener:
    """What a test knows of its listener."""

    def __init__(self, port: int, tls: bool) -> None:
        self.port = port
        self.url = f"{'https' if tls else 'http'}://localhost:{port}/"
        self.connections = 0


@asynccontextmanager
async def listening(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Listener]:
    """Serve each connection with ``script`` on a port of loopback."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener.connections += 1
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(Peer(reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            pass
        finally:
            tasks.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    listener = Listener(server.sockets[0].getsockname()[1], tls is not None)
    try:
        yield listener
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await server.wait_closed()
        for _ in range(5):
            await asyncio.sleep(0)


@asynccontextmanager
async def sending(
    url: str,
    time: FakeTime,
    *,
    tls: ssl.SSLContext | None = None,
    seconds: float = 30.0,
    idle_seconds: float = 60.0,
    address_policy: AddressPolicy | None = None,
    nameservers: tuple[str, ...] = (),
    reading: Reading = USUAL,
    outgoing: OutgoingConnections | None = None,
) -> AsyncIterator[PooledSender]:
    """A sender to ``url`` on fake time."""
    resolver = Resolver(nameservers=nameservers)
    connector = Connector(
        target=parse_target(url),
        resolver=resolver,
        address_policy=address_policy or AddressPolicy(allow_loopback=True),
        tls=tls,
    )
    sender = PooledSender(
        connector=connector,
        clock=time,
        timers=time,
        new_wire=http_wires(memoryview(bytearray(RECEIVE_BUFFER)), reading),
        timeout=seconds,
        idle_seconds=idle_seconds,
        outgoing=outgoing,
    )
    try:
        yield sender
    finally:
        sender.close()
        await resolver.close()


async def send(sender: PooledSender, data: bytes | None = None) -> Recorder:
    """Send a request; returns at once with who hears of it."""
    recorder = Recorder()
    sender.send(request() if data is None else data, recorder)
    return recorder
