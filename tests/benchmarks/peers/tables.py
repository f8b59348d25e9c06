"""The tables of ``docs/peers.md``."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.scenarios import Figures

_PLOT = "![Rate, CPU, p99 and loss of all peers](assets/peers.png)"
BEGIN, END = "<!-- figures: make bench-peers WRITE=1 -->", "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured of one peer."""

    name: str
    #: Why it was skipped.
    missing: str | None
    figures: Mapping[str, Figures]


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    scenario: str
    tell: Callable[[Figures], str]


def _rate(one: Figures) -> str:
    return f"{one.rate:,.0f}"


def _cpu(one: Figures) -> str:
    return f"{one.cpu_of_thousand:.3f} s"


def _milliseconds(value: float) -> str:
    if math.isinf(value):
        return "not in time"
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms"


def _p99(one: Figures) -> str:
    return _milliseconds(one.p99)


def _median(one: Figures) -> str:
    return _milliseconds(one.median)


def _memory(one: Figures) -> str:
    return f"{one.resident_bytes / 1e6:,.0f} MB"


def _share(one: Figures) -> str:
    return f"{one.arrived / one.offered:.0%}"


_EACH = (
    ("events/s", "burst", _rate),
    ("CPU of 1,000", "burst", _cpu),
    ("p50 at 500/s", "steady", _median),
    ("p99 at 500/s", "steady", _p99),
    ("CPU of 1,000 at 500/s", "steady", _cpu),
    ("resident", "burst", _memory),
)
TABLES: Mapping[str, Sequence[Column]] = {
    title: [Column(name, f"{kind}-{listeners}", tell) for name, kind, tell in _EACH]
    for title, listeners in (("One listener", "1"), ("32 listeners", "32"))
} | {
    "32 listeners, and 50 that hang": [
        Column("events/s", "burst-hung", _rate),
        Column("arrived of the burst", "burst-hung", _share),
        Column("p50 at 500/s", "steady-hung", _median),
        Column("p99 at 500/s", "steady-hung", _p99),
        Column("arrived of 500/s", "steady-hung", _share),
        Column("resident", "burst-hung", _memory),
    ],
    "`kill -9` in a burst to 32 listeners": [
        Column("taken", "killed", lambda one: f"{one.taken:,}"),
        Column("lost", "killed", lambda one: f"{one.lost:,}"),
        Column("doubled", "killed", lambda one: f"{one.doubled:,}"),
        Column("behind a later one", "killed", lambda one: f"{one.overtaken:,}"),
        Column("until the last arrived", "killed", lambda one: f"{one.seconds:.1f} s"),
    ],
}


def tables(rows: Sequence[Row]) -> str:
    """All tables of which something was measured, in Markdown."""
    parts = []
    for title, columns in TABLES.items():
        if any(column.scenario in row.figures for row in rows for column in columns):
            parts.append(f"### {title}\n\n{_table(rows, columns)}")
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    lines = [["", *(column.title for column in columns)], ["---"] * (len(columns) + 1)]
    for row in rows:
        if row.missing is not None:
            lines.append([row.name, "not on this machine", *[""] * (len(columns) - 1)])
            continue
        cells = (
            column.tell(row.figures[column.scenario]) if column.scenario in row.figures else "–"
            for column in columns
        )
        lines.append([row.name, *cells])
    return "\n".join(
        "".join(f"| {cell} " if cell else "| " for cell in line) + "|" for line in lines
    )


def write(page: Path, text: str, how: str) -> None:
    """Put the tables and the plot between the marks of the page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page}: no marks for the figures")
    page.write_text(
        f"{before}{BEGIN}\n\n{how}\n\n{_PLOT}\n\n{text}\n{END}{after}", encoding="utf-8"
    )
