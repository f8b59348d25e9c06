"""Queries of a Grafana dashboard, with its variables filled in as Grafana does."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """One query of a panel. ``expression`` has its variables still."""

    row: str
    panel: str
    expression: str

    def filled(self, values: Mapping[str, str], *, interval: str = "1m") -> str:
        """The query as it is sent: ``values`` by name of a variable. KeyError for an unknown one.

        ``interval`` is Grafana's own ``$__rate_interval``.
        """
        known = {**values, "__rate_interval": interval, "__range": interval}
        return _VARIABLE.sub(lambda found: known[found[1] or found[2]], self.expression)


def queries(dashboard: Any) -> Iterator[Query]:
    """Every query of every panel, with the row that the panel stands in."""
    row = ""
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            row = panel["title"]
        for target in panel.get("targets", ()):
            yield Query(row=row, panel=panel["title"], expression=target["expr"])


def variables(dashboard: Any) -> dict[str, Any]:
    """The variables that one can choose, by name, without the data source."""
    found = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    return {name: one for name, one in found.items() if one["type"] != "datasource"}


def load(path: Path) -> Any:
    """A dashboard's JSON."""
    return json.loads(path.read_text(encoding="utf-8"))
