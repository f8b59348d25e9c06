"""Draws the plot of ``docs/peers.md`` from what was measured: ``plot.py RESULTS PICTURE``.

The benchmark's own interpreter runs it.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

#: Title, scenario, and what is drawn of it; whether its axis is logarithmic.
_PANELS = (
    ("Events a second, 32 listeners", ("burst-32", "burst-hung"), "rate", True),
    ("CPU of 1,000 events, 32 listeners, seconds", ("burst-32",), "cpu_of_thousand", True),
    ("p99 from publish to arrival at 500/s, ms", ("steady-32", "steady-hung"), "p99", True),
    ("Lost by kill -9, of 1,000 taken", ("killed",), "lost_of_thousand", False),
)
_OURS, _THEIRS, _HUNG = "#3f51b5", "#90a4ae", "#ef6c00"


def value_of(row: dict[str, Any], scenario: str, what: str) -> float | None:
    one = row["figures"].get(scenario)
    if one is None:
        return None
    if what == "rate":
        return float(one["arrived"] / one["seconds"])
    if what == "cpu_of_thousand":
        return float(one["cpu"] / one["arrived"] * 1000) if one["arrived"] else None
    if what == "lost_of_thousand":
        return float(one["lost"] / one["taken"] * 1000) if one["taken"] else None
    return float(one[what])


def label_of(value: float) -> str:
    if math.isinf(value):
        return "not in time"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def draw_panel(axes: Any, rows: list[dict[str, Any]], panel: tuple[Any, ...]) -> None:
    title, scenarios, what, logarithmic = panel
    height = 0.8 / len(scenarios)
    known = [value_of(row, one, what) for row in rows for one in scenarios]
    longest = max((one for one in known if one is not None and math.isfinite(one)), default=1.0)
    for place, row in enumerate(rows):
        for turn, scenario in enumerate(scenarios):
            value = value_of(row, scenario, what)
            if value is None:
                continue
            hung = scenario.endswith("hung")
            colour = _HUNG if hung else _OURS if row["name"].startswith("Pillion") else _THEIRS
            length = min(value, longest * 1.5)
            at = place + (turn - (len(scenarios) - 1) / 2) * height
            axes.barh(at, length, height=height * 0.9, color=colour)
            axes.annotate(
                label_of(value), (length, at), (3, 0), textcoords="offset points", va="center"
            )
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.invert_yaxis()
    if logarithmic:
        axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def main(results: Path, picture: Path) -> None:
    rows = [one for one in json.loads(results.read_text()) if one["figures"]]
    mpl.rcParams["font.size"] = 8
    figure, panels = plt.subplots(2, 2, figsize=(10, 6.5), layout="constrained")
    for axes, panel in zip(panels.flat, _PANELS, strict=True):
        draw_panel(axes, rows, panel)
    colours = {"Pillion": _OURS, "a peer": _THEIRS, "with 50 hung listeners beside the 32": _HUNG}
    handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in colours.values()]
    figure.legend(handles, list(colours), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
