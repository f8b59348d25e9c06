"""Rows: every requirement that works names its tests, and a one-line change that turns them red.

``tests/rows/requirements.toml`` lists what is asked for; the files beside it say what works. Each
row's change is applied to a copy of the tree, never to the tree itself, and its tests run there.
Where a row is shown on a real node too, it names those tests as well; they are not run here.
"""

import argparse
import ast
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import green

ROOT = Path(__file__).resolve().parent.parent
ROWS = Path("tests/rows")
PAGE = Path("docs/rows.md")
REQUIREMENTS = "requirements.toml"
SOURCE_ROOTS = ("cim", "sidecar", "spark", "cli", "operator")
#: Where tests need a node: nothing here has one, so these carry no row alone.
ON_NODE = "tests/e2e/"

#: Seconds for one row's tests, all told: beyond it something is wrong with the row itself.
ROW_TIMEOUT = 600
#: Seconds for one test without a time-out of its own. A broken rule often shows as a hang.
TEST_TIMEOUT = 20


class RowError(Exception):
    """A row that cannot be tried: it names no such text, test or requirement."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that is asked for."""

    id: str
    text: str
    section: str
    #: What of it does not work yet, though the rest does.
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of one line that breaks a rule."""

    file: str
    replace: str
    with_: str

    def apply(self, source: str) -> str:
        """Return the source with the rule broken.

        Raises RowError where the text does not occur exactly once, or more than a line changes.
        """
        found = source.count(self.replace)
        if found != 1:
            raise RowError(f"{self.file}: {self.replace!r} occurs {found} times, not once")
        changed = source.replace(self.replace, self.with_)
        if changed == source:
            raise RowError(f"{self.file}: the change changes nothing")
        before, after = self.replace.splitlines(), self.with_.splitlines()
        lines = len(set(before) ^ set(after))
        if lines > 2:
            raise RowError(f"{self.file}: the change is of more than one line")
        return changed


@dataclass(frozen=True, slots=True)
class Row:
    """A requirement, or one side of it, that works."""

    id: str
    title: str
    tests: tuple[str, ...]
    mutation: Mutation
    #: Tests that show the same on a node. That they are there is all that is verified of them.
    on_node: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one row's change."""

    row: Row
    red: bool
    detail: str
    seconds: float


def load_requirements(folder: Path = ROOT / ROWS) -> list[Requirement]:
    """Read what is asked for, in the order of the file."""
    data = tomllib.loads((folder / REQUIREMENTS).read_text(encoding="utf-8"))
    missing = data.get("missing", {})
    return [
        Requirement(name, text, section["title"], missing=missing.get(name, ""))
        for section in data["section"]
        for name, text in section["rows"].items()
    ]


def load_rows(folder: Path = ROOT / ROWS) -> list[Row]:
    """Read what works, in the order of the ids.

    Raises RowError naming file and row where a field is missing or unknown.
    """
    rows = []
    for path in sorted(folder.glob("*.toml")):
        if path.name == REQUIREMENTS:
            continue
        for number, data in enumerate(tomllib.loads(path.read_text(encoding="utf-8"))["row"]):
            try:
                rows.append(_row(data))
            except (KeyError, TypeError) as error:
                raise RowError(f"{path.name}, row {number}: {error!r} in {data}") from error
    return sorted(rows, key=lambda row: _order(row.id))


def _row(data: dict[str, object]) -> Row:
    unknown = set(data) - {"id", "title", "tests", "on_node", "mutation"}
    mutation, tests, on_node = data["mutation"], data["tests"], data.get("on_node", [])
    if unknown or not isinstance(mutation, dict):
        raise TypeError(f"unknown or ill-typed fields {sorted(unknown)}")
    if not isinstance(tests, list) or not isinstance(on_node, list):
        raise TypeError("tests and on_node are lists")
    return Row(
        id=str(data["id"]),
        title=str(data["title"]),
        tests=tuple(tests),
        mutation=Mutation(mutation["file"], mutation["replace"], mutation["with"]),
        on_node=tuple(on_node),
    )


def _order(row_id: str) -> tuple[str, int]:
    section, _, number = row_id.partition(".")
    return section, int(number)


def problems(rows: Iterable[Row], requirements: Iterable[Requirement], root: Path) -> list[str]:
    """Everything that keeps rows from being tried, without running a test."""
    known = {requirement.id for requirement in requirements}
    found = []
    for row in rows:
        if row.id not in known:
            found.append(f"{row.id}: no such requirement in {ROWS / REQUIREMENTS}")
        if not row.tests:
            found.append(f"{row.id}: names no test")
        found += [
            f"{row.id}: no such file: {test}"
            for test in row.tests
            if not (root / test.partition("::")[0]).is_file()
        ]
        found += [
            f"{row.id}: needs a node, so name it in on_node: {test}"
            for test in row.tests
            if test.startswith(ON_NODE)
        ]
        found += [
            f"{row.id}: no such test on a node: {test}"
            for test in row.on_node
            if not _is_on_node(test, root)
        ]
        try:
            _mutated(row.mutation, root)
        except (RowError, OSError, SyntaxError) as error:
            found.append(f"{row.id}: {error}")
    return found


def _is_on_node(test: str, root: Path) -> bool:
    """Whether a test of this name needs a node, and is there."""
    file, _, name = test.partition("::")
    path = root / file
    if not file.startswith(ON_NODE) or not name.startswith("test_") or not path.is_file():
        return False
    defined = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in defined)


def _mutated(mutation: Mutation, root: Path) -> str:
    changed = mutation.apply((root / mutation.file).read_text(encoding="utf-8"))
    if mutation.file.endswith(".py"):
        compile(changed, mutation.file, "exec")
    return changed


class Copy:
    """A copy of the tree in which tests run, and nothing else is imported from."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(root, folder, ignore=shutil.ignore_patterns(*green.NO_PART))
        roots = [str(folder / source_root) for source_root in SOURCE_ROOTS]
        # Before the editable install's own entries. No bytecode by time and size: a change within
        # the second that keeps the file's size would be taken for the file that was there before.
        self._environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(roots),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": "true",  # property tests try the same examples each time
        }
        self._compile()

    def _compile(self) -> None:
        """Compile the source and the tests' support once, for all rows. Python compares a hash of
        each file with its bytecode, so a broken rule is compiled anew."""
        parts = (*SOURCE_ROOTS, "tests/support")
        folders = [part for part in parts if (self.folder / part).is_dir()]
        self.run(["-m", "compileall", "-q", "--invalidation-mode", "checked-hash", *folders])

    def run(self, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run Python in the copy."""
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=ROW_TIMEOUT,
            check=False,
        )

    def verify(self) -> None:
        """Make sure that the copy is what its tests import. Raises RowError where it is not."""
        answer = self.run(["-c", "import pillion_sidecar as room; print(room.__file__)"])
        if not answer.stdout.startswith(str(self.folder)):
            raise RowError(f"the copy is not what is imported, but {answer.stdout.strip()}")

    @contextmanager
    def broken_by(self, mutation: Mutation) -> Iterator[None]:
        """Break a rule for a while."""
        path = self.folder / mutation.file
        kept = path.read_text(encoding="utf-8")
        path.write_text(_mutated(mutation, self.folder), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(kept, encoding="utf-8")

    def try_row(self, row: Row) -> Verdict:
        """Run the row's tests with its rule broken; red means that one of them failed."""
        started = time.monotonic()
        options = ["-m", "pytest", "-x", "-q", "-rf", "--tb=no", "--no-header"]
        options += ["-p", "no:cacheprovider", "-p", "no:xdist", "-o", f"timeout={TEST_TIMEOUT}"]
        with self.broken_by(row.mutation):
            try:
                answer = self.run([*options, *row.tests])
            except subprocess.TimeoutExpired:
                return Verdict(row, False, f"did not end within {ROW_TIMEOUT} s", ROW_TIMEOUT)
        red, detail = judge(answer.returncode, answer.stdout)
        return Verdict(row, red, detail, time.monotonic() - started)


def judge(status: int, output: str) -> tuple[bool, str]:
    """Whether a test failed, and in what words: an error on the way to a test is not a failure."""
    failures = [line for line in output.splitlines() if line.startswith("FAILED ")]
    if status == 1 and failures:
        return True, failures[0].removeprefix("FAILED ")
    if status == 0:
        return False, "its tests stay green"
    closing = output.strip().splitlines()[-1:] or ["no output"]
    return False, f"no test failed, but pytest ended with {status}: {closing[0]}"


def try_rows(rows: Sequence[Row], jobs: int, told: Callable[[Verdict], None]) -> list[Verdict]:
    """Try every row, in ``jobs`` copies side by side; ``told`` hears each verdict in order."""
    with tempfile.TemporaryDirectory(prefix="pillion-rows-") as folder:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(jobs):
            copies.put(Copy(ROOT, Path(folder, str(number)).resolve()))
        first = copies.get()
        first.verify()
        _demand_green(first, rows, jobs)
        copies.put(first)

        def one(row: Row) -> Verdict:
            copy = copies.get()
            try:
                return copy.try_row(row)
            finally:
                copies.put(copy)

        verdicts = []
        with ThreadPoolExecutor(jobs) as pool:
            for verdict in pool.map(one, rows):
                told(verdict)
                verdicts.append(verdict)
        return verdicts


def _demand_green(copy: Copy, rows: Iterable[Row], jobs: int) -> None:
    tests = list(dict.fromkeys(test for row in rows for test in row.tests))
    tree = green.digest(copy.folder)
    answer = copy.run(["-m", "pytest", "-q", "--tb=short", "-n", str(jobs), *tests])
    if answer.returncode != 0:
        raise RowError(f"the rows' tests are not green as it is:\n{answer.stdout}")
    outcome = answer.stdout.strip().splitlines()[-1]
    if "skipped" not in outcome:
        # A test may find in the copy a reason to be skipped that the tree does not give.
        green.record(ROOT, tests, tree=tree)
    print(f"unchanged: {outcome}", flush=True)


def page(rows: Sequence[Row], requirements: Sequence[Requirement]) -> str:
    """Write ``docs/rows.md``: every requirement, and the tests of those that work."""
    whole, partly = _worked(rows, requirements)
    lines = [
        "# Rows",
        "",
        "<!-- Generated by `make generate` from tests/rows/*.toml. -->",
        "",
        "Everything that Pillion is asked to do, row by row, and which tests hold it. For each row",
        "that works, `make rows` breaks one line of the source, and its tests must turn red.",
        "",
        f"**{whole} of {len(requirements)} rows work**, {partly} more in part, shown by {len(rows)}"
        " broken lines. What holds a row on a node too is run by `make e2e`, with nothing broken.",
    ]
    section = ""
    for requirement in requirements:
        if requirement.section != section:
            section = requirement.section
            lines += ["", f"## {section}", "", "| row | what | held by |", "| --- | --- | --- |"]
        cells = requirement.id, _cell(requirement.text), _held_by(rows, requirement)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _held_by(rows: Iterable[Row], requirement: Requirement) -> str:
    tests = [test for row in rows if row.id == requirement.id for test in row.tests]
    on_node = [test for row in rows if row.id == requirement.id for test in row.on_node]
    parts = [f"`{_cell(test)}`" for test in dict.fromkeys(tests)]
    parts += [f"on a node: `{_cell(test)}`" for test in dict.fromkeys(on_node)]
    if parts and requirement.missing:
        parts.insert(0, f"**In part**; not yet: {_cell(requirement.missing)}.")
    return "<br>".join(parts) or "not yet"


def _worked(rows: Iterable[Row], requirements: Iterable[Requirement]) -> tuple[int, int]:
    """How many requirements work as a whole, and how many in part."""
    shown = {row.id for row in rows}
    partly = sum(bool(one.missing) for one in requirements if one.id in shown)
    return len(shown) - partly, partly


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def write_page() -> None:
    """Bring ``docs/rows.md`` up to date."""
    (ROOT / PAGE).write_text(page(load_rows(), load_requirements()), encoding="utf-8")


def _show(verdict: Verdict) -> None:
    colour = "red  " if verdict.red else "GREEN"
    row = verdict.row
    print(f"{row.id:6} {colour} {verdict.seconds:5.1f} s  {row.title}", flush=True)
    if not verdict.red:
        change = f"{row.mutation.file}: {row.mutation.replace!r} -> {row.mutation.with_!r}"
        print(f"       {verdict.detail}\n       {change}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the rows; 0 when each one turns red."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ROW", help="rows to try, as S0.7 [all]")
    parser.add_argument("--jobs", type=int, default=2, help="copies side by side [%(default)s]")
    options = parser.parse_args(arguments)
    try:
        rows, requirements = load_rows(), load_requirements()
        if wrong := problems(rows, requirements, ROOT):
            raise RowError("\n".join(wrong))
        chosen = [row for row in rows if row.id in options.ids or not options.ids]
        if not chosen:
            raise RowError("no row works yet" if not rows else f"no such row: {options.ids}")
        verdicts = try_rows(chosen, options.jobs, _show)
    except RowError as error:
        print(f"rows: {error}", file=sys.stderr)
        return 1
    green = sum(not verdict.red for verdict in verdicts)
    whole, partly = _worked(rows, requirements)
    print(
        f"{len(verdicts) - green} changes turn their tests red, {green} do not; "
        f"{whole} of {len(requirements)} rows work, {partly} more in part"
    )
    return min(green, 1)


if __name__ == "__main__":
    sys.exit(main())
