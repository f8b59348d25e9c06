"""``pillion version``: the version of the package."""

import argparse

from pillion_cli import main
from pillion_cli.exits import Exit

HELP = """
Print the version, as pillion --version does.

examples:
  pillion version

exit codes: 0 done.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None: ...


def run(_args: argparse.Namespace) -> int:
    print(main.version())
    return Exit.OK
