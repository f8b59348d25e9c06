"""`make quick` runs every unit test that a change can break, and says what it cannot know."""

import subprocess
from pathlib import Path

import pytest

import affected
from affected import Affected, Graph, remarks

SOURCES = {
    "cim/pillion_cim/__init__.py": "",
    "cim/pillion_cim/model.py": "",
    "cim/pillion_cim/reader.py": "from pillion_cim import model",
    "sidecar/pillion_sidecar/app.py": "import pillion_cim.reader",
    "tests/conftest.py": 'MAY_BLOCK = "pillion_sidecar/app.py"',
    "tests/support/peer.py": "",
    "tests/support/readme.py": 'TEXT = (ROOT / "README.md").read_text()',
    "tests/unit/cim/conftest.py": "import support.readme",
    "tests/unit/cim/test_model.py": "from pillion_cim.model import CIMInstance",
    "tests/unit/cim/test_reader.py": "def test(): from pillion_cim import reader",
    "tests/unit/test_app.py": "from pillion_sidecar import app",
    "tests/unit/test_chart.py": 'CHART = ROOT / "charts" / "pillion"',
    "tests/unit/test_source.py": 'SOURCE = Path("sidecar/pillion_sidecar")',
    "tests/unit/test_nothing.py": "",
    "tests/integration/test_peer.py": 'run("-m", "support.peer")',
}
FILES = (*SOURCES, "charts/pillion/values.yaml", "README.md", "LICENSE", "pyproject.toml")
CIM = ["tests/unit/cim/test_model.py", "tests/unit/cim/test_reader.py"]


def reached(*changed: str) -> Affected:
    return affected.affected(changed, Graph(SOURCES, FILES))


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("cim/pillion_cim/model.py", [CIM[0], CIM[1], "tests/unit/test_app.py"]),
        ("cim/pillion_cim/reader.py", [CIM[1], "tests/unit/test_app.py"]),
        ("cim/pillion_cim/__init__.py", [*CIM, "tests/unit/test_app.py"]),
        ("sidecar/pillion_sidecar/app.py", ["tests/unit/test_source.py", "tests/unit/test_app.py"]),
        ("tests/unit/cim/conftest.py", CIM),
        ("tests/unit/cim/test_model.py", CIM[:1]),
        ("charts/pillion/values.yaml", ["tests/unit/test_chart.py"]),
        ("README.md", CIM),
    ],
)
def test_what_imports_or_names_a_change_is_affected(changed: str, tests: list[str]) -> None:
    found = reached(changed)
    assert (found.unit, found.unknown, found.everything) == (tests, [], [])


def test_the_nearest_come_first() -> None:
    assert reached("cim/pillion_cim/model.py").unit[0] == "tests/unit/cim/test_model.py"


def test_the_conftest_of_all_tests_affects_all_and_may_change_everything() -> None:
    found = reached("tests/conftest.py")
    assert found.unit == sorted(
        path for path in SOURCES if path.startswith("tests/unit/") and "test_" in path
    )
    assert found.everything == ["tests/conftest.py"]


def test_other_kinds_of_tests_are_told_and_not_run() -> None:
    found = reached("tests/support/peer.py")
    assert (found.unit, found.other) == ([], ["tests/integration/test_peer.py"])
    (said,) = remarks(found)
    assert "not run: 1 files of other tests import it: tests/integration/test_peer.py" in said


def test_what_nobody_names_is_told() -> None:
    (said,) = remarks(reached("LICENSE"))
    assert said == "no test names these, so nothing is known of them: LICENSE"


def test_what_may_change_everything_is_told() -> None:
    (said,) = remarks(reached("pyproject.toml"))
    assert said == "may change everything, so run make test: pyproject.toml"


def test_relative_imports_are_followed() -> None:
    sources = {
        "cli/pillion_cli/main.py": "from .commands import show",
        "cli/pillion_cli/commands/show.py": "",
        "tests/unit/test_main.py": "import pillion_cli.main",
    }
    found = affected.affected(["cli/pillion_cli/commands/show.py"], Graph(sources, sources))
    assert found.unit == ["tests/unit/test_main.py"]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One commit on main, with a file, and a test that names it."""
    monkeypatch.setattr(affected, "ROOT", tmp_path)
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "tests" / "unit" / "test_a.py").write_text('Path("a.txt")\n')
    (tmp_path / "a.txt").write_text("1\n")
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)


def commit(folder: Path) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "x")


def test_changed_is_what_differs_from_the_base_committed_or_not(repository: Path) -> None:
    assert affected.changed_files("main") == []
    git(repository, "switch", "--quiet", "--create", "work")
    (repository / "committed.py").write_text("")
    commit(repository)
    (repository / "new.py").write_text("")
    (repository / "a.txt").unlink()
    assert affected.changed_files("main") == ["a.txt", "committed.py", "new.py"]


def test_a_file_that_is_gone_affects_those_that_name_it(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "a.txt").unlink()
    assert affected.main([]) == 0
    printed = capsys.readouterr()
    assert printed.out == "tests/unit/test_a.py\n"
    assert "1 changed files, 1 files of unit tests" in printed.err


def test_a_test_that_is_gone_is_not_run(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "tests" / "unit" / "test_a.py").unlink()
    assert affected.main([]) == 0
    assert not capsys.readouterr().out.strip()


def test_a_base_that_is_no_commit_is_an_error(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert affected.main(["nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.timeout(300)  # It reads every file, on a machine that may be busy.
def test_every_file_of_this_project_can_be_read() -> None:
    graph = affected.graph_of(affected.read_tree())
    found = affected.affected(["cim/pillion_cim/model.py"], graph)
    assert "tests/unit/cim/test_export.py" in found.unit
    assert "tests/unit/test_clock.py" not in found.unit
