"""`make release` refuses what is not ready, and says what to do."""

import hashlib
import subprocess
from pathlib import Path

import pytest

import release
from release import ReleaseError

CHANGELOG = """# Changes

## Unreleased

### Added
- b

## 0.2.0 - 2026-11-24
- a

## 0.1.0
"""


def test_the_notes_are_the_section_of_the_version() -> None:
    assert release.notes(CHANGELOG, "0.2.0") == "- a\n"
    assert release.notes(CHANGELOG, "Unreleased") == "### Added\n- b\n"


@pytest.mark.parametrize("version", ["0.3.0", "0.1.0", "0x2.0"])
def test_a_version_without_a_section_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match=f"no section {version}: rename Unreleased"):
        release.notes(CHANGELOG, version)


def test_the_chart_has_the_version_of_the_project(tmp_path: Path) -> None:
    assert release.version() == "0.1.0"
    (tmp_path / "charts" / "pillion").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    chart = tmp_path / "charts" / "pillion" / "Chart.yaml"
    chart.write_text('version: 0.1.0\nappVersion: "0.2.0"\n')
    with pytest.raises(ReleaseError, match=r"different versions: 0\.1\.0, 0\.2\.0"):
        release.version(tmp_path)


def test_a_tree_with_changes_is_refused(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    release.verify_clean(tmp_path)
    (tmp_path / "new").touch()
    with pytest.raises(ReleaseError, match=r"commit them:\n\?\? new"):
        release.verify_clean(tmp_path)


def test_the_digests_are_those_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"2")
    (tmp_path / "a").write_bytes(b"1")
    release.write_sums(tmp_path)
    expected = [
        f"{hashlib.sha256(text).hexdigest()}  {name}" for name, text in (("a", b"1"), ("b", b"2"))
    ]
    assert (tmp_path / release.SUMS).read_text().splitlines() == expected
