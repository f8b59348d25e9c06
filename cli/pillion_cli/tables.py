"""Tables: of a known number of rows, or of rows that are printed as they come."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

from rich.cells import cell_len

from pillion_cli.terminal import GAP, Cell, Output, Style, cut
from pillion_sidecar.config.problems import escape_controls

#: Lines of any length, without colours.
ANYWHERE = Output()


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


class Rows:
    """Prints rows as they come, below the names of the columns. A column grows with its cells; the
    last one may be of any length, up to the end of the line in a terminal."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        numbers: Collection[str] = (),
        output: Output = ANYWHERE,
        most: Mapping[str, int] | None = None,
    ) -> None:
        """``most`` has the largest width of columns, in a terminal."""
        self._columns = columns
        self._numbers = numbers
        self._output = output
        self._most = most if most and output.is_terminal else {}
        self._widths = [len(column) for column in columns]
        self._has_begun = False

    @property
    def has_begun(self) -> bool:
        """Whether there was a row."""
        return self._has_begun

    def show(self, rows: Iterable[Sequence[Cell | str | int | None]]) -> None:
        """Print rows. Control characters in them are escaped; None is an empty cell."""
        cells = [[self._cut(at, _cell(cell)) for at, cell in enumerate(row)] for row in rows]
        if cells and not self._has_begun:
            self._has_begun = True
            cells.insert(0, [Cell(column, Style.BOLD) for column in self._columns])
        for row in cells:
            self._widths = [
                max(width, cell_len(cell.text))
                for width, cell in zip(self._widths, row, strict=True)
            ]
        for row in cells:
            print(self._line(row))

    def _cut(self, at: int, cell: Cell) -> Cell:
        return Cell(cut(cell.text, self._most.get(self._columns[at])), cell.style)

    def _line(self, row: Sequence[Cell]) -> str:
        left, parts = self._output.width, []
        for at, cell in enumerate(row):
            text = cell.text if left is None else cut(cell.text, left)
            padding = " " * (self._widths[at] - cell_len(text))
            painted = self._output.paint(text, cell.style)
            is_number = self._columns[at] in self._numbers
            parts.append(padding + painted if is_number else painted + padding)
            left = None if left is None else left - self._widths[at] - len(GAP)
        return GAP.join(parts).rstrip()


def _cell(cell: Cell | str | int | None) -> Cell:
    return cell if isinstance(cell, Cell) else Cell("" if cell is None else str(cell))
