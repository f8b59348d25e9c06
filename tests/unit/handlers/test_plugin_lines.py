"""Lines of a plug-in: split, shortened, counted."""

import logging

import pytest

from pillion_sidecar.handlers.plugin.lines import (
    LINE_LIMIT,
    MOST_LINES,
    SECONDS,
    LinkNames,
    PluginLog,
    Splitter,
)
from pillion_sidecar.handlers.plugin.messages import MessageError
from pillion_sidecar.testing import FakeTime


def split(splitter: Splitter) -> list[bytes]:
    lines = []
    while (line := splitter.next()) is not None:
        lines.append(line)
    return lines


def test_lines_come_in_any_pieces() -> None:
    splitter, lines = Splitter(), []
    for byte in b"one\n\ntwo\nthr":
        splitter.feed(bytes([byte]))
        lines += split(splitter)
    assert lines == [b"one", b"", b"two"]
    assert splitter.has_part


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_has_at_most_so_many_bytes(ending: bytes) -> None:
    splitter = Splitter(limit=4)
    splitter.feed(b"four\n")
    assert split(splitter) == [b"four"]
    splitter.feed(b"fiver" + ending)
    with pytest.raises(MessageError, match="more than 4 bytes"):
        splitter.next()


@pytest.fixture
def log(fake_time: FakeTime, caplog: pytest.LogCaptureFixture) -> PluginLog:
    caplog.set_level(logging.DEBUG, "pillion.plugin")
    return PluginLog(LinkNames(plugin="test", destination="a"), clock=fake_time)


def test_a_line_of_standard_error_is_one_line_of_the_log(
    log: PluginLog, caplog: pytest.LogCaptureFixture
) -> None:
    for piece in (b"a\x1b[1m", b"b\n\n  \nsec", b"ond \xff", b"\n", b"rest"):
        log.feed(piece)
    log.flush()
    assert caplog.messages == [
        "plug-in test: a [1mb",
        "plug-in test: second \ufffd",
        "plug-in test: rest",
    ]
    assert log.last == "rest"


def test_a_long_line_is_cut(log: PluginLog, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        log.feed(b"x" * 1000)
    log.feed(b"\nnext\n")
    assert caplog.messages == ["plug-in test: " + "x" * LINE_LIMIT, "plug-in test: next"]


def test_more_lines_are_counted(
    log: PluginLog, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    log.feed(b"x\n" * (MOST_LINES + 7))
    assert len(caplog.messages) == MOST_LINES
    fake_time.advance(SECONDS)
    log.feed(b"y\n")
    assert caplog.messages[MOST_LINES:] == [
        "plug-in test: 7 more lines are not shown",
        "plug-in test: y",
    ]
    log.log_left_out()
    assert len(caplog.messages) == MOST_LINES + 2


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", logging.DEBUG),
        ("warning", logging.WARNING),
        ("error", logging.ERROR),
        ("loud", logging.INFO),
        (None, logging.INFO),
    ],
)
def test_a_log_message_has_its_level(
    log: PluginLog, caplog: pytest.LogCaptureFixture, level: object, expected: int
) -> None:
    log.note(level, "two\nlines")
    log.note(level, {"no": "text"})
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (expected, "plug-in test: two lines")


def test_nothing_is_shown_where_it_may_quote_a_secret(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    names = LinkNames(plugin="test", destination="a", is_hidden=True)
    log = PluginLog(names, clock=fake_time)
    log.feed(b"planted-secret\n" * 100)
    log.note("error", "planted-secret")
    log.log_left_out()
    assert (log.last, caplog.text) == ("", "")
