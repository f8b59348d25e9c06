"""Standard error, which the deliverer writes to its log, written to without waiting.

The deliverer reads 64 KiB of it in a second. So it is full where more is written, and a plain write
then blocks; the thread that times commands, and those that end scripts, must not wait for it.
"""

import os
import select
import stat
from collections.abc import Iterator
from contextlib import suppress
from socket import MSG_DONTWAIT, SOCK_NONBLOCK, SOCK_STREAM
from socket import socket as Socket
from threading import Lock

#: Bytes of a line with its end. A pipe or a Unix socket takes so many as a whole or not at all.
LINE_LIMIT = select.PIPE_BUF
FULL_TEXT = (
    "standard error is full: more is written to it than is read from it (a deliverer reads 64 KiB"
    " in a second)"
)


class Log:
    """Lines to a descriptor. What it has no room for is left out, and counted.

    A pipe or a socket is never waited for. A file or a terminal is, and so is a pipe that cannot be
    opened anew, such as one of another user.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Guards all below.
        self._lock = Lock()
        #: Lines, since the number was last told.
        self._left_out = 0
        #: Of a pipe, and the pipe. Child processes share the flags of the other descriptor, so
        #: that one must stay as it is.
        self._unblocked: int | None = None
        self._pipe: tuple[int, int] | None = None

    def write(self, lines: bytes) -> None:
        """Write lines with their ends. One of more than LINE_LIMIT bytes is cut."""
        with self._lock:
            for block in _blocks(lines):
                if not (self._told() and self._put(block)):
                    self._left_out += block.count(b"\n")

    def tell(self) -> None:
        """Say how many lines were left out, if any were and if there is room."""
        with self._lock:
            self._told()

    def is_full(self) -> bool:
        """Whether a plain write waits; to a socket, it does a little later."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return not poll.poll(0)

    def _told(self) -> bool:
        if self._left_out and self._put(b"pillion_plugin: %d lines left out\n" % self._left_out):
            self._left_out = 0
        return not self._left_out

    def _put(self, block: bytes) -> bool:
        try:
            self._send(block)
        except OSError:  # it is full, or nobody reads it
            return False
        return True

    def _send(self, block: bytes) -> None:
        status = os.fstat(self._descriptor)
        if stat.S_ISSOCK(status.st_mode):
            # Said to be non-blocking, it is not made so where the program has a default time-out.
            connection = Socket(type=SOCK_STREAM | SOCK_NONBLOCK, fileno=self._descriptor)
            try:
                connection.send(block, MSG_DONTWAIT)
            finally:
                connection.detach()
        elif stat.S_ISFIFO(status.st_mode):
            os.write(self._opened((status.st_dev, status.st_ino)), block)
        else:
            os.write(self._descriptor, block)

    def _opened(self, pipe: tuple[int, int]) -> int:
        if self._unblocked is not None and self._pipe != pipe:  # the program has redirected it
            os.close(self._unblocked)
            self._unblocked = None
        if self._unblocked is None:
            with suppress(OSError):
                path = f"/proc/self/fd/{self._descriptor}"
                self._unblocked = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                self._pipe = pipe
        return self._descriptor if self._unblocked is None else self._unblocked


def _blocks(lines: bytes) -> Iterator[bytes]:
    """Pieces of whole lines, each of at most LINE_LIMIT bytes."""
    start = 0
    while start < len(lines):
        end = lines.rfind(b"\n", start, start + LINE_LIMIT) + 1
        if end:
            yield lines[start:end]
        else:
            yield lines[start : start + LINE_LIMIT - 1] + b"\n"
            end = lines.find(b"\n", start) + 1 or len(lines)
        start = end


STANDARD_ERROR = Log(2)


def say(text: str) -> None:
    STANDARD_ERROR.write(f"pillion_plugin: {text}\n".encode("utf-8", "backslashreplace"))
