"""The weather job through failures, restarts and replays: each alert reaches the listener once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pyspark_pillion import Published, publish
from pyspark_pillion.options import parse_options
from pyspark_pillion.source import Job, publish_partition
from support.between import Between, lose_answer, spoil_answer
from support.fake_deliverer import full, hang_up
from support.processes import ListenerProcess, listener_process
from support.running import listener, resources
from support.threaded import threaded
from support.weather import ALERTS, RECORDS, weather_job

pytestmark = pytest.mark.spark

#: Hands a request on as it is.
pass_on = full()


def breaking(attempts: Mapping[int, int]) -> Callable[[Iterable[Row]], Iterator[Row]]:
    """Break off the first so many attempts of a partition, in the middle of its rows."""

    def pass_through(rows: Iterable[Row]) -> Iterator[Row]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        breaks = context.attemptNumber() < attempts.get(context.partitionId(), 0)
        for number, row in enumerate(rows):
            if number == 80 and breaks:
                raise RuntimeError("injected into the rows")
            yield row

    return pass_through


def broken(rows: DataFrame, attempts: Mapping[int, int]) -> DataFrame:
    """The same rows, whose reading breaks off."""
    # As numbers: a moment that goes through Python loses the hour that winter time repeats.
    numbered = rows.withColumn("time_hour", F.col("time_hour").cast("long"))
    passed = numbered.rdd.mapPartitions(breaking(attempts))
    made = rows.sparkSession.createDataFrame(passed, numbered.schema)
    return made.withColumn("time_hour", F.timestamp_seconds("time_hour"))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example, with several requests in a task."""
    example = weather_job()
    monkeypatch.setattr(example, "publish", partial(publish, options={"batchSize": "16"}))
    return example


def alerts(job: ModuleType, spark: SparkSession) -> DataFrame:
    weather = job.read_weather(spark, str(job.find_data()))
    found: DataFrame = job.dangerous(weather)
    return found


def run(
    job: ModuleType,
    spark: SparkSession,
    *,
    url: str,
    partitions: int,
    attempts: Mapping[int, int] | None = None,
) -> tuple[int, int]:
    """Run the job; return how many rows were accepted and how many duplicates."""
    rows = alerts(job, spark).repartition(partitions)
    published = job.publish_alerts(broken(rows, attempts) if attempts else rows, url=url)
    assert isinstance(published, Published)
    assert not published.discarded
    return published.accepted, published.duplicate


def arrived_once(listening: ListenerProcess) -> None:
    """Each alert has arrived, none twice, and in the order of their numbers."""
    record = listening.record()
    assert len(record) == len({line["identifier"] for line in record}) == ALERTS
    assert {line["verdict"] for line in record} == {"delivered"}
    numbers = [line["number"] for line in record]
    assert numbers == list(range(numbers[0], numbers[0] + ALERTS))


def test_failures_and_replays_on_other_cores_lose_nothing_and_deliver_nothing_twice(
    applications: Any, way: Any, job: ModuleType
) -> None:
    between, url = way.between, way.between.url
    spark = applications.any()
    assert job.read_weather(spark, str(job.find_data())).count() == RECORDS
    # The third task fails until Spark gives up, and the job with it.
    with pytest.raises(PySparkException, match="injected into the rows"):
        run(job, spark, url=url, partitions=4, attempts={0: 1, 2: 4})
    accepted = sum(answer.document["accepted"] for answer in between.told())
    assert 0 < accepted < ALERTS

    between.script += [lose_answer, pass_on, hang_up, pass_on, lose_answer]
    first, repeated = run(job, applications.start("local[1]"), url=url, partitions=3)
    assert first + repeated == ALERTS
    assert repeated >= accepted
    arrived_once(way.listener)

    # After its rows have been delivered, a task is told that they may not have been.
    between.script += [pass_on, spoil_answer]
    between.flush_steps += [pass_on, spoil_answer]
    spark = applications.start("local[4,4]")
    replayed = run(job, spark, url=url, partitions=4, attempts={1: 2, 3: 1})
    assert replayed == (0, ALERTS)

    restarted = run(job, applications.start("local[2,4]"), url=url, partitions=2)
    assert restarted == (0, ALERTS)
    arrived_once(way.listener)
    queue = way.sidecar.queue("weather")
    assert (queue["delivered"], queue["depth"]) == (ALERTS, 0)
    assert not any(queue["discarded"].values())


WINDOW = 3600


def test_the_same_lines_are_duplicates_just_inside_the_window_and_new_just_beyond(
    applications: Any, job: ModuleType, tmp_path: Path
) -> None:
    with listener_process(tmp_path) as listening:
        documents = resources(
            listener("weather", listening.url),
            duplicateWindowSeconds=WINDOW,
            deliveryRetryAttempts=0,
        )
        with threaded(tmp_path, *documents) as deliverer, Between(deliverer.url) as between:
            spark = applications.any()
            assert run(job, spark, url=between.url, partitions=2) == (ALERTS, 0)
            arrived_once(listening)
            lines = [line for seen in between.published for line in seen.lines]

            deliverer.advance(WINDOW)
            assert again(lines, url=between.url) == (0, ALERTS)
            arrived_once(listening)

            deliverer.advance(0.25)
            assert again(lines, url=between.url) == (ALERTS, 0)
            record = listening.record()

    identifiers = [line["identifier"] for line in record]
    assert len(identifiers) == 2 * ALERTS
    assert sorted(identifiers[:ALERTS]) == sorted(identifiers[ALERTS:])


def again(lines: list[bytes], *, url: str) -> tuple[int, int]:
    """Publish lines as a task does."""
    batch = pa.record_batch([pa.array([line.decode() for line in lines])], names=["value"])
    options = parse_options({"source": "weather.nyc", "url": url, "flushLevel": "delivered"})
    counts = publish_partition([batch], Job(options, "value", "again")).counts
    assert counts.delivered == counts.accepted
    return counts.accepted, counts.duplicate
