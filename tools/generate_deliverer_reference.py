"""Writes ``metrics.md`` and ``events.md`` of ``docs/reference/`` from the definitions."""

from collections.abc import Iterable
from pathlib import Path

from pillion_sidecar.telemetry.definitions import METRICS
from pillion_sidecar.telemetry.events import EVENTS

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
_METRICS_INTRODUCTION = """\
# Metrics

<!-- Made by `make generate` from pillion_sidecar.telemetry; do not edit. -->

`GET /metrics` on the telemetry listener serves these in the Prometheus text format, with the usual
`process_*` metrics.

- Units are base units: seconds, and indications.
- `destination` is the name of a ListenerDestination. Histograms do not have it.
- `reason` and `result` are closed sets, and each has its series from the start, so that
  `increase()` sees the first discard.
- When a destination is removed, its series end. When it is created again, they begin at zero, which
  `rate()` treats as a reset.
"""

_EVENTS_INTRODUCTION = """\
# Log events

<!-- Made by `make generate` from pillion_sidecar.telemetry; do not edit. -->

Each line of the log is one record with `time`, `level`, `event`, `message` and `logger`, then the
fields of its event. Match on `event`: names stay, messages may change. The event of a library's
record is the name of its logger. Fields without a value are omitted.

Non-printable characters (control characters, line ends such as U+2028, direction marks) are escaped
as in JSON: `\\u202e`. A field is cut at 16,384 characters, a line at 65,536.

A thread writes lines from a buffer of 10,000 lines or 4 MiB. Nothing waits for space in it. Records
below WARNING may use half of it, those below ERROR seven eighths. A record that does not fit is
dropped and counted in `pillion_log_records_dropped_total`, and `log-records-dropped` reports the
number as soon as there is space. Failed writes to a log file, for example on a full disk, are
counted, too. When the deliverer stops, it waits at most 5 s for the reader of its log.
"""


def metrics_page() -> str:
    """Return ``docs/reference/metrics.md``."""
    rows = (
        (f"`{metric.name}`", metric.type.value, _codes(metric.labels), metric.help)
        for metric in METRICS
    )
    bounds = "\n".join(
        f"Buckets of `{metric.name}`: {', '.join(f'{bound:g}' for bound in metric.bounds)}.\n"
        for metric in METRICS
        if metric.bounds
    )
    table = _table(("Metric", "Type", "Labels", "Meaning"), rows)
    return f"{_METRICS_INTRODUCTION}\n{table}\n{bounds}"


def events_page() -> str:
    """Return ``docs/reference/events.md``."""
    rows = (
        (f"`{event.name}`", event.level, event.meaning, _codes(event.fields)) for event in EVENTS
    )
    return f"{_EVENTS_INTRODUCTION}\n{_table(('Event', 'Level', 'Meaning', 'Fields'), rows)}"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main() -> None:
    """Write the pages."""
    (PAGES / "metrics.md").write_text(metrics_page(), encoding="utf-8")
    (PAGES / "events.md").write_text(events_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
