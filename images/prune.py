"""Removes from installed packages what a container never runs: sources of extension modules, tests,
and the generated parts of a client of which one module is used. Standard library only; a builder
stage runs it: ``python3 prune.py FOLDER RULES``.

RULES is a file of glob patterns relative to FOLDER, one a line; a line that begins with ``!`` keeps
what an earlier one would remove; ``#`` begins a comment. A pattern that finds nothing is an error:
the packages have changed, and somebody has to look.
"""

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path


class RuleFindsNothing(ValueError):
    """A pattern that matches no file: what it was written for has moved."""


def chosen(folder: Path, rules: Iterable[str]) -> list[Path]:
    """What the rules remove: files and folders below ``folder``, sorted.

    Raises :class:`RuleFindsNothing` for a pattern that matches nothing.
    """
    found: set[Path] = set()
    for line in rules:
        rule = line.partition("#")[0].strip()
        if not rule:
            continue
        matches = set(folder.glob(rule.removeprefix("!")))
        if not matches:
            raise RuleFindsNothing(f"{rule}: nothing below {folder} matches; remove or correct it")
        found = found - matches if rule.startswith("!") else found | matches
    return sorted(found)


def prune(folder: Path, rules: Iterable[str]) -> int:
    """Remove it; returns how many bytes went."""
    gone = 0
    for path in chosen(folder, rules):
        if path.is_dir() and not path.is_symlink():
            gone += sum(file.lstat().st_size for file in path.rglob("*") if file.is_file())
            shutil.rmtree(path)
        elif path.exists():
            gone += path.stat().st_size
            path.unlink()
    return gone


def main(arguments: list[str]) -> int:
    """Prune the folder by the file of rules."""
    folder, rules = map(Path, arguments)
    gone = prune(folder, rules.read_text(encoding="utf-8").splitlines())
    print(f"{folder}: {gone / 1e6:.1f} MB pruned")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
