"""``pillion plugin exec``: one process a command."""

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import IO

from pillion_cli.plugin.processes import exit_code, kill_group, signal_group
from pillion_plugin import Delivery, Refused, Retry
from pillion_plugin.log import LINE_LIMIT, STANDARD_ERROR
from pillion_sidecar.signals import signal_name

#: EX_DATAERR of sysexits.h.
FATAL = 65
#: Characters of an environment variable.
VALUE_LIMIT = 4096
#: The time of a command that its process has. The rest is for ending it, so that the next command
#: finds the place free.
SHARE = 0.9
#: The part at which a process that ignores SIGTERM is killed.
KILL_SHARE = 0.95
#: What a pipe holds at most.
_CHUNK = 65_536


class Scripts:
    """Runs ``command`` for each delivery, in a process group of its own."""

    def __init__(
        self, command: Sequence[str], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._command = list(command)
        self._monotonic = monotonic
        self._lock = Lock()
        self._running: set[int] = set()
        self._is_ended = False

    def deliver(self, delivery: Delivery) -> None:
        """Raises Refused and Retry."""
        start = self._monotonic()
        # A file and no pipe: a script that reads nothing blocks nobody. In memory: a container may
        # have no folder to write to.
        with open(os.memfd_create("delivery"), "w+b") as params:
            params.write(json.dumps(delivery.params).encode("ascii") + b"\n")
            params.seek(0)
            try:
                process = self._started(params.fileno(), environment(delivery))
            except OSError as failure:
                text = failure.strerror or str(failure)
                raise Retry(f"cannot run {self._command[0]}: {text}") from failure
        try:
            run = _Run(process, start, delivery.timeout, self._monotonic)
            code = run.ended()
        finally:
            self._end(process)
        _conclude(code, run)

    def _started(self, params: int, variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._is_ended:
                raise Retry("the plug-in is ending")
            process = subprocess.Popen(
                self._command,
                stdin=params,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | variables,
                process_group=0,
            )
            self._running.add(process.pid)
            return process

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        """End what the process has left in its group, and reap it."""
        # Before it is reaped: its number is not given to another process until then.
        kill_group(process.pid)
        # Without the lock: a process that hangs in the kernel holds no other delivery up.
        exit_code(process.pid)
        with self._lock:
            self._running.discard(process.pid)
            process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()

    def end_all(self) -> None:
        """End every process, and start none any more."""
        with self._lock:
            self._is_ended = True
            for group in self._running:
                kill_group(group)


class _Output:
    """What a process writes to one stream, passed on to our standard error in whole lines."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        assert stream is not None
        self.descriptor = stream.fileno()
        os.set_blocking(self.descriptor, False)
        #: Of the line that has not ended.
        self._part = bytearray()
        #: The last line with more than white space, and a line feed if it has ended.
        self._last = b""

    @property
    def last_line(self) -> str:
        """A carriage return ends a line, too."""
        return self._last.strip().decode("utf-8", "replace")

    def read(self) -> bool:
        """Pass on what has come; return whether more may come."""
        try:
            chunk = os.read(self.descriptor, _CHUNK)
        except BlockingIOError:
            return True
        self._pass_on(chunk)
        self._keep_last(chunk)
        return bool(chunk)

    def end(self) -> None:
        """Read what a pipe holds: others of the group may still write."""
        self.read()
        if self._part:
            self._pass_on(b"\n")

    def _pass_on(self, chunk: bytes) -> None:
        lines, line_end, rest = chunk.rpartition(b"\n")
        if line_end:
            STANDARD_ERROR.write(bytes(self._part) + lines + line_end)
            self._part.clear()
        self._part += rest[: LINE_LIMIT - len(self._part)]

    def _keep_last(self, chunk: bytes) -> None:
        text = self._last + chunk
        line = text.rstrip()
        start = max(line.rfind(b"\n"), line.rfind(b"\r")) + 1
        blank = text[len(line) :]
        if b"\n" in blank or b"\r" in blank:
            self._last = line[start:][:LINE_LIMIT] + b"\n"
        else:
            self._last = text[start:][:LINE_LIMIT]


class _Run:
    """Waits for one process, and passes on what it writes. It never waits for whoever reads that:
    the process must end in time."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        start: float,
        timeout: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._process = process
        self._errors = _Output(process.stderr)
        self._outputs = (_Output(process.stdout), self._errors)
        self._monotonic = monotonic
        self._stages = [
            (start + SHARE * timeout, signal.SIGTERM),
            (start + KILL_SHARE * timeout, signal.SIGKILL),
        ]
        self.limit = SHARE * timeout
        self.timed_out = False

    @property
    def last_line(self) -> str:
        return self._errors.last_line

    def ended(self) -> int:
        """Return the exit code once the process has ended; it is not reaped."""
        handle = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(handle, selectors.EVENT_READ)
                for output in self._outputs:
                    selector.register(output.descriptor, selectors.EVENT_READ, output)
                self._follow(selector, handle)
        finally:
            os.close(handle)
        return exit_code(self._process.pid)

    def _follow(self, selector: selectors.BaseSelector, handle: int) -> None:
        while True:
            ready = [key for key, _ in selector.select(self._until_next_stage())]
            for key in ready:
                if key.fd != handle and not key.data.read():
                    selector.unregister(key.fd)
            if any(key.fd == handle for key in ready):
                break
            while self._stages and self._stages[0][0] <= self._monotonic():
                self.timed_out = True
                signal_group(self._process.pid, self._stages.pop(0)[1])
        for output in self._outputs:
            output.end()

    def _until_next_stage(self) -> float | None:
        return max(0.0, self._stages[0][0] - self._monotonic()) if self._stages else None


def environment(delivery: Delivery) -> dict[str, str]:
    values = {
        "CLASS": delivery.class_name,
        "IDENTIFIER": delivery.identifier or "",
        "ATTEMPT": str(delivery.attempt),
        "FILTER": delivery.filter_name,
        "DESTINATION": delivery.destination,
        "URL": delivery.url,
    }
    return {f"PILLION_{name}": _value(text) for name, text in values.items()}


def _value(text: str) -> str:
    """Without NUL and lone surrogates, which no environment variable can hold."""
    shown = text[:VALUE_LIMIT].replace("\0", "")
    return shown.encode("utf-8", "replace").decode("utf-8")


def _conclude(code: int, run: _Run) -> None:
    detail = run.last_line
    if run.timed_out:
        text = f"timed out: ended after {run.limit:g} s"
        raise Retry(f"{text}: {detail}" if detail else text)
    if code == 0:
        return
    if code == FATAL:
        raise Refused(detail or f"exit code {code}")
    if code < 0:
        name = signal_name(-code)
        raise Retry(f"ended by {name}: {detail}" if detail else f"ended by {name}")
    raise Retry(detail or f"exit code {code}")
