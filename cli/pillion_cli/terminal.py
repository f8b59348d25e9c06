"""What standard output is: a terminal of some size with or without colours, or a pipe or file; and
tables and frames that fit it."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Self

from rich.cells import cell_len, set_cell_size

from pillion_sidecar.config.problems import escape_controls

GAP = "  "
ELLIPSIS = "…"
#: A line of so many is of any length.
MOST_CELLS = 100_000
#: Lines below a row for one of its texts.
MOST_LINES_BELOW = 2


class Style(StrEnum):
    """Parameters of SGR (ECMA-48)."""

    PLAIN = ""
    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    ALARM = "1;31"


@dataclass(frozen=True, slots=True)
class Output:
    #: None: lines may be of any length.
    width: int | None = None
    #: Lines of a terminal in which the cursor can be moved.
    height: int | None = None
    has_colours: bool = False

    @classmethod
    def of_process(cls) -> Self:
        """Standard output now: a window may change its size."""
        if not sys.stdout.isatty():
            return cls()
        size = shutil.get_terminal_size()
        if os.environ.get("TERM") == "dumb":
            return cls(width=size.columns)
        # https://no-color.org
        colours = not os.environ.get("NO_COLOR")
        return cls(width=size.columns, height=size.lines, has_colours=colours)

    @property
    def is_terminal(self) -> bool:
        return self.width is not None

    @property
    def is_screen(self) -> bool:
        """Whether a frame can be written over."""
        return self.height is not None

    def widened(self) -> "Output":
        """A terminal in which no line is cut."""
        return replace(self, width=MOST_CELLS) if self.is_terminal else self

    def paint(self, text: str, style: Style) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if style and text and self.has_colours else text


def cut(text: str, width: int | None) -> str:
    """Return a text of one line and of at most ``width`` cells."""
    text = escape_controls(text)
    if width is None or cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)) + ELLIPSIS if width > 0 else ""


def wrapped(text: str, width: int | None) -> list[str]:
    """Return a text as lines of at most ``width`` cells."""
    text = escape_controls(text)
    return [text] if width is None else textwrap.wrap(text, max(1, width)) or [""]


class Cell(NamedTuple):
    text: str
    style: Style = Style.PLAIN


class Column(NamedTuple):
    name: str
    is_number: bool = False
    #: Cells to which it may be cut where the line is too long; None: it is not cut.
    least: int | None = None


@dataclass(slots=True)
class Row:
    cells: Sequence[Cell]
    #: Lines below it.
    below: Sequence[Cell] = ()


def table(columns: Sequence[Column], rows: Sequence[Row], output: Output) -> Iterator[str]:
    """Yield the lines of a table. Text may come from others: it is made harmless. Without a
    terminal nothing is cut, and ``-`` stands for an empty cell."""
    empty = "" if output.is_terminal else "-"
    grid = [[(escape_controls(cell.text) or empty) for cell in row.cells] for row in rows]
    widths = _widths(columns, grid, output)
    head = [Cell(column.name, Style.BOLD) for column in columns]
    yield _line(columns, widths, [cell.text for cell in head], head, output)
    for row, texts in zip(rows, grid, strict=True):
        yield _line(columns, widths, texts, row.cells, output)
        room = None if output.width is None else output.width - len(GAP)
        for cell in row.below:
            for text in _wrapped_below(cell.text, room):
                yield GAP + output.paint(text, cell.style)


def _wrapped_below(text: str, room: int | None) -> list[str]:
    lines = wrapped(text, room)
    kept = MOST_LINES_BELOW - 1
    # Wide characters take two cells, so a line may still be too long.
    return [cut(line, room) for line in (*lines[:kept], " ".join(lines[kept:])) if line]


def _widths(columns: Sequence[Column], grid: Sequence[Sequence[str]], output: Output) -> list[int]:
    widths = [
        max([len(column.name), *(cell_len(texts[at]) for texts in grid)])
        for at, column in enumerate(columns)
    ]
    if output.width is None:
        return widths
    excess = sum(widths) + len(GAP) * (len(columns) - 1) - output.width
    # From the right: what is last is the most wordy.
    for at in reversed(range(len(columns))):
        least = columns[at].least
        if excess > 0 and least is not None:
            taken = min(excess, max(0, widths[at] - least))
            widths[at] -= taken
            excess -= taken
    return widths


def _line(
    columns: Sequence[Column],
    widths: Sequence[int],
    texts: Sequence[str],
    cells: Sequence[Cell],
    output: Output,
) -> str:
    parts, length = [], 0
    for column, width, text, cell in zip(columns, widths, texts, cells, strict=True):
        shown = cut(text, width)
        padding = " " * (width - cell_len(shown))
        painted = output.paint(shown, cell.style)
        parts.append(padding + painted if column.is_number else painted + padding)
        length += width + len(GAP)
        if output.width is not None and length > output.width + len(GAP):
            # A terminal that is too narrow even so: a line must not be broken.
            parts[-1] = cut(shown, max(0, output.width - (length - width - len(GAP))))
            break
    return GAP.join(parts).rstrip()


class Frames:
    """Shows one frame after the other: on a screen in place of the last one (the second screen of
    a terminal, which programs use for it), and elsewhere below it."""

    def __init__(self, output: Output) -> None:
        self._is_screen = output.is_screen
        self._last: Sequence[str] = ()

    @contextmanager
    def open(self) -> Iterator[Self]:
        """Leave the last frame on the usual screen at the end."""
        if not self._is_screen:
            yield self
            return
        # Another screen, no cursor, and what is too long is cut off.
        self._write("\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J")
        try:
            yield self
        finally:
            lines = "".join(f"{line}\n" for line in self._last)
            self._write(f"\x1b[?7h\x1b[?25h\x1b[?1049l{lines}")

    def show(self, lines: Iterable[str], output: Output) -> None:
        shown = list(lines)
        if not self._is_screen:
            self._write("".join(f"{line}\n" for line in shown))
            return
        height = max(1, (output.height or 24) - 1)
        if len(shown) > height:
            more = len(shown) - height + 1
            shown[height - 1 :] = [cut(f"{ELLIPSIS} {more:,} more lines", output.width)]
        self._last = shown
        # Each line is written over the one that was there, so that nothing flickers.
        lines = "".join(f"{line}\x1b[K\n" for line in shown)
        self._write(f"\x1b[H{lines}\x1b[J")

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
