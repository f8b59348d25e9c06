"""What was green on this very tree is known, and nothing else is."""

from pathlib import Path

import pytest

import green

TESTS = ["tests/a.py::test_one", "tests/b.py"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.py").write_text("1")
    green.record(tmp_path, TESTS, tree=green.digest(tmp_path))
    return tmp_path


def test_what_was_recorded_is_known_while_the_tree_is_the_same(tree: Path) -> None:
    assert green.known(tree) == frozenset(TESTS)
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "a.pyc").write_text("x")
    assert green.known(tree) == frozenset(TESTS)


@pytest.mark.parametrize("change", ["content", "name", "new", "removed"])
def test_nothing_is_known_of_another_tree(tree: Path, change: str) -> None:
    file = tree / "tests" / "a.py"
    match change:
        case "content":
            file.write_text("2")
        case "name":
            file.rename(tree / "tests" / "c.py")
        case "new":
            (tree / "new").touch()
        case "removed":
            file.unlink()
    assert green.known(tree) == frozenset()


def test_nothing_is_known_without_a_record(tmp_path: Path) -> None:
    assert green.known(tmp_path) == frozenset()


@pytest.mark.parametrize(
    ("test", "covered"),
    [
        ("tests/a.py::test_one", True),
        ("tests/a.py::test_one[case]", True),
        ("tests/a.py::test_one_more", False),
        ("tests/b.py::test_any[case]", True),
        ("tests/b.pyc::test_any", False),
    ],
)
def test_a_test_is_covered_by_its_name_its_cases_or_its_file(test: str, covered: bool) -> None:
    assert green.covers(frozenset(TESTS), test) is covered
