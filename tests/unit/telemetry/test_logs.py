"""Structured logs."""

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.telemetry.bounding import MOST_LINES, SECONDS
from pillion_sidecar.telemetry.logs import (
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


def test_a_stalled_reader_costs_records_below_warning_which_are_counted() -> None:
    stream = _StalledStream()
    output = LogOutput(log_format=LogFormat.JSON, stream=stream, buffered_records=2)
    output.start()
    logger = logging.getLogger("pillion.test.stalled")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(output.handler)
    logger.info("taken by the thread")
    stream.asked.wait()
    for number in range(5):
        logger.info("buffered or dropped %d", number)
    assert output.dropped == 3
    stream.taken.set()
    logger.warning("a discard")
    output.close()
    logger.removeHandler(output.handler)
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert messages == [
        "taken by the thread",
        "buffered or dropped 0",
        "buffered or dropped 1",
        "a discard",
    ]
