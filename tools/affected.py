"""Which unit tests the changed files can break, as paths for pytest.

    python tools/affected.py [BASE]

Compares with the merge base of BASE (default: main) and HEAD, uncommitted and new files included. A
test file is affected when it, or a module that it imports over any number of steps, has changed, or
names a changed file or the folder of one. The nearest come first. What the graph cannot know is
told on standard error: other kinds of tests that import the change, changed files that no module
names, and those that may change everything.
"""

import argparse
import ast
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
IMPORT_ROOTS = ("cim", "sidecar", "spark", "cli", "operator", "plugin", "rules", "tests", "tools")
PRODUCT_ROOTS = ("cim/", "sidecar/", "spark/", "cli/", "operator/", "plugin/", "rules/")
UNIT_TESTS = "tests/unit/"
#: Settings of every test or of the environment that they run in.
GLOBAL = ("pyproject.toml", "requirements/", "tests/conftest.py", "tools/set-up", ".python-version")


class GitError(Exception):
    """The changed files are unknown."""


@dataclass(frozen=True, slots=True)
class Affected:
    """What a change reaches."""

    #: Files of unit tests, the nearest first.
    unit: list[str] = field(default_factory=list)
    #: Files of other tests.
    other: list[str] = field(default_factory=list)
    #: Changed files on which no test file depends.
    unknown: list[str] = field(default_factory=list)
    #: Changed files that every test depends on.
    everything: list[str] = field(default_factory=list)


class Graph:
    """Which files each Python file depends on, as far as its text tells."""

    def __init__(self, sources: Mapping[str, str], files: Iterable[str]) -> None:
        """``sources`` are the Python files with their text, ``files`` all files; paths by "/"."""
        self._named = _by_name(files)
        self._modules = {_module_name(path): path for path in sources}
        trees = {path: ast.parse(text) for path, text in sources.items()}
        self._imported = {path: set(self._imports(path, tree)) for path, tree in trees.items()}
        self._read = {path: set(self._reads(path, tree)) for path, tree in trees.items()}
        self._importers = _reversed(self._imported)
        self._readers = _reversed(self._read)

    def dependents(self, changed: Iterable[str]) -> list[str]:
        """The changed files, those that read them, and all that import any of these over any number
        of steps; the nearest first."""
        found = dict.fromkeys(changed)
        for path in list(found):
            found |= dict.fromkeys(sorted(self._readers.get(path, ())))
        waiting = deque(found)
        while waiting:
            for importer in sorted(self._importers.get(waiting.popleft(), ())):
                if importer not in found:
                    found[importer] = None
                    waiting.append(importer)
        return list(found)

    def dependencies(self, path: str) -> set[str]:
        """A file, and all that it imports or names over any number of steps."""
        found = {path}
        waiting = [path]
        while waiting:
            one = waiting.pop()
            new = (self._imported.get(one, set()) | self._read.get(one, set())) - found
            found |= new
            waiting += new
        return found

    def _imports(self, path: str, tree: ast.Module) -> Iterator[str]:
        if path.startswith("tests/"):
            yield from (str(folder / "conftest.py") for folder in PurePosixPath(path).parents)
        for name in _imported(tree, _module_name(path)):
            yield from self._module_files(name)
        for text in _constants(tree):
            # What is started with python -m, and what is imported by its name: "module:function".
            name = text.partition(":")[0]
            for module in (f"{name}.__main__", name):
                if "." in module and module in self._modules:
                    yield from self._module_files(module)

    def _reads(self, path: str, tree: ast.Module) -> Iterator[str]:
        is_test = _is_test(path)
        for named in set(_named_paths(tree)):
            for file in self._named.get(named, ()):
                # Only a test reads the product's source; others name its files for other reasons.
                if is_test or not (file.endswith(".py") and file.startswith(PRODUCT_ROOTS)):
                    yield file

    def _module_files(self, name: str) -> Iterator[str]:
        """The file of a module, and those of the packages that are imported before it."""
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            if path := self._modules.get(".".join(parts[:length])):
                yield path


def _reversed(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for start, ends in edges.items():
        for end in ends:
            found.setdefault(end, set()).add(start)
    return found


def _by_name(files: Iterable[str]) -> dict[str, list[str]]:
    """The files that each relative path may mean: one of this name or path in any folder, all below
    a folder, and all below a longer path in any folder, as ``files/crds``."""
    found: dict[str, list[str]] = {}
    for file in files:
        parts = file.split("/")
        for start in range(len(parts)):
            for end in range(start + 1, len(parts) + 1):
                if end == len(parts) or start == 0 or end - start > 1:
                    found.setdefault("/".join(parts[start:end]), []).append(file)
    return found


def _is_test(path: str) -> bool:
    return path.endswith(".py") and PurePosixPath(path).name.startswith("test_")


def _module_name(path: str) -> str:
    root, _, rest = path.partition("/")
    parts = (rest if root in IMPORT_ROOTS else path).removesuffix(".py").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module, importer: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ".".join(importer.split(".")[: -node.level]) if node.level else ""
            module = ".".join(part for part in (package, node.module) if part)
            yield module
            # Any of the names may be a module.
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _named_paths(tree: ast.Module) -> Iterator[str]:
    """The paths that a module names: ``"docs/a.md"``, ``ROOT / "docs"``, ``Path("docs")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            named = "/".join(_joined(node))
            if named:
                yield named
        elif isinstance(node, ast.Call) and _called(node) in ("Path", "joinpath", "open"):
            yield "/".join(text for text in map(_text, node.args) if text)
    for text in _constants(tree):
        if "/" in text or PurePosixPath(text).suffix:
            yield text.strip("/")


def _joined(node: ast.expr) -> list[str]:
    """The constant parts of ``a / "b" / "c"``, from the last part that is no constant."""
    if not isinstance(node, ast.BinOp):
        return []
    text = _text(node.right)
    return [*_joined(node.left), text] if text else []


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _text(node: ast.expr) -> str:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(node.value).strip("/") if is_text and isinstance(node, ast.Constant) else ""


def _constants(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
            yield node.value


def affected(changed: Sequence[str], graph: Graph) -> Affected:
    """Sort out what the changed files reach."""
    found = Affected()
    for path in graph.dependents(changed):
        if _is_test(path):
            (found.unit if path.startswith(UNIT_TESTS) else found.other).append(path)
    for path in changed:
        if path.startswith(GLOBAL):
            found.everything.append(path)
        elif not any(map(_is_test, graph.dependents([path]))):
            found.unknown.append(path)
    return found


def git(*arguments: str) -> list[str]:
    """The lines that git prints in the tree. Raises GitError."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise GitError(done.stderr.strip())
    return done.stdout.splitlines()


def changed_files(base: str) -> list[str]:
    """The files that differ from the merge base; new ones too, and those that are gone.

    Raises GitError where there is no such commit.
    """
    (merge_base,) = git("merge-base", base, "HEAD")
    changed = git("diff", "--name-only", "--no-renames", merge_base)
    return sorted({*changed, *git("ls-files", "--others", "--exclude-standard")})


def read_tree() -> dict[str, bytes]:
    """The content of all files of the tree, new ones too, by their paths."""
    files = git("ls-files", "--cached", "--others", "--exclude-standard")
    return {path: (ROOT / path).read_bytes() for path in files if (ROOT / path).is_file()}


def graph_of(tree: Mapping[str, bytes], changed: Iterable[str] = ()) -> Graph:
    """The graph of the files as they are; what is gone is still named by others."""
    sources = {path: content.decode() for path, content in tree.items() if path.endswith(".py")}
    gone = {path: "" for path in changed if path.endswith(".py") and path not in sources}
    return Graph(sources | gone, {*tree, *changed})


def remarks(found: Affected) -> Iterator[str]:
    """What is not covered by the unit tests found."""
    if found.everything:
        yield f"may change everything, so run make test: {', '.join(found.everything)}"
    if found.unknown:
        yield f"no test names these, so nothing is known of them: {', '.join(found.unknown)}"
    if found.other:
        folders = sorted({"/".join(path.split("/")[:3]) for path in found.other})
        yield f"not run: {len(found.other)} files of other tests import it: {', '.join(folders)}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Which unit tests the changed files can break.")
    parser.add_argument("base", nargs="?", default="main", help="compare with this [%(default)s]")
    options = parser.parse_args(arguments)
    try:
        changed = changed_files(options.base)
    except GitError as error:
        print(f"affected: {error}", file=sys.stderr)
        return 1
    found = affected(changed, graph_of(read_tree(), changed))
    counted = f"{len(changed)} changed files, {len(found.unit)} files of unit tests"
    for line in (counted, *remarks(found)):
        print(f"affected: {line}", file=sys.stderr)
    print("\n".join(path for path in found.unit if (ROOT / path).is_file()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
