"""Structured logs on standard error or in a file: one line per record, with a stable event name.

Logging never blocks: a thread writes from a bounded buffer (:class:`LineBuffer`). Records that do
not fit are dropped, counted, and reported later. Lines that clients can trigger are limited
(:class:`LineBound`).
"""

import json
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple, TextIO

from pillion_sidecar.clock import Clock, SystemClock
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.telemetry.rolling import LogFile, RollingHandler

#: Lines of one kind within so many seconds.
MOST_LINES = 5
SECONDS = 60.0
#: Kinds counted separately; further ones are counted together.
MOST_KINDS = 50
#: Loggers of invalid requests and aborted connections. A message of asyncio names its task or
#: transport, so each would be a kind of its own.
FROM_OUTSIDE = frozenset(
    (
        "aiohttp.server",
        "asyncio",
        "pillion.http",
        "pillion.operator.console",
        "pillion.operator.webhook",
    )
)
#: Maximum lines and characters in the buffer.
BUFFERED_RECORDS = 10_000
BUFFERED_BYTES = 4 << 20
#: Share of the buffer for a level and all below, so that a flood leaves space for more severe
#: records.
_SHARES = ((logging.ERROR, 1.0), (logging.WARNING, 0.875), (0, 0.5))
#: Characters of a field, and of a line; longer ones are cut.
MAXIMUM_FIELD = 16_384
MAXIMUM_LINE = 65_536
#: Seconds that closing waits for a slow reader.
CLOSING_SECONDS = 5.0
logger = logging.getLogger("pillion.log")
#: Attributes of every record; others come from ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FIXED_FIELDS = 5
_QUOTED_IN_LOGFMT = frozenset(' "=\\')


class Kind(NamedTuple):
    """Identifies lines that are counted together."""

    logger: str
    #: Before its arguments are inserted.
    message: str
    error: str | None


class LeftOut(NamedTuple):
    kind: Kind
    lines: int


#: Lines beyond :data:`MOST_KINDS`.
OTHERS = Kind("", "lines of other kinds", None)


def kind_of(record: logging.LogRecord) -> Kind | None:
    """Return the kind of a line that a client can trigger, else None."""
    if record.name not in FROM_OUTSIDE or record.levelno < logging.WARNING:
        return None
    error = record.exc_info[0] if record.exc_info else None
    return Kind(record.name, str(record.msg), None if error is None else error.__name__)


class _Written:
    __slots__ = ("began", "lines")

    def __init__(self, began: float) -> None:
        self.began = began
        self.lines = 0


class LineBound:
    """Limits lines that clients can trigger; counts the rest (S0.11). Times are
    ``Clock.monotonic()``."""

    def __init__(self) -> None:
        # In the order of their beginning, and so of their end.
        self._kinds: dict[Kind, _Written] = {}

    def admits(self, kind: Kind, *, now: float) -> bool:
        """Whether to write a line; call :meth:`over` first."""
        written = self._kinds.get(kind)
        if written is None:
            if len(self._kinds) >= MOST_KINDS:
                kind = OTHERS
            written = self._kinds.setdefault(kind, _Written(now))
        written.lines += 1
        return written.lines <= MOST_LINES

    def over(self, *, now: float) -> list[LeftOut]:
        """Remove and return suppressed lines of kinds whose minute has ended."""
        ended = []
        for kind, written in self._kinds.items():
            if now - written.began < SECONDS:
                break
            ended.append(kind)
        return self._take_out(ended)

    def finish(self) -> list[LeftOut]:
        return self._take_out(list(self._kinds))

    def _take_out(self, kinds: list[Kind]) -> list[LeftOut]:
        counts = [(kind, self._kinds.pop(kind).lines - MOST_LINES) for kind in kinds]
        return [LeftOut(kind, count) for kind, count in counts if count > 0]


class LineBuffer:
    """A bounded queue of lines, from any thread to one."""

    def __init__(self, *, records: int = BUFFERED_RECORDS, size: int = BUFFERED_BYTES) -> None:
        """``size``: characters."""
        self._records = records
        self._most = size
        self._lines: deque[str] = deque()
        self._size = 0
        self._ended = False
        self._changed = threading.Condition(threading.Lock())
        self.dropped = 0
        # Dropped lines not reported yet, by level.
        self._untold: dict[str, int] = {}

    def offer(self, line: str, level: int) -> None:
        """Append a line if its level has space, else count it."""
        with self._changed:
            if self._ended or not self._has_room(len(line), level):
                self._count(level)
                return
            self._lines.append(line)
            self._size += len(line)
            self._changed.notify()

    def drop(self, level: int) -> None:
        with self._changed:
            self._count(level)

    def _has_room(self, size: int, level: int) -> bool:
        share = next(share for least, share in _SHARES if level >= least)
        return len(self._lines) < self._records * share and self._size + size <= self._most * share

    def _count(self, level: int) -> None:
        self.dropped += 1
        name = logging.getLevelName(level)
        self._untold[name] = self._untold.get(name, 0) + 1

    def take(self) -> str | None:
        """Wait for the next line; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ended)
            if not self._lines:
                return None
            line = self._lines.popleft()
            self._size -= len(line)
            return line

    def take_dropped(self) -> dict[str, int]:
        """Return unreported drops by level, once there is space for every level; else nothing."""
        with self._changed:
            if not self._untold or not self._has_room(0, 0):
                return {}
            untold, self._untold = self._untold, {}
            return untold

    def end(self) -> None:
        """Accept no more lines; :meth:`take` returns None once all are taken."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Discard and count the remaining lines."""
        with self._changed:
            self.dropped += len(self._lines)
            self._lines.clear()
            self._size = 0


class LogFormat(StrEnum):
    JSON = "json"
    LOGFMT = "logfmt"


class StructuredFormatter(logging.Formatter):
    def __init__(self, log_format: LogFormat) -> None:
        super().__init__()
        self._encode = _json_line if log_format is LogFormat.JSON else _logfmt_line

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: _cut(value) for name, value in self._fields(record)}
        line = self._encode(fields)
        if len(line) > MAXIMUM_LINE:
            line = self._encode({**dict(list(fields.items())[:_FIXED_FIELDS]), "cut": True})
        return line

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        moment = datetime.fromtimestamp(record.created, UTC)
        yield "time", moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        yield "level", record.levelname
        # A library's record has no event; its logger's name replaces it.
        yield "event", getattr(record, "event", record.name)
        yield "message", record.getMessage()
        yield "logger", record.name
        for name, value in vars(record).items():
            if name not in _STANDARD and name != "event" and value is not None:
                yield name, value
        if record.exc_info:
            yield "exception", self.formatException(record.exc_info)
        if record.stack_info:
            yield "stack", self.formatStack(record.stack_info)


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAXIMUM_FIELD:
        return f"{value[:MAXIMUM_FIELD]}… ({len(value) - MAXIMUM_FIELD} more characters)"
    return value


def _json_line(fields: dict[str, Any]) -> str:
    return escape_controls(json.dumps(fields, default=str, ensure_ascii=False))


def _logfmt_line(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={_logfmt_value(value)}" for name, value in fields.items())


def _logfmt_value(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text and text.isprintable() and not _QUOTED_IN_LOGFMT.intersection(text):
        return text
    return escape_controls(json.dumps(text, ensure_ascii=False))


class _BufferingHandler(logging.Handler):
    def __init__(self, buffer: LineBuffer, *, clock: Clock) -> None:
        super().__init__()
        self._buffer = buffer
        self._clock = clock
        self._bound = LineBound()

    def emit(self, record: logging.LogRecord) -> None:
        now = self._clock.monotonic()
        self._tell(self._bound.over(now=now))
        kind = kind_of(record)
        if kind is not None and not self._bound.admits(kind, now=now):
            return
        try:
            self._offer(record)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            # Arguments that do not fit the message, or an unwritable field.
            self.handleError(record)

    def finish(self) -> None:
        self.acquire()
        try:
            self._tell(self._bound.finish())
        finally:
            self.release()

    def _tell(self, left_out: Iterable[LeftOut]) -> None:
        for kind, count in left_out:
            # Logging from within a handler may do nothing (Python 3.14).
            record = logger.makeRecord(
                logger.name,
                logging.WARNING,
                __file__,
                0,
                "%d more lines within %.0f s were left out: %s",
                (count, SECONDS, kind.message.replace("%s", "…")),
                None,
                extra={"event": "log-lines-left-out", "of": kind.logger, "count": count},
            )
            self._offer(record)

    def _offer(self, record: logging.LogRecord) -> None:
        self._buffer.offer(self.format(record), record.levelno)

    def handleError(self, record: logging.LogRecord) -> None:
        """Count it; the base class would print, and may block."""
        self._buffer.drop(record.levelno)


class _Writer:
    def __init__(
        self, buffer: LineBuffer, write: Callable[[str], None], formatter: logging.Formatter
    ) -> None:
        self._buffer = buffer
        self._write = write
        self._formatter = formatter
        self.failed = 0
        # A daemon: a stalled reader must not keep the process alive.
        self.thread = threading.Thread(target=self._run, name="pillion-log", daemon=True)

    def _run(self) -> None:
        while (line := self._buffer.take()) is not None:
            self._write_one(line)
            if dropped := self._buffer.take_dropped():
                self._write_one(self._formatter.format(_dropped_record(dropped)))

    def _write_one(self, line: str) -> None:
        try:
            self._write(line)
        except (OSError, ValueError):
            self.failed += 1


def _dropped_record(dropped: dict[str, int]) -> logging.LogRecord:
    counts = ", ".join(f"{count} {level}" for level, count in dropped.items())
    count = sum(dropped.values())
    return logger.makeRecord(
        logger.name,
        logging.WARNING,
        __file__,
        0,
        "%d records found no room in the log's buffer: its reader is slow (%s)",
        (count, counts),
        None,
        extra={"event": "log-records-dropped", "count": count, "levels": counts},
    )


def _stream_writer(stream: TextIO) -> Callable[[str], None]:
    """Return a function that writes one line. It writes to the descriptor where there is one: then
    no stream lock is held while a reader stalls, and the interpreter can exit."""
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):

        def write_text(line: str) -> None:
            stream.write(f"{line}\n")
            stream.flush()

        return write_text

    def write_bytes(line: str) -> None:
        data = memoryview(f"{line}\n".encode(errors="replace"))
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                # Another process may have made the descriptor non-blocking.
                select.select([], [descriptor], [])

    return write_bytes


class LogOutput:
    def __init__(
        self,
        *,
        log_format: LogFormat,
        stream: TextIO,
        file: RollingHandler | None = None,
        buffered_records: int = BUFFERED_RECORDS,
        buffered_bytes: int = BUFFERED_BYTES,
        closing_seconds: float = CLOSING_SECONDS,
        clock: Clock | None = None,
    ) -> None:
        """With a ``file``, nothing goes to ``stream``; the output closes it."""
        self._buffer = LineBuffer(records=buffered_records, size=buffered_bytes)
        formatter = StructuredFormatter(log_format)
        self.handler = _BufferingHandler(self._buffer, clock=clock or SystemClock())
        self.handler.setFormatter(formatter)
        self._file = file
        self._closing_seconds = closing_seconds
        write = _stream_writer(stream) if file is None else file.write_line
        self._writer = _Writer(self._buffer, write, formatter)
        self._captures = False

    @property
    def dropped(self) -> int:
        """Records dropped by the buffer, the stream or the file."""
        file = self._file.dropped if self._file else 0
        return self._buffer.dropped + self._writer.failed + file

    def start(self) -> None:
        self._writer.thread.start()

    def capture_warnings(self) -> None:
        """Log Python's warnings: printing them could block."""
        self._captures = True
        logging.captureWarnings(True)

    def close(self) -> None:
        """Write buffered lines for at most a few seconds, then end the thread. Unwritten lines are
        counted; later records are ignored."""
        logging.getLogger().removeHandler(self.handler)
        if self._captures:
            logging.captureWarnings(False)
        self.handler.finish()
        self._buffer.end()
        self._writer.thread.join(self._closing_seconds)
        if self._writer.thread.is_alive():
            self._buffer.abandon()
        elif self._file is not None:
            self._file.close()


def configure_logging(
    log_format: LogFormat,
    level: str,
    *,
    stream: TextIO | None = None,
    file: LogFile | None = None,
    clock: Clock | None = None,
) -> LogOutput:
    """Send all log records of the process to ``file``, else ``stream`` (default: standard error).
    The caller closes the returned output. Raises OSError, and changes nothing, if the file cannot
    be opened."""
    clock = clock or SystemClock()
    rolling = RollingHandler(file, clock=clock) if file else None
    output = LogOutput(
        log_format=log_format, stream=stream or sys.stderr, file=rolling, clock=clock
    )
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(output.handler)
    root.setLevel(level.upper())
    # One access line per publish would hide everything else.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    output.start()
    output.capture_warnings()
    return output
