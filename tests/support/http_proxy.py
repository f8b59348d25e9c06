"""An HTTP proxy inside a test: tunnels and forwarded requests, with or without credentials."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

ACCOUNT = {"username": "pillion", "password": "planted-proxy-word"}


class HTTPProxy:
    def __init__(self, *, account: bool = False) -> None:
        self.url = ""
        #: The first lines and the heads of what was asked of it.
        self.asked: list[str] = []
        self.heads: list[bytes] = []
        #: The target of all tunnels; None: the one that a request names.
        self.leads_to: tuple[str, int] | None = None
        pair = f"{ACCOUNT['username']}:{ACCOUNT['password']}".encode()
        self._wanted = b"Proxy-Authorization: Basic " + base64.b64encode(pair) if account else b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        line = head.partition(b"\r\n")[0].decode("ascii")
        self.asked.append(line)
        if self._wanted not in head:
            writer.write(b"HTTP/1.1 407 X\r\nContent-Length: 0\r\n\r\n")
            return
        method, target, _ = line.split(" ")
        if method == "CONNECT":
            named, _, number = target.rpartition(":")
            place = self.leads_to or (named.strip("[]"), int(number))
        else:
            parts = urlsplit(target)
            place = self.leads_to or (str(parts.hostname), parts.port or 80)
        host, port = place
        try:
            # The system may not know a name with a dot at its end.
            there = await asyncio.open_connection(host.removesuffix("."), port)
        except OSError:
            writer.write(b"HTTP/1.1 502 X\r\nContent-Length: 0\r\n\r\n")
            return
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Established\r\n\r\n")
        else:
            there[1].write(head)
        try:
            await asyncio.gather(_pipe(reader, there[1]), _pipe(there[0], writer))
        finally:
            there[1].close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@asynccontextmanager
async def proxying(*, account: bool = False) -> AsyncIterator[HTTPProxy]:
    """A proxy on a port of loopback, which forwards one request for each connection, or a tunnel.
    ``account``: it wants ACCOUNT."""
    proxy = HTTPProxy(account=account)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await proxy.serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await server.wait_closed()
        for _ in range(10):
            await asyncio.sleep(0)
