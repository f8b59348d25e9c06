"""``pillion completion``, in the shells themselves."""

import shutil
import subprocess
from pathlib import Path

import pytest

from pillion_cli.commands.completion import SHELLS
from pillion_cli.exits import Exit
from pillion_cli.main import COMMANDS, main


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for name, script in SHELLS.items():
        (folder / name).write_text(script())
    return folder


def run(shell: str, *arguments: str) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed: apt-get install {shell}")
    done = subprocess.run([shell, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def in_bash(scripts: Path, *words: str) -> list[str]:
    """The candidates for the last word."""
    program = (
        'source "$1"; shift; COMP_WORDS=(pillion "$@"); COMP_CWORD=$#; _pillion; '
        'echo "${COMPREPLY[@]}"'
    )
    return run("bash", "-c", program, "bash", str(scripts / "bash"), *words).split()


def in_fish(scripts: Path, *words: str) -> list[str]:
    program = f"source {scripts / 'fish'}; complete -C 'pillion {' '.join(words)}'"
    return [line.partition("\t")[0] for line in run("fish", "-c", program).splitlines()]


CASES = pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["que"], ["queues"]),
        (["queues", "--so"], ["--sort"]),
        (["queues", "siem", "--so"], ["--sort"]),
        (["queues", "--sort", "d"], ["depth"]),
        (["queues", "-o", "js"], ["json"]),
        (["publish", "x", "--ack", "d"], ["durable", "delivered"]),
        (["help", "outc"], ["outcomes"]),
        (["journal", "ver"], ["verify"]),
        # An earlier name is not shown, and a name of a destination is not known.
        (["queues", "--a"], []),
        (["queues", "--skip", "q"], []),
        (["nonsense", "--so"], []),
    ],
)


@CASES
def test_bash_completes(scripts: Path, words: list[str], candidates: list[str]) -> None:
    assert in_bash(scripts, *words) == candidates


@CASES
def test_fish_completes(scripts: Path, words: list[str], candidates: list[str]) -> None:
    assert set(in_fish(scripts, *words)) == set(candidates)


def test_every_command_is_completed(scripts: Path) -> None:
    assert set(COMMANDS) < set(in_bash(scripts, ""))


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_takes_its_script(scripts: Path, shell: str) -> None:
    run(shell, "-n", str(scripts / shell))


def test_zsh_uses_the_words_of_bash(scripts: Path) -> None:
    head, function, rest = (scripts / "zsh").read_text().partition("_pillion() {")
    assert head.endswith("bashcompinit\n")
    assert function + rest == (scripts / "bash").read_text()


def test_it_is_printed(scripts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == Exit.OK
    assert capsys.readouterr().out == (scripts / "bash").read_text()
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "use bash, zsh, fish" in capsys.readouterr().err
