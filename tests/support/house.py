"""Where the project's code lies, read from the tree itself so that nothing new escapes a rule."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: The seven source roots; each holds packages and is not one itself.
SOURCE_ROOTS = ("cim", "sidecar", "spark", "operator", "cli", "plugin", "rules")


def packages() -> dict[str, Path]:
    """The packages that have code, by name."""
    return {
        found.parent.name: found.parent
        for source_root in SOURCE_ROOTS
        for found in sorted(ROOT.glob(f"{source_root}/*/__init__.py"))
    }


def sources() -> Iterator[Path]:
    """Every Python file of the packages and of the tools."""
    for folder in (*packages().values(), ROOT / "tools"):
        yield from sorted(folder.rglob("*.py"))


def modules(package: str) -> list[str]:
    """The dotted names of a package and of all that is in it."""
    folder = packages()[package]
    names = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names
