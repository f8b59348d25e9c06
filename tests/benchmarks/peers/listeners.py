"""The listeners of all peers: one process that answers at once, and notes what arrived when.

Each listener has a port of its own. A hung one accepts, reads, and never answers. All run without
asyncio, so that they limit no peer.
"""

import argparse
import json
import os
import select
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.events import read_mark

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"


class Arrival(NamedTuple):
    #: The place of the listener.
    listener: int
    number: int
    #: Nanoseconds of the monotonic clock, which all processes share.
    sent: int
    arrived: int


# ---------------------------------------------------------------------- their process


class Connection:
    """One connection of a peer."""

    def __init__(self, accepted: socket.socket, listener: int, *, hung: bool) -> None:
        self.socket = accepted
        self._listener = listener
        self._hung = hung
        self._received = b""

    def read(self, arrivals: "array[int]") -> bool:
        """Take what came; False: the peer has closed."""
        try:
            data = self.socket.recv(1 << 18)
            if not data:
                return False
            if not self._hung:
                self._received += data
                while (body := self._request()) is not None:
                    mark = read_mark(body)
                    if mark is not None:
                        arrivals.extend((self._listener, *mark, time.monotonic_ns()))
                    self.socket.sendall(_ANSWER)
        except ConnectionError:
            return False
        return True

    def _request(self) -> bytes | None:
        """The body of the next request that is here as a whole."""
        end = self._received.find(_HEAD_END)
        if end < 0:
            return None
        head = self._received[:end].lower()
        at = head.find(_LENGTH)
        length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        end += len(_HEAD_END)
        if len(self._received) < end + length:
            return None
        body = self._received[end : end + length]
        self._received = self._received[end + length :]
        return body


class Server:
    def __init__(self, healthy: int, hung: int) -> None:
        self._poll = select.epoll()
        self._arrivals: array[int] = array("q")
        self._connections: dict[int, Connection] = {}
        self._servers = [
            socket.create_server(("127.0.0.1", 0), backlog=256) for _ in range(healthy + hung)
        ]
        self._places = {server.fileno(): place for place, server in enumerate(self._servers)}
        self._healthy = healthy
        for server in self._servers:
            self._poll.register(server, select.EPOLLIN)

    def run(self) -> None:
        """Listen until the input ends; print the ports."""
        orders = sys.stdin.fileno()
        self._poll.register(orders, select.EPOLLIN)
        print(json.dumps([server.getsockname()[1] for server in self._servers]), flush=True)
        while True:
            for place, _ in self._poll.poll():
                if place == orders:
                    order = sys.stdin.readline().strip()
                    if not order:
                        return
                    self._obey(order)
                elif place in self._places:
                    self._accept(self._places[place])
                else:
                    self._read(place)

    def _obey(self, order: str) -> None:
        """``count``; ``copy FILE``: write what has arrived; ``take FILE``: and forget it."""
        count = len(self._arrivals) // 4
        verb, _, file = order.partition(" ")
        if file:
            Path(file).write_bytes(self._arrivals.tobytes())
        if verb == "take":
            del self._arrivals[:]
        print(count, flush=True)

    def _accept(self, place: int) -> None:
        accepted, _ = self._servers[place].accept()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hung = place >= self._healthy
        self._connections[accepted.fileno()] = Connection(accepted, place, hung=hung)
        self._poll.register(accepted, select.EPOLLIN)

    def _read(self, place: int) -> None:
        connection = self._connections[place]
        if not connection.read(self._arrivals):
            self._poll.unregister(place)
            del self._connections[place]
            connection.socket.close()


# ---------------------------------------------------------------------- for whoever measures


class Listeners:
    def __init__(self, process: subprocess.Popen[str], healthy: int, file: Path) -> None:
        self._process = process
        self._file = file
        ports = json.loads(self._answer())
        self.healthy, self.hung = ports[:healthy], ports[healthy:]

    def count(self) -> int:
        """How many events have arrived since they were last taken."""
        return self._ask("count")

    def take(self) -> list[Arrival]:
        """What has arrived at healthy listeners since it was last asked for."""
        return self._read("take")

    def copy(self) -> list[Arrival]:
        """The same, and the listeners go on counting from there."""
        return self._read("copy")

    def _read(self, verb: str) -> list[Arrival]:
        self._ask(f"{verb} {self._file}")
        values: array[int] = array("q")
        values.frombytes(self._file.read_bytes())
        fields = iter(values)
        return [Arrival(*one) for one in zip(fields, fields, fields, fields, strict=True)]

    def _ask(self, order: str) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(order + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def listening(folder: Path, *, healthy: int, hung: int = 0) -> Iterator[Listeners]:
    """Run them in a process of their own while the context lasts."""
    module = [sys.executable, "-m", "benchmarks.peers.listeners"]
    with subprocess.Popen(
        [*module, str(healthy), str(hung)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    ) as process:
        try:
            yield Listeners(process, healthy, folder / "arrivals")
        finally:
            process.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("healthy", type=int)
    parser.add_argument("hung", type=int)
    arguments = parser.parse_args()
    Server(arguments.healthy, arguments.hung).run()
