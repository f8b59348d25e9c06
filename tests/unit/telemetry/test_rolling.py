"""The log file that rolls (S3.12)."""

import json
import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from pillion_sidecar.telemetry.logs import LogFormat, LogOutput, configure_logging
from pillion_sidecar.telemetry.rolling import Frequency, LogFile, RollingHandler
from pillion_sidecar.testing import FakeTime

FULL = Path("/dev/full")
NOON = datetime.fromisoformat("2026-03-01T12:00:00Z").timestamp()
HOUR = 3600.0


class Log:
    """A log file of a process, at noon."""

    def __init__(
        self,
        path: Path,
        *,
        megabytes: float | None = None,
        frequency: Frequency | None = None,
        keep: int | None = None,
        pid: int = 7,
    ) -> None:
        self.path = path
        self.time = FakeTime(epoch=NOON)
        self.complaints: list[str] = []
        self.handler = RollingHandler(
            LogFile(
                path=path,
                maximum_bytes=None if megabytes is None else int(megabytes * 1_000_000),
                frequency=frequency,
                keep=keep,
            ),
            clock=self.time,
            complain=self.complaints.append,
            pid=pid,
        )

    def say(self, *messages: str) -> None:
        for message in messages:
            self.handler.emit(
                logging.LogRecord("pillion.test", logging.INFO, "", 1, message, (), None)
            )

    def texts(self) -> dict[str, str]:
        """All files of the folder."""
        return {file.name: file.read_text() for file in self.path.parent.iterdir()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pillion.log"


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_an_existing_file_is_appended_to(path: Path) -> None:
    path.write_text("before\n")
    Log(path, megabytes=1).say("after")
    assert path.read_text() == "before\nafter\n"


def test_the_message_after_the_size_was_reached_rolls_the_file(path: Path) -> None:
    log = Log(path, megabytes=0.00001)
    log.say("12345678", "9", "a")
    assert log.texts() == {
        "pillion.log": "a\n",
        "pillion.log_7.2026-03-01.1": "12345678\n9\n",
    }


def test_a_file_that_was_full_before_the_start_is_rolled_by_the_first_message(path: Path) -> None:
    path.write_text("0123456789")
    log = Log(path, megabytes=0.00001)
    assert list(log.texts()) == ["pillion.log"]
    log.say("a")
    assert log.texts() == {"pillion.log": "a\n", "pillion.log_7.2026-03-01.1": "0123456789"}


@pytest.mark.parametrize(
    ("frequency", "stays", "rolls", "date"),
    [
        (Frequency.HOURLY, HOUR - 1, HOUR, "2026-03-01"),
        (Frequency.DAILY, 12 * HOUR - 1, 12 * HOUR, "2026-03-02"),
    ],
)
def test_the_first_message_of_another_hour_or_day_rolls_the_file(
    path: Path, frequency: Frequency, stays: float, rolls: float, date: str
) -> None:
    log = Log(path, frequency=frequency)
    log.say("first")
    log.time.advance(stays)
    log.say("of the same")
    log.time.advance(rolls - stays)
    log.say("of another")
    assert log.texts() == {
        "pillion.log": "of another\n",
        f"pillion.log_7.{date}.1": "first\nof the same\n",
    }


def test_whichever_of_two_criteria_comes_first_rolls_the_file(path: Path) -> None:
    # The example of the source document: full at 11 pm, and rolled again at midnight.
    log = Log(path, megabytes=0.00001, frequency=Frequency.DAILY)
    log.say("0123456789")
    log.time.advance(11 * HOUR)
    log.say("at eleven")
    log.time.advance(HOUR)
    log.say("midnight")
    assert log.texts() == {
        "pillion.log_7.2026-03-01.1": "0123456789\n",
        "pillion.log_7.2026-03-02.2": "at eleven\n",
        "pillion.log": "midnight\n",
    }


def test_a_file_of_another_day_is_rolled_by_the_first_message_of_the_next_run(path: Path) -> None:
    path.write_text("yesterday\n")
    os.utime(path, (NOON, NOON - 24 * HOUR))
    log = Log(path, frequency=Frequency.DAILY)
    log.say("today")
    assert log.texts() == {"pillion.log": "today\n", "pillion.log_7.2026-03-01.1": "yesterday\n"}


def test_an_empty_file_is_not_rolled(path: Path) -> None:
    log = Log(path, frequency=Frequency.DAILY)
    log.time.advance(24 * HOUR)
    log.say("the first")
    assert log.texts() == {"pillion.log": "the first\n"}


def test_without_a_criterion_nothing_rolls(path: Path) -> None:
    log = Log(path)
    log.say("a" * 2_000_000)
    log.time.advance(1000 * HOUR)
    log.say("b")
    assert list(log.texts()) == ["pillion.log"]


def test_a_run_with_the_number_of_another_writes_over_nothing(path: Path) -> None:
    for text in ("one", "two", "three"):
        Log(path, megabytes=0.000001).say(text)
    assert Log(path).texts() == {
        "pillion.log": "three\n",
        "pillion.log_7.2026-03-01.1": "one\n",
        "pillion.log_7.2026-03-01.2": "two\n",
    }


def test_so_many_rolled_files_stay_of_all_runs_and_other_files_are_left_alone(path: Path) -> None:
    others = ["pillion.log_x.2026-03-01.1", "pillion.log_7.2026-03-01.gz", "pillion.logs"]
    for name in others:
        path.with_name(name).write_text("other")
    before = Log(path, megabytes=0.000001, pid=6)
    before.say(*(f"before {number}" for number in range(3)))
    log = Log(path, megabytes=0.000001, keep=3)
    log.say("a", "b", *(f"last {number}" for number in range(9)), "end")
    rolled = {name: text for name, text in log.texts().items() if name not in others}
    assert rolled == {
        "pillion.log": "end\n",
        "pillion.log_7.2026-03-01.12": "last 8\n",
        "pillion.log_7.2026-03-01.11": "last 7\n",
        "pillion.log_7.2026-03-01.10": "last 6\n",
    }
    assert set(others) <= log.texts().keys()


def test_what_a_full_disk_does_not_take_is_counted_and_said_once() -> None:
    log = Log(FULL)
    log.say("a", "b", "c")
    assert log.handler.dropped == 3
    assert log.complaints == ["the log file /dev/full is in trouble: No space left on device"]


def test_half_a_line_is_taken_back_and_the_next_one_is_whole(path: Path) -> None:
    log = Log(path)
    log.say("before")
    with no_file_longer_than(len("before\n") + 4):
        log.say("too long")
        log.say("ok!")
    log.say("after")
    assert path.read_text() == "before\nok!\nafter\n"
    assert log.handler.dropped == 1
    assert len(log.complaints) == 1


def test_a_file_that_cannot_be_rolled_is_gone_on_with(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "logs", tmp_path / "elsewhere"
    folder.mkdir()
    log = Log(folder / "pillion.log", megabytes=0.000001)
    log.say("a")
    folder.rename(elsewhere)
    log.say("b", "c")
    assert (elsewhere / "pillion.log").read_text() == "a\nb\nc\n"
    assert log.handler.dropped == 0
    assert len(log.complaints) == 1
    elsewhere.rename(folder)
    log.say("d")
    assert sorted(log.texts().values()) == ["a\nb\nc\n", "d\n"]


def test_trouble_that_comes_again_is_said_again(path: Path) -> None:
    log = Log(path)
    for _ in range(2):
        with no_file_longer_than(0):
            log.say("lost", "lost")
        log.say("taken")
    assert len(log.complaints) == 2
    assert path.read_text() == "taken\ntaken\n"


def test_what_is_no_utf_8_does_not_stop_the_log(path: Path) -> None:
    Log(path).say("a\ud800b")
    assert path.read_text() == "a?b\n"


@pytest.fixture
def _own_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("_own_logging")
def test_the_log_goes_to_the_file_alone(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = configure_logging(LogFormat.JSON, "INFO", file=LogFile(path=path))
    logging.getLogger("pillion.test").info("hello", extra={"event": "greeted"})
    output.close()
    assert json.loads(path.read_text())["event"] == "greeted"
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("_own_logging")
def test_what_the_file_did_not_take_is_among_the_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output: LogOutput = configure_logging(LogFormat.JSON, "INFO", file=LogFile(path=FULL))
    logging.getLogger("pillion.test").error("hello")
    output.close()
    assert output.dropped == 1
    assert "No space left on device" in capsys.readouterr().err


@pytest.mark.usefixtures("_own_logging")
def test_a_file_that_cannot_be_opened_changes_nothing(tmp_path: Path) -> None:
    handlers = list(logging.getLogger().handlers)
    with pytest.raises(FileNotFoundError):
        configure_logging(
            LogFormat.JSON, "INFO", file=LogFile(path=tmp_path / "none" / "pillion.log")
        )
    assert logging.getLogger().handlers == handlers
