"""What publishes to peers that take syslog: lines of one connection, which nobody acknowledges."""

import socket
from collections.abc import Sequence

from benchmarks.peers.events import Event


class SyslogSender:
    """Taken is what the kernel has taken."""

    batch = 100

    def __init__(self, address: str) -> None:
        self._port = int(address)
        self._connection: socket.socket | None = None

    async def send(self, events: Sequence[Event]) -> None:
        if self._connection is None:
            self._connection = socket.create_connection(("127.0.0.1", self._port), timeout=10)
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection.sendall(b"".join(map(_line, events)))

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _line(one: Event) -> bytes:
    head = b"<13>1 2026-01-01T00:00:00Z bench %b - - - " % one.listener.encode()
    return head + one.body + b"\n"
