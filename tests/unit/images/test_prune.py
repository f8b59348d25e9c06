"""What a builder stage removes from installed packages."""

from pathlib import Path

import pytest

from support.image_tools import image_tool

prune = image_tool("prune")


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    for name in (
        "client/__init__.py",
        "client/models/a.py",
        "client/models/b.py",
        "big/data/x.bin",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1234567890")
    return tmp_path


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_files_and_folders_go_and_the_bytes_are_counted(packages: Path) -> None:
    assert prune.prune(packages, ["client/models/*.py", "big/data"]) == 30
    assert names(packages) == {"client/__init__.py"}
    assert not (packages / "big" / "data").exists()


def test_what_a_later_rule_keeps_stays(packages: Path) -> None:
    prune.prune(packages, ["client/models/*.py  # generated", "", "!client/models/b.py"])
    assert names(packages) == {"client/__init__.py", "client/models/b.py", "big/data/x.bin"}


@pytest.mark.parametrize("rule", ["client/moved/*.py", "!client/models/renamed.py"])
def test_a_rule_that_finds_nothing_is_an_error_and_removes_nothing(
    packages: Path, rule: str
) -> None:
    before = names(packages)
    with pytest.raises(prune.RuleFindsNothing, match=r"(moved|renamed).*remove or correct it"):
        prune.prune(packages, ["client/models/*.py", rule])
    assert names(packages) == before


def test_rules_are_read_from_a_file(packages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = packages / "rules.txt"
    rules.write_text("# models\nclient/models/*.py\n")
    assert prune.main([str(packages), str(rules)]) == 0
    assert "0.0 MB pruned" in capsys.readouterr().out
    assert not (packages / "client" / "models" / "a.py").exists()
