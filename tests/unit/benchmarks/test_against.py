"""What the comparison of two commits makes of the figures that benchmarks report."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.against import ROOT, Compared, Side, compared, figures_of


def line(figure: str, note: str = "") -> dict[str, str]:
    return {"goal": "goal", "figure": figure, "note": note}


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("125,400/s", 125_400.0),
        ("4.06 x", 4.06),
        ("99 %", 99.0),
        ("+3.20 ms", 3.2),
        ("-50", -50.0),
    ],
)
def test_a_figure_is_its_number(figure: str, value: float) -> None:
    assert dict(figures_of(line(figure))) == {"goal": value}


def test_further_numbers_of_a_figure_have_names_of_their_own() -> None:
    assert dict(figures_of(line("-50, +1,006"))) == {"goal": -50.0, "goal (2)": 1006.0}


def test_of_a_note_only_microseconds_are_figures() -> None:
    note = "6.5 us CPU a line, in memory 1,204.0 us, p99 4 ms, client on the other core"
    assert dict(figures_of(line("7/s", note))) == {
        "goal": 7.0,
        "  us, of goal": 6.5,
        "  us, of goal (2)": 1204.0,
    }


def test_rounds_are_compared_by_the_medians_of_both_and_of_their_quotients() -> None:
    old, new = {"a": [10.0, 20.0, 40.0]}, {"a": [11.0, 30.0, 40.0]}
    assert [*compared(old, new)] == [Compared("a", 20.0, 30.0, 1.1)]


def test_what_only_one_side_has_is_left_out() -> None:
    assert [*compared({"a": [1.0], "b": []}, {"b": [1.0], "c": [1.0]})] == []


def test_a_figure_that_was_0_has_a_quotient_by_the_other_rounds_alone() -> None:
    assert [*compared({"a": [0.0, 2.0]}, {"a": [5.0, 4.0]})] == [Compared("a", 1.0, 4.5, 2.0)]
    assert [*compared({"a": [0.0]}, {"a": [5.0]})] == [Compared("a", 0.0, 5.0, None)]


def test_a_benchmark_that_one_side_lacks_is_this_trees(tmp_path: Path) -> None:
    benchmarks = tmp_path / "tests" / "benchmarks"
    benchmarks.mkdir(parents=True)
    (benchmarks / "bench_intake.py").touch()
    side = Side(name="old", tree=tmp_path, benchmarks=tmp_path)
    assert side.home("intake") == tmp_path
    assert side.home("single") == ROOT
    (tmp_path / "tests" / "benchmarks" / "bench_journal.py").touch()
    assert side.home("journal") == tmp_path
    # It may lack the shorter form.
    shorter = replace(side, short=True)
    assert shorter.home("journal") == ROOT
    assert shorter.home("intake") == tmp_path
