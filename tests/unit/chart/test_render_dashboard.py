"""The dashboard as tools/render_dashboard.py draws it."""

import re
from typing import Any

import pytest

from pillion_testbed.helm import CHART
from render_dashboard import Source, chosen, page, written
from support.dashboard import load

DASHBOARD = load(CHART / "files" / "dashboard.json")
START, END = 1_000_000.0, 1_000_600.0


class Told(Source):
    """A Prometheus that answers each query with one series; it keeps the queries."""

    def _ask(self, what: str, **parameters: str) -> list[Any]:
        assert "$" not in parameters["query"]
        labels = {"namespace": "weather", "service": "default", "destination": "<on-call>"}
        if what == "query":
            return [{"metric": labels, "value": [END, "4500"]}]
        return [{"metric": labels, "values": [[START, "0"], [END, "90"], [END, "NaN"]]}]


SOURCE = Told(url="http://prometheus", start=START, end=END, interval="30s")


@pytest.mark.parametrize(
    ("value", "unit", "told"),
    [
        (0, "short", "0"),
        (14630, "short", "14.6 K"),
        (2_500_000, "short", "2.5 Mil"),
        (0.8, "percentunit", "80%"),
        (0, "s", "0 s"),
        (0.116, "s", "116 ms"),
        (0.00002, "s", "20 µs"),
        (12, "s", "12 s"),
        (358, "s", "5.97 mins"),
        (31_000_000, "s", "359 days"),
        (1536, "bytes", "1.5 KiB"),
        (1500, "Bps", "1.5 kB/s"),
        (float("nan"), "s", "NaN"),
    ],
)
def test_numbers_are_written_with_their_units(value: float, unit: str, told: str) -> None:
    assert written(value, unit) == told


def test_every_panel_is_drawn_with_its_title_and_its_data() -> None:
    drawn = page(DASHBOARD, SOURCE, [])
    for panel in DASHBOARD["panels"]:
        assert f">{panel['title'].replace(chr(39), '&#x27;')}</div>" in drawn
    assert "No data" not in drawn
    assert "<on-call>" not in drawn
    assert "&lt;on-call&gt;" in drawn
    # What is no number is left out of a line.
    assert "nan" not in re.sub(r"<text.*?</text>", "", drawn)


def test_rows_that_are_left_out_leave_no_gap() -> None:
    places = [(panel["title"], y) for panel, y in chosen(DASHBOARD["panels"], ["Operator"])]
    assert places[0] == ("Operator", 0)
    everything = list(chosen(DASHBOARD["panels"], []))
    assert all(y == panel["gridPos"]["y"] for panel, y in everything)


def test_a_series_without_values_is_told_to_be_none() -> None:
    class Empty(Told):
        def _ask(self, what: str, **parameters: str) -> list[Any]:
            return []

    empty = Empty(url="http://prometheus", start=START, end=END, interval="30s")
    drawn = page(DASHBOARD, empty, ["Listeners"])
    panels = [one for one, _ in chosen(DASHBOARD["panels"], ["Listeners"]) if "targets" in one]
    assert drawn.count("No data") == len(panels)
    # No loss is due.
    assert ">none</div>" in page(DASHBOARD, empty, ["At a glance"])


class Table(Told):
    """Two destinations, of which one fails for a cause, and one is slow."""

    def _ask(self, what: str, **parameters: str) -> list[Any]:
        state = "topk" in parameters["query"]
        found = []
        for name, value, labels in (
            ("a-slow", "3", {"cause": "slow"}),
            ("b-failing", "6", {"cause": "<refused>"}),
        ):
            metric = {"namespace": "weather", "service": "default", "destination": name}
            told = {**metric, **(labels if state else {})}
            found.append({"metric": told, "value": [END, value if state else "7200"]})
        return found


def test_the_table_has_a_line_for_each_destination_the_worst_first() -> None:
    source = Table(url="http://prometheus", start=START, end=END, interval="30s")
    drawn = page(DASHBOARD, source, ["At a glance"])
    rows = re.findall(r"<tr>(.*?)</tr>", drawn)
    heads, *lines = [re.findall(r"<t[dh][^>]*>(.*?)</t", row) for row in rows]
    assert heads[:6] == ["namespace", "service", "destination", "State", "cause", "First loss in"]
    assert [line[2:6] for line in lines] == [
        ["b-failing", "failing", "&lt;refused&gt;", "2 hours"],
        ["a-slow", "slow", "slow", "2 hours"],
    ]
    assert "background:#c4162a" in rows[1]
    assert "background:#e06c00" in rows[2]
