"""``pillion validate DIR``: what it prints and how it ends."""

import argparse
import json
from pathlib import Path

import pytest

from pillion_cli.commands import validate
from pillion_cli.exits import CommandError, Exit
from support.resources import destination, service, write


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    validate.add_arguments(parser)
    return validate.run(parser.parse_args(arguments))


def test_a_valid_folder_is_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap"}
    write(tmp_path, destination(), destination("two"), other)
    assert run(str(tmp_path)) == Exit.OK
    warning, summary = capsys.readouterr().out.splitlines()
    assert warning.startswith("warning: resources.yaml:")
    assert summary.startswith(
        "valid: service default, 2 destinations, 0 filters, 0 subscriptions; revision "
    )


def test_problems_are_printed_one_to_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(write(tmp_path, destination(suspended=1, maxInFlight=2)))) == Exit.FAILED
    *lines, summary = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["resources.yaml:10"]
    assert "ListenerDestination/ops: spec.suspended: is not true or false (value 1)." in lines[0]
    assert summary == "1 problem in 1 file"


def test_json_is_for_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(write(tmp_path, destination(suspended=1))), "--output", "json") == Exit.FAILED
    document = json.loads(capsys.readouterr().out)
    assert not document["valid"]
    assert document["problems"][0]["field"] == "spec.suspended"
    assert run(str(write(tmp_path, destination())), "--output", "json") == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert document["valid"]
    assert document["destinations"] == 1


def test_a_service_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write(tmp_path, service("a"), service("b")))
    assert run(folder) == Exit.FAILED
    assert run(folder, "--service", "b") == Exit.OK
    assert "valid: service b" in capsys.readouterr().out


def test_a_folder_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is not a folder") as caught:
        run(str(tmp_path / "missing"))
    assert caught.value.code is Exit.USAGE
