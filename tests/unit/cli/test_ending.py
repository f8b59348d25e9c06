"""What a container leaves behind for the kubelet."""

import json
from pathlib import Path

import pytest

from pillion_cli.ending import leave_word


@pytest.mark.parametrize("left", [0, 7])
def test_what_is_left_is_written_where_somebody_looks_for_it(tmp_path: Path, left: int) -> None:
    path = tmp_path / "termination-log"
    path.touch()
    leave_word(left, path=path)
    assert json.loads(path.read_text()) == {"left": left}


def test_nothing_is_made_where_nobody_does(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    leave_word(7, path=path)
    assert not path.exists()


def test_nothing_is_said_that_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.touch()
    leave_word(None, path=path)
    assert path.read_text() == ""


def test_a_file_that_takes_nothing_is_no_reason_to_fail(tmp_path: Path) -> None:
    leave_word(7, path=tmp_path)
