"""Standard error that nobody reads."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from pillion_plugin.log import Log

#: Bytes; the least that a pipe can have.
CAPACITY = 4096


class Full:
    """A pipe, or a pair of sockets, that takes nothing more."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading = reading
        self.writing = writing
        self.log = Log(writing)
        os.set_blocking(reading, False)
        # In small pieces, so that nothing more of any size has room.
        os.set_blocking(writing, False)
        try:
            while True:
                os.write(writing, b"f" * 64)
        except BlockingIOError:
            os.set_blocking(writing, True)

    def read(self) -> bytes:
        """What has come since; there is room then."""
        read = bytearray()
        try:
            while chunk := os.read(self.reading, 65_536):
                read += chunk
        except BlockingIOError:
            pass
        return bytes(read).lstrip(b"f")


@contextmanager
def full_pipe() -> Iterator[Full]:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, CAPACITY)
    try:
        yield Full(reading, writing)
    finally:
        os.close(reading)
        os.close(writing)


@contextmanager
def full_socket() -> Iterator[Full]:
    reading, writing = socket.socketpair()
    with reading, writing:
        yield Full(reading.fileno(), writing.fileno())
