"""Tables for people."""

import sys
from typing import TYPE_CHECKING

from pillion_sidecar.config.problems import escape_controls

if TYPE_CHECKING:
    from rich.table import Table


def table(*columns: str, right: frozenset[str] = frozenset()) -> "Table":
    """Return an empty table; the columns of ``right`` are numbers."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left")
    return made


def show(made: "Table") -> None:
    from rich.console import Console

    # Without a terminal nothing is cut off to fit one.
    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(made)


def plain(text: str) -> str:
    """Return text of others, in which brackets mean nothing and control characters are escaped."""
    from rich.markup import escape

    return escape(escape_controls(text))
