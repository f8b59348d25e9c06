"""Which tests have just been green on this very tree, so that ``make test`` runs none twice.

``make rows`` runs the rows' tests in an unchanged copy first, and records them here with a digest
of the copy. ``pytest --but-green`` leaves them out where the tree still has that digest.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

RECORD = Path(".cache/green.json")
#: What is no part of a tree: neither copied nor digested.
NO_PART = (".git", ".venv*", ".*cache*", ".hypothesis", "__pycache__", "build", "dist", "site")


def digest(root: Path) -> str:
    """Return a digest of the names and contents of all files of a tree."""
    ignored = shutil.ignore_patterns(*NO_PART)
    told = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        left_out = ignored(folder, [*folders, *files])
        folders[:] = sorted(set(folders) - left_out)
        for name in sorted(set(files) - left_out):
            path = Path(folder, name)
            content = path.read_bytes() if path.is_file() else b""
            told.update(f"{path.relative_to(root)} {len(content)}\n".encode() + content)
    return told.hexdigest()


def record(root: Path, tests: Iterable[str], *, tree: str) -> None:
    """Note that tests are green on the tree with this digest; they are named as for pytest."""
    file = root / RECORD
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"tree": tree, "tests": sorted(tests)}))


def known(root: Path) -> frozenset[str]:
    """Return the tests that are green on the tree as it is now."""
    try:
        noted = json.loads((root / RECORD).read_text())
    except (OSError, ValueError):
        return frozenset()
    return frozenset(noted["tests"]) if noted["tree"] == digest(root) else frozenset()


def covers(tests: Collection[str], test: str) -> bool:
    """Whether a test is one of ``tests``, or in a file or a set of cases that is."""
    return any(one in tests for one in (test, test.partition("[")[0], test.partition("::")[0]))
