"""Named servers, and which one a command talks to."""

import argparse
import errno
import json
import os
import stat
from pathlib import Path

import pytest

from pillion_cli import contexts
from pillion_cli import main as entry
from pillion_cli.client import DEFAULT_URL
from pillion_cli.contexts import MOST_BYTES, contexts_path
from pillion_cli.exits import CommandError, Exit
from pillion_cli.servers import Server, server_of

HUB, EDGE = "https://hub.example:8288", "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("PILLION_SERVER", "PILLION_URL", "PILLION_CONTEXT", "PILLION_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def parsed(*given: str) -> argparse.Namespace:
    return entry.command_parser("queues", entry.load("queues")).parse_args(given)


def chosen(*given: str) -> Server:
    return server_of(parsed(*given))


def context(*given: str) -> int:
    return entry.main(["context", *given])


def file() -> Path:
    path = contexts_path()
    assert path is not None
    return path


def test_a_context_is_set_used_listed_and_deleted(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    assert context("set", "hub", "--server", HUB, "--token-file", "token") == Exit.OK
    assert context("set", "edge", "--server", EDGE) == Exit.OK
    assert chosen().url == DEFAULT_URL
    assert context("use", "hub") == Exit.OK
    assert (chosen().url, chosen("--context", "edge").url) == (HUB, EDGE)
    capsys.readouterr()
    assert context("list") == Exit.OK
    assert capsys.readouterr().out == f"  edge  {EDGE}\n* hub   {HUB}\n"
    assert context("list", "--output", "json") == Exit.OK
    kept = {"edge": {"server": EDGE}, "hub": {"server": HUB, "tokenFile": str(home / "token")}}
    assert json.loads(capsys.readouterr().out) == {"current": "hub", "contexts": kept}
    assert context("delete", "hub") == Exit.OK
    assert chosen().url == DEFAULT_URL
    assert context("list") == Exit.OK
    assert capsys.readouterr().out == f"hub: deleted\n  edge  {EDGE}\n"


def test_only_its_owner_may_read_the_file_and_a_link_stays_one(home: Path) -> None:
    file().parent.mkdir(parents=True)
    file().symlink_to(home / "elsewhere.json")
    (home / "elsewhere.json").write_text("{}")
    assert context("set", "hub", "--server", HUB) == Exit.OK
    assert file().is_symlink()
    assert stat.S_IMODE((home / "elsewhere.json").stat().st_mode) == 0o600
    assert [one.name for one in home.iterdir() if one.name.startswith(".")] == []


def test_what_is_nearer_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("current", "variable", "option"):
        context("set", name, "--server", f"http://{name}")
    context("use", "current")
    assert chosen().url == "http://current"
    monkeypatch.setenv("PILLION_CONTEXT", "variable")
    assert chosen().url == "http://variable"
    monkeypatch.setenv("PILLION_SERVER", "http://server")
    assert chosen().url == "http://server"
    assert chosen("--context", "option").url == "http://option"
    assert chosen("--server", "http://nearest").url == "http://nearest"
    with pytest.raises(SystemExit):
        parsed("--server", "http://nearest", "--context", "option")


def test_a_token_goes_to_the_server_of_its_context_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("of-context", "of-variable"):
        (home / name).write_text(name)
    context("set", "hub", "--server", HUB, "--token-file", str(home / "of-context"))
    context("set", "plain", "--server", "https://plain")
    context("use", "hub")
    monkeypatch.setenv("PILLION_TOKEN_FILE", str(home / "of-variable"))
    sent = {"Authorization": "Bearer of-context"}
    assert chosen().access.headers() == sent
    assert chosen("--context", "plain").access.headers() == {}
    other = chosen("--server", "https://other").access.headers()
    assert other == {"Authorization": "Bearer of-variable"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "Expecting property name"),
        ("[]", "the file is no object"),
        ('{"contexts": []}', "contexts is no object"),
        ('{"contexts": {"hub": {}}}', "contexts.hub.server is missing"),
        ('{"contexts": {"hub": {"server": 7}}}', "contexts.hub.server is no text"),
        ('{"contexts": {"hub": {"server": "u:1", "token": "s"}}}', "hub: unknown field 'token'"),
        ('{"current": 1}', "current is no text"),
        ("[" * 100_000, "no file of contexts"),
        (" " * (MOST_BYTES + 1), "it is larger than"),
    ],
)
def test_a_file_that_is_none_is_named_with_what_is_wrong(
    content: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file().parent.mkdir(parents=True)
    file().write_text(content)
    assert entry.main(["queues"]) == Exit.USAGE
    told = capsys.readouterr().err
    assert f"{file()} is no file of contexts: " in told
    assert says in told
    # Who names a server needs no contexts.
    assert chosen("--server", EDGE).url == EDGE


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_cannot_be_read_is_named(kind: str) -> None:
    file().parent.mkdir(parents=True)
    if kind == "folder":
        file().mkdir()
    else:
        os.mkfifo(file())
    with pytest.raises(CommandError, match=str(file())) as raised:
        chosen()
    assert raised.value.code == Exit.USAGE


def test_a_home_that_is_none_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", "/dev/null")
    assert chosen().url == DEFAULT_URL


def test_a_home_that_may_not_be_entered_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(contexts, "_content", refuse)
    monkeypatch.setattr(os, "access", lambda path, _mode: path != file().parent)
    assert chosen().url == DEFAULT_URL
    monkeypatch.setattr(os, "access", lambda *_: True)
    with pytest.raises(CommandError, match=str(file())):
        chosen()


def test_what_cannot_be_written_is_named(home: Path) -> None:
    (home / "config").write_text("")
    with pytest.raises(CommandError, match=f"{file()}: (Not a directory|File exists)"):
        entry.load("context").run(_args("set", "hub", "--server", HUB))


def _args(*given: str) -> argparse.Namespace:
    return entry.command_parser("context", entry.load("context")).parse_args(given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["list", "hub"], "NAME: not for list"),
        (["use"], "NAME is missing"),
        (["use", "none"], "there is no context 'none'"),
        (["delete", "none"], "there is no context 'none'"),
        (["use", "hub", "--server", EDGE], "--server: only for set"),
        (["set", "hub"], "set NAME needs --server URL"),
        (["set", "a/b", "--server", EDGE], "'a/b' is no name of a context: write letters"),
        (["set", "hub", "--server", EDGE, "--token-file", "t"], "--token-file needs an https URL"),
    ],
)
def test_a_wrong_command_line_changes_nothing(
    given: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert context(*given) == Exit.USAGE
    assert says in capsys.readouterr().err
    assert not file().exists()


def test_a_password_is_neither_kept_nor_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        context("set", "hub", "--server", "https://me:secret@hub")
    assert not file().exists()
    for url in ("http://me:secret@hub:99999", "http://me:secret@127.0.0.1:1"):
        monkeypatch.setenv("PILLION_SERVER", url)
        assert entry.main(["queues"]) == Exit.USAGE
        assert entry.main(["queues", "--token-file", "t"]) == Exit.USAGE
        with pytest.raises(SystemExit):
            entry.main(["queues", "--server", "ftp://me:secret@hub"])
    told = capsys.readouterr()
    assert "secret" not in told.out + told.err
    assert "http://…@127.0.0.1:1" in told.err


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://me:secret@127.0.0.1:1", "no user name or password"),
        ("me@127.0.0.1:1", "no user name or password"),
        ("http://127.0.0.1:1/?x=secret", "without ? and #"),
        ("http://127.0.0.1:1/#secret", "without ? and #"),
    ],
)
def test_a_part_of_a_url_that_has_no_effect_is_refused(
    url: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("queues", "drain", "wait", "context set hub"):
        with pytest.raises(SystemExit) as end:
            entry.main([*command.split(), "--server", url])
        assert end.value.code == Exit.USAGE
        told = capsys.readouterr().err
        assert says in told
        assert "secret" not in told
    monkeypatch.setenv("PILLION_SERVER", url)
    assert entry.main(["queues"]) == Exit.USAGE
    assert says in capsys.readouterr().err


def test_without_a_home_there_are_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setenv("HOME", "relative")
    assert contexts_path() is None
    assert chosen().url == DEFAULT_URL
    with pytest.raises(CommandError, match="set XDG_CONFIG_HOME"):
        entry.load("context").run(_args("set", "hub", "--server", HUB))
