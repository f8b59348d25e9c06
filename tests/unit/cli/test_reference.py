"""The page of the command line says what the parsers do."""

from pathlib import Path

import generate_cli_reference as reference
from pillion_cli.main import COMMANDS, load

PAGES = Path(__file__).parents[3] / "docs/reference"


def test_the_command_line_page_is_up_to_date() -> None:
    assert (PAGES / "cli.md").read_text() == reference.command_line_page()


def test_every_command_has_help_arguments_and_a_run() -> None:
    for name in COMMANDS:
        command = load(name)
        assert command.HELP.strip()
        assert callable(command.add_arguments)
        assert callable(command.run)
