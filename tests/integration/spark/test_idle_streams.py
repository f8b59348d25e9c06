"""Silence by the clock, in a real Spark whose input is idle."""

import datetime
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from pillion_rules import Rule, RuleError
from pyspark_pillion.rules import transitions
from support.rule_streams import ROCKSDB, Arriving, micro_batches
from support.spark import start_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

MINUTE = 60


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_spark(master="local[2]", **ROCKSDB)
    yield session
    session.stop()


@pytest.fixture
def arriving(tmp_path: Path) -> Arriving:
    return Arriving(tmp_path / "in", "origin string, time timestamp")


class Readings:
    """Readings of stations so many seconds after a time, and what is told in such seconds."""

    def __init__(self, begin: datetime.datetime) -> None:
        self._begin = begin

    def of(self, *stations: str, at: int) -> list[str]:
        time = self._begin + datetime.timedelta(seconds=at)
        return [json.dumps({"origin": one, "time": time.isoformat()}) for one in stations]

    def told(self, rows: Sequence[Row]) -> list[tuple[str, str, int]]:
        return [
            (
                row["key"][0],
                row["transition"],
                round((row["at"].astimezone(datetime.UTC) - self._begin).total_seconds()),
            )
            for row in rows
        ]


def silent(time: str) -> Rule:
    return Rule(
        "station.silent",
        keys=["origin"],
        event_time="time",
        severity="Major",
        silent=time,
        watermark="1 second",
    )


def until(batches: Iterator[Sequence[Row]], count: int) -> list[Row]:
    """Of the micro-batches until there are so many rows."""
    found: list[Row] = []
    while len(found) < count:
        found += next(batches)
    return found


def test_while_the_whole_input_is_idle_silence_is_told_by_the_clock(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    readings = Readings(datetime.datetime.now(datetime.UTC))
    arriving.put(readings.of("JFK", at=0))
    found = transitions(arriving.stream(spark), silent("4 seconds"), by_clock=True)
    with micro_batches(found, tmp_path) as batches:
        # The time is that of the watermark, and so is the identity.
        assert readings.told(until(batches, 1)) == [("JFK", "raised", 4)]
        # What comes late counts, once the watermark has passed it.
        arriving.put(readings.of("JFK", at=5))
        arriving.put(readings.of("LGA", at=4 * MINUTE))
        assert readings.told(until(batches, 2)) == [("JFK", "cleared", 5), ("JFK", "raised", 9)]


def test_an_input_that_is_idle_at_a_restart_is_told_by_the_clock(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    readings = Readings(datetime.datetime.now(datetime.UTC))
    found = transitions(arriving.stream(spark), silent("6 seconds"), by_clock=True)
    arriving.put(readings.of("JFK", at=0))
    with micro_batches(found, tmp_path) as batches:
        assert [row for rows in islice(batches, 1) for row in rows] == []
    with micro_batches(found, tmp_path) as batches:
        assert readings.told(until(batches, 1)) == [("JFK", "raised", 6)]


def test_a_backlog_is_told_by_the_watermark_alone_also_after_a_restart(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    readings = Readings(yesterday)
    found = transitions(arriving.stream(spark), silent("1 hour"), by_clock=True)
    arriving.put(readings.of("JFK", "LGA", at=0))
    with micro_batches(found, tmp_path) as batches:
        assert [row for rows in islice(batches, 4) for row in rows] == []
    for at in range(20, 121, 20):
        # The second file does not move the watermark.
        arriving.put(readings.of("JFK", at=at * MINUTE))
        arriving.put(readings.of("EWR", at=at * MINUTE))
    arriving.put(readings.of("JFK", "LGA", at=140 * MINUTE))
    arriving.put(readings.of("JFK", at=141 * MINUTE))
    with micro_batches(found, tmp_path) as batches:
        told = readings.told([row for rows in islice(batches, 18) for row in rows])
    assert told == [("LGA", "raised", 60 * MINUTE), ("LGA", "cleared", 140 * MINUTE)]


def test_the_clock_is_for_streams_that_run_micro_batches_without_readings(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    arriving.put(Readings(datetime.datetime.now(datetime.UTC)).of("JFK", at=0))
    batch = spark.read.schema("origin string, time timestamp").json(str(tmp_path / "in"))
    with pytest.raises(RuleError, match="by_clock: only for a stream; of a batch, until gives"):
        transitions(batch, silent("1 hour"), by_clock=True)
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(name, "false")
    try:
        with pytest.raises(RuleError, match=f'by_clock: set spark.conf.set."{name}", "true"'):
            transitions(arriving.stream(spark), silent("1 hour"), by_clock=True)
    finally:
        spark.conf.unset(name)
