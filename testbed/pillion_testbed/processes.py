"""Processes that the test bed starts: each ends with the process that started it, and by its id."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Lines of a log that an error shows.
TAIL = 25

# The look at the parent is for one that was killed before the call.
_LAUNCHER = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() != parent:
    sys.exit("the parent is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""


class ProcessFailed(Exception):
    """A process ended, or was not ready in time. The message shows the end of its log."""


class Running:
    """One process and its log."""

    def __init__(self, name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def exit_code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._process.poll()

    def failed(self, what: str) -> ProcessFailed:
        """Return the error that says what happened to it."""
        return ProcessFailed(f"{self.name} {what}; the end of {self.log}:\n{tail(self.log)}")

    def kill(self) -> None:
        """End it at once, and do not wait for that."""
        self._process.kill()

    def stop(self, *, grace: float = 0) -> int:
        """End it and return its exit code: by SIGTERM, ``grace`` seconds later by SIGKILL."""
        if grace > 0:
            self._process.terminate()
            try:
                return self._process.wait(grace)
            except subprocess.TimeoutExpired:
                pass
        self._process.kill()
        return self._process.wait()


class Spawner:
    """Starts processes from one thread of its own, which lives as long as it.

    The kernel sends the signal of a parent's death when the thread ends that made the child, and a
    thread of ``asyncio.to_thread`` ends with its event loop.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        outlives: bool = False,
    ) -> Running:
        """Start a process that logs to a file; ``outlives``: it stays when this process ends."""
        if not outlives:
            launcher = (sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()))
            command = (*launcher, *command)
        variables = None if environment is None else {**os.environ, **environment}
        with log.open("ab") as output:
            started = self._thread.submit(
                lambda: subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=variables,
                    start_new_session=True,
                )
            )
            return Running(name, started.result(), log)

    def close(self) -> None:
        """End the thread. What it started and still runs is told to end, unless it outlives."""
        self._thread.shutdown()


def tail(log: Path) -> str:
    """Return the last lines of a log file."""
    if not log.exists():
        return "(no log)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL:])
