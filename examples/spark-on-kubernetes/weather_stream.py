r"""Raises alerts of dangerous weather as records arrive: a stream with rules and a checkpoint.

Watches a folder for CSV files of hourly records, one file to a micro-batch. With --fill it first
puts the year 2013 there, a file for each month, unless some are there already. The rules are in
weather.yaml: a gale is one alert, which is raised, gets worse, and is cleared. Stopped at whatever
moment and started again with the same checkpoint, the job goes on where it was, with other rules,
too; what a batch had published before it was cut off is recognised by its identity.

    spark-submit … local:///opt/pillion/jobs/weather_stream.py \
        --folder /data/weather --checkpoint /data/checkpoint --fill
"""

import argparse
import csv
import itertools
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from weather_alerts import find_data, records_schema

from pyspark_pillion.rules import Rule, raise_alerts

# Not the batch job's source: the indications of the two jobs are not the same.
SOURCE = "weather.nyc.rules"

SETTINGS = {
    # The state of the rules is in RocksDB, in so many parts; a checkpoint keeps their number.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.shuffle.partitions": "2",
}


def month_of(record: dict[str, str]) -> int:
    """Return the month of a record, from 1."""
    return int(record["month"])


def fill(folder: Path) -> None:
    """Put the year into a folder, by months; each file appears whole."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("*.csv")):
        return
    with find_data().open(newline="") as file:
        reader = csv.DictReader(file)
        records = sorted(reader, key=month_of)
        names = list(reader.fieldnames or ())
    for month, of_month in itertools.groupby(records, key=month_of):
        hidden = folder / f".{month:02}.csv"
        with hidden.open("w", newline="") as written:
            writer = csv.DictWriter(written, names)
            writer.writeheader()
            writer.writerows(of_month)
        hidden.rename(folder / f"{month:02}.csv")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Raise alerts of dangerous weather as records arrive."
    )
    parser.add_argument("--folder", type=Path, required=True, help="where CSV files arrive")
    parser.add_argument("--checkpoint", required=True, help="where the stream keeps its place")
    parser.add_argument(
        "--rules",
        default=str(Path(__file__).with_name("weather.yaml")),
        help="a file of rules, or a pattern of files",
    )
    parser.add_argument("--url", help="the deliverer's intake [PILLION_URL, or port 8288 here]")
    parser.add_argument("--fill", action="store_true", help="put the weather of 2013 there first")
    parser.add_argument("--stop-when-read", action="store_true", help="end once all is published")
    arguments = parser.parse_args()
    if arguments.fill:
        fill(arguments.folder)
    builder = SparkSession.builder.appName("weather-stream")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    files = spark.readStream.option("maxFilesPerTrigger", 1)
    weather = files.csv(str(arguments.folder), schema=records_schema(), header=True, nullValue="NA")
    writer = raise_alerts(
        weather,
        Rule.load(arguments.rules),
        source=SOURCE,
        url=arguments.url,
        # The volume beside an executor is gone with its pod, so a batch ends when it is delivered.
        options={"flushLevel": "delivered"},
        # These records are years old.
        replay=True,
    )
    assert isinstance(writer, DataStreamWriter)
    writer = writer.option("checkpointLocation", arguments.checkpoint)
    if arguments.stop_when_read:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
