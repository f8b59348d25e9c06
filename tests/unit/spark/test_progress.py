"""A stream's listener reads from the report what became of each batch."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_pillion import Published, ReportListener

Told = list[tuple[int, Published]]


def line(batch: int | None, *, query: str | None = "q", accepted: int = 1) -> str:
    counts = {"accepted": accepted, "duplicate": 0, "repeated": 0, "redelivered": 0, "rejected": 0}
    targets = {"delivered": 0, "discarded": {}, "unreached": {}, "publishers": []}
    return json.dumps({"query": query, "batch": batch} | counts | targets) + "\n"


def progress(listener: ReportListener, batch: int, *, query: str = "q") -> None:
    event: Any = SimpleNamespace(progress=SimpleNamespace(id=query, batchId=batch))
    listener.onQueryProgress(event)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "report"


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def listener(report: Path, told: Told) -> ReportListener:
    report.write_text(line(0, accepted=9))
    return ReportListener(str(report), lambda found, counts: told.append((found.batchId, counts)))


def append(report: Path, *lines: str) -> None:
    with report.open("a") as file:
        file.writelines(lines)


def test_each_batch_is_told_once_with_its_own_counts(
    listener: ReportListener, report: Path, told: Told
) -> None:
    append(report, line(0), line(None, query=None), line(0, query="other", accepted=7), line(1))
    for batch in (0, 0, 1, 2):
        progress(listener, batch)
    progress(listener, 0, query="other")

    # What was there before is of an earlier run.
    assert [(batch, counts.accepted) for batch, counts in told] == [(0, 1), (1, 1), (0, 7)]


def test_a_line_that_is_not_whole_is_read_when_it_is(
    listener: ReportListener, report: Path, told: Told
) -> None:
    append(report, line(1)[:20])
    progress(listener, 1)
    append(report, line(1)[20:])
    progress(listener, 1)

    assert [batch for batch, _ in told] == [1]


def test_a_report_that_is_replaced_is_read_from_its_beginning(
    listener: ReportListener, report: Path, told: Told
) -> None:
    report.unlink()
    progress(listener, 1)
    report.write_text(line(1)[:-30])
    progress(listener, 1)
    report.write_text(line(1))
    progress(listener, 1)

    assert [batch for batch, _ in told] == [1]


def test_batches_without_progress_are_forgotten(
    listener: ReportListener, report: Path, told: Told
) -> None:
    append(report, *map(line, range(1, 120)))
    progress(listener, 0)
    for batch in (1, 19, 20):
        progress(listener, batch)

    assert [batch for batch, _ in told] == [20]
