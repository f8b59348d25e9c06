"""Structured logs on standard error or in a file: one line for each record, with a stable event
name.

No record ever waits: lines are written by a thread, and the buffer between is bounded in records
and in bytes (``telemetry.linebuffer``). A record that finds no room is dropped, counted, and told
in a line once there is room. So a reader that stalls costs lines, and never a delivery. Lines whose
number others decide are bounded (``telemetry.bounding``), and so are those for discards
(``delivery.discards``).
"""

import json
import logging
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TextIO

from pillion_sidecar.clock import Clock, SystemClock
from pillion_sidecar.config.escaping import escape_controls
from pillion_sidecar.telemetry.bounding import SECONDS, LeftOut, LineBound, kind_of
from pillion_sidecar.telemetry.linebuffer import BUFFERED_BYTES, BUFFERED_RECORDS, LineBuffer
from pillion_sidecar.telemetry.rolling import LogFile, RollingHandler

#: Characters of one field, and of one line; what is longer is cut.
MAXIMUM_FIELD = 16_384
MAXIMUM_LINE = 65_536
#: Seconds that the end waits for a slow reader.
CLOSING_SECONDS = 5.0

logger = logging.getLogger("pillion.log")

#: What every record of the logging module has; whatever else it has came by ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

#: Time, level, event, message and logger: what every line has.
_FIXED_FIELDS = 5
#: What a logfmt value may not have without being quoted.
_QUOTED_IN_LOGFMT = frozenset(' "=\\')


class LogFormat(StrEnum):
    """How a record is written."""

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
    """Puts formatted lines into the buffer."""

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
        """Tell what was left out until now."""
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
        """Count a record that has no text; the library's own would print, and wait for a reader."""
        self._buffer.drop(record.levelno)


class _Writer:
    """Writes the lines, in a thread."""

    def __init__(
        self, buffer: LineBuffer, write: Callable[[str], None], formatter: logging.Formatter
    ) -> None:
        self._buffer = buffer
        self._write = write
        self._formatter = formatter
        #: Lines that nobody took.
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
    """The way of the log records, until it is closed."""

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
        """Start the thread that writes."""
        self._writer.thread.start()

    def capture_warnings(self) -> None:
        """Have Python's own warnings logged: printed they would wait for a reader."""
        self._captures = True
        logging.captureWarnings(True)

    def close(self) -> None:
        """Write what is buffered, for a few seconds at most, then end the thread. Records that come
        later are not ours, and what a reader has not taken by then is lost and counted."""
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
