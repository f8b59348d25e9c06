"""Writes the operator's pages of ``docs/reference/``: metrics, log events and conditions."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.metrics import Histogram, MetricWrapperBase
from prometheus_client.registry import Collector

from pillion_operator.telemetry.log_events import LOG_EVENTS
from pillion_operator.telemetry.metrics import Metrics
from pillion_sidecar.config.schema.status import CONDITIONS, ConditionType, Told

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "operator" / "pillion_operator"
PAGES = ROOT / "docs" / "reference"

_METRICS_HEAD = """\
# Metrics of the operator

<!-- Made by `make generate` from pillion_operator; do not edit. -->

`GET /metrics` on the operator's telemetry port (8081) serves these in the Prometheus text format,
with the usual `process_*` metrics. Every replica serves them; metrics of the leader's work are zero
or absent on the others. [Metrics](metrics.md) lists those of deliverers.

| Metric | Type | Labels | Meaning |
| --- | --- | --- | --- |
"""

_EVENTS_HEAD = """\
# Log events of the operator

<!-- Made by `make generate` from pillion_operator; do not edit. -->

Lines have the format of a [deliverer's](events.md). Match on `event`: names stay, messages may
change. Kubernetes Events are [separate](../conditions.md#events).

| Event | Level | Meaning | Fields |
| --- | --- | --- | --- |
"""

_CONDITIONS_HEAD = """\
# Conditions

<!-- Made by `make generate` from pillion_sidecar; do not edit. -->

The condition types in `status.conditions`, and the Events on their transitions.
[The operator](../conditions.md#conditions) lists the reasons of each.

| Condition | Kinds | Meaning | Events |
| --- | --- | --- | --- |
"""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Metric:
    """One metric as Prometheus sees it."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[str, ...] = ()


def metrics() -> list[Metric]:
    """All metrics of the operator, by name."""
    return sorted(map(_described, Metrics(version="").registry._collector_to_names))


def _described(collector: Collector) -> Metric:
    assert isinstance(collector, MetricWrapperBase)
    (family,) = collector.describe()
    buckets: tuple[str, ...] = ()
    if isinstance(collector, Histogram):
        buckets = tuple(f"{bound:g}" for bound in collector._upper_bounds[:-1])
    return Metric(
        name=f"{family.name}_total" if family.type == "counter" else family.name,
        type=family.type,
        labels=tuple(collector._labelnames),
        help=family.documentation,
        buckets=buckets,
    )


def metrics_page() -> str:
    """Return ``docs/reference/operator-metrics.md``."""
    found = metrics()
    rows = "".join(
        f"| `{one.name}` | {one.type} | {_codes(one.labels)} | {one.help} |\n" for one in found
    )
    bounds = "".join(
        f"\nBuckets of `{one.name}`: {', '.join(one.buckets)}.\n" for one in found if one.buckets
    )
    return f"{_METRICS_HEAD}{rows}{bounds}"


def events_page() -> str:
    """Return ``docs/reference/operator-events.md``."""
    rows = "".join(
        f"| `{one.name}` | {one.level} | {one.meaning} | {_codes(one.fields)} |\n"
        for one in LOG_EVENTS
    )
    return f"{_EVENTS_HEAD}{rows}"


def conditions_page(conditions: Iterable[ConditionType] = CONDITIONS) -> str:
    """Return ``docs/reference/conditions.md``."""
    rows = "".join(
        f"| `{one.name}` | {', '.join(one.kinds)} | {_meaning(one)} | {_codes(_events(one))} |\n"
        for one in conditions
    )
    return f"{_CONDITIONS_HEAD}{rows}"


def _meaning(one: ConditionType) -> str:
    text = f"{one.where}: {one.text}" if one.where else one.text
    return text[0].upper() + text[1:]


def _events(one: ConditionType) -> list[str]:
    good = "False" if one.bad == "True" else "True"
    statuses = {Told.NEVER: (), Told.BEGINNING: (one.bad,), Told.BOTH: (one.bad, good)}
    return [one.event(status) for status in statuses[one.told]]


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main() -> None:
    """Write the pages."""
    pages = {
        "conditions.md": conditions_page(),
        "operator-metrics.md": metrics_page(),
        "operator-events.md": events_page(),
    }
    for name, text in pages.items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
