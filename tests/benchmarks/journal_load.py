"""A publisher that sends one indication at a time at a steady rate, and waits for the delivery of
each; and what one fdatasync of a disk takes."""

import asyncio
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pillion_sidecar.journal.files import SystemFiles

#: Connections of the publisher: more than are ever waiting for an answer unless deliveries stall.
CONNECTIONS = 64


class Connection(asyncio.Protocol):
    """One connection: an indication at a time, the next one when the last is answered."""

    def __init__(self, host: str, idle: Callable[["Connection"], None]) -> None:
        self._head = (
            f"POST /v1/indications?source=steady&ack=delivered&timeout=30 HTTP/1.1\r\n"
            f"Host: {host}\r\nContent-Type: application/json\r\nContent-Length: "
        ).encode()
        self._idle = idle
        self._answer = b""
        self._began = 0.0
        self.delays: list[tuple[float, float]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, body: bytes, began: float) -> None:
        """Send one; its delay counts from ``began``."""
        self._began = began
        self._transport.write(self._head + b"%d\r\n\r\n" % len(body) + body)

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, content = self._answer.partition(b"\r\n\r\n")
        if not found:
            return
        if len(content) < int(head.lower().split(b"content-length: ")[1].split()[0]):
            return
        assert b" 200 " in head.partition(b"\r\n")[0], self._answer
        self.delays.append((self._began, time.perf_counter() - self._began))
        self._answer = b""
        self._idle(self)

    def close(self) -> None:
        self._transport.close()


class SteadyPublisher:
    """Publishes at a steady rate, whatever the answers do: what finds all connections waiting
    waits too, and that counts."""

    def __init__(self, url: str, alert: Callable[[int], bytes]) -> None:
        """``alert`` gives the indication of each number."""
        self._address = urlsplit(url).netloc
        self._alert = alert
        self._free: list[Connection] = []
        self._late: deque[tuple[bytes, float]] = deque()
        self._number = 0
        self._connections: list[Connection] = []
        self._answered = asyncio.Event()

    async def connect(self) -> None:
        """Open the connections."""
        loop = asyncio.get_running_loop()
        host, _, port = self._address.rpartition(":")
        for _ in range(CONNECTIONS):
            _, made = await loop.create_connection(
                lambda: Connection(self._address, self._become_idle), host, int(port)
            )
            self._connections.append(made)
        self._free = list(self._connections)

    async def publish(self, *, per_second: int, until: Callable[[float], bool]) -> None:
        """Publish until a condition of the seconds so far holds, and wait for all answers."""
        began = time.perf_counter()
        sent = 0
        while not until(now := time.perf_counter() - began):
            while sent < now * per_second:
                self._send(time.perf_counter())
                sent += 1
            await asyncio.sleep(1 / per_second)
        while self._late or len(self._free) < len(self._connections):
            self._answered.clear()
            await self._answered.wait()

    def delays(self) -> list[tuple[float, float]]:
        """When each was published (``time.perf_counter``) and how long its delivery took, in
        seconds; sorted by the first. Each is given once."""
        found = [one for connection in self._connections for one in connection.delays]
        for connection in self._connections:
            connection.delays.clear()
        return sorted(found)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()

    def _send(self, began: float) -> None:
        body = self._alert(self._number)
        self._number += 1
        if self._free:
            self._free.pop().send(body, began)
        else:
            self._late.append((body, began))

    def _become_idle(self, connection: Connection) -> None:
        if self._late:
            connection.send(*self._late.popleft())
        else:
            self._free.append(connection)
        self._answered.set()


def p99(delays: Sequence[float]) -> float:
    """The 99th percentile."""
    return sorted(delays)[int(len(delays) * 0.99)]


def fdatasync_seconds(folder: Path, *, size: int, times: int = 300) -> float:
    """The median time to write so many bytes into reserved room and to synchronise them."""
    files = SystemFiles(folder)
    file = files.create("bare")
    file.allocate(0, size * times)
    file.sync()
    data, taken = os.urandom(size), []
    for number in range(times):
        began = time.perf_counter()
        file.write(number * size, data)
        file.sync()
        taken.append(time.perf_counter() - began)
    file.close()
    files.remove("bare")
    return statistics.median(taken)
