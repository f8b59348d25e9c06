"""The processes of a peer: started, measured and ended together."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds until what shall end by itself is killed.
ENDING = 5.0


class ProcessGroup:
    """Processes that were started here, each with a session of its own, and all that they start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Path:
        """Start a program; return the file that its output goes to."""
        file = self._folder / f"{Path(command[0]).name}-{len(self._started)}.log"
        with file.open("ab") as log:
            self._started.append(
                subprocess.Popen(
                    command,
                    cwd=self._folder,
                    env={**os.environ, **(environment or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        return file

    def cpu_seconds(self) -> float:
        """User and system time of all of them so far."""
        return sum((int(one[11]) + int(one[12])) / _TICKS for _, one in self._running())

    def resident_bytes(self) -> int:
        """Memory of all of them; what several share counts once."""
        return sum(_proportional_kib(pid) * 1024 for pid, _ in self._running())

    def ended(self) -> str | None:
        """The program that has ended by itself, if one has."""
        for process in self._started:
            if process.poll() is not None:
                assert isinstance(process.args, list)
                said = "\n".join(self.last_lines())
                return f"{process.args[0]} ended with {process.returncode}\n{said}"
        return None

    def last_lines(self) -> list[str]:
        """The end of what each of them has said."""
        texts = (file.read_text(errors="replace") for file in self._folder.glob("*.log"))
        return [line for text in texts for line in text.splitlines()[-4:]]

    def kill(self) -> None:
        """Kill all, without a warning."""
        for pid, _ in list(self._running()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()
        self._started.clear()

    def stop(self) -> None:
        """Ask all to end, and kill those that do not."""
        for process in self._started:
            process.terminate()
        patience = time.monotonic() + ENDING
        with suppress(subprocess.TimeoutExpired):
            for process in self._started:
                process.wait(max(0.0, patience - time.monotonic()))
        self.kill()

    def _running(self) -> Iterator[tuple[int, list[str]]]:
        """Their numbers, and the fields of their ``stat`` behind the name."""
        all_fields: dict[int, list[str]] = {}
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                text = (place / "stat").read_text()
                all_fields[int(place.name)] = text.rpartition(") ")[2].split()
        # A child may have a session of its own, and an orphan another parent.
        ours = {process.pid for process in self._started}
        found: set[int] = set()
        while more := {
            pid
            for pid, fields in all_fields.items()
            if pid not in found and (pid in ours or {int(fields[1]), int(fields[3])} & ours)
        }:
            found |= more
            ours |= more
        return ((pid, all_fields[pid]) for pid in found if all_fields[pid][0] != "Z")


def _proportional_kib(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def wait_until_listening(port: int, group: ProcessGroup, *, seconds: float = 60.0) -> None:
    """Raises RuntimeError where nobody listens by then."""
    patience = time.monotonic() + seconds
    while time.monotonic() < patience:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        if (ended := group.ended()) is not None:
            raise RuntimeError(ended)
        time.sleep(0.02)
    raise RuntimeError(f"nobody listens on port {port} after {seconds:g} s")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
