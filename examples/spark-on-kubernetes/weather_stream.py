r"""Publishes indications of dangerous weather as records arrive: by a stream, with a checkpoint.

Watches a folder for CSV files of hourly records, one file to a micro-batch. With --fill it first
puts the year 2013 there, a file for each month, unless some are there already. Stopped at whatever
moment and started again with the same checkpoint, it goes on where it was; what a batch had
published before it was cut off is recognised by its identity.

    spark-submit … local:///opt/pillion/jobs/weather_stream.py \
        --folder /data/weather --checkpoint /data/checkpoint --fill
"""

import argparse
import csv
import itertools
from pathlib import Path

from pyspark.sql import SparkSession
from weather_alerts import dangerous, find_data, properties, records_schema

from pyspark_pillion import publish

# Not the batch job's source: the indications of the two jobs are not the same.
SOURCE = "weather.nyc.stream"


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
        description="Publish indications of dangerous weather as it arrives."
    )
    parser.add_argument("--folder", type=Path, required=True, help="where CSV files arrive")
    parser.add_argument("--checkpoint", required=True, help="where the stream keeps its place")
    parser.add_argument("--fill", action="store_true", help="put the weather of 2013 there first")
    parser.add_argument("--stop-when-read", action="store_true", help="end once all is published")
    arguments = parser.parse_args()
    if arguments.fill:
        fill(arguments.folder)
    spark = SparkSession.builder.appName("weather-stream").getOrCreate()
    files = spark.readStream.option("maxFilesPerTrigger", 1)
    weather = files.csv(str(arguments.folder), schema=records_schema(), header=True, nullValue="NA")
    writer = publish(
        dangerous(weather),
        source=SOURCE,
        identity=["origin", "time_hour"],
        properties=properties(),
        # The volume beside an executor is gone with its pod, so a batch ends when it is delivered.
        options={"flushLevel": "delivered"},
    )
    writer = writer.option("checkpointLocation", arguments.checkpoint)
    if arguments.stop_when_read:
        writer = writer.trigger(availableNow=True)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()
