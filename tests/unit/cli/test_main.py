"""The ``pillion`` command before its subcommand."""

import argparse
import gc
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pillion_cli import main as entry
from pillion_cli.client import DEFAULT_URL
from pillion_cli.commands.wait import DEFAULT_TELEMETRY
from pillion_cli.exits import CommandError, Exit
from pillion_cli.servers import server_of
from pillion_sidecar.settings import INTAKE_PORT, TELEMETRY_PORT


def test_publishers_look_where_a_deliverer_listens() -> None:
    assert f"http://127.0.0.1:{INTAKE_PORT}" == DEFAULT_URL
    assert f"http://127.0.0.1:{TELEMETRY_PORT}" == DEFAULT_TELEMETRY


def _command(run: object) -> SimpleNamespace:
    return SimpleNamespace(HELP="x", add_arguments=lambda parser: None, run=run)


def test_help_imports_no_subcommand_and_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from pillion_cli.main import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit as end:\n    assert end.code == 0\n"
        "heavy = {'aiohttp', 'lxml', 'pyspark', 'rich', 'yaml', 'prometheus_client', 'asyncio'}\n"
        "found = heavy & set(sys.modules)\n"
        "found |= {name for name in sys.modules if name.startswith('pillion_cli.commands.')}\n"
        "assert not found, found\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name in entry.COMMANDS:
        assert f"  {name} " in done.stdout


def test_the_commands_of_publishing_and_delivery_are_in_the_table() -> None:
    wanted = {"sidecar", "validate", "publish", "listen", "queues", "drain", "wait", "journal"}
    assert wanted <= set(entry.COMMANDS)


def test_no_command_shows_the_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        entry.main([])
    assert end.value.code == Exit.USAGE
    assert "commands:" in capsys.readouterr().err


def test_an_unknown_command_names_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        entry.main(["publsh", "--flush"])
    assert end.value.code == Exit.USAGE
    assert "'publsh': did you mean publish?" in capsys.readouterr().err


def test_an_abbreviated_option_is_refused_in_a_line_that_names_the_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        entry.main(["queues", "--tok", "x"])
    assert end.value.code == Exit.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pillion queues: unrecognized arguments: --tok")


@pytest.mark.parametrize("name", ["sidecar", "operator", "check"])
def test_a_missing_option_is_told_in_one_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        entry.main([name])
    assert end.value.code == Exit.USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"; pillion {name} --help shows more")


def test_an_unknown_option_names_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        entry.main(["queues", "--purg", "siem"])
    assert "did you mean --purge?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["queues", "publish", "drain"])
def test_one_option_and_one_variable_name_the_deliverer(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parsed(*given: str) -> argparse.Namespace:
        parser = entry.command_parser(name, entry.load(name))
        return parser.parse_args([*(["-"] if name == "publish" else []), *given])

    def url(*given: str) -> str:
        return server_of(parsed(*given)).url

    assert {url(option, "u:1") for option in ("--server", "--to", "--at")} == {"u:1"}
    assert url() == DEFAULT_URL
    monkeypatch.setenv("PILLION_URL", "http://elsewhere")
    assert url() == "http://elsewhere"
    monkeypatch.setenv("PILLION_SERVER", "http://nearer")
    assert url() == "http://nearer"
    assert url("--at", "u:1") == "u:1"
    assert {parsed("--output", "table").output, parsed().output} == {"text"}
    assert parsed("-o", "json").output == "json"


@pytest.mark.parametrize(
    "url", ["garbage", "ftp://127.0.0.1:1", "http://", "http://[x", "http://a b:1", "a:99999"]
)
@pytest.mark.parametrize("name", ["queues", "publish", "drain", "wait"])
def test_what_is_no_url_is_refused_at_once_by_option_or_variable(
    name: str, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [name, *(["-"] if name == "publish" else [])]
    with pytest.raises(SystemExit) as end:
        entry.main([*given, "--server", url])
    assert end.value.code == Exit.USAGE
    assert f"argument --server: {url!r} is not a URL such as" in capsys.readouterr().err
    if name == "wait":
        return
    for variable in ("PILLION_URL", "PILLION_SERVER"):
        monkeypatch.setenv(variable, url)
        assert entry.main(given) == Exit.USAGE
        monkeypatch.delenv(variable)
        assert f"{variable}: {url!r} is not a URL" in capsys.readouterr().err


def test_version_is_the_distributions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        entry.main(["--version"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("pillion 0.")
    assert entry.main(["version"]) == Exit.OK
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("name", ["queues", "help"])
def test_help_shows_what_the_option_shows(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        entry.main([name, "--help"])
    shown = capsys.readouterr().out
    assert entry.main(["help", name]) == Exit.OK
    assert capsys.readouterr().out == shown
    assert entry.main(["help"]) == Exit.OK
    assert "commands:" in capsys.readouterr().out


def test_earlier_names_of_an_option_are_neither_shown_nor_suggested(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entry.main(["help", "queues"])
    shown = capsys.readouterr().out
    assert "--server URL" in shown
    assert "--at" not in shown
    with pytest.raises(SystemExit):
        entry.main(["queues", "--a", "u:1"])
    assert "--at" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["publish", "queues", "journal"])
def test_a_commands_help_teaches_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        entry.main([name, "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert f"  pillion {name} " in shown
    assert "exit codes:" in shown


@pytest.mark.parametrize("name", sorted(entry.COMMANDS))
def test_no_line_of_a_commands_help_is_long(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        entry.main([name, "--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def _fails(_args: argparse.Namespace) -> int:
    raise CommandError("there is no deliverer")


def _interrupted(_args: argparse.Namespace) -> int:
    raise KeyboardInterrupt


def test_a_failure_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry, "load", lambda name: _command(_fails))
    assert entry.main(["queues"]) == Exit.FAILED
    assert capsys.readouterr().err == "pillion queues: there is no deliverer\n"


def test_ctrl_c_ends_quietly(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(entry, "load", lambda name: _command(_interrupted))
    assert entry.main(["queues"]) == Exit.INTERRUPTED
    assert capsys.readouterr().err == ""


def test_a_missing_package_names_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pillion_cli.commands.queues", None)
    assert entry.main(["queues"]) == Exit.FAILED
    assert "pip install 'pillion[cli]'" in capsys.readouterr().err


def test_nothing_is_collected_while_a_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def load(name: str) -> SimpleNamespace:
        seen.append(gc.isenabled())
        return _command(lambda args: seen.append(gc.isenabled()) or 0)

    monkeypatch.setattr(entry, "load", load)
    assert entry.main(["wait"]) == 0
    assert seen == [False, True]
