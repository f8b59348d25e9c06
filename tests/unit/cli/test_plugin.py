"""``pillion plugin``: what it takes."""

import signal
from typing import NoReturn

import pytest

from pillion_cli.exits import CommandError, Exit
from pillion_cli.main import command_parser, load, main


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "pillion plugin: the following arguments are required: action"),
        (["run"], "invalid choice: 'run': use exec, check"),
        (["exec"], "exec: give -- and a command"),
        (["exec", "--"], "exec: give -- and a command"),
        (["exec", "ls"], "unrecognized arguments: ls"),
        (["exec", "--timeout", "5", "--", "ls"], "--timeout: not for exec"),
        (["exec", "--url", "plugin://x", "--", "ls"], "--url: not for exec"),
        (["exec", "--in-flight", "6", "--", "ls"], "'6' is not a whole number from 1 to 5"),
        (["exec", "--", "no-such-program"], "there is no program 'no-such-program' to run"),
        (["exec", "--", __file__], "is not executable; make it so by chmod +x"),
        (["exec", "--", "/"], "'/' is a folder"),
        (["exec", "--", ""], "there is no program '' to run"),
        (["exec", "--socket", "", "--", "ls"], "--socket: the path is empty"),
        (["check"], "check: give either -- and the command of a plug-in, or --socket"),
        (["check", "--socket", "/x", "--", "ls"], "check: give either -- and the command"),
        (["check", "--in-flight", "2", "--", "ls"], "--in-flight: not for check"),
        (["check", "--timeout", "0", "--", "ls"], "'0' is not a number of seconds from 0.1 to 300"),
        (["check", "--no-such", "--", "ls"], "unrecognized arguments: --no-such"),
    ],
)
def test_a_wrong_command_line_is_refused_with_the_remedy(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["plugin", *arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == Exit.USAGE
    assert said in capsys.readouterr().err


def test_what_follows_two_dashes_belongs_to_the_program() -> None:
    parser = command_parser("plugin", load("plugin"))
    args = parser.parse_args(["exec", "--in-flight", "2", "--", "git", "log", "--", "--help"])
    assert args.program == ["git", "log", "--", "--help"]
    assert args.in_flight == 2
    assert parser.parse_args(["check", "--socket", "/run/x.sock"]).program == []


def test_a_socket_that_cannot_be_made_is_a_failure_with_the_cause(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path_factory.mktemp("folder") / "none" / "plug.sock"
    assert main(["plugin", "exec", "--socket", str(path), "--", "ls"]) == Exit.FAILED
    said = f"--socket: cannot listen on the socket {path}: No such file or directory"
    assert capsys.readouterr().err == f"pillion plugin: {said}\n"


@pytest.mark.parametrize("options", [[], ["--in-flight", "2"]])
def test_signals_end_a_plug_in_that_still_starts(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = []

    def load(_name: str) -> NoReturn:
        handlers.append(signal.getsignal(signal.SIGTERM))
        raise CommandError("no further")

    monkeypatch.setattr("pillion_cli.main.load", load)
    assert main(["plugin", *options, "exec", "--", "ls"]) == Exit.FAILED
    assert main(["plugin", "check", "--", "exec"]) == Exit.FAILED
    started, checked = handlers
    assert started != checked == signal.getsignal(signal.SIGTERM)
