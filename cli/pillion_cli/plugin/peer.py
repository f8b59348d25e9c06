"""The deliverer's end of a link, for ``pillion plugin check``: one thread, and every wait ends."""

import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pillion_cli.plugin.processes import exit_code, kill_group
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.handlers.plugin import messages
from pillion_sidecar.handlers.plugin.link import MOST_UNASKED, UNASKED_SECONDS
from pillion_sidecar.handlers.plugin.messages import ANSWER_LIMIT, FLUSHES_HINT
from pillion_sidecar.handlers.plugin.process import LAST_OUTPUT_SECONDS, plugin_environment

#: Bytes that have come and were not expected.
_UNREAD_LIMIT = 16 * ANSWER_LIMIT
#: Characters of what came that are shown.
_SHOWN = 300
_CHUNK = 65_536
#: Between two looks at the process.
_POLL_SECONDS = 0.1
#: Of a process, and of a socket.
_GOOD_ENDS = ("exit code 0", "it hung up")


class CheckFailed(Exception):
    def __init__(self, *, expected: str, came: str) -> None:
        super().__init__(f"expected {expected}; came {came}")
        self.came = came


class _Limit(NamedTuple):
    seconds: float
    #: By the clock.
    end: float


class Peer(Protocol):
    """One link."""

    #: Descriptors that do not block. ``writing`` is None once the input has ended.
    reading: int
    writing: int | None

    def end_input(self) -> None: ...

    def how_it_ended(self, within: float) -> str | None:
        """After the end of the output; None if it still runs."""

    def fault(self) -> str | None:
        """Why no message can come or go, though the output has not ended."""

    def close(self) -> None:
        """End it in any case."""


class ProcessPeer:
    """Raises OSError."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=plugin_environment(os.environ),
            process_group=0,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.reading = self._process.stdout.fileno()
        self.writing: int | None = self._process.stdin.fileno()
        os.set_blocking(self.reading, False)
        os.set_blocking(self.writing, False)

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.writing = None

    def how_it_ended(self, within: float) -> str | None:
        handle = os.pidfd_open(self._process.pid)
        try:
            has_ended, _, _ = select.select([handle], [], [], within)
        finally:
            os.close(handle)
        return f"exit code {exit_code(self._process.pid)}" if has_ended else None

    def fault(self) -> str | None:
        ended = self.how_it_ended(0)
        if ended is not None:
            return f"{ended}, while another process keeps its output open"
        if self.writing is None:
            return None
        poll = select.poll()
        # Of a pipe that nobody can read, the kernel reports an error.
        poll.register(self.writing, 0)
        return "a closed standard input" if poll.poll(0) else None

    def close(self) -> None:
        if self.writing is not None:
            self.end_input()
        kill_group(self._process.pid)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class SocketPeer:
    """Raises OSError."""

    def __init__(self, path: Path, *, within: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(within)
            self._socket.connect(os.fspath(path))
        except OSError:
            self._socket.close()
            raise
        self._socket.setblocking(False)
        self.reading = self._socket.fileno()
        self.writing: int | None = self.reading

    def end_input(self) -> None:
        with suppress(OSError):  # it has hung up
            self._socket.shutdown(socket.SHUT_WR)
        self.writing = None

    def how_it_ended(self, within: float) -> str | None:
        return _GOOD_ENDS[1]

    def fault(self) -> str | None:
        return None

    def close(self) -> None:
        self._socket.close()


class Conversation:
    """Messages over a peer. All methods raise CheckFailed."""

    def __init__(
        self, peer: Peer, *, within: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """``within`` is the longest wait in seconds."""
        self._peer = peer
        self._within = within
        self._monotonic = monotonic
        self._received = bytearray()
        self._unsent = memoryview(b"")
        self._has_ended = False
        self._id = 0
        #: By the clock; None if the peer has no fault.
        self._faulty_since: float | None = None
        self._unasked = 0
        self._unasked_since = monotonic()

    def request(self, method: str, params: dict[str, Any]) -> int:
        """Return its id."""
        self._id += 1
        self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params})
        return self._id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        self.send_line(json.dumps(message, ensure_ascii=False).encode())

    def send_line(self, line: bytes) -> None:
        """Send it, and receive meanwhile."""
        self._unsent = memoryview(line + b"\n")
        expected = f"that it reads a line of {len(line)} bytes"
        self._until(lambda: not self._unsent, self._limit(None), expected=expected)

    def answer(self, *pending: int | None, within: float | None = None) -> dict[str, Any]:
        """Return the next answer, which is to one of these ids."""
        ids = ", ".join("null" if one is None else str(one) for one in pending)
        expected = f"an answer to id {ids}"
        limit = self._limit(within)
        has_others = False
        while True:
            try:
                self._until(self._has_line, limit, expected=expected)
            except _TooLate as failure:
                came = f"{failure.came}. {FLUSHES_HINT}"
                if has_others:
                    came = f"only messages that answer nothing, within {limit.seconds:g} s"
                raise CheckFailed(expected=expected, came=came) from None
            message = self._next_answer()
            if message is None:
                has_others = True
                continue
            if message["id"] not in pending:
                raise CheckFailed(expected=expected, came=shown(message))
            return message

    def quiet(self, seconds: float) -> None:
        """Make sure that no answer comes within these seconds, and no end unless the input has
        ended."""
        limit = self._limit(seconds)
        with suppress(_TooLate):
            while self._peer.writing is not None or self._has_line():
                self._until(self._has_line, limit, expected="that it runs on")
                message = self._next_answer()
                if message is not None:
                    raise CheckFailed(expected="no further answer", came=shown(message))

    def end(self, within: float) -> str:
        """End the input, and return how the plug-in ended."""
        self._peer.end_input()
        expected = f"its end within {within:g} s of the end of input"
        self._until(lambda: self._has_ended, self._limit(within), expected=expected)
        found = self._peer.how_it_ended(within)
        if found is None:
            raise CheckFailed(expected=expected, came="the end of its output; it still runs")
        if found not in _GOOD_ENDS:
            raise CheckFailed(expected=_GOOD_ENDS[0], came=found)
        return found

    # ------------------------------------------------------------------ lines

    def _has_line(self) -> bool:
        return b"\n" in self._received

    def _has_line_or_end(self) -> bool:
        return self._has_line() or self._has_ended

    def _next_answer(self) -> dict[str, Any] | None:
        """Take the next line; return None for a notification or request, which gets the answer of
        the deliverer."""
        received, _, self._received = self._received.partition(b"\n")
        line = bytes(received)
        try:
            # As the deliverer reads it.
            found = messages.read(line)
        except messages.MessageError as fault:
            text = str(fault).removeprefix("it sent ")
            raise CheckFailed(expected="a line of JSON-RPC 2.0", came=text) from None
        if isinstance(found, messages.Answer):
            answer: dict[str, Any] = messages.decode(line)
            return answer
        self._count_unasked()
        if isinstance(found, messages.Request) and self._peer.writing is not None:
            self.send_line(messages.not_found(found).removesuffix(b"\n"))
        return None

    def _count_unasked(self) -> None:
        """As the deliverer does."""
        now = self._monotonic()
        if now - self._unasked_since >= UNASKED_SECONDS:
            self._unasked, self._unasked_since = 0, now
        self._unasked += 1
        if self._unasked > MOST_UNASKED:
            raise CheckFailed(
                expected=f"at most {MOST_UNASKED} messages in {UNASKED_SECONDS:g} s that answer"
                " nothing",
                came="more",
            )

    # ------------------------------------------------------------------ bytes

    def _limit(self, within: float | None) -> _Limit:
        seconds = self._within if within is None else within
        return _Limit(seconds, self._monotonic() + seconds)

    def _until(self, condition: Callable[[], bool], limit: _Limit, *, expected: str) -> None:
        while not condition():
            left = limit.end - self._monotonic()
            if self._has_ended:
                how = self._peer.how_it_ended(max(0.0, left)) or "the end of its output"
                raise CheckFailed(expected=expected, came=how)
            fault = self._lasting_fault(is_last=left <= 0)
            if fault is not None:
                raise CheckFailed(expected=expected, came=fault)
            if left <= 0:
                raise _TooLate(expected=expected, came=f"nothing within {limit.seconds:g} s")
            self._move(min(left, _POLL_SECONDS))

    def _lasting_fault(self, *, is_last: bool) -> str | None:
        """A fault of the peer that has lasted as long as the deliverer waits for the last output,
        or any one if this is the last look."""
        fault, now = self._peer.fault(), self._monotonic()
        if fault is None:
            self._faulty_since = None
            return None
        if self._faulty_since is None:
            self._faulty_since = now
        return fault if is_last or now >= self._faulty_since + LAST_OUTPUT_SECONDS else None

    def _move(self, seconds: float) -> None:
        """Read and write what is possible."""
        writing = [self._peer.writing] if self._unsent and self._peer.writing is not None else []
        can_read, can_write, _ = select.select([self._peer.reading], writing, [], seconds)
        if can_write:
            self._write(can_write[0])
        if can_read:
            self._read(can_read[0])

    def _write(self, descriptor: int) -> None:
        try:
            self._unsent = self._unsent[os.write(descriptor, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            # It reads no more; what it has written is read to the end.
            self._unsent = memoryview(b"")

    def _read(self, descriptor: int) -> None:
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        self._has_ended = not chunk
        self._received += chunk
        if len(self._received) > _UNREAD_LIMIT:
            raise CheckFailed(
                expected="answers alone",
                came=f"more than {_UNREAD_LIMIT} bytes without being asked",
            )
        if len(self._received) > ANSWER_LIMIT and b"\n" not in self._received[: ANSWER_LIMIT + 1]:
            raise CheckFailed(
                expected=f"lines of at most {ANSWER_LIMIT} bytes",
                came=shown_text(bytes(self._received[:_SHOWN])) + "…",
            )


class _TooLate(CheckFailed): ...


def shown(message: dict[str, Any]) -> str:
    return shown_text(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))


def shown_text(line: bytes) -> str:
    text = escape_controls(line.decode("utf-8", "backslashreplace"))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
