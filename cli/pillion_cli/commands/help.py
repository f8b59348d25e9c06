"""``pillion help``: the help of a command."""

import argparse

from pillion_cli import main
from pillion_cli.exits import Exit

HELP = """
Show the help of a command, as pillion COMMAND --help does. Without COMMAND: all commands, and the
exit codes.

examples:
  pillion help
  pillion help queues

exit codes: 0 done, 2 no such command.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="COMMAND", nargs="?", choices=main.COMMANDS, help="name of the command"
    )


def run(args: argparse.Namespace) -> int:
    if args.name is None:
        main.top_parser().print_help()
    else:
        main.command_parser(args.name, main.load(args.name)).print_help()
    return Exit.OK
