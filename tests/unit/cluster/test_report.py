"""What a session on a node tells of itself."""

import pytest

from pillion_testbed.report import Report, table


def ticking(*times: float) -> Report:
    return Report(clock=iter(times).__next__)


def test_each_step_is_told_with_its_time() -> None:
    report = ticking(1.0, 3.5, 10.0, 10.25)
    with report.step("first"):
        pass
    with report.step("the second"):
        pass
    assert report.lines() == [
        "| step       | seconds |",
        "| ---------- | ------: |",
        "| first      |     2.5 |",
        "| the second |     0.2 |",
    ]


def test_a_step_that_failed_is_told_as_such() -> None:
    report = ticking(0.0, 1.0)
    with pytest.raises(ValueError, match="why"), report.step("first"):
        raise ValueError("why")
    assert report.lines()[-1].startswith("| first (FAILED)")


def test_one_within_another_is_told_before_it() -> None:
    report = ticking(0.0, 1.0, 2.0, 3.0)
    with report.step("outer"), report.step("inner"):
        pass
    assert [(one.name, one.seconds) for one in report.steps] == [("inner", 1.0), ("outer", 3.0)]


def test_figures_have_a_table_of_their_own() -> None:
    report = Report()
    report.figure("memory", "12 MB")
    assert report.lines()[-1] == "| memory |    12 MB |"


def test_nothing_done_is_nothing_told() -> None:
    assert Report().lines() == []


def test_a_bar_in_a_cell_is_no_column() -> None:
    assert table(("a", "b"), [("x|y", "1")])[-1] == "| x\\|y | 1 |"
