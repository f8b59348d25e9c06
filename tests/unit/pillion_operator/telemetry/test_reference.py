"""The operator's reference pages say what its sources do."""

import ast
from collections.abc import Iterator

import pytest

from generate_operator_reference import (
    PAGES,
    SOURCE,
    conditions_page,
    events_page,
    metrics,
    metrics_page,
)
from pillion_operator.telemetry.log_events import LOG_EVENTS
from support.house import ROOT

COMMAND = ROOT / "cli" / "pillion_cli" / "commands" / "operator.py"


@pytest.mark.parametrize(
    ("name", "fresh"),
    [
        ("conditions.md", conditions_page()),
        ("operator-metrics.md", metrics_page()),
        ("operator-events.md", events_page()),
    ],
)
def test_the_page_is_up_to_date(name: str, fresh: str) -> None:
    assert (PAGES / name).read_text(encoding="utf-8") == fresh, "run: make generate"


def test_every_metric_is_the_operators_and_is_named_once() -> None:
    names = [metric.name for metric in metrics()]
    assert len(names) == len(set(names))
    assert {name for name in names if not name.startswith("pillion_operator_")} == set()
    assert {metric.name for metric in metrics() if not metric.help.endswith(".")} == set()


def test_metrics_have_their_labels_and_buckets() -> None:
    found = {metric.name: metric for metric in metrics()}
    assert found["pillion_operator_reconciles_total"].labels == ("kind", "result")
    assert found["pillion_operator_reconcile_seconds"].buckets
    assert found["pillion_operator_watch_stalled"].labels == ("kind",)


def logged(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The event and the other fields of each ``extra={"event": "…"}`` in a source."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.keyword) or node.arg != "extra":
            continue
        if isinstance(node.value, ast.Name) and node.value.id == "extra":
            # A parameter: its caller's is read.
            continue
        assert isinstance(node.value, ast.Dict), "extra is not written out: no test can read it"
        keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
        values = dict(zip(keys, node.value.values, strict=True))
        name = values.pop("event")
        assert isinstance(name, ast.Constant), "an event name is a literal"
        yield str(name.value), tuple(str(key) for key in values)


def test_every_event_that_is_logged_is_in_the_table_with_its_fields() -> None:
    found: dict[str, set[str]] = {}
    for source in (*SOURCE.rglob("*.py"), COMMAND):
        for name, fields in logged(ast.parse(source.read_text(encoding="utf-8"))):
            found.setdefault(name, set()).update(fields)
    assert found == {event.name: set(event.fields) for event in LOG_EVENTS}


def test_no_event_is_in_the_table_twice() -> None:
    names = [event.name for event in LOG_EVENTS]
    assert len(names) == len(set(names))
