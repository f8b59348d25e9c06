"""Run every benchmark, one after the other, and print the table of goals: ``make bench``.

    python tests/benchmarks/run.py [--markdown] [NAME…]

NAMEs choose some, as in ``run.py intake memory``. A goal that is missed fails nothing: it stays in
the table, and ``docs/benchmarks.md`` or ``docs/performance.md`` says why. ``--markdown`` prints the
table as it stands in those pages.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from support.bench import RESULTS, interpreter

HERE = Path(__file__).parent
#: The longest that one benchmark may take, in seconds.
LONGEST = 600


def run(name: str, results: Path) -> str | None:
    """Run one benchmark; return why it failed, if it did. That it missed a goal is no failure."""
    print(f"\n== {name}", flush=True)
    before = results.stat().st_size
    try:
        ended = subprocess.run(
            [sys.executable, str(HERE / f"bench_{name}.py")],
            env={**os.environ, RESULTS: str(results)},
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"took more than {LONGEST} s"
    is_whole = results.stat().st_size > before and not ended.returncode
    return None if is_whole else f"ended with {ended.returncode}"


def table(results: Path) -> None:
    """Print what the benchmarks left."""
    print(f"\n{'goal':<68} {'figure':>12}  ")
    for text in results.read_text().splitlines():
        line = json.loads(text)
        verdict = {True: "met", False: "MISSED", None: ""}[line["met"]]
        print(f"{line['goal']:<68} {line['figure']:>12}  {verdict}")


def markdown(results: Path) -> None:
    """Print it for the manual, with the notes."""
    print("\n| goal | figure | | |\n| --- | --- | --- | --- |")
    for text in results.read_text().splitlines():
        line = json.loads(text)
        verdict = {True: "met", False: "missed", None: ""}[line["met"]]
        goal = line["goal"].replace("<=", "≤").replace(">=", "≥")
        print(f"| {goal} | {line['figure']} | {verdict} | {line['note']} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    names = arguments.names or sorted(
        path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py")
    )
    failures = {}
    print(interpreter(), flush=True)
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        results = Path(file.name)
        for name in names:
            reason = run(name, results)
            if reason is not None:
                failures[name] = reason
        (markdown if arguments.markdown else table)(results)
    for name, reason in failures.items():
        print(f"bench_{name}.py {reason}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
