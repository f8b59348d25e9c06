"""Plug-ins as processes: commands on standard input, replies on standard output (S2.1), and their
standard error in the log."""

import asyncio
import errno
import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.filewatch import SHORTAGES
from pillion_sidecar.handlers.plugin.lines import BYTES_PER_SECOND, LineReader, PluginLog
from pillion_sidecar.handlers.plugin.wire import LinkError, WireOwner
from pillion_sidecar.handlers.plugin_slots import GRACE_SECONDS
from pillion_sidecar.settings import PluginEndpoint
from pillion_sidecar.signals import signal_name

logger = logging.getLogger("pillion.plugin")

#: All that a plug-in gets of the deliverer's environment, which may hold secrets.
KEPT_VARIABLES = frozenset(("PATH", "LANG", "TZ", "HOME"))
KEPT_PREFIX = "PILLION_PLUGIN_"
#: It tells pillion_plugin to serve a socket, and not its standard input.
SOCKET_VARIABLE = "PILLION_PLUGIN_SOCKET"
#: Seconds from the end of a process, or of its output, to the other one, and for its last output.
LAST_OUTPUT_SECONDS = 1.0
#: Seconds of the last look for processes that it left behind.
ORPHAN_SECONDS = 0.5
#: Errors of the machine, and not of the declaration.
_SHORTAGES = SHORTAGES | {errno.EAGAIN}


def plugin_environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name in KEPT_VARIABLES or (name.startswith(KEPT_PREFIX) and name != SOCKET_VARIABLE)
    }


def find_program(program: str, environment: Mapping[str, str]) -> str | None:
    """Return why a program cannot be run, without its name, or None."""
    path = environment.get("PATH", os.defpath)
    if shutil.which(program, path=path) is not None:
        return None
    if os.path.isdir(program):
        return "is a folder"
    if shutil.which(program, mode=os.F_OK, path=path) is not None:
        return "is not executable (chmod +x)"
    where = "" if os.sep in program else f" in PATH ({path})"
    return f"does not exist{where}"


def warn_of_missing_programs(plugins: Mapping[str, PluginEndpoint]) -> None:
    """Log which programs cannot be run now. Their destinations are held once they are tried."""
    environment = plugin_environment(os.environ)
    for name, endpoint in plugins.items():
        if not endpoint.command:
            continue
        program = endpoint.command[0]
        fault = find_program(program, environment)
        if fault is not None:
            reason = f"the program {program!r} {fault}"
            logger.warning(
                "plug-in %s: %s; its destinations are held until it can be run",
                name,
                reason,
                extra={"event": "plugin-missing", "plugin": name, "reason": reason},
            )


@dataclass(frozen=True, slots=True)
class Started:
    process: subprocess.Popen[bytes]
    #: Readable once the process has ended, and before it is reaped.
    pidfd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOpener:
    command: Sequence[str]
    environment: Mapping[str, str]
    timers: Timers
    log: PluginLog

    async def open(self, owner: WireOwner, gone: Callable[[], None]) -> None:
        """See ``Opener``."""
        given_up = threading.Event()
        try:
            # In a thread: the file system of the program may be slow.
            starting = asyncio.get_running_loop().run_in_executor(None, self._start, given_up)
        except RuntimeError as error:
            # No thread can be started, and another one of the executor may still call it.
            given_up.set()
            gone()
            raise LinkError(f"it could not be started: {error}", spends_attempt=False) from None
        try:
            started = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(partial(self._end_unwanted, gone))
            raise
        except BaseException:  # Whatever ended it: its slot must not stay taken.
            gone()
            raise
        wire = ProcessWire(started, owner=owner, gone=gone, timers=self.timers, log=self.log)
        await wire.open()

    def _start(self, given_up: threading.Event) -> Started:
        """Raises LinkError."""
        if given_up.is_set():
            raise LinkError("it was given up before its start")
        try:
            return self._start_process()
        except OSError as error:
            raise self._failure(error) from None

    def _start_process(self) -> Started:
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=self.environment,
            # Its own process group: what it starts ends with it.
            start_new_session=True,
        )
        try:
            return Started(process, os.pidfd_open(process.pid))
        except OSError:
            process.kill()
            process.communicate()
            raise

    def _failure(self, error: OSError) -> LinkError:
        if error.errno in _SHORTAGES:
            return LinkError(f"it could not be started: {error.strerror}", spends_attempt=False)
        program = self.command[0]
        fault = find_program(program, self.environment) or f"cannot be run: {error.strerror}"
        return LinkError(
            f"the program {program!r} {fault}",
            hidden=f"its program {fault}",
            hold=HoldCause.PROTOCOL,
        )

    def _end_unwanted(self, gone: Callable[[], None], starting: "asyncio.Future[Started]") -> None:
        """The link was given up while its process was being started."""
        if starting.cancelled() or starting.exception() is not None:
            gone()
            return
        wire = ProcessWire(
            starting.result(), owner=None, gone=gone, timers=self.timers, log=self.log
        )
        wire.end(at_once=True)


class ProcessWire:
    """One process. It is over when it has ended and its output has been read, or a second after
    the first of both."""

    def __init__(
        self,
        started: Started,
        *,
        owner: WireOwner | None,
        gone: Callable[[], None],
        timers: Timers,
        log: PluginLog,
    ) -> None:
        self._process = started.process
        self._pidfd = started.pidfd
        self._gone = gone
        self._timers = timers
        self._log = log
        self._lines = LineReader(self, owner)
        self._stdin: asyncio.WriteTransport | None = None
        #: Kept by the protocol of standard input.
        self.has_unsent = False
        self._outputs: list[asyncio.ReadTransport] = []
        #: Streams of output that have not ended; one that is not wanted has none.
        self._open_outputs = 0 if owner is None else 2
        self._is_open = False
        self._closed_input = False
        self._ending = False
        self._finished = False
        self._is_over = False
        self._last_output: Timer | None = None
        self._signals: list[Timer] = []
        self._pause: Timer | None = None
        self._read_bytes = 0
        asyncio.get_running_loop().add_reader(self._pidfd, self._exited)

    async def open(self) -> None:
        loop, process = asyncio.get_running_loop(), self._process
        try:
            self._stdin, _ = await loop.connect_write_pipe(lambda: _Input(self), process.stdin)
            # Then writing is paused whenever bytes are unsent.
            self._stdin.set_write_buffer_limits(high=0)
            for pipe, output in ((process.stdout, _Replies), (process.stderr, _Errors)):
                transport, _ = await loop.connect_read_pipe(partial(output, self), pipe)
                self._outputs.append(transport)
        except BaseException:  # Whatever ended it: its process must not stay.
            self._open_outputs = len(self._outputs)
            self.end(at_once=True)
            raise
        owner = self._lines.owner
        if owner is None or self._finished:
            return
        self._is_open = True
        owner.wire_opened(self)
        self._lines.read()
        if self._is_over:
            self._report_lost()

    # ------------------------------------------------------------------ Wire

    @property
    def unsent(self) -> int:
        if self._stdin is None:
            return 0
        # A transport that breaks forgets what it had not sent.
        return max(self._stdin.get_write_buffer_size(), int(self.has_unsent))

    def write(self, line: bytes) -> bool:
        stdin = self._stdin
        if stdin is None or stdin.is_closing():
            return False
        stdin.write(line)
        # It may have found the pipe broken.
        return not stdin.is_closing()

    def end(self, *, at_once: bool) -> None:
        if self._ending:
            return
        self._ending, self._lines.owner = True, None
        if at_once:
            self._close_outputs()
        if self._process.returncode is not None:
            self._settle()
            return
        if at_once:
            self._signal(signal.SIGTERM)
        elif self._stdin is not None:
            # After what is still to be written.
            self._stdin.close()
        later = self._timers.call_later
        if not at_once:
            self._signals.append(later(GRACE_SECONDS, lambda: self._signal(signal.SIGTERM)))
        kill_after = GRACE_SECONDS if at_once else 2 * GRACE_SECONDS
        self._signals.append(later(kill_after, lambda: self._signal(signal.SIGKILL)))

    # ------------------------------------------------------------------ what the streams report

    def replied(self, data: bytes) -> None:
        self._lines.feed(data)
        if self._is_open:
            self._lines.read()

    def errors_received(self, data: bytes, transport: asyncio.ReadTransport) -> None:
        """Take bytes of standard error; one that floods is read slowly."""
        self._log.feed(data)
        if self._pause is None:
            self._read_bytes = 0
            self._pause = self._timers.call_later(1.0, partial(self._go_on, transport))
        self._read_bytes += len(data)
        if self._read_bytes > BYTES_PER_SECOND:
            transport.pause_reading()

    def _go_on(self, transport: asyncio.ReadTransport) -> None:
        self._pause = None
        if not transport.is_closing():
            transport.resume_reading()

    def input_closed(self) -> None:
        self._closed_input = True
        self._await_last_output()

    def output_ended(self, *, is_log: bool) -> None:
        self._open_outputs -= 1
        if is_log:
            self._log.flush()
            # It may do without standard error.
            if self._process.returncode is not None:
                self._settle()
            return
        self._await_last_output()
        self._settle()

    def _exited(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        # Before it is reaped: until then its id is that of its group, and of no other.
        self._signal(signal.SIGKILL)
        self._process.poll()
        os.close(self._pidfd)
        for timer in self._signals:
            timer.cancel()
        self._reap_orphans()
        self._await_last_output()
        self._settle()

    # ------------------------------------------------------------------ the end

    def _await_last_output(self) -> None:
        if self._last_output is None and not self._finished:
            self._last_output = self._timers.call_later(LAST_OUTPUT_SECONDS, self._over)

    def _settle(self) -> None:
        has_exited = self._process.returncode is not None
        if has_exited and (self._open_outputs <= 0 or self._is_over):
            self._over()

    def _over(self) -> None:
        self._is_over = True
        if self._is_open:
            self._report_lost()
        if self._ending and self._process.returncode is not None:
            self._finish()

    def _report_lost(self) -> None:
        if self._lines.owner is not None:
            self._lines.owner.wire_lost(self, self._reason())

    def _reason(self) -> str:
        code = self._process.returncode
        half = self._lines.ending
        if code is None:
            what = "input" if self._closed_input else "output"
            return f"it closed its standard {what}{half}"
        how = f"with exit status {code}" if code >= 0 else f"by {signal_name(-code)}"
        last = f": {self._log.last[:200]}" if self._log.last else ""
        return f"it ended {how}{half}{last}"

    def _finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        for timer in (self._last_output, self._pause):
            if timer is not None:
                timer.cancel()
        self._close_outputs()
        # One that is closing without anything left to write has called connection_lost.
        stdin = self._stdin
        if stdin is not None and (stdin.get_write_buffer_size() or not stdin.is_closing()):
            stdin.abort()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()
        self._gone()

    def _close_outputs(self) -> None:
        for transport in self._outputs:
            transport.close()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group."""
        if self._process.returncode is None:
            # It may have changed its user, or be gone.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _reap_orphans(self, *, again: bool = True) -> None:
        """Reap what it left behind, where this process is the first of its container."""
        with suppress(ChildProcessError):
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass
            if again:
                self._timers.call_later(ORPHAN_SECONDS, partial(self._reap_orphans, again=False))


class _Input(asyncio.Protocol):
    def __init__(self, wire: ProcessWire) -> None:
        self._wire = wire

    def pause_writing(self) -> None:
        self._wire.has_unsent = True

    def resume_writing(self) -> None:
        self._wire.has_unsent = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.input_closed()


class _Replies(asyncio.Protocol):
    def __init__(self, wire: ProcessWire) -> None:
        self._wire = wire

    def data_received(self, data: bytes) -> None:
        self._wire.replied(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.output_ended(is_log=False)


class _Errors(asyncio.Protocol):
    _transport: asyncio.ReadTransport

    def __init__(self, wire: ProcessWire) -> None:
        self._wire = wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.ReadTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._wire.errors_received(data, self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.output_ended(is_log=True)
