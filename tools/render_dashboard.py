"""Draw a Grafana dashboard from what a Prometheus has, as one HTML page.

Grafana itself is no package of any registry that this project builds from. This reads the
dashboard's JSON as Grafana does (grid, rows, panels, units, legends, thresholds, variables at
"All"), asks Prometheus, and draws panels of the types that the chart's dashboard has: stat,
timeseries and table. The picture in the manual is made of it (``python -m cluster.screens``).
"""

import argparse
import html
import json
import math
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

JSON = dict[str, Any]
#: Seconds since the epoch, and what was there.
Point = tuple[float, float]

#: Pixels: a column of the grid's 24, a unit of its height, the gap, a panel's head.
COLUMN, UNIT, GAP, HEAD = 57, 38, 8, 26
#: Pixels of a graph that its axes take, left and below.
LEFT, BELOW = 52, 18
#: Pixels of a legend's line.
LINE = 15
COLOURS = ("#56a64b", "#e0b400", "#3274d9", "#e02f44", "#8f3bb8", "#ff780a", "#1f9ed1", "#b877d9")
NAMED = {"green": "#37872d", "orange": "#e06c00", "red": "#c4162a", "blue": "#1f60c4"}
STEPS = 180
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
STYLE = """
body{margin:0;background:#f4f5f5;font:12px/1.3 "DejaVu Sans",sans-serif;color:#24292e}
.page{position:relative}
h1{font-size:18px;margin:0;position:absolute;left:12px;top:10px}
.choice{position:absolute;right:12px;top:14px;color:#57606a}
.row{position:absolute;font-weight:bold;font-size:14px;padding:9px 4px}
.panel{position:absolute;background:#fff;border:1px solid #dde1e6;border-radius:3px;
box-sizing:border-box;overflow:hidden}
.head{font-weight:bold;padding:6px 8px 0 8px;height:20px;white-space:nowrap}
.stat{font-size:30px;text-align:center;padding-top:20px;white-space:nowrap}
.none{text-align:center;color:#8a939c;padding-top:24px}
table{border-collapse:collapse;width:100%} th,td{text-align:left;padding:5px 8px;
border-bottom:1px solid #e7eaed;white-space:nowrap} th{color:#1f60c4}
td.number,th.number{text-align:right}
.legend{position:absolute;left:8px;right:8px;bottom:4px}
.legend span{margin-right:12px;white-space:nowrap;font-size:11px}
.legend i{display:inline-block;width:12px;height:3px;margin:0 4px 3px 0;vertical-align:middle}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line of a graph."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A Prometheus, and the time that is looked at."""

    url: str
    start: float
    end: float
    interval: str

    def instant(self, expression: str) -> list[JSON]:
        """The elements of a vector, at the end."""
        return self._ask("query", query=self._filled(expression), time=f"{self.end:.3f}")

    def range(self, expression: str) -> list[JSON]:
        """The rows of a matrix."""
        return self._ask(
            "query_range",
            query=self._filled(expression),
            start=f"{self.start:.3f}",
            end=f"{self.end:.3f}",
            step=f"{(self.end - self.start) / STEPS:.3f}",
        )

    def _filled(self, expression: str) -> str:
        """With every variable at "All"."""
        own = {"__rate_interval": self.interval}
        return _VARIABLE.sub(lambda found: own.get(found[1] or found[2], ".*"), expression)

    def _ask(self, what: str, **parameters: str) -> list[JSON]:
        url = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found: list[JSON] = json.load(answer)["data"]["result"]
        return found


# --- numbers as Grafana writes them


def written(value: float, unit: str) -> str:
    """A number with its unit: short, s, percentunit, bytes, Bps."""
    if math.isnan(value):
        return "NaN"
    if unit == "percentunit":
        return f"{_short(value * 100)}%"
    if unit == "s":
        return _duration(value)
    if unit in ("bytes", "Bps"):
        end = "B/s" if unit == "Bps" else "B"
        factor, steps = (1000, _DECIMAL) if unit == "Bps" else (1024, _BINARY)
        return _scaled(value, factor, steps, end)
    return _scaled(value, 1000, ("", "K", "Mil", "Bil"), "").strip()


_BINARY = ("", "Ki", "Mi", "Gi")
_DECIMAL = ("", "k", "M", "G")


def _scaled(value: float, factor: int, steps: Sequence[str], end: str) -> str:
    power = 0
    while abs(value) >= factor and power < len(steps) - 1:
        value, power = value / factor, power + 1
    return f"{_short(value)} {steps[power]}{end}"


def _duration(value: float) -> str:
    size = abs(value)
    for bound, factor, unit in (
        (1e-3, 1e6, "µs"),
        (1, 1e3, "ms"),
        (60, 1, "s"),
        (3600, 1 / 60, "mins"),
        (86400, 1 / 3600, "hours"),
        (86400 * 365, 1 / 86400, "days"),
    ):
        if size < bound:
            return "0 s" if not size else f"{_short(value * factor)} {unit}"
    return f"{_short(value / 86400 / 365)} years"


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


# --- panels


def stat(panel: JSON, source: Source) -> str:
    """One number, in the colour of its threshold."""
    found = [one for target in panel["targets"] for one in source.instant(target["expr"])]
    defaults = panel["fieldConfig"]["defaults"]
    if not found and "noValue" in defaults:
        return f'<div class="stat" style="color:{NAMED["green"]}">{defaults["noValue"]}</div>'
    if not found:
        return '<div class="none">No data</div>'
    value = float(found[0]["value"][1])
    colour = NAMED[_threshold(value, defaults["thresholds"]["steps"])]
    told = html.escape(written(value, defaults.get("unit", "short")))
    return f'<div class="stat" style="color:{colour}">{told}</div>'


def _threshold(value: float, steps: Sequence[JSON]) -> str:
    reached = [one["color"] for one in steps if one["value"] is None or value >= one["value"]]
    return str(reached[-1])


def table(panel: JSON, source: Source) -> str:
    """A line for each destination: its labels, and the value of each query that has it, in the
    order of the panel."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for target in panel["targets"]:
        for one in source.instant(target["expr"]):
            labels = one["metric"]
            own = rows.setdefault(tuple(labels.get(name, "") for name in _KEY), {})
            own.update(labels)
            own[f"Value #{target['refId']}"] = float(one["value"][1])
    if not rows:
        return '<div class="none">No data</div>'
    settings = {one["matcher"]["options"]: _settings(one) for one in _overrides(panel)}
    (organize,) = (one for one in panel["transformations"] if one["id"] == "organize")
    columns = sorted(organize["options"]["indexByName"], key=organize["options"]["indexByName"].get)
    (sorting,) = panel["options"]["sortBy"]
    key = next(
        name for name, one in settings.items() if one["displayName"] == sorting["displayName"]
    )
    ordered = sorted(
        rows.values(), key=lambda row: row.get(key, -math.inf), reverse=sorting["desc"]
    )
    heads = "".join(_cell("th", name in settings, _heading(name, settings)) for name in columns)
    lines = [f"<tr>{heads}</tr>"]
    for row in ordered:
        cells = "".join(
            _cell("td", name in settings, *_told(row.get(name), settings.get(name, {})))
            for name in columns
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


#: The labels that make a line; another label is a column alone.
_KEY = ("namespace", "service", "destination")


def _overrides(panel: JSON) -> list[JSON]:
    found: list[JSON] = panel["fieldConfig"]["overrides"]
    return found


def _settings(override: JSON) -> JSON:
    return {one["id"]: one["value"] for one in override["properties"]}


def _heading(name: str, settings: Mapping[str, JSON]) -> str:
    return html.escape(str(settings.get(name, {}).get("displayName", name)))


def _told(value: float | str | None, settings: JSON) -> tuple[str, str]:
    """The text of a cell, and its style."""
    if value is None or isinstance(value, str):
        return html.escape(value or ""), ""
    for mapping in settings.get("mappings", ()):
        mapped = mapping["options"].get(f"{value:.0f}")
        if mapped is not None:
            return mapped["text"], f"background:{NAMED[mapped['color']]};color:#fff"
    told = html.escape(written(value, settings.get("unit", "short")))
    if "thresholds" not in settings:
        return told, ""
    return told, f"color:{NAMED[_threshold(value, settings['thresholds']['steps'])]}"


def _cell(kind: str, is_number: bool, text: str, style: str = "") -> str:
    given = ' class="number"' if is_number else ""
    given += f' style="{style}"' if style else ""
    return f"<{kind}{given}>{text}</{kind}>"


def graph(panel: JSON, source: Source, *, width: int, height: int) -> str:
    """Lines over time, with their legend below."""
    defaults = panel["fieldConfig"]["defaults"]
    unit = defaults.get("unit", "short")
    lines = list(_lines(panel, source))
    if not lines:
        return '<div class="none">No data</div>'
    legend_rows = _legend_rows([line.name for line in lines], width - 16)
    high = defaults.get("max") or _ceiling(
        max(value for line in lines for _, value in line.points), unit
    )
    inner, tall = width - LEFT - 12, height - HEAD - BELOW - legend_rows * LINE - 12

    def place(point: Point) -> str:
        across = (point[0] - source.start) / (source.end - source.start)
        return f"{LEFT + across * inner:.1f},{6 + tall * (1 - min(point[1] / high, 1)):.1f}"

    drawn = [_axes(source, high=high, unit=unit, inner=inner, tall=tall)]
    for number, line in enumerate(lines):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(place(point) for point in line.points)
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
    legend = "".join(
        f'<span><i style="background:{COLOURS[number % len(COLOURS)]}"></i>'
        f"{html.escape(line.name)}</span>"
        for number, line in enumerate(lines)
    )
    svg = f'<svg width="{width - 2}" height="{tall + BELOW + 8}">{"".join(drawn)}</svg>'
    return f'{svg}<div class="legend">{legend}</div>'


def _lines(panel: JSON, source: Source) -> Iterator[Series]:
    for target in panel["targets"]:
        for row in source.range(target["expr"]):
            points = [(float(at), float(value)) for at, value in row["values"]]
            points = [point for point in points if math.isfinite(point[1])]
            if points:
                yield Series(name=_legend(target["legendFormat"], row["metric"]), points=points)


def _legend(given: str, labels: Mapping[str, str]) -> str:
    return _LABEL.sub(lambda found: labels.get(found[1], ""), given).strip()


def _legend_rows(names: Sequence[str], width: int) -> int:
    rows, used = 1, 0
    for name in names:
        wide = round(len(name) * 6.9) + 30
        if used and used + wide > width:
            rows, used = rows + 1, 0
        used += wide
    return rows


#: By how much an axis grows from one round number to the next.
_ROUND = (1, 2, 4, 6, 8, 10)
_MINUTES = (60, 120, 240, 480, 600, 960, 1200, 1920, 3600)


def _ceiling(value: float, unit: str) -> float:
    """The round number at which an axis ends."""
    if value <= 0:
        return 1.0
    if unit == "s" and 30 < value <= 3600:
        return next(bound for bound in _MINUTES if value <= bound)
    power = 10 ** math.floor(math.log10(value))
    return float(next(step * power for step in _ROUND if value <= step * power * 1.0001))


def _axes(source: Source, *, high: float, unit: str, inner: int, tall: int) -> str:
    drawn = []
    for quarter in range(5):
        y = 6 + tall * (1 - quarter / 4)
        told = html.escape(written(high * quarter / 4, unit))
        drawn.append(
            f'<line x1="{LEFT}" x2="{LEFT + inner}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e6e9"/>'
            f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end" font-size="10"'
            f' fill="#57606a">{told}</text>'
        )
    every = next(step for step in (60, 120, 300, 900) if (source.end - source.start) / step <= 7)
    at = math.ceil(source.start / every) * every
    while at <= source.end:
        x = LEFT + inner * (at - source.start) / (source.end - source.start)
        told = time.strftime("%H:%M", time.gmtime(at))
        if x < LEFT + inner - 12:
            drawn.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="{6 + tall}" stroke="#eef0f2"/>'
                f'<text x="{x:.1f}" y="{tall + 20}" text-anchor="middle" font-size="10"'
                f' fill="#57606a">{told}</text>'
            )
        at += every
    return "".join(drawn)


# --- the page


def chosen(panels: Sequence[JSON], rows: Sequence[str]) -> Iterator[tuple[JSON, int]]:
    """The panels of these rows (all, where none is named), each with the grid's line that it is
    drawn at: rows that are left out leave no gap."""
    ends = [panel["gridPos"]["y"] for panel in panels if panel["type"] == "row"]
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    taken, gone = True, 0
    for panel in panels:
        y = panel["gridPos"]["y"]
        if panel["type"] == "row":
            following = min((end for end in ends if end > y), default=bottom)
            taken = not rows or panel["title"] in rows
            gone += 0 if taken else following - y
        if taken:
            yield panel, y - gone


def page(dashboard: JSON, source: Source, rows: Sequence[str]) -> str:
    """The dashboard as HTML."""
    drawn, lowest = [], 0
    for panel, y in chosen(dashboard["panels"], rows):
        grid = panel["gridPos"]
        x, top = 12 + grid["x"] * COLUMN, 44 + y * UNIT
        width, height = grid["w"] * COLUMN - GAP, grid["h"] * UNIT - GAP
        lowest = max(lowest, top + height)
        place = f"left:{x}px;top:{top}px;width:{width}px;height:{height}px"
        title = html.escape(panel["title"])
        if panel["type"] == "row":
            drawn.append(f'<div class="row" style="left:{x}px;top:{top - 8}px">{title}</div>')
            continue
        inside = _inside(panel, source, width=width, height=height)
        drawn.append(
            f'<div class="panel" style="{place}"><div class="head">{title}</div>{inside}</div>'
        )
    choices = " ".join(
        f"{one['name']}: All &nbsp;"
        for one in dashboard["templating"]["list"]
        if one["type"] != "datasource"
    )
    return (
        f'<!doctype html><meta charset="utf-8"><style>{STYLE}</style>'
        f'<div class="page" style="height:{lowest + 12}px"><h1>{dashboard["title"]}</h1>'
        f'<div class="choice">{choices}</div>{"".join(drawn)}</div>'
    )


def _inside(panel: JSON, source: Source, *, width: int, height: int) -> str:
    if panel["type"] == "stat":
        return stat(panel, source)
    if panel["type"] == "table":
        return table(panel, source)
    if panel["type"] == "timeseries":
        return graph(panel, source, width=width, height=height)
    raise SystemExit(f"{panel['title']}: a panel of type {panel['type']} cannot be drawn")


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dashboard", type=Path, help="the dashboard's JSON")
    parser.add_argument("prometheus", help="Prometheus' URL")
    parser.add_argument("page", type=Path, help="the HTML page to write")
    parser.add_argument("--minutes", type=float, default=15.0, help="how far back [15]")
    parser.add_argument("--interval", default="30s", help="$__rate_interval [30s]")
    parser.add_argument("--rows", nargs="*", default=[], help="draw these rows alone")
    given = parser.parse_args()
    end = time.time()
    source = Source(
        url=given.prometheus, start=end - given.minutes * 60, end=end, interval=given.interval
    )
    dashboard = json.loads(given.dashboard.read_text(encoding="utf-8"))
    given.page.write_text(page(dashboard, source, given.rows), encoding="utf-8")


if __name__ == "__main__":
    main()
