"""The first release, as it was committed: later versions run beside it and read what it wrote."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "d029342"


def first_release(folder: Path) -> Path:
    """Write the tree of the first release into a folder; skips where the clone lacks it."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", COMMIT], check=False, capture_output=True
    )
    if archive.returncode:
        pytest.skip(f"needs commit {COMMIT}, which a shallow clone lacks: git fetch it")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder
