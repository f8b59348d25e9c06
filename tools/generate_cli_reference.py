"""Writes ``docs/reference/cli.md`` from the definitions of the parsers.

The output of argparse differs between Python versions, so the page does not use it.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from pillion_cli.exits import MEANINGS
from pillion_cli.main import COMMANDS, DESCRIPTION, command_parser, load

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"
_INTRODUCTION = f"""\
# The pillion command

<!-- Made by `make generate` from pillion_cli; do not edit. -->

{DESCRIPTION} `pillion COMMAND --help` prints the same text.
"""


def command_line_page() -> str:
    codes = "".join(f"| {code:d} | {meaning} |\n" for code, meaning in MEANINGS.items())
    parts = [
        _INTRODUCTION,
        "| Command | Purpose |\n| --- | --- |\n"
        + "".join(f"| [`{name}`](#pillion-{name}) | {text} |\n" for name, text in COMMANDS.items()),
        f"## Exit codes\n\n| Code | Meaning |\n| --- | --- |\n{codes}",
        *(_command(name) for name in COMMANDS),
    ]
    return "\n".join(parts)


def _command(name: str) -> str:
    parser = command_parser(name, load(name))
    rows = "".join(f"| {_spelling(action)} | {_help(action)} |\n" for action in _documented(parser))
    text = parser.description or ""
    epilog = f"\n\n{parser.epilog.strip()}" if parser.epilog else ""
    return (
        f"## pillion {name}\n\n```text\n{text}{epilog}\n```\n\n"
        f"| Argument | Meaning |\n| --- | --- |\n{rows}"
    )


def _documented(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if action.help is not argparse.SUPPRESS and action.dest != "help":
            yield action


def _spelling(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value_of(action)
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{f'{option} {value}'.strip()}`" for option in action.option_strings)


def _value_of(action: argparse.Action) -> str:
    if action.choices is not None and action.metavar is None:
        return " or ".join(str(choice) for choice in action.choices)
    metavar = action.metavar or action.dest.upper()
    return metavar if isinstance(metavar, str) else " ".join(metavar)


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    text = text.replace("|", "\\|").replace("<", "&lt;")
    return f"{text}; required" if action.required and action.option_strings else text


def main() -> None:
    """Write the page."""
    PAGE.write_text(command_line_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
