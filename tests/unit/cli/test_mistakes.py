"""Mistakes on the command line: each is answered in one line that says what to write."""

import argparse
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pillion_cli.arguments import destination_name, file_path, seconds_from
from pillion_cli.exits import Exit
from pillion_cli.main import COMMANDS, command_parser, load, main


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The line of standard error, without the program and the reference to the help."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == Exit.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()
    found = re.fullmatch(r"pillion[a-z -]*: (.*?);? pillion[a-z -]* --help shows more", line)
    assert found is not None, line
    return found[1]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (
            ["publish", "--wait", "5s", "x"],
            "unrecognized arguments: --wait: did you mean --timeout?",
        ),
        (["publish", "--url", "x"], "unrecognized arguments: --url: did you mean --server?"),
        (
            ["validate", "--json", "x"],
            "unrecognized arguments: --json: did you mean --output json?",
        ),
        (
            ["sidecar", "--resource", "x"],
            "unrecognized arguments: --resource: did you mean --resources?",
        ),
        (
            ["sidecar", "-resources=x"],
            "unrecognized arguments: -resources: did you mean --resources?",
        ),
        (["operator", "--zzz"], "unrecognized arguments: --zzz"),
        (["doctor", "siem"], "unrecognized arguments: siem: did you mean --destination siem?"),
        (
            ["publish", "--acknowledge", "durable", "x"],
            "unrecognized arguments: --acknowledge: did you mean --ack?",
        ),
    ],
)
def test_a_misspelt_option_is_named_before_one_that_is_missing(
    arguments: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, *arguments) == answer


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (
            ["alerts.ndjson", "publish"],
            "'alerts.ndjson' is not a command: write pillion publish first",
        ),
        (
            ["--to", "http://h", "publish", "f"],
            "'--to' is not a command: write pillion publish first",
        ),
        (
            ["journal", "DIR", "inspect"],
            "argument action: 'DIR' is not an action: write one of inspect, verify, "
            "export, discards before DIR",
        ),
        (["hlp"], "there is no command 'hlp': did you mean help?"),
        (["help", "que"], "argument COMMAND: invalid choice: 'que': did you mean queues?"),
    ],
)
def test_a_wrong_order_is_answered_with_the_right_one(
    arguments: list[str], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, *arguments) == answer


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("deliverd", "argument --ack: invalid choice: 'deliverd': did you mean delivered?"),
        (
            "quorum",
            "argument --ack: invalid choice: 'quorum': use accepted, durable, stable, delivered",
        ),
    ],
)
def test_a_misspelt_choice_is_answered_with_the_nearest_or_with_all(
    given: str, answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, "publish", "x", "--ack", given) == answer


@pytest.mark.parametrize(
    "arguments",
    [
        ["test", ""],
        ["suspend", ""],
        ["resume", ""],
        ["queues", ""],
        ["queues", "--purge", ""],
        ["tail", "--destination", ""],
    ],
)
def test_an_empty_name_is_a_wrong_command_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(capsys, *arguments).endswith(": the name of the destination is empty")


def test_a_question_ends_without_a_semicolon(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["hlp", "publish"])
    assert capsys.readouterr().err == (
        "pillion: there is no command 'hlp': did you mean help? pillion --help shows more\n"
    )


def test_a_file_that_cannot_be_read_is_answered_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing.ndjson"
    assert main(["publish", str(missing)]) == Exit.FAILED
    assert capsys.readouterr().err == (
        f"pillion publish: cannot read {missing}: No such file or directory; "
        "name a file, or - for standard input\n"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_value_is_answered_without_the_name_of_a_function(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = "\x1b five" * 100
    parser = command_parser(name, load(name))
    typed = [
        action.option_strings[0]
        for action in parser._actions
        if action.option_strings
        and action.type not in (None, Path, destination_name, file_path)
        and not action.choices
    ]
    for option in typed:
        with pytest.raises(SystemExit):
            parser.parse_args([option, wrong])
        (line,) = capsys.readouterr().err.splitlines()
        assert line.isprintable()
        assert len(line) < 1200
        assert not re.search(r"invalid \S+ value", line), line


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5", 5),
        ("5s", 5),
        ("1.5 s", 1.5),
        ("2m", 120),
        ("2min", 120),
        ("1h", 3600),
        ("1e2", 100),
        ("250ms", 0.25),
    ],
)
def test_a_duration_may_have_a_unit(text: str, seconds: float) -> None:
    assert seconds_from(0)(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5 days", "-1s", "nan", "inf", "2h", "5ss", "9" * 400])
def test_a_wrong_duration_is_answered_with_how_to_write_one(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        seconds_from(0)(text)
    assert str(caught.value).endswith(
        "is not a number of seconds from 0 to 3600; write 5, 5s, 2m or 1h"
    )
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize("number", ["ten", "0", "100001", "-1", "9" * 5000])
def test_a_wrong_number_of_lines_is_answered_with_its_bounds(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = told(capsys, "publish", "x", f"--batch={number}")
    assert answer.endswith("is not a whole number from 1 to 100000")


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_an_empty_input_is_said(
    content: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert main(["publish", "-", "--to", "http://127.0.0.1:1"]) == Exit.OK
    assert capsys.readouterr().err == (
        "pillion publish: nothing was published: no indication in standard input\n"
    )


@pytest.mark.parametrize("suffix", ["ndjson", "jsonl"])
def test_an_empty_file_is_said_as_an_empty_standard_input_is(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"alerts.{suffix}"
    file.touch()
    assert main(["publish", str(file), "--to", "http://127.0.0.1:1"]) == Exit.OK
    said = capsys.readouterr()
    assert said.out == "0 accepted, 0 duplicate, 0 refused\n"
    assert said.err == f"pillion publish: nothing was published: no indication in {file}\n"


def test_a_standard_input_that_is_closed_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["publish", "-"]) == Exit.FAILED
    assert capsys.readouterr().err == (
        "pillion publish: cannot read standard input: it is closed\n"
    )


def test_wait_names_the_one_option_that_it_heeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["wait", "--to", "http://127.0.0.1:1", "--timeout", "0s"]) == Exit.FAILED
    assert capsys.readouterr().err.endswith("or name another with --server\n")
    assert main(["queues", "--to", "http://127.0.0.1:1"]) == Exit.FAILED
    assert capsys.readouterr().err.endswith("or name another with --server or PILLION_SERVER\n")
