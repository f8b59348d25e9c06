"""A job of its own that raises alerts of a year of weather, for tests that kill it."""

import sys
from pathlib import Path

from pyspark.sql.streaming.readwriter import DataStreamWriter

from pillion_rules import Rule
from pyspark_pillion.rules import raise_alerts
from support.rule_streams import ROCKSDB, Arriving, run_to_end
from support.spark import start_spark
from support.weather import RULES, weather_job


def main() -> None:
    folder, url = Path(sys.argv[1]), sys.argv[2]
    spark = start_spark(master="local[2]", **ROCKSDB)
    arriving = Arriving(folder / "in", weather_job().records_schema())
    rules = Rule.load(RULES)
    writer = raise_alerts(arriving.stream(spark), rules, source="nyc", url=url, replay=True)
    assert isinstance(writer, DataStreamWriter)
    run_to_end(writer, folder / "checkpoint")


if __name__ == "__main__":
    main()
