import sys
from collections.abc import Collection, Iterable, Sequence

from pillion_sidecar.config.problems import escape_controls


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | int | None]],
    *,
    numbers: Collection[str] = (),
) -> None:
    """Print a table. ``numbers`` are the right-aligned columns; None is an empty cell.

    Texts may come from others: control characters are escaped, and brackets are no markup.
    """
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, justify="right" if column in numbers else "left")
    for row in rows:
        texts = (f"{cell:,}" if isinstance(cell, int) else cell or "" for cell in row)
        table.add_row(*(escape(escape_controls(text)) for text in texts))
    # Without a terminal nothing is cut off to fit one.
    Console(width=None if sys.stdout.isatty() else 240).print(table)
