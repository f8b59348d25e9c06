"""Rows: every requirement that works names its tests, and mutations that each of them catches.

``tests/rows/requirements.toml`` lists what is asked for; the files beside it say what works. A row
has one or more mutations, and each names the tests that must all fail under it. Mutations are
applied to a copy of the tree, never to the tree itself, and the tests run there. Where a row is
shown on a real node too, it names those tests as well; they are not run here.
"""

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self, TypeVar

import affected
import green
from caught import Caught
from mutations import SOURCE_ROOTS, Mutation, MutationError, definitions
from pillion_testbed.binaries import cache_folder

ROOT = Path(__file__).resolve().parent.parent
ROWS = Path("tests/rows")
PAGE = Path("docs/rows.md")
REQUIREMENTS = "requirements.toml"
#: Where tests need a node: nothing here has one, so these carry no row alone.
ON_NODE = "tests/e2e/"

#: Seconds for one run of tests, all told: beyond it something is wrong with the row itself.
RUN_TIMEOUT = 300
#: Seconds for one test without a time-out of its own. A broken rule often shows as a hang.
TEST_TIMEOUT = 20
#: The same without a mutation, where a hang means nothing but a busy machine.
GREEN_RUN_TIMEOUT, GREEN_TEST_TIMEOUT = 1200, 120
#: Starts pytest in a fraction of the time; relative to a copy's folder, so that it is the copy's.
WARM_PYTEST = "tools/warm_pytest.py"
PYTEST_OPTIONS = (
    *("-q", "-rf", "--tb=no", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
#: What was caught before: outside the checkout, so that a clean keeps it.
CAUGHT = cache_folder(os.environ).parent / "caught.json"
#: The unmutated tests run in this many parts for each job, so that the jobs end together.
PARTS_OF_A_JOB = 4

T = TypeVar("T")
R = TypeVar("R")


class RowError(Exception):
    """A row that cannot be tried: it names no such definition, test or requirement."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One thing that is asked for."""

    id: str
    text: str
    section: str
    #: What of it does not work yet, though the rest does.
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Trial:
    """A mutation, and the tests of which each one must fail under it."""

    mutation: Mutation
    fails: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A requirement, or one side of it, that works."""

    id: str
    title: str
    trials: tuple[Trial, ...]
    #: Tests that show the same on a node. That they are there is all that is verified of them.
    on_node: tuple[str, ...] = ()

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(test for trial in self.trials for test in trial.fails))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one mutation: for each test that did not fail, what it did."""

    trial: Trial
    stayed: Mapping[str, str]
    seconds: float
    #: The tests that failed at the second try only.
    late: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run of pytest: its status, and the outcome of each test that ran."""

    status: int
    outcomes: Mapping[str, str]
    output: str


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


def _row(data: dict[str, Any]) -> Row:
    unknown = set(data) - {"id", "title", "on_node", "mutation"}
    mutations, on_node = data["mutation"], data.get("on_node", [])
    if unknown or not isinstance(mutations, list) or not isinstance(on_node, list):
        raise TypeError(f"unknown or ill-typed fields {sorted(unknown)}")
    return Row(
        id=str(data["id"]),
        title=str(data["title"]),
        trials=tuple(_trial(**mutation) for mutation in mutations),
        on_node=tuple(on_node),
    )


def _trial(*, fails: list[str], **texts: str) -> Trial:
    if set(texts) != {"in", "replace", "with"} or not isinstance(fails, list):
        raise TypeError(f"a mutation has in, replace, with and fails, not {sorted(texts)}")
    return Trial(Mutation(texts["in"], texts["replace"], texts["with"]), tuple(fails))


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
        if not row.trials:
            found.append(f"{row.id}: has no mutation")
        found += [
            f"{row.id}: no such test on a node: {test}"
            for test in row.on_node
            if not (test.startswith(ON_NODE) and _is_test(test, root))
        ]
        for trial in row.trials:
            found += [f"{row.id}: {problem}" for problem in _problems_of_trial(trial, root)]
    return found


def _problems_of_trial(trial: Trial, root: Path) -> Iterator[str]:
    if not trial.fails:
        yield f"no test fails under {trial.mutation.replace!r}"
    for test in trial.fails:
        if test.startswith(ON_NODE):
            yield f"needs a node, so name it in on_node: {test}"
        elif not _is_test(test, root):
            yield f"no such test: {test}"
    try:
        trial.mutation.apply(root)
    except MutationError as error:
        yield str(error)


def _is_test(test: str, root: Path) -> bool:
    """Whether a test function, a test class's method or a case is there. A file is none."""
    file, _, name = test.partition("::")
    path = root / file
    if not name.lower().startswith("test") or not path.is_file():
        return False
    return re.split(r"\[|::", name)[0] in definitions(path.read_text(encoding="utf-8"))


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
        self._warm = subprocess.Popen(
            [sys.executable, WARM_PYTEST],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._warm.communicate()

    def _compile(self) -> None:
        """Compile the source and the tests' support once, for all rows. Python compares a hash of
        each file with its bytecode, so a mutated file is compiled anew."""
        parts = (*SOURCE_ROOTS, "tests/support")
        folders = [part for part in parts if (self.folder / part).is_dir()]
        self._python("-m", "compileall", "-q", "--invalidation-mode", "checked-hash", *folders)

    def _python(self, *arguments: str) -> str:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=RUN_TIMEOUT,
            check=False,
        ).stdout

    def verify(self) -> None:
        """Make sure that the copy is what its tests import. Raises RowError where it is not."""
        imported = self._python("-c", "import pillion_sidecar; print(pillion_sidecar.__file__)")
        if not imported.startswith(str(self.folder)):
            raise RowError(f"the copy is not what is imported, but {imported.strip()}")

    def run(
        self,
        tests: Sequence[str],
        *,
        seconds: int = RUN_TIMEOUT,
        test_seconds: int = TEST_TIMEOUT,
    ) -> RunResult:
        """Run tests as they are named, for at most ``seconds`` in all and ``test_seconds`` each."""
        arguments = [*PYTEST_OPTIONS, "-o", f"timeout={test_seconds}", *tests]
        assert self._warm.stdin is not None
        assert self._warm.stdout is not None
        request = {"arguments": arguments, "seconds": seconds}
        print(json.dumps(request), file=self._warm.stdin, flush=True)
        return RunResult(**json.loads(self._warm.stdout.readline()))

    @contextmanager
    def mutated_by(self, mutation: Mutation) -> Iterator[None]:
        """Apply a mutation for a while."""
        path, changed = mutation.apply(self.folder)
        kept = (self.folder / path).read_text(encoding="utf-8")
        (self.folder / path).write_text(changed, encoding="utf-8")
        try:
            yield
        finally:
            (self.folder / path).write_text(kept, encoding="utf-8")

    def attempt(self, trial: Trial) -> Verdict:
        """Run the tests that must fail under the mutation; those that do not, twice: a broken rule
        may show as a race."""
        started = time.monotonic()
        with self.mutated_by(trial.mutation):
            first = stayed(trial.fails, self.run(trial.fails))
            left = stayed(first, self.run(list(first))) if first else first
        late = [test for test in first if test not in left]
        return Verdict(trial, left, time.monotonic() - started, late)


def stayed(tests: Iterable[str], result: RunResult) -> dict[str, str]:
    """The tests of which no case failed, and in what words.

    An error on the way to a test, or after it, is not a failure.
    """
    found = {}
    for test in tests:
        cases = {outcome for case, outcome in result.outcomes.items() if green.covers([test], case)}
        if "failed" not in cases:
            closing = result.output.strip().splitlines()[-1:] or ["no output"]
            ended = f"did not run; pytest ended with {result.status}: {closing[0]}"
            found[test] = ", ".join(sorted(cases)) or ended
    return found


class Copies:
    """As many copies as there are jobs, each of which does one thing at a time."""

    def __init__(self, root: Path, folder: Path, jobs: int) -> None:
        self._idle: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        self._stack = ExitStack()
        self._threads = self._stack.enter_context(ThreadPoolExecutor(jobs))
        for number in range(jobs):
            copy = self._stack.enter_context(Copy(root, (folder / str(number)).resolve()))
            copy.verify()
            self._idle.put(copy)
        #: Of the tree that all of them are copies of.
        self.digest = green.digest(folder / "0")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def map(self, do: Callable[[Copy, T], R], arguments: Iterable[T]) -> Iterator[R]:
        """The results in the order of the arguments, each as soon as it and those before are."""

        def one(argument: T) -> R:
            copy = self._idle.get()
            try:
                return do(copy, argument)
            finally:
                self._idle.put(copy)

        return self._threads.map(one, arguments)


def load_caught() -> Caught:
    """What was caught before, for the files of the tree as they are."""
    tree = affected.read_tree()
    return Caught(CAUGHT, tree, affected.graph_of(tree))


def try_rows(
    rows: Sequence[Row],
    jobs: int,
    told: Callable[[Row, list[Verdict]], None],
    known: Container[Trial] = (),
) -> int:
    """Try every mutation but for the known ones, and return how many tests did not fail.

    ``told`` hears the verdicts of each row, in order. Raises RowError where the tests are not green
    without a mutation.
    """
    with (
        tempfile.TemporaryDirectory(prefix="pillion-rows-") as folder,
        Copies(ROOT, Path(folder), jobs) as copies,
    ):
        _demand_green(copies, rows, jobs)
        new = [[trial for trial in row.trials if trial not in known] for row in rows]
        verdicts = copies.map(Copy.attempt, chain.from_iterable(new))
        missed = 0
        for row, trials in zip(rows, new, strict=True):
            own = list(islice(verdicts, len(trials)))
            missed += sum(len(verdict.stayed) for verdict in own)
            told(row, own)
        return missed


def _demand_green(copies: Copies, rows: Iterable[Row], jobs: int) -> None:
    """Run every test without a mutation, under the very conditions in which they run with one."""
    tests = list(dict.fromkeys(test for row in rows for test in row.tests))
    files: dict[str, list[str]] = {}
    for test in tests:
        files.setdefault(test.partition("::")[0], []).append(test)
    parts: list[list[str]] = [[] for _ in range(jobs * PARTS_OF_A_JOB)]
    for number, named in enumerate(files.values()):
        parts[number % len(parts)] += named
    started = time.monotonic()
    outcomes: Counter[str] = Counter()
    run = partial(Copy.run, seconds=GREEN_RUN_TIMEOUT, test_seconds=GREEN_TEST_TIMEOUT)
    for result in copies.map(run, [part for part in parts if part]):
        if result.status != 0:
            raise RowError(f"the tests are not green without a mutation:\n{result.output}")
        outcomes.update(result.outcomes.values())
    if set(outcomes) == {"passed"}:
        # A test may find in the copy a reason to be skipped that the tree does not give.
        green.record(ROOT, tests, tree=copies.digest)
    counted = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    print(f"without a mutation: {counted} in {time.monotonic() - started:.0f} s", flush=True)


def page(rows: Sequence[Row], requirements: Sequence[Requirement]) -> str:
    """Write ``docs/rows.md``: every requirement, and the tests of those that work."""
    whole, partly = _worked(rows, requirements)
    mutations = sum(len(row.trials) for row in rows)
    lines = [
        "# Rows",
        "",
        "<!-- Generated by `make generate` from tests/rows/*.toml. -->",
        "",
        "Everything that Pillion is asked to do, row by row, and which tests hold it. For each row",
        "that works, `make rows` applies one or more mutations to the source, small changes that",
        "break the requirement, and each test must fail under one of them.",
        "",
        f"**{whole} of {len(requirements)} rows work**, {partly} more in part, shown by {mutations}"
        " mutations. What holds a row on a node too is run by `make e2e`, without mutations.",
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


def _show(row: Row, verdicts: Sequence[Verdict]) -> None:
    if not verdicts:
        colour = "known"
    else:
        colour = "GREEN" if any(verdict.stayed for verdict in verdicts) else "red  "
    seconds = sum(verdict.seconds for verdict in verdicts)
    print(f"{row.id:6} {colour} {seconds:5.1f} s  {row.title}", flush=True)
    for verdict in verdicts:
        for test in verdict.late:
            print(f"       at the second try: {test}", flush=True)
        mutation = verdict.trial.mutation
        for test, outcome in verdict.stayed.items():
            print(f"       {outcome}: {test}", flush=True)
        if verdict.stayed:
            change = f"{mutation.replace!r} -> {mutation.with_!r}"
            print(f"       under {mutation.within}: {change}", flush=True)


def shared(rows: list[Row], share: int) -> list[Row]:
    """One row of ``share``; the next commit has others, whatever a clone knows of the history."""
    if share == 1:
        return rows
    (commit,) = affected.git("rev-parse", "HEAD")
    return rows[int(commit, 16) % share :: share]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the rows; 0 when each one turns red."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ROW", help="rows to try, as S0.7 [all]")
    parser.add_argument("--jobs", type=int, default=2, help="copies side by side [%(default)s]")
    parser.add_argument(
        "--again", action="store_true", help="also what was caught before with the same files"
    )
    parser.add_argument(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="one row of N, by the commit [all]",
    )
    options = parser.parse_args(arguments)
    try:
        rows, requirements = load_rows(), load_requirements()
        if wrong := problems(rows, requirements, ROOT):
            raise RowError("\n".join(wrong))
        chosen = [row for row in rows if row.id in options.ids or not options.ids]
        chosen = shared(chosen, options.share)
        if not chosen:
            raise RowError("no row works yet" if not rows else f"no such row: {options.ids}")
        trials = [trial for row in chosen for trial in row.trials]
        caught = load_caught()
        keys = {trial: caught.key(str(trial.mutation), trial.fails) for trial in trials}
        again = options.again or options.ids
        known = {trial for trial in trials if keys[trial] in caught and not again}

        green_ones: list[str] = []

        def told(row: Row, verdicts: Sequence[Verdict]) -> None:
            _show(row, verdicts)
            green_ones.extend(test for verdict in verdicts for test in verdict.stayed)
            caught.add(keys[verdict.trial] for verdict in verdicts if not verdict.stayed)

        missed = try_rows(chosen, options.jobs, told, known)
    except (RowError, affected.GitError) as error:
        print(f"rows: {error}", file=sys.stderr)
        return 1
    whole, partly = _worked(rows, requirements)
    named = sum(len(row.tests) for row in chosen)
    print(
        f"{len(trials)} mutations, {len(known)} of them caught before with the same files; "
        f"{named} tests named; {missed} did not fail where they must; "
        f"{whole} of {len(requirements)} rows work, {partly} more in part"
    )
    for test in green_ones:
        print(f"did not fail: {test}")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
