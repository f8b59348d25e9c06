"""Compare the benchmarks of this tree with those of another commit: ``make bench-against``.

    python tests/benchmarks/against.py BASE [--rounds N] [--short] [NAME…]

Each round runs every benchmark once for BASE and once for this tree, with this interpreter and this
tree's packages of others; which of the two is first changes from round to round. NAMEs choose some
benchmarks. A benchmark that BASE does not have measures BASE's packages from this tree. With
``--short``, so do those that have a shorter form, and they take it. For each figure the table has
the medians of the rounds, and the median of the rounds' quotients, new by old. A figure of the
notes is named, too: microseconds of CPU. A benchmark that fails is told, and is the only failure.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from support.bench import RESULTS, SHORT, interpreter

ROOT = Path(__file__).resolve().parents[2]
#: The folders of a tree that Python finds packages in.
FOLDERS = ("cim", "sidecar", "spark", "operator", "cli", "plugin", "rules", "testbed")
#: The longest that one benchmark may take, in seconds.
LONGEST = 900
#: A number, as the benchmarks write them.
NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?")
#: CPU in a note.
CPU = re.compile(rf"({NUMBER.pattern}) us\b")

#: By benchmark's goal and place in it: of each round what was measured.
Figures = dict[str, list[float]]


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The tree of a commit, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="pillion-base-") as folder:
        archive = subprocess.run(
            ["git", "-C", str(ROOT), "archive", commit], check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def names_of(tree: Path) -> set[str]:
    """The benchmarks that a tree has."""
    found = (tree / "tests" / "benchmarks").glob("bench_*.py")
    return {path.stem.removeprefix("bench_") for path in found}


def has_shorter_form(name: str) -> bool:
    """Whether this tree's benchmark looks at SHORT."""
    source = ROOT / "tests" / "benchmarks" / f"bench_{name}.py"
    return source.is_file() and "(SHORT)" in source.read_text(encoding="utf-8")


def figures_of(line: dict[str, str]) -> Iterator[tuple[str, float]]:
    """The figures of one line that a benchmark reports, by name."""
    numbers = NUMBER.findall(line["figure"])
    for place, number in enumerate(numbers):
        name = line["goal"] if place == 0 else f"{line['goal']} ({place + 1})"
        yield name, float(number.replace(",", ""))
    for place, number in enumerate(CPU.findall(line["note"])):
        name = f"  us, of {line['goal']}" + (f" ({place + 1})" if place else "")
        yield name, float(number.replace(",", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two that are compared, and what was measured of it."""

    name: str
    #: Whose packages are measured.
    tree: Path
    #: Whose benchmarks measure them, where there are such.
    benchmarks: Path
    figures: Figures = field(default_factory=lambda: defaultdict(list))
    #: Whether benchmarks that have a shorter form take it. BASE may lack it.
    short: bool = False

    def home(self, benchmark: str) -> Path:
        """The tree whose benchmark measures this side."""
        if self.short and has_shorter_form(benchmark):
            return ROOT
        return self.benchmarks if benchmark in names_of(self.benchmarks) else ROOT


def measure(side: Side, name: str) -> str | None:
    """Run one benchmark of a side, and add its figures; return why it failed, if it did."""
    tests = side.home(name) / "tests"
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        environment = {
            **os.environ,
            RESULTS: file.name,
            # Before what is installed, which is this tree.
            "PYTHONPATH": os.pathsep.join(
                str(place) for place in (tests, *(side.tree / folder for folder in FOLDERS))
            ),
            **({SHORT: "1"} if side.short else {}),
        }
        command = [sys.executable, str(tests / "benchmarks" / f"bench_{name}.py")]
        try:
            ended = subprocess.run(
                command,
                cwd=side.tree,
                env=environment,
                timeout=LONGEST,
                check=False,
                stdout=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {LONGEST} s"
        lines = Path(file.name).read_text(encoding="utf-8").splitlines()
    for line in lines:
        for figure, value in figures_of(json.loads(line)):
            side.figures[figure].append(value)
    return None if lines and not ended.returncode else f"ended with {ended.returncode}"


class Compared(NamedTuple):
    """One figure of both sides: medians of the rounds, and of the rounds' quotients."""

    goal: str
    old: float
    new: float
    #: New by old; None where the old figure is always 0.
    quotient: float | None


def compared(old: Mapping[str, list[float]], new: Mapping[str, list[float]]) -> Iterator[Compared]:
    """Compare what was measured of both sides."""
    for goal, after in new.items():
        before = old.get(goal, [])
        if not before:
            continue
        pairs = [b / a for a, b in zip(before, after, strict=False) if a]
        quotient = statistics.median(pairs) if pairs else None
        yield Compared(goal, statistics.median(before), statistics.median(after), quotient)


def table(old: Figures, new: Figures) -> None:
    """Print what was measured of both sides."""
    print(f"\n{'goal':<72} {'old':>11} {'new':>11}  new/old")
    for goal, before, after, quotient in compared(old, new):
        ratio = "" if quotient is None else f"{quotient:8.3f}"
        print(f"{goal:<72} {before:>11,.2f} {after:>11,.2f} {ratio}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="with less load, and sooner")
    arguments = parser.parse_intermixed_args()
    failures: list[str] = []
    with checked_out(arguments.base) as tree:
        names = sorted((set(arguments.names) or names_of(ROOT)) & names_of(ROOT))
        print(f"{interpreter()}; {arguments.rounds} rounds of {', '.join(names)}", flush=True)
        old = Side(name="old", tree=tree, benchmarks=tree, short=arguments.short)
        new = Side(name="new", tree=ROOT, benchmarks=ROOT, short=arguments.short)
        for number in range(arguments.rounds):
            for name in names:
                for side in (new, old) if number % 2 else (old, new):
                    began = time.monotonic()
                    reason = measure(side, name)
                    took = time.monotonic() - began
                    load = os.getloadavg()[0]
                    said = f"round {number + 1}: {name}, {side.name}: {took:.0f} s, load {load:.1f}"
                    print(said if reason is None else f"{said}: {reason}", flush=True)
                    if reason is not None:
                        failures.append(said)
        table(old.figures, new.figures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
