"""Streams that crash are replayed, perhaps on another number of cores: nothing is lost by it, and
nothing published twice."""

import json
import queue
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_pillion import ConfigurationError, ReportListener, publish
from support.fake_deliverer import FakeDeliverer, full, status
from support.publisher import identifiers_of
from support.spark import start_spark

ALERT: dict[str, Any] = {"AlertType": 6, "PerceivedSeverity": 4, "ProbableCause": 52}

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Four files of ten rows each, 0 to 39."""
    directory = tmp_path / "inputs"
    directory.mkdir()
    for part in range(4):
        rows = [json.dumps({"n": n}) for n in range(part * 10, part * 10 + 10)]
        (directory / f"{part}.json").write_text("\n".join(rows))
    return directory


@pytest.fixture
def cores() -> Iterator[Any]:
    """Starts Spark on a number of cores, ending the one before."""
    running: list[SparkSession] = []

    def start(count: int) -> SparkSession:
        for session in running:
            session.stop()
        running[:] = [start_spark(master=f"local[{count}]")]
        return running[0]

    yield start
    for session in running:
        session.stop()


def run(spark: SparkSession, inputs: Path, deliverer: FakeDeliverer, **options: str) -> None:
    """Publish what there is, from where the checkpoint left off."""
    events = spark.readStream.schema("n long").json(str(inputs))
    writer: Any = publish(
        events,
        source="stream",
        identity=["n"],
        properties={**ALERT, "EventID": F.col("n").cast("string")},
        url=deliverer.url,
        options={"batchSize": "5", **options},
    )
    checkpoint = str(inputs.parent / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def published(deliverer: FakeDeliverer) -> list[int]:
    return sorted(int(alert["properties"]["EventID"]) for alert in deliverer.accepted)


def test_a_crashed_batch_replayed_on_other_cores_loses_nothing_and_repeats_nothing(
    cores: Any, inputs: Path, deliverer: FakeDeliverer
) -> None:
    deliverer.script += [full(), full(), full(), *[status(404)] * 20]
    with pytest.raises(StreamingQueryException, match="HTTP 404"):
        run(cores(2), inputs, deliverer)
    assert 0 < len(deliverer.accepted) < 40
    deliverer.script.clear()

    run(cores(4), inputs, deliverer)

    assert published(deliverer) == list(range(40))
    assert deliverer.duplicates > 0


def test_a_batch_that_was_committed_but_not_recorded_is_recognised(
    cores: Any, inputs: Path, deliverer: FakeDeliverer
) -> None:
    report = inputs.parent / "report"
    spark = cores(2)
    run(spark, inputs, deliverer, reportPath=str(report))
    shutil.rmtree(inputs.parent / "checkpoint" / "commits")
    run(spark, inputs, deliverer, reportPath=str(report))

    assert published(deliverer) == list(range(40))
    first, second = map(json.loads, report.read_text().splitlines())
    assert (first["batch"], first["accepted"], first["duplicate"]) == (0, 40, 0)
    assert (second["batch"], second["accepted"], second["duplicate"]) == (0, 0, 40)
    assert (first["delivered"], second["delivered"]) == (40, 0)


def test_a_streams_publishers_name_query_and_batch(
    cores: Any, inputs: Path, deliverer: FakeDeliverer
) -> None:
    run(cores(2), inputs, deliverer)

    metadata = json.loads((inputs.parent / "checkpoint" / "metadata").read_text())
    publishers = {seen.headers["pillion-publisher"] for seen in deliverer.published}
    assert {name.split("/")[1] for name in publishers} == {f"{metadata['id']}.0"}


def test_update_mode_goes_by_way_of_foreach_batch(
    cores: Any, inputs: Path, deliverer: FakeDeliverer
) -> None:
    spark = cores(2)
    counts = (
        spark.readStream.schema("n long")
        .json(str(inputs))
        .groupBy((F.col("n") % 3).alias("rest"))
        .count()
    )
    writer: Any = publish(
        counts,
        source="stream",
        identity=["rest", "count"],
        properties={**ALERT, "EventID": F.col("rest").cast("string")},
        url=deliverer.url,
        output_mode="update",
    )
    query = (
        writer.option("checkpointLocation", str(inputs.parent / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert published(deliverer) == [0, 1, 2]
    assert len(set(identifiers_of(deliverer))) == 3
    # As in append mode, the publishers name query and batch.
    publishers = {seen.headers["pillion-publisher"] for seen in deliverer.published}
    assert {name.split("/")[1] for name in publishers} == {f"{query.id}.0"}
    with pytest.raises(ConfigurationError, match="identity has only what the rows are grouped by"):
        publish(counts, source="s", identity=["rest"], properties=ALERT, output_mode="update")


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_listener_is_told_sparks_progress_and_the_counts_of_each_batch(
    cores: Any, inputs: Path, deliverer: FakeDeliverer, mode: str
) -> None:
    spark, path = cores(2), str(inputs.parent / "report")
    told: queue.Queue[Any] = queue.Queue()
    listener = ReportListener(path, lambda progress, counts: told.put((progress, counts)))
    spark.streams.addListener(listener)
    events = spark.readStream.schema("n long").option("maxFilesPerTrigger", 2).json(str(inputs))
    writer: Any = publish(
        events.observe("readings", F.max("n").alias("highest")),
        source="stream",
        identity=["n"],
        properties=ALERT,
        url=deliverer.url,
        options={"reportPath": path},
        output_mode=mode,
    )
    checkpoint = str(inputs.parent / "checkpoint")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()

    found = [told.get(timeout=60) for _ in range(2)]
    assert [(progress.batchId, counts.accepted) for progress, counts in found] == [(0, 20), (1, 20)]
    assert {str(progress.id) for progress, _ in found} == {query.id}
    assert {progress.observedMetrics["readings"].highest for progress, _ in found} <= set(range(40))


def test_complete_mode_is_refused(cores: Any, inputs: Path, deliverer: FakeDeliverer) -> None:
    counts = cores(2).readStream.schema("n long").json(str(inputs)).groupBy("n").count()
    writer: Any = publish(
        counts, source="stream", identity=["n"], properties=ALERT, url=deliverer.url
    )
    checkpoint = str(inputs.parent / "checkpoint")
    query = writer.outputMode("complete").option("checkpointLocation", checkpoint).start()
    with pytest.raises(StreamingQueryException, match="nothing can be overwritten"):
        query.awaitTermination()

    assert deliverer.requests == []
