"""Rows are loaded and judged correctly, and those of this project can be tried."""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import pytest

import rows
from affected import Graph
from caught import Caught
from mutations import Mutation
from rows import Copy, Requirement, Row, RowError, RunResult, Trial, Verdict
from support.house import ROOT

RULE = "pillion_sidecar:rule"
WELL, BADLY = "tests/test_rule.py::test_well", "tests/test_rule.py::test_badly"


def row(*tests: str, replace: str = "4", with_: str = "5", on_node: tuple[str, ...] = ()) -> Row:
    return Row("S0.1", "a rule", (Trial(Mutation(RULE, replace, with_), tests),), on_node)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project of one rule, tested well and badly."""
    package = tmp_path / "project" / "sidecar" / "pillion_sidecar"
    package.mkdir(parents=True)
    package.joinpath("__init__.py").touch()
    package.joinpath("rule.py").write_text("def rule():\n    return 4\n", encoding="utf-8")
    tests = tmp_path / "project" / "tests"
    tests.mkdir()
    tests.joinpath("test_rule.py").write_text(
        "import pytest\n"
        "from pillion_sidecar.rule import rule\n"
        "def test_well(): assert rule() == 4\n"
        "def test_badly(): assert rule() > 0\n"
        "@pytest.mark.parametrize('most', [4, 9])\n"
        "def test_cases(most): assert rule() <= most\n",
        encoding="utf-8",
    )
    tests.joinpath("e2e").mkdir()
    tests.joinpath("e2e", "test_node.py").write_text(
        "def test_it(node): assert node\ndef helps(): pass\n", encoding="utf-8"
    )
    tools = tmp_path / "project" / "tools"
    tools.mkdir()
    tools.joinpath("warm_pytest.py").symlink_to(ROOT / "tools" / "warm_pytest.py")
    return tmp_path / "project"


@pytest.fixture
def copy(tree: Path, tmp_path: Path) -> Iterator[Copy]:
    with Copy(tree, tmp_path / "copy") as copy:
        yield copy


def stayed(copy: Copy, *tests: str) -> list[str]:
    (trial,) = row(*tests).trials
    return list(copy.attempt(trial).stayed)


def test_a_test_that_fails_under_the_mutation_has_not_stayed_green(copy: Copy) -> None:
    assert stayed(copy, WELL) == []


def test_each_test_must_fail_and_not_only_one(copy: Copy) -> None:
    assert stayed(copy, BADLY, WELL) == [BADLY]


def test_a_test_that_fails_at_the_second_try_has_not_stayed_green(copy: Copy, tree: Path) -> None:
    seen = tree / "seen"
    copy.folder.joinpath("tests", "test_race.py").write_text(
        "from pathlib import Path\n"
        "from pillion_sidecar.rule import rule\n"
        f"SEEN = Path({str(seen)!r})\n"
        "def test_it():\n"
        "    is_first = not SEEN.exists()\n"
        "    SEEN.touch()\n"
        "    assert is_first or rule() == 4\n",
        encoding="utf-8",
    )
    (trial,) = row("tests/test_race.py::test_it").trials
    verdict = copy.attempt(trial)
    assert (verdict.stayed, verdict.late) == ({}, ["tests/test_race.py::test_it"])


def test_of_a_test_with_cases_one_must_fail(copy: Copy) -> None:
    cases = "tests/test_rule.py::test_cases"
    assert stayed(copy, cases) == []
    assert stayed(copy, f"{cases}[9]") == [f"{cases}[9]"]


def test_a_test_that_does_not_exist_has_not_failed(copy: Copy) -> None:
    missing = "tests/test_rule.py::test_missing"
    (trial,) = row(missing).trials
    ((test, outcome),) = copy.attempt(trial).stayed.items()
    assert test == missing
    assert "did not run; pytest ended with 4" in outcome


def test_a_test_that_cannot_be_collected_has_not_failed(copy: Copy) -> None:
    trial = Trial(Mutation(RULE, "def rule", "def ruler"), (WELL,))
    assert list(copy.attempt(trial).stayed) == [WELL]


@pytest.mark.parametrize(
    ("outcomes", "green"),
    [
        ({}, True),
        ({WELL: "passed"}, True),
        ({WELL: "skipped"}, True),
        ({WELL: "error"}, True),
        ({WELL: "failed"}, False),
        ({f"{WELL}[1]": "passed", f"{WELL}[2]": "failed"}, False),
        ({BADLY: "failed"}, True),
    ],
)
def test_only_a_failure_of_the_test_itself_counts(outcomes: dict[str, str], green: bool) -> None:
    assert (WELL in rows.stayed([WELL], RunResult(1, outcomes, ""))) is green


def test_the_copy_is_what_is_imported_and_is_whole_again_after_a_mutation(
    copy: Copy, tree: Path
) -> None:
    copy.verify()
    stayed(copy, WELL)
    rule = Path("sidecar/pillion_sidecar/rule.py")
    assert (copy.folder / rule).read_text() == (tree / rule).read_text()


def test_all_that_is_wrong_with_the_rows_is_told_at_once(tree: Path) -> None:
    found = rows.problems(
        [
            Row("S9.9", "unknown", ()),
            row("tests/test_gone.py::test_x", replace="3"),
            row("tests/test_rule.py", with_="("),
            row(),
        ],
        [Requirement("S0.1", "a rule", "S0")],
        tree,
    )
    assert found == [
        "S9.9: no such requirement in tests/rows/requirements.toml",
        "S9.9: has no mutation",
        "S0.1: no such test: tests/test_gone.py::test_x",
        "S0.1: pillion_sidecar:rule: '3' occurs 0 times, not once",
        "S0.1: no such test: tests/test_rule.py",
        "S0.1: pillion_sidecar:rule: '(' does not compile",
        "S0.1: no test fails under '4'",
    ]


def problems_of(one: Row, tree: Path) -> list[str]:
    return rows.problems([one], [Requirement("S0.1", "a rule", "S0")], tree)


def test_a_test_on_a_node_may_be_named_beside_those_that_run_here(tree: Path) -> None:
    shown = row(WELL, on_node=("tests/e2e/test_node.py::test_it",))
    assert problems_of(shown, tree) == []
    # It is not run: there is no node.
    assert shown.tests == (WELL,)


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
    (found,) = problems_of(row(WELL, on_node=(gone,)), tree)
    assert found == f"S0.1: no such test on a node: {gone}"


def test_a_test_on_a_node_alone_carries_no_row(tree: Path) -> None:
    on_node = ("tests/e2e/test_node.py::test_it",)
    (found,) = problems_of(row(on_node=on_node), tree)
    assert found == "S0.1: no test fails under '4'"
    (found,) = problems_of(row(*on_node), tree)
    assert "name it in on_node" in found


@pytest.mark.parametrize(
    "row",
    [
        'test = []\n[[row.mutation]]\nin = "m:f"\nreplace = "a"\nwith = "b"\nfails = []',
        '[[row.mutation]]\nin = "m:f"\nreplaced = "a"\nwith = "b"\nfails = []',
        '[[row.mutation]]\nin = "m:f"\nreplace = "a"\nwith = "b"',
        '[row.mutation]\nin = "m:f"\nreplace = "a"\nwith = "b"\nfails = []',
    ],
)
def test_a_row_with_a_field_that_is_misspelt_or_missing_is_named(row: str, tmp_path: Path) -> None:
    tmp_path.joinpath("area.toml").write_text(f'[[row]]\nid = "S0.1"\ntitle = "t"\n{row}\n')
    with pytest.raises(RowError, match=r"area\.toml, row 0"):
        rows.load_rows(tmp_path)


def test_a_row_names_what_fails_under_any_of_its_mutations(tmp_path: Path) -> None:
    mutation = '[[row.mutation]]\nin = "m:f"\nreplace = "{}"\nwith = "x"\nfails = {}\n'
    tmp_path.joinpath("area.toml").write_text(
        '[[row]]\nid = "S0.1"\ntitle = "t"\n'
        + mutation.format("a", ["t::test_1", "t::test_2"])
        + mutation.format("b", ["t::test_2", "t::test_3"])
    )
    (loaded,) = rows.load_rows(tmp_path)
    assert loaded.tests == ("t::test_1", "t::test_2", "t::test_3")
    assert [trial.mutation.replace for trial in loaded.trials] == ["a", "b"]


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


def test_the_command_names_each_test_that_stays_green(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    held, loose = row(WELL), row(BADLY)
    asked = []

    def tried(
        tried: Sequence[Row],
        jobs: int,
        told: Callable[[Row, list[Verdict]], None],
        known: Collection[Trial],
    ) -> int:
        asked.append(set(known))
        told(held, [Verdict(held.trials[0], {}, 1.0)])
        told(loose, [Verdict(loose.trials[0], {BADLY: "passed"}, 1.0)])
        return 1

    monkeypatch.setattr(rows, "load_rows", lambda: [held, loose])
    monkeypatch.setattr(rows, "problems", lambda *_: [])
    monkeypatch.setattr(rows, "try_rows", tried)
    monkeypatch.setattr(rows, "load_caught", lambda: Caught(tmp_path / "caught", {}, Graph({}, [])))
    assert rows.main([]) == 1
    said = capsys.readouterr().out
    assert "2 mutations, 0 of them caught before" in said
    assert "2 tests named; 1 did not fail where they must" in said
    assert f"passed: {BADLY}" in said
    assert f"passed: {WELL}" not in said
    for arguments in ([], ["--again"], ["S0.1"]):
        rows.main(arguments)
    assert asked == [set(), set(held.trials), set(), set()]


def test_of_a_share_each_row_has_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    all_rows = [row(WELL), row(BADLY), row(WELL), row(BADLY), row(WELL)]
    commits = iter([f"{2**159 + number:x}"] for number in range(3))
    monkeypatch.setattr(rows.affected, "git", lambda *_: next(commits))
    tried = []
    for _commit in range(3):
        tried += [id(one) for one in rows.shared(all_rows, 3)]
    assert sorted(tried) == sorted(map(id, all_rows))
    assert rows.shared(all_rows, 1) == all_rows


def test_a_known_mutation_is_not_tried(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "ROOT", tree)
    tried, loose = row(WELL), row(BADLY)
    verdicts: list[Verdict] = []
    missed = rows.try_rows([tried, loose], 1, lambda _, own: verdicts.extend(own), loose.trials)
    assert missed == 0
    assert [verdict.trial for verdict in verdicts] == list(tried.trials)


def test_the_rows_of_this_project_are_fit_to_be_tried() -> None:
    assert rows.problems(rows.load_rows(), rows.load_requirements(), ROOT) == []


def test_the_page_of_this_project_is_up_to_date() -> None:
    written = (ROOT / rows.PAGE).read_text(encoding="utf-8")
    fresh = rows.page(rows.load_rows(), rows.load_requirements())
    assert written == fresh, "run: make generate"
