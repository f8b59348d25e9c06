"""The weather job as a stream, a month in each batch: stopped half-way, resumed on other cores, and
a batch replayed whose commit was lost."""

import csv
import json
import os
from pathlib import Path
from threading import Event
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_pillion import publish
from support.fake_deliverer import Answer, FakeDeliverer, Seen, full
from support.weather import ALERTS, RECORDS, weather_job

pytestmark = pytest.mark.spark

MONTHS = 12


class Gate:
    """Holds one request up until it is opened."""

    def __init__(self) -> None:
        self.reached = Event()
        self.opened = Event()

    def __call__(self, between: FakeDeliverer, seen: Seen) -> Answer:
        self.reached.set()
        self.opened.wait()
        return between.accept(seen)


class Stream:
    """The job, as a stream over a folder of months, with its checkpoint."""

    def __init__(self, folder: Path, url: str) -> None:
        self.checkpoint = folder / "checkpoint"
        self._months = folder / "months"
        self._report = folder / "report"
        self._url = url
        self._job = weather_job()
        split_by_month(self._job, self._months)

    def start(self, spark: SparkSession, **trigger: Any) -> Any:
        """Start the query from where the checkpoint left off."""
        return (
            self._writer(spark)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**trigger)
            .start()
        )

    def run(self, spark: SparkSession) -> None:
        """Publish what there is."""
        self.start(spark, availableNow=True).awaitTermination()

    def _writer(self, spark: SparkSession) -> DataStreamWriter:
        months = spark.readStream.option("maxFilesPerTrigger", 1)
        job, cores = self._job, spark.sparkContext.defaultParallelism
        weather = job.read_weather(SimpleNamespace(read=months), str(self._months))
        made: list[Any] = []
        options = {"batchSize": "16", "reportPath": str(self._report)}

        def keep(rows: DataFrame, **given: Any) -> None:
            given["options"] = {**given["options"], **options}
            made.append(publish(rows, **given))

        with patch.object(job, "publish", keep):
            job.publish_alerts(job.dangerous(weather).repartition(cores), url=self._url)
        writer: DataStreamWriter = made[0]
        return writer

    def lose_a_commit(self) -> None:
        """Undo the record of the last batch's commit."""
        last = self.commits[-1]
        last.with_name(f".{last.name}.crc").unlink()
        last.unlink()

    @property
    def commits(self) -> list[Path]:
        """The commits of batches, in order."""
        found = (self.checkpoint / "commits").glob("[0-9]*")
        return sorted(found, key=lambda path: int(path.name))

    @property
    def reports(self) -> list[dict[str, Any]]:
        """What each batch came to."""
        return [json.loads(line) for line in self._report.read_text().splitlines()]


def split_by_month(job: ModuleType, folder: Path) -> None:
    """Write the records of each month to a file, one older than the next."""
    folder.mkdir()
    with job.find_data().open(newline="") as file:
        header, *rows = csv.reader(file)
    assert len(rows) == RECORDS
    for month in range(1, MONTHS + 1):
        path = folder / f"{month:02}.csv"
        with path.open("w", newline="") as file:
            kept = [row for row in rows if row[header.index("month")] == str(month)]
            csv.writer(file).writerows([header, *kept])
        os.utime(path, (1_400_000_000 + month,) * 2)


def test_a_stream_stopped_half_way_and_replayed_on_other_cores_delivers_each_alert_once(
    applications: Any, way: Any, tmp_path: Path
) -> None:
    stream = Stream(tmp_path, way.between.url)
    gate = Gate()
    way.between.script += [full()] * 18 + [gate]
    query = stream.start(applications.any(), processingTime="0 seconds")
    gate.reached.wait()
    query.stop()
    gate.opened.set()
    assert 0 < len(stream.commits) < MONTHS
    half_way = len(way.listener.record())
    assert 0 < half_way < ALERTS

    spark = applications.start("local[4,4]")
    stream.run(spark)
    assert len(stream.commits) == MONTHS
    stream.lose_a_commit()
    stream.run(spark)

    batches = [report["batch"] for report in stream.reports]
    assert batches == [*range(MONTHS), MONTHS - 1]
    before, replayed = stream.reports[-2:]
    assert (replayed["accepted"], replayed["delivered"]) == (0, 0)
    assert replayed["duplicate"] == before["accepted"] + before["duplicate"] > 0
    assert sum(report["accepted"] + report["duplicate"] for report in stream.reports[:-1]) == ALERTS
    record = way.listener.record()
    assert len(record) == len({line["identifier"] for line in record}) == ALERTS
    assert way.sidecar.queue("weather")["delivered"] == ALERTS
