"""The engines that could keep the journal, side by side: ``docs/decisions/0012-journal-engine.md``.

    python tests/benchmarks/bench_journal_engines.py [--rounds N] [--count N] [--folder DIR]

All keep the same encoded records durably, one engine after the other in every round, each task in a
process of its own; medians count. What is appended is told as a multiple of writing and
synchronising (fdatasync) the same bytes to a file of the same disk, just before. LMDB and RocksDB
are measured where ``lmdb`` and ``rocksdict`` can be imported:

    pip install --target /tmp/engines lmdb rocksdict
    PYTHONPATH=tests:/tmp/engines .venv/bin/python tests/benchmarks/bench_journal_engines.py
"""

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.journal_engines import STORES, Store
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.files import SystemFiles
from pillion_sidecar.journal.ports import Place
from pillion_sidecar.journal.records import FRAME, INDICATION, PLACE, encode_indication
from support.bench import report

#: What an engine needs beside the standard library.
NEEDS = {"LMDB": "lmdb", "RocksDB": "rocksdict"}
#: Records to a commit, and how many commits are timed.
COMMITS = {1: 1000, 100: 200, 1000: 50}
BODIES = (500, 2048)
DESTINATIONS = 32
#: Of the run with a dead destination: records in all, and one of so many is for it.
DEAD_RUN, DEAD_EACH = 300_000, 1_000
FILL_BATCH, SETTLE_BATCH = 5_000, 1_000
#: The longest that one task of one engine may take, in seconds.
LONGEST = 300
Figures = dict[str, float]


#: Bodies are cut out of this: none is like another, and nothing in it can be compressed.
_NOISE = random.Random(1).randbytes(1 << 20)


def record(number: int, size: int) -> bytes:
    """The record of one accepted indication for one destination."""
    begin = number * 7919 % (len(_NOISE) - size)
    body = _NOISE[begin : begin + size]
    indication = Indication(
        body=body,
        class_name="CIM_AlertIndication",
        accepted_at=0.0,
        source="weather",
        identifier=f"alert-{number:012d}",
        digest=number.to_bytes(16, "big"),
        id=number,
    )
    place = Place(number % DESTINATIONS, number % DESTINATIONS, number // DESTINATIONS)
    return encode_indication(indication, (place,), accepted_at=0.0)


# ---------------------------------------------------------------------- the tasks, each a process


def append(store: Store, folder: Path) -> Figures:
    """Time of a commit as a multiple of fdatasync's, rate, and CPU, by batch and body."""
    figures: Figures = {}
    number = 1
    for size in BODIES:
        for batch, commits in COMMITS.items():
            sample = b"".join(record(one, size) for one in range(1, batch + 1))
            bare = bare_seconds(folder, sample, commits)
            # What a first use costs is none of the commits'.
            store.append(number, [record(number, size)])
            number += 1
            began, cpu = time.perf_counter(), time.process_time()
            for _ in range(commits):
                store.append(number, [record(one, size) for one in range(number, number + batch)])
                number += batch
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            name = f"{batch} x {size} B"
            figures[f"{name}: of fdatasync"] = seconds / bare
            figures[f"{name}: records/s"] = batch * commits / seconds
            figures[f"{name}: CPU us"] = cpu / batch / commits * 1e6
            figures[f"{name}: fdatasync us"] = bare / commits * 1e6
    return figures


def bare_seconds(folder: Path, data: bytes, commits: int) -> float:
    """Seconds to write and synchronise the same bytes so often, into room that was reserved."""
    files = SystemFiles(folder)
    file = files.create("bare")
    file.allocate(0, len(data) * commits)
    file.sync()
    began = time.perf_counter()
    for number in range(commits):
        file.write(number * len(data), data)
        file.sync()
    seconds = time.perf_counter() - began
    file.close()
    files.remove("bare")
    return seconds


def fill(store: Store, folder: Path, count: int) -> Figures:
    """Keep so many pending records of 500 B; bytes on disk for each."""
    for first in range(1, count + 1, FILL_BATCH):
        store.append(first, [record(one, 500) for one in range(first, first + FILL_BATCH)])
    return {"bytes per record": disk_bytes(folder) / count}


def recover(store: Store, count: int) -> Figures:
    """Read all that is pending into columns, as the queues have them; time and memory."""
    began = time.perf_counter()
    ids, numbers, destinations = array("Q"), array("Q"), array("I")
    places_from = FRAME.size + INDICATION.size
    for content in store.records():
        destination, _, number = PLACE.unpack_from(content, places_from)
        ids.append(FRAME.unpack_from(content, 0)[-1])
        numbers.append(number)
        destinations.append(destination)
    seconds = time.perf_counter() - began
    assert len(ids) == count, (len(ids), count)
    return {"recovery s": seconds, **resident()}


def settle(store: Store, folder: Path, count: int) -> Figures:
    """Keep records, then settle them all in the order of acceptance, a thousand to a commit; what
    is still on disk then."""
    for first in range(1, count + 1, FILL_BATCH):
        store.append(first, [record(one, 500) for one in range(first, first + FILL_BATCH)])
    began, cpu = time.perf_counter(), time.process_time()
    for first in range(1, count + 1, SETTLE_BATCH):
        ids = range(first, first + SETTLE_BATCH)
        store.settle([(one % DESTINATIONS, one) for one in ids])
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    left = disk_bytes(folder) / 2**20
    return {"settle s": seconds, "settle CPU us": cpu / count * 1e6, "left MiB": left}


def dead(store: Store, folder: Path) -> Figures:
    """Busy destinations beside a dead one, whose records stay: the most that is on disk."""
    most, batch = 0, 1000
    for first in range(1, DEAD_RUN, batch):
        ids = range(first, first + batch)
        store.append(first, [record(one, 500) for one in ids])
        store.settle([(one % DESTINATIONS, one) for one in ids if one % DEAD_EACH])
        most = max(most, disk_bytes(folder))
    live = DEAD_RUN // DEAD_EACH * len(record(1, 500))
    return {"most MiB": most / 2**20, "live MiB": live / 2**20}


def disk_bytes(folder: Path) -> int:
    """Bytes that the files of a folder take of the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def resident() -> Figures:
    """Memory of this process now: all of it, and the part that is pages of mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(one.split(":", 1) for one in lines)
    return {
        f"{name} MiB": int(fields[field].split()[0]) / 1024
        for name, field in (("resident", "VmRSS"), ("mapped", "RssFile"))
    }


def task(name: str, engine: str, folder: Path, count: int) -> Figures:
    """Do one task of one engine in this process."""
    store = STORES[engine](folder)
    tasks: dict[str, Callable[[], Figures]] = {
        "append": lambda: append(store, folder),
        "fill": lambda: fill(store, folder, count),
        "recover": lambda: recover(store, count),
        "settle": lambda: settle(store, folder, count),
        "dead": lambda: dead(store, folder),
    }
    figures = tasks[name]()
    store.close()
    return figures


# ---------------------------------------------------------------------- the measurement


def measure(engine: str, where: Path, count: int) -> Figures:
    """One round of one engine."""
    figures: Figures = {}
    for tasks in (("append",), ("fill", "recover"), ("settle",), ("dead",)):
        with tempfile.TemporaryDirectory(dir=where) as folder:
            for name in tasks:
                command = [sys.executable, __file__, "--task", name, "--engine", engine]
                answer = subprocess.run(
                    [*command, "--folder", folder, "--count", str(count)],
                    check=True,
                    stdout=subprocess.PIPE,
                    timeout=LONGEST,
                )
                figures |= json.loads(answer.stdout)
    return figures


def engines() -> Iterator[str]:
    """Those that can be measured here."""
    for name in STORES:
        needed = NEEDS.get(name)
        if needed is not None and importlib.util.find_spec(needed) is None:
            print(f"{name} is left out: {needed} is not installed (see the head of this file)")
        else:
            yield name


def tell(medians: dict[str, Figures]) -> None:
    """Print all figures as the page of the decision has them, then the lines of the report."""
    names = list(medians)
    print(f"\n| | {' | '.join(names)} |\n| --- |{' --- |' * len(names)}")
    for figure in medians[names[0]]:
        values = [medians[name][figure] for name in names]
        texts = [f"{one:,.0f}" if one >= 100 else f"{one:.2f}" for one in values]
        print(f"| {figure} | {' | '.join(texts)} |")
    print()
    for name, figures in medians.items():
        report(
            goal=f"Engine of the journal: {name}, 100 x 2 KB, of fdatasync of the same bytes",
            figure=f"{figures['100 x 2048 B: of fdatasync']:.2f}",
            met=None,
            note=f"{figures['100 x 2048 B: records/s']:,.0f}/s;"
            f" recovery of a million {figures['recovery s']:.2f} s,"
            f" settling {figures['settle s']:.1f} s",
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=1_000_000, help="records of the large tasks")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    if arguments.task:
        figures = task(arguments.task, arguments.engine, arguments.folder, arguments.count)
        print(json.dumps(figures))
        return 0
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    rounds: dict[str, list[Figures]] = {name: [] for name in engines()}
    for _ in range(arguments.rounds):
        for name, measured in rounds.items():
            measured.append(measure(name, arguments.folder, arguments.count))
    tell(
        {
            name: {
                figure: statistics.median(one[figure] for one in measured) for figure in measured[0]
            }
            for name, measured in rounds.items()
        }
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
