"""Structured logs on standard error or in a file: one line for each record, with a stable event
name.

Lines are written by a thread, so that a reader who stalls does not stall the event loop. The buffer
between is bounded. When it is full, records below WARNING are dropped and counted; a WARNING waits
for room, since every discard must be logged (S0.11). Lines whose number others decide are bounded
(``telemetry.bounding``).
"""

import json
import logging
import queue
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from enum import StrEnum
from logging.handlers import QueueHandler, QueueListener
from typing import Any, TextIO

from pillion_sidecar.clock import Clock, SystemClock
from pillion_sidecar.telemetry.bounding import SECONDS, LeftOut, LineBound, kind_of
from pillion_sidecar.telemetry.rolling import LogFile, RollingHandler

#: Records that may wait to be written: some 5 MB.
BUFFERED_RECORDS = 10_000

logger = logging.getLogger("pillion.log")

#: What every record of the logging module has; whatever else it has came by ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

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
        return self._encode(dict(self._fields(record)))

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


def _json_line(fields: dict[str, Any]) -> str:
    return json.dumps(fields, default=str, ensure_ascii=False)


def _logfmt_line(fields: dict[str, Any]) -> str:
    return " ".join(f"{name}={_logfmt_value(value)}" for name, value in fields.items())


def _logfmt_value(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if text and text.isprintable() and not _QUOTED_IN_LOGFMT.intersection(text):
        return text
    return json.dumps(text, ensure_ascii=False)


class _BufferingHandler(QueueHandler):
    """Puts formatted lines into the buffer."""

    def __init__(self, buffer: "queue.Queue[logging.LogRecord]", *, clock: Clock) -> None:
        super().__init__(buffer)
        self._buffer = buffer
        self._clock = clock
        self._bound = LineBound()
        self.dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        now = self._clock.monotonic()
        self._tell(self._bound.over(now=now))
        kind = kind_of(record)
        if kind is None or self._bound.admits(kind, now=now):
            super().emit(record)

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
            told = logger.makeRecord(
                logger.name,
                logging.WARNING,
                __file__,
                0,
                "%d more lines within %.0f s were left out: %s",
                (count, SECONDS, kind.message.replace("%s", "…")),
                None,
                extra={"event": "log-lines-left-out", "of": kind.logger, "count": count},
            )
            super().emit(told)

    def enqueue(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self._buffer.put(record)
            return
        try:
            self._buffer.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class _Writer(QueueListener):
    """Writes the lines, in a thread."""

    def __init__(self, buffer: "queue.Queue[Any]", handler: logging.Handler) -> None:
        super().__init__(buffer, handler)
        self._buffer = buffer

    def enqueue_sentinel(self) -> None:
        # The library's own does not wait, and fails on a full buffer.
        self._buffer.put(None)


class LogOutput:
    """The way of the log records, until it is closed."""

    def __init__(
        self,
        *,
        log_format: LogFormat,
        stream: TextIO,
        file: RollingHandler | None = None,
        buffered_records: int = BUFFERED_RECORDS,
        clock: Clock | None = None,
    ) -> None:
        """With a ``file`` nothing goes to ``stream``. It is closed with the output."""
        buffer: queue.Queue[logging.LogRecord] = queue.Queue(buffered_records)
        self.handler = _BufferingHandler(buffer, clock=clock or SystemClock())
        self.handler.setFormatter(StructuredFormatter(log_format))
        self._file = file
        self._writer = _Writer(buffer, file or logging.StreamHandler(stream))

    @property
    def dropped(self) -> int:
        """Records below WARNING that found no room, and any that the file did not take."""
        return self.handler.dropped + (self._file.dropped if self._file else 0)

    def start(self) -> None:
        """Start the thread that writes."""
        self._writer.start()

    def close(self) -> None:
        """Write what is buffered, then end the thread. Records that come later are not ours."""
        logging.getLogger().removeHandler(self.handler)
        self.handler.finish()
        self._writer.stop()
        if self._file is not None:
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
    return output
