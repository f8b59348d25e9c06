"""A mutation finds its definition wherever it stands, and changes one text in it."""

from pathlib import Path

import pytest

from mutations import Mutation, MutationError

SOURCE = '''"""A module."""
LIMITS = (1, 2)


class Rule:
    limit: int = 3

    @property
    def holds(self) -> bool:
        return self.limit > 0 and self.is_on(
            self.limit,
        )

    @holds.setter
    def holds(self, value: bool) -> None:
        self.limit = 0


def outer() -> int:
    name = "größer"; other = 1

    def inner() -> int:
        return len(name) - 1

    return inner() + other
'''


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    package = tmp_path / "sidecar" / "pillion_sidecar" / "delivery"
    package.mkdir(parents=True)
    package.joinpath("rule.py").write_text(SOURCE, encoding="utf-8")
    package.joinpath("twin.py").write_text("def twin(): return 1\n", encoding="utf-8")
    package.parent.joinpath("twin.py").write_text("def twin(): return 2\n", encoding="utf-8")
    tmp_path.joinpath("values.yaml").write_text("grace:  30\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("within", "replace", "with_", "line"),
    [
        ("pillion_sidecar.delivery.rule:LIMITS", "2", "9", "LIMITS = (1, 9)"),
        ("pillion_sidecar.delivery:LIMITS", "2", "9", "LIMITS = (1, 9)"),
        ("pillion_sidecar:LIMITS", "2", "9", "LIMITS = (1, 9)"),
        ("pillion_sidecar:Rule.limit", "3", "4", "    limit: int = 4"),
        ("pillion_sidecar:Rule", "3", "4", "    limit: int = 4"),
        ("pillion_sidecar:Rule.holds", "and", "or", "        return self.limit > 0 or self.is_on("),
        ("pillion_sidecar:Rule.holds", "limit = 0", "limit = 1", "        self.limit = 1"),
        ("pillion_sidecar:outer", "- 1", "", "        return len(name) "),
        ("pillion_sidecar:outer.inner", "1", "2", "        return len(name) - 2"),
        ("values.yaml", "grace: 30", "grace: 31", "grace: 31"),
    ],
)
def test_one_text_of_one_definition_is_replaced(
    within: str, replace: str, with_: str, line: str, tree: Path
) -> None:
    path, changed = Mutation(within, replace, with_).apply(tree)
    before = (tree / path).read_text(encoding="utf-8").splitlines()
    assert [new for new in changed.splitlines() if new not in before] == [line]


def test_white_space_does_not_count(tree: Path) -> None:
    _, changed = Mutation("pillion_sidecar:Rule.holds", "is_on(self.limit,)", "on()").apply(tree)
    assert "return self.limit > 0 and self.on()\n" in changed


def test_only_whole_words_are_replaced(tree: Path) -> None:
    with pytest.raises(MutationError, match="'imit' occurs 0 times"):
        Mutation("pillion_sidecar:Rule.limit", "imit", "x").apply(tree)


@pytest.mark.parametrize(
    ("within", "replace", "with_", "why"),
    [
        ("pillion_sidecar:gone", "1", "2", "no such definition"),
        ("pillion_gone:Rule", "1", "2", "no such definition"),
        ("pillion_sidecar:outer.name", "1", "2", "no such definition"),
        ("gone.yaml", "1", "2", "no such file"),
        ("sidecar/pillion_sidecar/twin.py", "2", "3", "no such file, or one of Python"),
        ("pillion_sidecar:Rule", "missing", "x", "occurs 0 times"),
        ("pillion_sidecar:outer", "name", "x", "occurs 2 times"),
        ("pillion_sidecar:twin", "return", "yield", "occurs 2 times"),
        ("pillion_sidecar:Rule.limit", "3", "3", "changes nothing"),
        ("pillion_sidecar:Rule.limit", "3", "(", "does not compile"),
    ],
)
def test_a_mutation_that_cannot_be_applied_says_why(
    within: str, replace: str, with_: str, why: str, tree: Path
) -> None:
    with pytest.raises(MutationError, match=why):
        Mutation(within, replace, with_).apply(tree)


def test_a_module_tells_two_definitions_of_one_name_apart(tree: Path) -> None:
    path, _ = Mutation("pillion_sidecar.delivery:twin", "1", "3").apply(tree)
    assert path == Path("sidecar/pillion_sidecar/delivery/twin.py")
