"""A job of its own that raises alerts of a year of weather and flights, for tests that kill it."""

import sys
from pathlib import Path

from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_pillion.rules import raise_alerts
from support.rule_streams import ROCKSDB, Arriving, run_to_end
from support.spark import start_spark
from support.weather import FLIGHTS_SCHEMA, rules_of_two_inputs, weather_job


def main() -> None:
    folder, url = Path(sys.argv[1]), sys.argv[2]
    spark = start_spark(master="local[2]", **ROCKSDB)
    schemas = {"weather": weather_job().records_schema(), "flights": FLIGHTS_SCHEMA}
    inputs = {name: Arriving(folder / name, one).stream(spark) for name, one in schemas.items()}
    writer = raise_alerts(inputs, rules_of_two_inputs(), source="nyc", url=url, replay=True)
    assert isinstance(writer, DataStreamWriter)
    run_to_end(writer, folder / "checkpoint")


if __name__ == "__main__":
    main()
