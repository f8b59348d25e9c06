"""The rows tool sees what it claims to see, and the rows that stand are fit to be tried."""

from pathlib import Path

import pytest

import rows
from rows import Copy, Mutation, Requirement, Row, RowError, Verdict
from support.house import ROOT


def row(
    *tests: str,
    replace: str = "return 4",
    with_: str = "return 5",
    on_node: tuple[str, ...] = (),
) -> Row:
    mutation = Mutation("sidecar/pillion_sidecar/rule.py", replace, with_)
    return Row("S0.1", "a rule", tests, mutation, on_node)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of one rule, tested well and badly."""
    room = tmp_path / "project" / "sidecar" / "pillion_sidecar"
    room.mkdir(parents=True)
    room.joinpath("__init__.py").touch()
    room.joinpath("rule.py").write_text("def rule():\n    return 4\n", encoding="utf-8")
    tests = tmp_path / "project" / "tests"
    tests.mkdir()
    tests.joinpath("test_rule.py").write_text(
        "from pillion_sidecar.rule import rule\n"
        "def test_well(): assert rule() == 4\n"
        "def test_badly(): assert rule() > 0\n",
        encoding="utf-8",
    )
    tests.joinpath("e2e").mkdir()
    tests.joinpath("e2e", "test_node.py").write_text(
        "def test_it(node): assert node\ndef helps(): pass\n", encoding="utf-8"
    )
    tests.joinpath("test_name.py").write_text(
        "def test_it():\n    from pillion_sidecar.rule import rule\n", encoding="utf-8"
    )
    return tmp_path / "project"


@pytest.fixture
def copy(tree: Path, tmp_path: Path) -> Copy:
    return Copy(tree, tmp_path / "copy")


def test_a_broken_rule_that_a_test_holds_turns_red(copy: Copy) -> None:
    verdict = copy.try_row(row("tests/test_rule.py::test_badly", "tests/test_rule.py::test_well"))
    assert verdict.red
    assert "test_well" in verdict.detail


def test_a_broken_rule_that_no_test_holds_stays_green(copy: Copy) -> None:
    verdict = copy.try_row(row("tests/test_rule.py::test_badly"))
    assert (verdict.red, verdict.detail) == (False, "its tests stay green")


def test_a_test_that_cannot_be_collected_is_not_red(copy: Copy) -> None:
    broken_import = row("tests/test_rule.py", replace="def rule", with_="def ruler")
    assert not copy.try_row(broken_import).red


def test_a_test_that_does_not_exist_is_not_red(copy: Copy) -> None:
    assert not copy.try_row(row("tests/test_rule.py::test_missing")).red


def test_the_copy_is_what_is_imported_and_is_whole_again_after_a_row(
    copy: Copy, tree: Path
) -> None:
    copy.verify()
    copy.try_row(row("tests/test_rule.py"))
    rule = Path("sidecar/pillion_sidecar/rule.py")
    assert (copy.folder / rule).read_text() == (tree / rule).read_text()


@pytest.mark.parametrize(
    ("replace", "with_", "why"),
    [
        ("missing", "x", "occurs 0 times"),
        ("a", "b", "occurs 2 times"),
        ("a = 1", "a = 1", "changes nothing"),
        ("a = 1\nx = a", "b = 1\nx = b", "more than one line"),
    ],
)
def test_a_change_that_is_not_one_line_in_one_place_is_refused(
    replace: str, with_: str, why: str
) -> None:
    with pytest.raises(RowError, match=why):
        Mutation("f.py", replace, with_).apply("a = 1\nx = a\n")


def test_a_change_may_quote_the_lines_around_it() -> None:
    changed = Mutation("f.py", "a = 1\nx = a", "a = 2\nx = a").apply("a = 1\nx = a\n")
    assert changed == "a = 2\nx = a\n"


def test_all_that_is_wrong_with_the_rows_is_told_at_once(tree: Path) -> None:
    found = rows.problems(
        [
            Row("S9.9", "unknown", (), row().mutation),
            row("tests/test_gone.py::test_x", replace="return 3"),
            row("tests/test_rule.py", with_="return ("),
        ],
        [Requirement("S0.1", "a rule", "S0")],
        tree,
    )
    assert [problem.split(":")[0] for problem in found] == ["S9.9", "S9.9", "S0.1", "S0.1", "S0.1"]


def problems_of(one: Row, tree: Path) -> list[str]:
    return rows.problems([one], [Requirement("S0.1", "a rule", "S0")], tree)


def test_a_test_on_a_node_may_be_named_beside_those_that_run_here(tree: Path, copy: Copy) -> None:
    shown = row("tests/test_rule.py::test_well", on_node=("tests/e2e/test_node.py::test_it",))
    assert problems_of(shown, tree) == []
    # It is not run: there is no node.
    assert copy.try_row(shown).red


@pytest.mark.parametrize(
    "gone",
    [
        "tests/e2e/test_node.py::test_gone",
        "tests/e2e/test_node.py::helps",
        "tests/e2e/test_node.py",
        "tests/e2e/test_gone.py::test_it",
        "tests/test_rule.py::test_well",
    ],
)
def test_what_is_no_test_on_a_node_is_not_taken_for_one(gone: str, tree: Path) -> None:
    (found,) = problems_of(row("tests/test_rule.py", on_node=(gone,)), tree)
    assert found == f"S0.1: no such test on a node: {gone}"


def test_a_test_on_a_node_alone_carries_no_row(tree: Path) -> None:
    on_node = ("tests/e2e/test_node.py::test_it",)
    (found,) = problems_of(row(on_node=on_node), tree)
    assert "names no test" in found
    (found,) = problems_of(row(*on_node), tree)
    assert "name it in on_node" in found


def test_a_row_with_a_misspelt_field_is_named(tmp_path: Path) -> None:
    tmp_path.joinpath("room.toml").write_text(
        '[[row]]\nid = "S0.1"\ntitle = "t"\ntest = []\ntests = []\nmutation = {}\n'
    )
    with pytest.raises(RowError, match=r"room\.toml, row 0.*test"):
        rows.load_rows(tmp_path)


def test_the_page_tells_what_works_and_what_does_not() -> None:
    requirements = [Requirement("S0.1", "a | b", "S0"), Requirement("S0.2", "c", "S0")]
    page = rows.page([row("tests/t.py::test_a"), row("tests/t.py::test_a")], requirements)
    assert "| S0.1 | a \\| b | `tests/t.py::test_a` |" in page
    assert "| S0.2 | c | not yet |" in page
    assert "**1 of 2 rows work**" in page


def test_the_page_tells_what_is_shown_on_a_node() -> None:
    on_node = "tests/e2e/t.py::test_a"
    page = rows.page([row("tests/t.py", on_node=(on_node,))], [Requirement("S0.1", "a", "S0")])
    assert f"| S0.1 | a | `tests/t.py`<br>on a node: `{on_node}` |" in page


def test_the_page_tells_what_of_a_row_does_not_work_yet() -> None:
    requirements = [Requirement("S0.1", "a", "S0", missing="the other half")]
    page = rows.page([row("tests/t.py::test_a")], requirements)
    assert "| **In part**; not yet: the other half.<br>`tests/t.py::test_a` |" in page
    assert "**0 of 1 rows work**, 1 more in part" in page


def test_the_command_says_so_when_a_row_stays_green(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held, loose = row("tests/a.py"), row("tests/b.py")
    verdicts = [Verdict(held, True, "", 1.0), Verdict(loose, False, "its tests stay green", 1.0)]
    monkeypatch.setattr(rows, "load_rows", lambda: [held, loose])
    monkeypatch.setattr(rows, "problems", lambda *_: [])
    monkeypatch.setattr(rows, "try_rows", lambda *_: [*map(rows._show, verdicts)] and verdicts)
    assert rows.main([]) == 1
    said = capsys.readouterr().out
    assert "1 changes turn their tests red, 1 do not" in said
    assert "its tests stay green" in said


def test_the_rows_of_this_project_are_fit_to_be_tried() -> None:
    assert rows.problems(rows.load_rows(), rows.load_requirements(), ROOT) == []


def test_the_page_of_this_project_is_up_to_date() -> None:
    written = (ROOT / rows.PAGE).read_text(encoding="utf-8")
    fresh = rows.page(rows.load_rows(), rows.load_requirements())
    assert written == fresh, "run: make generate"
