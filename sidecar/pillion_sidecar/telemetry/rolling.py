"""A rolling log file (S3.12). When ``FILE`` reaches its size, or its UTC hour or day ends, the next
message renames it to ``FILE_PID.YYYY-MM-DD.SEQNUM``. The log's thread does this. A message that
cannot be written is dropped and counted."""

import contextlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from logging import Handler, LogRecord
from pathlib import Path

from pillion_sidecar.clock import Clock

#: Owner and group only: the log names indications.
MODE = 0o640


class Frequency(StrEnum):
    HOURLY = "hourly"
    DAILY = "daily"


#: The time format that identifies a period.
_PERIOD = {Frequency.HOURLY: "%Y-%m-%dT%H", Frequency.DAILY: "%Y-%m-%d"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """The path of the log, and when it rolls: by size, by time, by both or never."""

    path: Path
    #: None: no limit.
    maximum_bytes: int | None = None
    #: None: not by time.
    frequency: Frequency | None = None
    #: Rolled files to keep, of all runs; None: all.
    keep: int | None = None


def _complain(text: str) -> None:
    # If this fails too, the count of dropped records still shows it.
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


class RollingHandler(Handler):
    def __init__(
        self,
        settings: LogFile,
        *,
        clock: Clock,
        complain: Callable[[str], None] = _complain,
        pid: int | None = None,
    ) -> None:
        """Raises OSError if the file cannot be opened. ``complain`` gets a problem of the file
        once, until it is solved."""
        super().__init__()
        self._settings = settings
        self._clock = clock
        self._complain = complain
        self._pid = os.getpid() if pid is None else pid
        self._sequence = 0
        self._troubled = False
        self.dropped = 0
        self._file = self._open()
        status = os.fstat(self._file)
        # An existing file is as old as its last line: it may be due at once.
        self._period = self._period_of(status.st_mtime if status.st_size else clock.time())

    def emit(self, record: LogRecord) -> None:
        self.write_line(self.format(record))

    def write_line(self, text: str) -> None:
        """``text`` has no line end."""
        line = f"{text}\n".encode(errors="replace")
        trouble = self._rolled()
        try:
            self._write(line)
        except OSError as error:
            self.dropped += 1
            trouble = error
        self._tell(trouble)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        super().close()

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.open(self._settings.path, flags, MODE)

    def _write(self, line: bytes) -> None:
        size = os.fstat(self._file).st_size
        written = os.write(self._file, line)
        try:
            while written < len(line):
                written += os.write(self._file, line[written:])
        except OSError:
            # A partial line would corrupt the next one.
            os.ftruncate(self._file, size)
            raise

    def _tell(self, trouble: OSError | None) -> None:
        if trouble is not None and not self._troubled:
            reason = trouble.strerror or trouble
            self._complain(f"the log file {self._settings.path} is in trouble: {reason}")
        self._troubled = trouble is not None

    def _rolled(self) -> OSError | None:
        """Roll if due; return why it failed. Then the old file continues."""
        try:
            if self._is_due():
                self._roll()
        except OSError as error:
            return error
        return None

    def _is_due(self) -> bool:
        size = os.fstat(self._file).st_size
        maximum = self._settings.maximum_bytes
        if size and maximum is not None and size >= maximum:
            return True
        now = self._period_of(self._clock.time())
        if size and now != self._period:
            return True
        # An empty file belongs to the period of its first line.
        self._period = now
        return False

    def _period_of(self, moment: float) -> str:
        frequency = self._settings.frequency
        if frequency is None:
            return ""
        return datetime.fromtimestamp(moment, UTC).strftime(_PERIOD[frequency])

    def _roll(self) -> None:
        path = self._settings.path
        # Missing if it was moved, or if an earlier open failed.
        with contextlib.suppress(FileNotFoundError):
            path.rename(self._rolled_path())
        file = self._open()
        os.close(self._file)
        self._file = file
        self._period = self._period_of(self._clock.time())
        self._remove_oldest()

    def _rolled_path(self) -> Path:
        path = self._settings.path
        date = datetime.fromtimestamp(self._clock.time(), UTC).strftime("%Y-%m-%d")
        while True:
            self._sequence += 1
            rolled = path.with_name(f"{path.name}_{self._pid}.{date}.{self._sequence}")
            # In a container every run has the same process ID; keep the other runs' files.
            if not os.path.lexists(rolled):
                return rolled

    def _remove_oldest(self) -> None:
        keep = self._settings.keep
        if keep is None:
            return
        path = self._settings.path
        pattern = re.compile(re.escape(path.name) + r"_\d+\.\d{4}-\d\d-\d\d\.\d+")
        rolled = [one for one in path.parent.iterdir() if pattern.fullmatch(one.name)]
        rolled.sort(key=_age)
        for one in rolled[: max(0, len(rolled) - keep)]:
            one.unlink(missing_ok=True)


def _age(rolled: Path) -> tuple[int, int]:
    """By the last line; within one tick of the file system, by number."""
    return rolled.stat().st_mtime_ns, int(rolled.suffix[1:])
