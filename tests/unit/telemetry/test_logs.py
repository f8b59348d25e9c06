"""Structured logs."""

import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.telemetry.logs import (
    MAXIMUM_FIELD,
    MAXIMUM_LINE,
    MOST_LINES,
    SECONDS,
    LogFormat,
    LogOutput,
    StructuredFormatter,
    configure_logging,
)
from pillion_sidecar.testing import FakeTime


def _record(message: str = "hello", **extra: object) -> logging.LogRecord:
    record = logging.LogRecord("pillion.test", logging.WARNING, __file__, 1, message, (), None)
    record.created = 1_700_000_000.25
    vars(record).update(extra)
    return record


@pytest.fixture
def _own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_json_line_has_the_event_and_its_fields_and_leaves_out_what_is_none() -> None:
    record = _record(event="indication-discarded", destination="siem", identifier=None, attempts=4)
    line = json.loads(StructuredFormatter(LogFormat.JSON).format(record))
    assert line == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "event": "indication-discarded",
        "message": "hello",
        "logger": "pillion.test",
        "destination": "siem",
        "attempts": 4,
    }


def test_a_logfmt_line_quotes_what_needs_it() -> None:
    record = _record('said "no"', event="e", empty="", path="C:\\x", on=True)
    line = StructuredFormatter(LogFormat.LOGFMT).format(record)
    assert 'event=e message="said \\"no\\"" logger=pillion.test' in line
    assert line.endswith('empty="" path="C:\\\\x" on=true')


def test_a_library_record_has_its_logger_for_an_event() -> None:
    line = json.loads(StructuredFormatter(LogFormat.JSON).format(_record()))
    assert line["event"] == "pillion.test"


def test_a_traceback_stays_on_one_line() -> None:
    record = _record()
    try:
        raise ValueError("wrong")
    except ValueError:
        record.exc_info = sys.exc_info()
    for log_format in LogFormat:
        line = StructuredFormatter(log_format).format(record)
        assert "\n" not in line
        assert "ValueError: wrong" in line


@given(message=st.text(), value=st.text() | st.integers() | st.binary() | st.floats())
def test_any_record_is_one_line(message: str, value: object) -> None:
    for log_format in LogFormat:
        line = StructuredFormatter(log_format).format(_record(message, value=value))
        assert line.count("\n") == 0


@pytest.mark.usefixtures("_own_logging")
def test_what_was_logged_is_written_by_the_time_the_output_is_closed() -> None:
    stream = io.StringIO()
    output = configure_logging(LogFormat.JSON, "info", stream=stream)
    logger = logging.getLogger("pillion.test")
    for number in range(100):
        logger.info("n", extra={"event": "counted", "number": number})
    logger.debug("not wanted")
    output.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["number"] for line in lines] == list(range(100))


@pytest.mark.usefixtures("_own_logging")
def test_a_flood_from_outside_is_a_few_lines_a_minute_and_a_count(fake_time: FakeTime) -> None:
    stream = io.StringIO()
    output = configure_logging(LogFormat.JSON, "info", stream=stream, clock=fake_time)
    http, own = logging.getLogger("pillion.http"), logging.getLogger("pillion.test")
    for number in range(1000):
        http.error("Error handling request from %s", f"192.0.2.{number % 250}")
        own.warning("a discard")
    fake_time.advance(SECONDS)
    own.info("later")
    for _ in range(MOST_LINES + 2):
        http.error("Error handling request from %s", "192.0.2.1")
    output.close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["message"] for line in lines].count("a discard") == 1000
    rest = [line for line in lines if line["logger"] != "pillion.test"]
    assert [line["event"] for line in rest] == [
        *["pillion.http"] * MOST_LINES,
        "log-lines-left-out",
        *["pillion.http"] * MOST_LINES,
        "log-lines-left-out",
    ]
    first, last = [line for line in rest if line["logger"] == "pillion.log"]
    assert (first["count"], first["of"], last["count"]) == (995, "pillion.http", 2)
    assert first["message"] == (
        "995 more lines within 60 s were left out: Error handling request from …"
    )
    assert lines[lines.index(first) + 1]["message"] == "later"


@pytest.mark.usefixtures("_own_logging")
def test_whoever_goes_before_the_answer_again_and_again_gets_a_few_lines(
    fake_time: FakeTime,
) -> None:
    stream = io.StringIO()
    output = configure_logging(LogFormat.JSON, "info", stream=stream, clock=fake_time)
    for _ in range(1000):
        logging.getLogger("asyncio").warning("SSL connection is closed")
    output.close()
    *written, last = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["message"] for line in written] == ["SSL connection is closed"] * MOST_LINES
    assert (last["event"], last["of"], last["count"]) == ("log-lines-left-out", "asyncio", 995)


class _StalledStream(io.StringIO):
    """A reader who takes nothing until told to."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = threading.Event()
        self.asked = threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        self.taken.wait()
        return super().write(text)


def _stalled_output(
    stream: _StalledStream, *, records: int = 8, size: int = 1 << 20, closing: float = 30.0
) -> tuple[LogOutput, logging.Logger]:
    """Return an output whose thread waits for its reader with one line."""
    output = LogOutput(
        log_format=LogFormat.JSON,
        stream=stream,
        buffered_records=records,
        buffered_bytes=size,
        closing_seconds=closing,
    )
    output.start()
    logger = logging.getLogger("pillion.test.stalled")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.handlers[:] = [output.handler]
    logger.info("taken by the thread")
    stream.asked.wait()
    return output, logger


def _messages(stream: io.StringIO) -> list[str]:
    return [json.loads(line)["message"] for line in stream.getvalue().splitlines()]


def test_no_record_waits_for_a_stalled_reader_and_each_level_has_its_share() -> None:
    stream = _StalledStream()
    output, logger = _stalled_output(stream)
    # With a buffer whose WARNINGs wait, this would never end.
    for level in (logging.INFO, logging.WARNING, logging.ERROR):
        for number in range(10):
            logger.log(level, "%s %d", logging.getLevelName(level), number)
    assert output.dropped == 30 - 8
    stream.taken.set()
    output.close()
    assert _messages(stream) == [
        "taken by the thread",
        *(f"INFO {number}" for number in range(4)),
        "WARNING 0",
        "22 records found no room in the log's buffer: its reader is slow "
        "(6 INFO, 7 WARNING, 9 ERROR)",
        "WARNING 1",
        "WARNING 2",
        "ERROR 0",
    ]


def test_the_buffer_is_bounded_in_bytes_too() -> None:
    stream = _StalledStream()
    output, logger = _stalled_output(stream, records=1000, size=10_000)
    for _ in range(10):
        logger.error("x" * 3000)
    assert output.dropped == 7
    stream.taken.set()
    output.close()
    assert len(_messages(stream)) == 1 + 3 + 1


def test_what_was_dropped_is_told_as_soon_as_there_is_room() -> None:
    stream = _StalledStream()
    output, logger = _stalled_output(stream)
    for number in range(6):
        logger.info("%d", number)
    stream.taken.set()
    output.close()
    messages = _messages(stream)
    assert messages[:2] == ["taken by the thread", "0"]
    assert messages[2].startswith("2 records found no room")


def test_a_reader_that_never_reads_does_not_keep_the_end_waiting() -> None:
    stream = _StalledStream()
    output, logger = _stalled_output(stream, closing=0.0)
    logger.error("lost")
    output.close()
    assert output.dropped == 1
    stream.taken.set()


def test_a_reader_that_is_gone_costs_lines_which_are_counted() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        output = LogOutput(log_format=LogFormat.JSON, stream=stream)
        output.start()
        logging.getLogger("pillion.test").handle(_record())
        output.handler.handle(_record())
        output.close()
    assert output.dropped == 1


class _Unreadable:
    def __str__(self) -> str:
        raise ValueError("no text")


def test_a_record_without_a_text_is_dropped_and_nothing_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    output = LogOutput(log_format=LogFormat.JSON, stream=io.StringIO())
    output.start()
    output.handler.handle(_record(value=_Unreadable()))
    output.close()
    assert output.dropped == 1
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("log_format", LogFormat)
def test_what_turns_or_breaks_a_line_is_escaped(log_format: LogFormat) -> None:
    text = "a\x9b31m\x85\x7f\u2028\u2029\u202e\u2066\u200f\ufeff\U000e0041\ud800z é日"
    line = StructuredFormatter(log_format).format(_record(text, value=text))
    assert line.isprintable()
    assert line.count(r"a\u009b31m\u0085\u007f\u2028\u2029\u202e\u2066\u200f\ufeff") == 2
    assert line.count(r"\udb40\udc41\ud800z é日") == 2
    if log_format is LogFormat.JSON:
        assert json.loads(line)["value"].replace("\udb40\udc41", "\U000e0041") == text


def test_a_long_field_and_a_long_line_are_cut() -> None:
    line = StructuredFormatter(LogFormat.JSON).format(_record("x" * 20_000, other="y"))
    told = json.loads(line)
    assert told["message"] == "x" * MAXIMUM_FIELD + f"… ({20_000 - MAXIMUM_FIELD} more characters)"
    assert told["other"] == "y"
    line = StructuredFormatter(LogFormat.JSON).format(_record(many=["z" * 100] * 1000))
    assert len(line) < MAXIMUM_LINE
    assert json.loads(line)["cut"] is True
