"""From a Spark job to ``accepted``: rows a second that ``publish()`` brings to a real deliverer.

    python tests/benchmarks/bench_spark.py [--rows N]

One JVM with two cores in local mode, beside the deliverer on the same machine; no listener is
subscribed, so that intake is what is measured. One short run warms the JVM up.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pyspark_pillion import Published, publish
from support.bench import report, resource, sidecar, write_resources

GOAL = 200_000
ROUNDS = 3
PARTITIONS = 2


def session(folder: Path) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local[{PARTITIONS}]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def publish_rows(spark: SparkSession, url: str, *, first: int, count: int) -> float:
    """Publish rows that nobody has published before; return rows a second."""
    rows = spark.range(first, first + count, numPartitions=PARTITIONS)
    began = time.perf_counter()
    published = publish(
        rows,
        source="bench",
        identity=["id"],
        properties={
            "AlertType": 6,
            "PerceivedSeverity": (F.col("id") % 5 + 2).cast("int"),
            "ProbableCause": 52,
            "EventID": "gust",
            "AlertingManagedElement": F.concat(F.lit("station="), F.col("id").cast("string")),
            "SystemName": "ewr.weather.example.com",
            "Message": F.format_string("row %d is above the threshold", F.col("id")),
        },
        url=url,
        options={"flushLevel": "accepted"},
    )
    seconds = time.perf_counter() - began
    assert isinstance(published, Published)
    assert published.accepted == count, published
    return count / seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        given = [resource("IndicationService", "default")]
        with sidecar(write_resources(folder / "resources", given)) as deliverer:
            spark = session(folder)
            try:
                publish_rows(spark, deliverer.intake_url, first=0, count=20_000)
                before = deliverer.cpu_seconds()
                rates = [
                    publish_rows(
                        spark,
                        deliverer.intake_url,
                        first=(number + 1) * 10_000_000,
                        count=arguments.rows,
                    )
                    for number in range(ROUNDS)
                ]
                used = (deliverer.cpu_seconds() - before) / (ROUNDS * arguments.rows)
            finally:
                spark.stop()
    rate = statistics.median(rates)
    report(
        goal=f"Spark to accepted >= {GOAL:,} rows/s",
        figure=f"{rate:,.0f}/s",
        met=rate >= GOAL,
        note=f"the deliverer's share is {used * 1e6:.1f} us CPU a row",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
