"""A job of its own that publishes a little in every way, for any version of Spark, classic or by
Spark Connect. It prints what each way came to, as one line of JSON.

    python -m support.spark_smoke FOLDER URL [REMOTE]
"""

import datetime
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pillion_rules import Rule
from pyspark_pillion import Published, Value, publish
from pyspark_pillion.rules import raise_alerts
from support.rule_streams import ROCKSDB, Arriving, run_to_end
from support.spark import start_spark

SCHEMA = "host string, at timestamp, load double"
RULE = Rule(
    "host.load",
    keys=["host"],
    event_time="at",
    severity={"Major": "load > 4"},
    message="{host}: load {load}",
)


class Job:
    def __init__(self, spark: SparkSession, folder: Path, url: str) -> None:
        self._url = url
        self._folder = folder
        begin = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        loads = enumerate((1.0, 5.0, 1.0))
        hours = datetime.timedelta(hours=1)
        readings = [{"host": "a", "at": str(begin - (3 - n) * hours), "load": x} for n, x in loads]
        self._arriving = Arriving(folder / "in", SCHEMA)
        self._arriving.put(map(json.dumps, readings))
        self._batch = spark.read.schema(SCHEMA).json(str(folder / "in"))
        self._stream = self._arriving.stream(spark)
        self._lines = spark.createDataFrame([("no JSON",)], "value string")

    def ways(self) -> dict[str, Callable[[], Any]]:
        return {
            "batch": lambda: self._publish(self._batch, "batch"),
            "stream": lambda: self._publish(self._stream, "stream"),
            "structured stream": lambda: self._structured("structured stream"),
            "wrong row": self._wrong_row,
            "rules": lambda: self._rules(self._batch, "rules"),
            "rules over a stream": lambda: self._rules(self._stream, "rules over a stream"),
        }

    def _publish(self, df: DataFrame, name: str) -> Any:
        properties: dict[str, Value] = {
            "AlertType": 6,
            "PerceivedSeverity": 4,
            "ProbableCause": 52,
            "EventID": name,
            "EventTime": F.col("at"),
        }
        found = publish(
            df, source=name, identity=["host", "at"], properties=properties, url=self._url
        )
        return self._result(found, name)

    def _structured(self, name: str) -> Any:
        columns = {"AlertType": 6, "PerceivedSeverity": 4, "ProbableCause": 52}
        rows = self._stream.select(
            *(F.lit(value).cast("int").alias(column) for column, value in columns.items()),
            F.lit(name).alias("EventID"),
            F.col("at").cast("string").alias("IndicationIdentifier"),
        )
        writer = rows.writeStream.format("pillion").option("source", name)
        return self._result(writer.option("url", self._url), name)

    def _wrong_row(self) -> Any:
        writer = self._lines.write.format("pillion").mode("append").option("url", self._url)
        writer.option("source", "wrong row").save()

    def _rules(self, df: DataFrame, name: str) -> Any:
        return self._result(raise_alerts(df, RULE, source=name, url=self._url), name)

    def _result(self, found: Any, name: str) -> Any:
        if found is None or isinstance(found, Published):
            return found and found.accepted
        run_to_end(found, self._folder / f"checkpoint of {name}")
        return "ended"


def main(folder: str, url: str, remote: str = "") -> None:
    if remote:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder: Any = SparkSession.builder.remote(remote)
        for name, value in ROCKSDB.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    else:
        spark = start_spark(master="local[2]", **ROCKSDB)
    results: dict[str, Any] = {}
    for name, way in Job(spark, Path(folder), url).ways().items():
        try:
            results[name] = way()
        except Exception as error:  # noqa: BLE001 - any is a result
            results[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
