"""``pillion plugin exec``: one process a command."""

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

from pillion_cli.plugin.processes import exit_code, kill_group, signal_group
from pillion_plugin import Delivery, Refused, Retry
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
#: Bytes of the last line of standard error that are kept.
_LINE_LIMIT = 4096
#: What a pipe holds at most.
_CHUNK = 65_536
_STANDARD_ERROR = 2


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
                stdout=_STANDARD_ERROR,
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
        assert process.stderr is not None
        process.stderr.close()

    def end_all(self) -> None:
        """End every process, and start none any more."""
        with self._lock:
            self._is_ended = True
            for group in self._running:
                kill_group(group)


class _Run:
    """Waits for one process, and passes its standard error on."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        start: float,
        timeout: float,
        monotonic: Callable[[], float],
    ) -> None:
        assert process.stderr is not None
        self._process = process
        self._errors = process.stderr.fileno()
        self._monotonic = monotonic
        self._stages = [
            (start + SHARE * timeout, signal.SIGTERM),
            (start + KILL_SHARE * timeout, signal.SIGKILL),
        ]
        self._last = bytearray()
        self._line = bytearray()
        self.limit = SHARE * timeout
        self.timed_out = False

    @property
    def last_line(self) -> str:
        line = bytes(self._line).strip() or bytes(self._last)
        return line.decode("utf-8", "replace")

    def ended(self) -> int:
        """Return the exit code once the process has ended; it is not reaped."""
        os.set_blocking(self._errors, False)
        handle = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(handle, selectors.EVENT_READ)
                selector.register(self._errors, selectors.EVENT_READ)
                self._follow(selector, handle)
        finally:
            os.close(handle)
        return exit_code(self._process.pid)

    def _follow(self, selector: selectors.BaseSelector, handle: int) -> None:
        while True:
            ready = {key.fd for key, _ in selector.select(self._until_next_stage())}
            if self._errors in ready and not self._read():
                selector.unregister(self._errors)
            if handle in ready:
                break
            while self._stages and self._stages[0][0] <= self._monotonic():
                self.timed_out = True
                signal_group(self._process.pid, self._stages.pop(0)[1])
        # What a pipe holds: others of the group may still write.
        self._read()

    def _until_next_stage(self) -> float | None:
        return max(0.0, self._stages[0][0] - self._monotonic()) if self._stages else None

    def _read(self) -> bool:
        """Pass on what has come; return whether more may come."""
        try:
            chunk = os.read(self._errors, _CHUNK)
        except BlockingIOError:
            return True
        sys.stderr.buffer.write(chunk)
        sys.stderr.buffer.flush()
        for line in chunk.splitlines(keepends=True):
            room = _LINE_LIMIT - len(self._line)
            self._line += line[:room]
            if line.endswith((b"\n", b"\r")):
                self._last = bytearray(self._line.strip()) or self._last
                self._line.clear()
        return bool(chunk)


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
