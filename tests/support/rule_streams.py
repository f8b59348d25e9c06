"""Streams of readings for rules: files that come one after the other."""

import os
import queue
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

#: What a stream with a state of rules needs.
ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}


class Arriving:
    """A folder of JSON files; a micro-batch has one, in the order in which they were put."""

    def __init__(self, folder: Path, schema: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._schema = schema
        self._count = 0

    def put(self, lines: Iterable[str]) -> None:
        self._count += 1
        name = f"{self._count:05}.json"
        hidden = self._folder / f".{name}"
        hidden.write_text("".join(f"{line}\n" for line in lines))
        # Spark takes the oldest first.
        os.utime(hidden, (self._count * 10, self._count * 10))
        hidden.rename(self._folder / name)

    def stream(self, spark: SparkSession) -> DataFrame:
        reader = spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder))


def run_to_end(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    """Run a stream over what is there."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def collect(found: DataFrame, folder: Path) -> Sequence[Any]:
    """Run a stream of transitions over what is there; return all rows, of earlier runs, too."""
    out = folder / "out"
    run_to_end(found.writeStream.format("parquet").option("path", str(out)), folder / "checkpoint")
    return found.sparkSession.read.parquet(str(out)).collect()


def read_flights(spark: SparkSession, table: Path) -> DataFrame:
    """The flights of :func:`support.weather.flights_table`."""
    read = spark.read.csv(str(table), header=True, inferSchema=True, nullValue="NA")
    return read.selectExpr("carrier", "time_hour as sched", "cast(dep_delay as double)")


@contextmanager
def micro_batches(found: DataFrame, folder: Path) -> Iterator[Iterator[Sequence[Any]]]:
    """Run a stream of transitions until the end of the block; yield the rows of each micro-batch
    as it ends."""
    ended: queue.SimpleQueue[Sequence[Any]] = queue.SimpleQueue()
    writer = found.writeStream.foreachBatch(lambda batch, _: ended.put(batch.collect()))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def rows() -> Iterator[Sequence[Any]]:
        while True:
            with suppress(queue.Empty):
                yield ended.get(timeout=1)
                continue
            assert query.isActive, query.exception()

    try:
        yield rows()
    finally:
        query.stop()
