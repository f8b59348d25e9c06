"""Rules that hide what others tell, in a real Spark."""

import datetime
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from pillion_rules import Rule, RuleError
from pyspark_pillion.rules import transitions
from support.rule_streams import ROCKSDB, Arriving, collect
from support.spark import start_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = "origin string, time_hour timestamp, wind_gust double, rain double"
STORM = Rule(
    "storm", keys=["origin"], event_time="time_hour", severity={"Critical": "wind_gust > 60"}
)
WIND = Rule(
    "wind",
    keys=["origin"],
    event_time="time_hour",
    severity={"Major": "wind_gust > 40"},
    message="{origin}: {wind_gust}",
    unless=["storm"],
)
RAIN = Rule(
    "rain",
    keys=["origin"],
    event_time="time_hour",
    window="2 hours",
    measure={"fallen": "sum(rain)"},
    severity={"Minor": "fallen > 1"},
    unless=["wind", "storm"],
)
RULES = [RAIN, WIND, STORM]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_spark(master="local[2]", **ROCKSDB)
    yield session
    session.stop()


def rows(hours: range) -> list[tuple[str, datetime.datetime, float, float]]:
    """Gusts that come and go, other ones at each origin."""
    return [
        (origin, BEGIN + datetime.timedelta(hours=hour), float(20 + hour * step % 53), rain)
        for origin, step in (("JFK", 19), ("LGA", 31))
        for hour in hours
        for rain in (hour % 7 / 5,)
    ]


def told(found: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in found)


def test_a_stream_hides_what_a_batch_hides(spark: SparkSession, tmp_path: Path) -> None:
    given = rows(range(60))
    batch: DataFrame = spark.createDataFrame(given, SCHEMA)
    arriving = Arriving(tmp_path / "in", SCHEMA)
    found: list[Any] = []
    for begin in range(0, 60, 20):
        for part in (1, 0):
            # Within the watermark readings come in any order.
            arriving.put(
                json.dumps(
                    dict(zip(batch.columns, (one[0], one[1].isoformat(), *one[2:]), strict=True))
                )
                for one in rows(range(begin + part, begin + 20, 2))
            )
        slow = [replace(rule, watermark="1 day") for rule in RULES]
        found = list(collect(transitions(arriving.stream(spark), slow), tmp_path))
    until = max(row["at"] for row in found).astimezone(datetime.UTC)
    expected = transitions(batch, RULES, until=until).collect()
    assert told(found) == told(expected)
    alone = transitions(batch, [replace(rule, unless=None) for rule in RULES], until=until)
    assert {row.rule for row in found} == {"rain", "wind", "storm"}
    assert alone.count() > len(expected)


def test_names_that_do_not_fit_are_refused(spark: SparkSession) -> None:
    readings = spark.createDataFrame(rows(range(2)), SCHEMA)
    other = replace(STORM, keys=["origin", "rain"])
    with pytest.raises(RuleError) as raised:
        transitions(readings, [other, WIND, replace(RAIN, unless=["sorm"])])
    assert raised.value.problems == (
        "rule wind: unless: storm has another keys; give both the same, or remove it",
        "rule rain: unless: no rule has the name 'sorm'; did you mean storm?",
    )
