"""Which mutations have been caught before with these very files, so that ``make rows`` tries only
what a change can reach.

A mutation's key covers its text, the tests that must fail, the interpreter, and the content of all
files that the tests import or name, over any number of steps. Files that are neither Python nor of
the manual count for every test.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from affected import Graph

#: The newest that are kept: those of some twenty whole runs.
MOST = 10_000
#: Only tests that name them read them.
NAMED = ("docs/", "tests/rows/", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


class Caught:
    """The keys of caught mutations, in a file outside the checkout."""

    def __init__(self, file: Path, contents: Mapping[str, bytes], graph: Graph) -> None:
        """``contents`` has every file of the tree, by its path."""
        self._file = file
        self._keys = dict.fromkeys(_load(file))
        self._digests = {path: hashlib.sha256(one).digest() for path, one in contents.items()}
        self._dependencies = cache(graph.dependencies)
        self._common = {path for path in contents if not path.startswith(NAMED)}
        self._common -= {path for path in contents if path.endswith(".py")}

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def key(self, mutation: str, tests: Iterable[str]) -> str:
        """Return the key of a mutation; ``tests`` are named as for pytest."""
        files = set(self._common)
        digest = hashlib.sha256(f"{sys.version} {mutation}".encode())
        for test in tests:
            digest.update(f" {test}".encode())
            files |= self._dependencies(test.partition("::")[0])
        for path in sorted(files & self._digests.keys()):
            digest.update(path.encode() + self._digests[path])
        return digest.hexdigest()

    def add(self, keys: Iterable[str]) -> None:
        """Keep these, as the newest."""
        for key in keys:
            self._keys.pop(key, None)
            self._keys[key] = None
        self._file.parent.mkdir(parents=True, exist_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(list(self._keys)[-MOST:]), encoding="utf-8")
        new.replace(self._file)


def _load(file: Path) -> list[str]:
    try:
        keys = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
