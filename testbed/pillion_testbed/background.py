"""A cluster that outlives the command that started it: which processes are its own."""

import json
import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pillion_testbed.rest import wait_until

#: Seconds until a process that was killed is gone.
GONE = 10.0


@dataclass(frozen=True, slots=True)
class BackgroundCluster:
    """A cluster by its folder, which keeps keys, data, logs, and the ids of its processes."""

    folder: Path

    def remember(self, pids: Mapping[str, int]) -> None:
        """Keep the ids of the processes, in the order in which they were started."""
        self._file.write_text(json.dumps(dict(pids)))

    def alive(self) -> bool:
        """Whether every one of its processes runs."""
        pids = self._pids()
        return bool(pids) and all(self._runs(pid) for pid in pids.values())

    def down(self) -> bool:
        """End what runs, last started first, and remove the folder; False: there was none."""
        if not self._file.exists():
            return False
        for pid in reversed(list(self._pids().values())):
            self._end(pid)
        shutil.rmtree(self.folder)
        return True

    @property
    def _file(self) -> Path:
        return self.folder / "processes.json"

    def _pids(self) -> dict[str, int]:
        if not self._file.exists():
            return {}
        pids: dict[str, int] = json.loads(self._file.read_text())
        return pids

    def _end(self, pid: int) -> None:
        if self._runs(pid):
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not self._runs(pid), within=GONE, what=f"the end of process {pid}")

    def _runs(self, pid: int) -> bool:
        """Whether it is this process: ids are used again, and each of ours names the folder."""
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return os.fsencode(self.folder) + b"/" in command
