"""``pillion init`` makes folders that the deliverer accepts, or none."""

import json
import os
from pathlib import Path

import pytest

from pillion_cli.commands.init import files_of
from pillion_cli.exits import Exit
from pillion_cli.main import main
from pillion_sidecar.config.loader import load_folder

FILES = ["service.yaml", "destination.yaml", "filter.yaml", "subscription.yaml"]


def test_the_folder_is_valid_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "pillion.d"
    assert main(["init", str(folder)]) == Exit.OK
    assert "`pillion listen --port 5990`" in (folder / "destination.yaml").read_text()
    *files, following = capsys.readouterr().out.splitlines()
    assert files == [str(folder / name) for name in FILES]
    assert following == f"next: pillion sidecar --resources {folder}"
    configuration = load_folder(folder)
    assert configuration.destinations["operations"].destination == "http://127.0.0.1:5990/"
    assert os.listdir(tmp_path) == ["pillion.d"]


def test_a_destination_and_a_namespace_are_as_they_are_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    url = "https://siem.example.com/events"
    arguments = ("--name", "siem", "--url", url, "--protocol", "CloudEvents")
    assert main(["init", str(folder), *arguments, "-n", "shop", "-o", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out) == {"folder": str(folder), "files": FILES}
    siem = load_folder(folder).destinations["siem"]
    assert (siem.destination, siem.protocol) == (url, "CloudEvents")
    assert "pillion listen" not in (folder / "destination.yaml").read_text()
    text = (folder / "subscription.yaml").read_text()
    assert 'metadata: {name: "major-alerts-to-siem", namespace: "shop"}' in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--url", "nope"), "spec.destination: does not begin with"),
        (("--name", "A b"), "metadata.name: is not the name of an object"),
        (("--url", 'http://x/"\n  evil: true'), "spec.destination"),
    ],
)
def test_nothing_is_written_that_would_not_be_valid(
    tmp_path: Path, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "new"), *arguments]) == Exit.FAILED
    error = capsys.readouterr().err
    assert told in error
    assert error.endswith("nothing was written: the resources would not be valid\n")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ("-n", "shop"),
            "--namespace needs --url: in a cluster a listener must not be on loopback",
        ),
        (("--protocol", "Syslog"), "--protocol Syslog needs --url, which begins with syslog://"),
        (("--protocol", "File"), "--protocol File needs --url, which begins with file://"),
    ],
)
def test_a_url_is_asked_for_where_the_one_for_a_first_try_is_none(
    tmp_path: Path, arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "new"), *arguments]) == Exit.USAGE
    assert capsys.readouterr().err == f"pillion init: {told}\n"
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    for path in (tmp_path, tmp_path / "mine.yaml"):
        assert main(["init", str(path)]) == Exit.USAGE
        assert "is no empty folder: name another one" in capsys.readouterr().err
    assert main(["init", str(tmp_path / "no" / "parent")]) == Exit.FAILED
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
    assert (tmp_path / "mine.yaml").read_text() == "mine"


def test_each_file_begins_with_what_it_is_for() -> None:
    files = files_of("a", "http://x/", "CIM-XML", None)
    assert all(text.startswith("# ") for text in files.values())
