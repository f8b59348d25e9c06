"""What a container leaves behind for the kubelet."""

import json
import logging
from pathlib import Path

import pytest

from pillion_cli.serving import MOST_BYTES, leave_word, termination_message


@pytest.mark.parametrize("left", [0, 7])
def test_what_is_left_is_written_where_somebody_looks_for_it(tmp_path: Path, left: int) -> None:
    path = tmp_path / "termination-log"
    path.touch()
    leave_word(left, destinations={}, path=path)
    assert json.loads(path.read_text()) == {"left": left}


def test_what_is_left_is_told_by_destination(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.touch()
    leave_word(12, destinations={"siem": 9, "ops": 3}, path=path)
    assert json.loads(path.read_text()) == {
        "left": 12,
        "destinations": {"siem": 9, "ops": 3},
        "others": 0,
    }


def test_as_many_destinations_are_named_as_the_kubelet_keeps() -> None:
    destinations = {f"listener-{number:05}": 10_000 - number for number in range(5000)}
    message = termination_message(sum(destinations.values()), destinations)
    assert len(message.encode()) <= MOST_BYTES
    told = json.loads(message)
    named = told["destinations"]
    assert list(named) == list(destinations)[: len(named)]
    assert len(named) > 100
    assert told["others"] == 5000 - len(named)
    assert told["left"] == sum(destinations.values())


def test_a_name_that_does_not_fit_leaves_the_sum() -> None:
    message = termination_message(1, {"x" * 5000: 1})
    assert json.loads(message) == {"left": 1, "others": 1}


def test_nothing_is_made_where_nobody_does(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    leave_word(7, destinations={}, path=path)
    assert not path.exists()


def test_nothing_is_said_that_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.touch()
    leave_word(None, destinations={}, path=path)
    assert path.read_text() == ""


def test_a_file_that_takes_nothing_is_no_reason_to_fail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        leave_word(7, destinations={}, path=tmp_path)
    (record,) = caplog.records
    assert "termination message cannot be written: Is a directory" in record.getMessage()
