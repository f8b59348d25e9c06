"""Signals that come while a command is still being imported."""

import signal
import subprocess
import sys

import pytest

#: The command, with a signal to itself at the import of its own module. What the tests were started
#: with is inherited: under ``nohup`` some signals are ignored.
PROGRAM = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Signalling(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("pillion_cli.commands."):
            os.kill(os.getpid(), int(sys.argv[1]))

signal.signal(int(sys.argv[1]), int(sys.argv[2]))
sys.meta_path.insert(0, Signalling())
from pillion_cli.main import main
sys.exit(main(sys.argv[3:]))
"""


def ended(
    number: int, *arguments: str, disposition: int = signal.SIG_DFL
) -> "subprocess.CompletedProcess[str]":
    numbers = [str(int(number)), str(int(disposition))]
    program = [sys.executable, "-c", PROGRAM, *numbers, *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("command", ["sidecar", "operator", "listen"])
def test_a_signal_during_the_imports_ends_a_command_that_runs_on(
    command: str, number: signal.Signals
) -> None:
    done = ended(number, command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_command_that_ends_by_itself_does_not_pass_for_done() -> None:
    assert ended(signal.SIGTERM, "publish", "alerts.ndjson").returncode == -signal.SIGTERM


def test_a_signal_that_is_ignored_stays_so() -> None:
    done = ended(signal.SIGHUP, "sidecar", "--resources", disposition=signal.SIG_IGN)
    assert done.returncode == 2
