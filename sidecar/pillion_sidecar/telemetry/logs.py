"""Structured logs on standard error or in a file: one line for each record, with a stable event
name.

No record ever waits: a thread writes the lines from a buffer that is bounded in records and bytes
(:class:`LineBuffer`). A record that does not fit is dropped, counted, and reported in a line once
there is space. So a stalled reader costs lines, and never a delivery. Lines that clients can
trigger are limited (:class:`LineBound`).
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

#: Lines of one kind that are written within so many seconds.
MOST_LINES = 5
SECONDS = 60.0
#: Kinds that are counted separately; further ones are counted together.
MOST_KINDS = 50
#: Loggers of invalid requests and aborted connections. A message of asyncio names its task or
#: transport, so each is a kind of its own.
FROM_OUTSIDE = frozenset(("aiohttp.server", "asyncio", "pillion.http", "pillion.operator.webhook"))
#: Lines and characters that may be buffered.
BUFFERED_RECORDS = 10_000
BUFFERED_BYTES = 4 << 20
#: The share of the buffer for records of a level and all below it, so that a flood of one level
#: leaves space for more severe ones.
_SHARES = ((logging.ERROR, 1.0), (logging.WARNING, 0.875), (0, 0.5))
#: Characters of one field, and of one line; what is longer is cut.
MAXIMUM_FIELD = 16_384
MAXIMUM_LINE = 65_536
#: Seconds that the end waits for a slow reader.
CLOSING_SECONDS = 5.0
logger = logging.getLogger("pillion.log")
#: The attributes of every record of the logging module; others come from ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
#: Time, level, event, message and logger.
_FIXED_FIELDS = 5
#: Characters that need quotes in a logfmt value.
_QUOTED_IN_LOGFMT = frozenset(' "=\\')


class Kind(NamedTuple):
    """The common part of lines that are counted together."""

    logger: str
    #: Before its arguments are put in: they differ from one request to the next.
    message: str
    #: The name of an exception's class.
    error: str | None


class LeftOut(NamedTuple):
    kind: Kind
    lines: int


#: The kind of all lines beyond :data:`MOST_KINDS`.
OTHERS = Kind("", "lines of other kinds", None)


def kind_of(record: logging.LogRecord) -> Kind | None:
    """Return the kind of a line that a client can trigger; None for every other line."""
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
    """Says which lines are written. Times are those of ``Clock.monotonic()``.

    A client that repeatedly sends invalid HTTP or disconnects early causes a few lines a minute and
    a count of the rest. All other lines are written (S0.11). Pure.
    """

    def __init__(self) -> None:
        # In the order in which their times began, so that they end in it too.
        self._kinds: dict[Kind, _Written] = {}

    def admits(self, kind: Kind, *, now: float) -> bool:
        """Whether a line is written; call :meth:`over` first."""
        written = self._kinds.get(kind)
        if written is None:
            if len(self._kinds) >= MOST_KINDS:
                kind = OTHERS
            written = self._kinds.setdefault(kind, _Written(now))
        written.lines += 1
        return written.lines <= MOST_LINES

    def over(self, *, now: float) -> list[LeftOut]:
        """Remove and return the suppressed lines of kinds whose minute has ended."""
        ended = []
        for kind, written in self._kinds.items():
            if now - written.began < SECONDS:
                break
            ended.append(kind)
        return self._take_out(ended)

    def finish(self) -> list[LeftOut]:
        """Remove and return the suppressed lines of all kinds."""
        return self._take_out(list(self._kinds))

    def _take_out(self, kinds: list[Kind]) -> list[LeftOut]:
        counts = [(kind, self._kinds.pop(kind).lines - MOST_LINES) for kind in kinds]
        return [LeftOut(kind, count) for kind, count in counts if count > 0]


class LineBuffer:
    """Lines in order, from any thread to one."""

    def __init__(self, *, records: int = BUFFERED_RECORDS, size: int = BUFFERED_BYTES) -> None:
        """``size``: characters."""
        self._records = records
        self._most = size
        self._lines: deque[str] = deque()
        self._size = 0
        self._ended = False
        self._changed = threading.Condition(threading.Lock())
        #: Lines that found no room.
        self.dropped = 0
        # Those that no line has reported yet, by level.
        self._untold: dict[str, int] = {}

    def offer(self, line: str, level: int) -> None:
        """Append a line if its level has room; else count it."""
        with self._changed:
            if self._ended or not self._has_room(len(line), level):
                self._count(level)
                return
            self._lines.append(line)
            self._size += len(line)
            self._changed.notify()

    def drop(self, level: int) -> None:
        """Count a record that has no line."""
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
        """Return the next line, once there is one; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ended)
            if not self._lines:
                return None
            line = self._lines.popleft()
            self._size -= len(line)
            return line

    def take_dropped(self) -> dict[str, int]:
        """Return how many lines of each level were dropped and not told yet, once there is room
        for every level again; else nothing."""
        with self._changed:
            if not self._untold or not self._has_room(0, 0):
                return {}
            untold, self._untold = self._untold, {}
            return untold

    def end(self) -> None:
        """Take no more lines; :meth:`take` ends once all are taken."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Count and discard what is left."""
        with self._changed:
            self.dropped += len(self._lines)
            self._lines.clear()
            self._size = 0


class LogFormat(StrEnum):
    JSON = "json"
    LOGFMT = "logfmt"


class StructuredFormatter(logging.Formatter):
    """Formats a record as one line: time, level, event, message, logger, then its own fields."""

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
        # A library's record has no event; its logger's name stands in for one.
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
            # A message that does not fit its arguments, or a field that cannot be written.
            self.handleError(record)

    def finish(self) -> None:
        """Remove and return the suppressed lines of all kinds."""
        self.acquire()
        try:
            self._tell(self._bound.finish())
        finally:
            self.release()

    def _tell(self, left_out: Iterable[LeftOut]) -> None:
        for kind, count in left_out:
            # Not by the logger: within a handler that may do nothing (Python 3.14).
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
        """Count a record that cannot be formatted; the base class would print, and may block."""
        self._buffer.drop(record.levelno)


class _Writer:
    def __init__(
        self, buffer: LineBuffer, write: Callable[[str], None], formatter: logging.Formatter
    ) -> None:
        self._buffer = buffer
        self._write = write
        self._formatter = formatter
        #: Lines that could not be written.
        self.failed = 0
        # A daemon: a reader that never reads must not keep the process.
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
            # The reader is gone, or the stream closed.
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
    """Return what writes one line to ``stream``.

    To its descriptor where it has one: no lock of the stream is held while a reader stalls, so the
    interpreter can end meanwhile.
    """
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
                # Another process has made the descriptor so.
                select.select([], [descriptor], [])

    return write_bytes


class LogOutput:
    """The output of log records, until it is closed."""

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
        """With a ``file`` nothing goes to ``stream``. It is closed with the output."""
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
        """Records that found no room, and any that the stream or the file did not take."""
        file = self._file.dropped if self._file else 0
        return self._buffer.dropped + self._writer.failed + file

    def start(self) -> None:
        self._writer.thread.start()

    def capture_warnings(self) -> None:
        """Log Python's own warnings: printing them could block on a reader."""
        self._captures = True
        logging.captureWarnings(True)

    def close(self) -> None:
        """Write the buffered lines, for a few seconds at most, then end the thread. Later records
        are ignored; lines that the reader has not taken by then are lost and counted."""
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
    """Send everything that is logged in this process to ``file``, else to ``stream`` [standard
    error].

    ``level`` is a name such as INFO. The caller closes the returned output at the end. Raises
    OSError, and changes nothing, where the file cannot be opened.
    """
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
    # An access log line for each publish would drown everything else.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    output.start()
    output.capture_warnings()
    return output
