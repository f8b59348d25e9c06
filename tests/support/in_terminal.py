"""Runs ``pillion`` in a terminal (a pty) of some size, and reads what it shows there."""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

#: What a terminal acts on instead of showing it.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class InTerminal:
    """The process, and its side of the terminal. Reading blocks: call it in a thread."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int) -> None:
        self.process = process
        self._bytes = b""
        self._terminal = terminal

    @property
    def raw(self) -> str:
        """Everything so far; the last character may be there in part."""
        return self._bytes.decode(errors="ignore")

    @property
    def shown(self) -> str:
        """Everything so far, without colours and movements."""
        return _CONTROL.sub("", self.raw).replace("\r\n", "\n")

    def until(self, text: str) -> str:
        """Read until it shows a text."""
        while text not in self.shown and self._read():
            pass
        assert text in self.shown, self.shown
        return self.shown

    def end(self) -> int:
        """Read to the end; the exit code."""
        while self._read():
            pass
        return self.process.wait()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def _read(self) -> bool:
        try:
            found = os.read(self._terminal, 65_536)
        except OSError:
            # EIO: no process has it open any more.
            return False
        self._bytes += found
        return bool(found)


@contextmanager
def in_terminal(
    *arguments: str, columns: int = 80, lines: int = 24, **environment: str
) -> Iterator[InTerminal]:
    """Run a command with some arguments; kill it at the end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    left_out = ("COLUMNS", "LINES", "NO_COLOR")
    inherited = {name: value for name, value in os.environ.items() if name not in left_out}
    process = subprocess.Popen(
        [sys.executable, "-m", "pillion_cli.main", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**inherited, "TERM": "xterm", **environment},
        # What a shell starts in the background ignores it, and so do all that it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    os.close(theirs)
    try:
        yield InTerminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
