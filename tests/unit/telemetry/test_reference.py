"""The reference pages say what the sources do."""

import ast
from collections.abc import Iterator
from pathlib import Path

from generate_deliverer_reference import events_page, metrics_page
from pillion_sidecar.telemetry.events import EVENTS

ROOT = Path(__file__).parents[3]


def test_the_metrics_page_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/metrics.md").read_text() == metrics_page()


def test_the_events_page_is_up_to_date() -> None:
    assert (ROOT / "docs/reference/events.md").read_text() == events_page()


def _logged(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The event and the other fields of each ``extra={"event": "…"}`` in a source."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.keyword) or node.arg != "extra":
            continue
        if isinstance(node.value, ast.Constant):
            # A protocol's extra of the distribution.
            continue
        assert isinstance(node.value, ast.Dict), "extra is not written out: no test can read it"
        keys = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
        values = dict(zip(keys, node.value.values, strict=True))
        name = values.pop("event")
        assert isinstance(name, ast.Constant), "an event name is a literal"
        yield str(name.value), tuple(str(key) for key in values)


def test_every_event_that_is_logged_is_in_the_table_with_its_fields() -> None:
    logged: dict[str, set[str]] = {}
    for source in (ROOT / "sidecar").rglob("*.py"):
        for name, fields in _logged(ast.parse(source.read_text())):
            logged.setdefault(name, set()).update(fields)
    assert logged == {event.name: set(event.fields) for event in EVENTS}
