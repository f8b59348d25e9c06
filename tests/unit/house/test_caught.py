"""A caught mutation is known until a file changes on which its tests depend."""

from pathlib import Path

import pytest

from affected import Graph
from caught import MOST, Caught

TEST = "tests/unit/test_rule.py"
TREE = {
    "sidecar/pillion_sidecar/rule.py": "from pillion_sidecar.base import BASE",
    "sidecar/pillion_sidecar/base.py": "BASE = 4",
    "sidecar/pillion_sidecar/other.py": "",
    "charts/values.yaml": "a: 1",
    "docs/a.md": "a",
    "docs/b.md": "b",
    TEST: "from pillion_sidecar.rule import rule\nPAGE = 'docs/a.md'",
}


def caught(file: Path, tree: dict[str, str]) -> Caught:
    sources = {path: text for path, text in tree.items() if path.endswith(".py")}
    contents = {path: text.encode() for path, text in tree.items()}
    return Caught(file, contents, Graph(sources, tree))


def key(file: Path, tree: dict[str, str], *, mutation: str = "4 -> 5") -> str:
    return caught(file, tree).key(mutation, [f"{TEST}::test_it"])


def test_what_was_caught_is_known_to_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "caught"
    name = key(file, TREE)
    first = caught(file, TREE)
    assert name not in first
    first.add([name])
    assert name in caught(file, TREE)


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("sidecar/pillion_sidecar/rule.py", True),
        ("sidecar/pillion_sidecar/base.py", True),
        ("sidecar/pillion_sidecar/other.py", False),
        ("charts/values.yaml", True),
        ("docs/a.md", True),
        ("docs/b.md", False),
        (TEST, True),
    ],
)
def test_a_change_counts_where_a_test_depends_on_the_file(
    tmp_path: Path, path: str, counts: bool
) -> None:
    changed = TREE | {path: TREE[path] + "\n"}
    assert (key(tmp_path / "caught", changed) != key(tmp_path / "caught", TREE)) is counts


def test_another_mutation_is_another_key(tmp_path: Path) -> None:
    file = tmp_path / "caught"
    assert key(file, TREE, mutation="4 -> 6") != key(file, TREE)


@pytest.mark.parametrize("content", ["", "{", "{}", "[1]"])
def test_an_unreadable_record_knows_nothing(tmp_path: Path, content: str) -> None:
    file = tmp_path / "caught"
    file.write_text(content)
    assert "1" not in caught(file, TREE)


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "caught"
    caught(file, TREE).add(str(number) for number in range(MOST + 1))
    kept = caught(file, TREE)
    assert "0" not in kept
    assert "1" in kept
