"""Standard output that cannot be written: one line, and an exit code of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pillion_cli.exits import MEANINGS, Exit
from pillion_cli.main import COMMANDS, load
from pillion_sidecar.history.files import HistoryFiles
from support.house import ROOT
from support.journal_files import Hand, MemoryFiles
from support.outcomes import WEEK, outcome

EXAMPLE = str(ROOT / "examples" / "first-subscription")
SERVE = ("sidecar", "--resources", EXAMPLE, "--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0")
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def shell(where: str, *arguments: str | Path) -> list[str]:
    """``pillion``, with its output redirected as in ``>/dev/full``."""
    command = [sys.executable, "-m", "pillion_cli.main", *map(str, arguments)]
    return ["sh", "-c", f'exec "$@" {where}', "sh", *command]


def ended(
    where: str, *arguments: str | Path, stdout: int | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        shell(where, *arguments),
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A journal with more discards than a pipe and a buffer hold."""
    hand = Hand(MemoryFiles())
    hand.commit()
    for name, content in hand.files.contents.items():
        (tmp_path / name).write_bytes(content)
    files = HistoryFiles(tmp_path, size=1 << 20, seconds=WEEK)
    files.open(lambda one: False)
    files.append(1, [outcome(0, identifier="a" * 1000)] * 200)
    files.close()
    return tmp_path


COMMAND_LINES = [
    ("--version",),
    ("--help",),
    ("publish", "--help"),
    ("validate", "EXAMPLE"),
    ("validate", "EXAMPLE", "--output", "json"),
    ("journal", "inspect", "JOURNAL"),
    ("journal", "verify", "JOURNAL"),
    ("journal", "discards", "JOURNAL"),
    ("journal", "discards", "JOURNAL", "--output", "json"),
    ("listen", "--port", "0"),
]
each_command = pytest.mark.parametrize("arguments", COMMAND_LINES, ids=" ".join)


def given(arguments: tuple[str, ...], journal: Path) -> list[str]:
    paths = {"JOURNAL": str(journal), "EXAMPLE": EXAMPLE}
    return [paths.get(one, one) for one in arguments]


@needs_full
@each_command
def test_a_full_device_is_told_in_one_line(arguments: tuple[str, ...], journal: Path) -> None:
    told = ended(">/dev/full", *given(arguments, journal))
    line = f"pillion {arguments[0]}: cannot write standard output: No space left on device\n"
    assert (told.returncode, told.stderr) == (Exit.OUTPUT, line)


@each_command
def test_a_closed_output_is_told_in_one_line(arguments: tuple[str, ...], journal: Path) -> None:
    told = ended(">&-", *given(arguments, journal))
    line = f"pillion {arguments[0]}: cannot write standard output: it is closed\n"
    assert (told.returncode, told.stderr) == (Exit.OUTPUT, line)


@each_command
def test_a_reader_that_has_gone_is_not_told(arguments: tuple[str, ...], journal: Path) -> None:
    reader, writer = socket.socketpair()
    reader.close()
    with writer:
        told = ended("", *given(arguments, journal), stdout=writer.fileno())
    assert (told.returncode, told.stderr) == (Exit.BROKEN_PIPE, "")


@needs_full
def test_a_deliverer_tells_that_nobody_can_read_its_addresses() -> None:
    told = ended(">/dev/full", *SERVE)
    *logged, line = told.stderr.splitlines()
    assert line == "pillion sidecar: cannot write standard output: No space left on device"
    assert told.returncode == Exit.OUTPUT
    assert all(one.startswith("{") for one in logged)


def test_a_deliverer_without_standard_output_runs() -> None:
    with subprocess.Popen(shell(">&-", *SERVE), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert any('"deliverer-started"' in line for line in process.stderr)
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            assert process.wait() == Exit.OK
        finally:
            process.kill()


@needs_full
def test_a_hook_that_only_tries_succeeds() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        drain = ("drain", "--to", url)
        assert ended(">/dev/full", *drain, "--gone-ok").returncode == Exit.OUTPUT
        told = ended(">/dev/full", *drain, "--best-effort")
    assert (told.returncode, told.stderr) == (Exit.OK, "")


def test_messages_do_not_go_to_standard_output() -> None:
    told = ended("2>&-", "journal", "inspect", "/nowhere", stdout=subprocess.PIPE)
    assert (told.returncode, told.stdout) == (Exit.USAGE, "")


@pytest.mark.parametrize("encoding", ["ascii", "ascii:surrogateescape"])
def test_what_the_output_cannot_encode_is_escaped(encoding: str) -> None:
    told = subprocess.run(
        shell("", "--help"),
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": encoding},
        check=False,
    )
    assert (told.returncode, told.stderr) == (Exit.OK, b"")
    assert told.stdout.startswith(rb"usage: pillion COMMAND \u2026")


def test_every_exit_code_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Exit)
    assert Exit.BROKEN_PIPE == 128 + signal.SIGPIPE


@pytest.mark.parametrize("name", COMMANDS)
def test_the_exit_codes_of_a_command_are_in_the_table(name: str) -> None:
    _, _, codes = load(name).HELP.partition("exit codes:")
    assert {int(code) for code in re.findall(r"(?:^|[,;] *)\s*(\d+)\b", codes)} <= set(MEANINGS)
