"""Rules over readings in Spark: what 1, 10 and 100 rules cost beside an operator that only counts,
and how long a back-test takes.

    python tests/benchmarks/bench_rules.py [--readings N] [--history N] [--keys N] [--rounds N]

One JVM with two cores in local mode. The streams of a round run one after the other over the same
files: 1,000 keys with a reading a minute, four micro-batches. A value stays for an hour, and each
rule has an alert for 1 to 10 of 100 keys. With ``--keys`` a stream holds the state of so many keys,
and the memory of the JVM and of the Python workers is shown after each micro-batch.
"""

import argparse
import contextlib
import functools
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pillion_rules import Rule
from pyspark_pillion.rules import transitions
from support.bench import report
from support.rule_streams import ROCKSDB, run_to_end
from support.spark import start_spark

MOST_RATIO, MOST_SECONDS = 3.0, 120.0
KEYS, BATCHES = 1_000, 4
_SCHEMA = "k string, t timestamp, v double"


class Counting(StatefulProcessor):
    """Reads and writes one number for each key: the least that a stateful operator does."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        (before,) = self._count.get() or (0,)
        count = before + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(k=key[0], n=count)

    def close(self) -> None:
        """Nothing to close."""


def rules(count: int) -> list[Rule]:
    return [
        Rule(
            f"rule.{number}",
            keys=["k"],
            event_time="t",
            severity={"Critical": f"v > {96 + number % 4}", "Minor": f"v > {90 + number % 9}"},
            clear="v < 50",
            hold="2 minutes",
            message="{k}: {v}",
        )
        for number in range(count)
    ]


def columns(keys: int) -> list[str]:
    """The columns of a reading, of its number."""
    return [
        f"cast(id % {keys} as string) as k",
        f"timestamp_micros(1767225600000000 + id div {keys} * 60000000) as t",
        f"pmod(hash(id % {keys}, id div {keys} div 60), 1000) / 10 as v",
    ]


def arriving(spark: SparkSession, folder: Path, count: int, keys: int, batches: int) -> DataFrame:
    """A stream of which each micro-batch has one file, in the order of time."""
    for number in range(batches):
        ids = spark.range(number * count // batches, (number + 1) * count // batches)
        part = folder / f"{number:03}"
        ids.selectExpr(*columns(keys)).coalesce(1).write.parquet(str(part))
        (written,) = part.glob("*.parquet")
        file = written.rename(folder / f"{number:03}.parquet")
        os.utime(file, (number * 10 + 10, number * 10 + 10))
        shutil.rmtree(part)
    reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))


def counted(stream: DataFrame) -> DataFrame:
    grouped = stream.withWatermark("t", "1 minute").groupBy("k")
    return grouped.transformWithState(Counting(), "k string, n long", "Append", "EventTime")


def streams(spark: SparkSession, folder: Path, count: int, rounds: int) -> None:
    """Compare streams of rules with one that counts."""
    folder.mkdir()
    given = arriving(spark, folder, count, KEYS, BATCHES)
    made: dict[int, Callable[[], DataFrame]] = {0: lambda: counted(given)}
    for number in (1, 10, 100):
        made[number] = functools.partial(transitions, given, rules(number))
    ratios: dict[int, list[tuple[float, float]]] = {number: [] for number in made}
    for turn in range(rounds + 1):
        found = {
            number: seconds_of(one(), folder.parent / f"checkpoint-{turn}-{number}")
            for number, one in made.items()
        }
        # The first round warms up.
        for number, (seconds, cpu) in found.items() if turn else ():
            ratios[number].append((seconds / found[0][0], cpu / found[0][1]))
    for number in (1, 10, 100):
        ratio, of_cpu = (statistics.median(one) for one in zip(*ratios[number], strict=True))
        report(
            goal=f"{number} rules over a stream <= {MOST_RATIO:g} x counting",
            figure=f"{ratio:.2f} x",
            met=ratio <= MOST_RATIO,
            note=f"CPU {of_cpu:.2f} x; {count:,} readings of {KEYS:,} keys",
        )


def back_test(spark: SparkSession, count: int) -> None:
    """Try five rules on readings of the past."""
    given = spark.range(count).selectExpr(*columns(KEYS))
    began = time.perf_counter()
    found = transitions(given, rules(5)).count()
    seconds = time.perf_counter() - began
    report(
        goal=f"5 rules over {count:,} readings of the past <= {MOST_SECONDS:g} s",
        figure=f"{seconds:.0f} s",
        met=seconds <= MOST_SECONDS,
        note=f"{found:,} transitions, {seconds / count * 1e6:.1f} us a reading",
    )


def many_keys(spark: SparkSession, folder: Path, keys: int) -> None:
    """Hold the state of many keys, and see whether memory grows with event time."""
    folder.mkdir()
    silent = Rule("silent", keys=["k"], event_time="t", severity="Major", silent="10 minutes")
    given = arriving(spark, folder, keys * 6, keys, 6)
    with Resident() as resident:
        seconds, _ = seconds_of(
            transitions(given, [silent, *rules(4)]), folder.parent / "checkpoint-keys"
        )
    thirds = resident.thirds()
    report(
        goal=f"{keys:,} keys with state: memory at the end <= 1.2 x that of the middle",
        figure=f"{thirds[2] / thirds[1]:.2f} x",
        met=thirds[2] <= 1.2 * thirds[1],
        note=f"{thirds[2] / 1024**2:,.0f} MiB, {seconds / (6 * keys) * 1e6:.0f} us a reading",
    )


class Resident:
    """Watches the resident memory of this process and its descendants: JVM, Python workers."""

    def __init__(self) -> None:
        self._found: list[int] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def thirds(self) -> list[int]:
        """Return the most in each third of the time, in bytes."""
        size = -(-len(self._found) // 3)
        return [max(self._found[place * size : (place + 1) * size] or [0]) for place in range(3)]

    def _watch(self) -> None:
        while not self._ended.wait(1):
            self._found.append(descendants_resident(os.getpid()))


def descendants_resident(pid: int) -> int:
    pages = sum(int(fields[21]) for fields in descendants(pid))
    return pages * os.sysconf("SC_PAGE_SIZE")


def descendants_cpu(pid: int) -> float:
    """Seconds of this process, its descendants, and those that have ended."""
    ticks = sum(sum(map(int, fields[11:15])) for fields in descendants(pid))
    return ticks / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> Iterator[list[str]]:
    """The fields of ``/proc/PID/stat`` from the state on."""
    found: dict[int, list[str]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found[int(process.name)] = (process / "stat").read_text().rpartition(")")[2].split()
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        if one in found:
            yield found[one]
        waiting += (each for each, fields in found.items() if int(fields[1]) == one)


def seconds_of(found: DataFrame, checkpoint: Path) -> tuple[float, float]:
    """Run a stream to its end; return its time, and that of its CPUs."""
    began, used = time.perf_counter(), descendants_cpu(os.getpid())
    run_to_end(found.writeStream.format("noop"), checkpoint)
    return time.perf_counter() - began, descendants_cpu(os.getpid()) - used


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=200_000, help="of each stream")
    parser.add_argument("--history", type=int, default=8_800_000, help="readings of the back-test")
    parser.add_argument("--keys", type=int, default=0, help="of a stream with much state")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = start_spark(master="local[2]", **ROCKSDB, **{"spark.sql.shuffle.partitions": "2"})
        try:
            if arguments.rounds:
                streams(spark, folder / "streams", arguments.readings, arguments.rounds)
            if arguments.history:
                back_test(spark, arguments.history)
            if arguments.keys:
                many_keys(spark, folder / "keys", arguments.keys)
        finally:
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
