"""Tables of maintenance windows, in a real Spark."""

import datetime
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from pillion_rules import Rule, RuleError
from pyspark_pillion.maintenance import MOST_WINDOWS
from pyspark_pillion.rules import transitions
from support.rule_streams import ROCKSDB, Arriving, collect
from support.spark import start_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = "origin string, runway int, time_hour timestamp, wind_gust double"
WINDOWS = "start timestamp, end timestamp, rule string, ORIGIN string, runway bigint"
OF_ORIGIN = "start timestamp, end timestamp, origin string"


def gale(name: str = "gale", *keys: str) -> Rule:
    return Rule(
        name,
        keys=keys or ["origin"],
        event_time="time_hour",
        severity={"Major": "wind_gust > 40"},
    )


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    zone = {"spark.sql.session.timeZone": "America/New_York"}
    session = start_spark(master="local[2]", **zone, **ROCKSDB)
    yield session
    session.stop()


def at(hour: float) -> datetime.datetime:
    return BEGIN + datetime.timedelta(hours=hour)


def readings(spark: SparkSession, *rows: tuple[str, int, float, float]) -> DataFrame:
    made = [(origin, runway, at(hour), gust) for origin, runway, hour, gust in rows]
    return spark.createDataFrame(made, SCHEMA)


def table(spark: SparkSession, *rows: tuple[float, float, *tuple[Any, ...]]) -> DataFrame:
    """Of each window the hours, and as much of rule, origin and runway as is given; the last column
    only if a window has it."""
    made = [(at(start), at(end), *(*others, None, None, None)[:3]) for start, end, *others in rows]
    found = spark.createDataFrame(made, WINDOWS)
    return found if any(one[4] is not None for one in made) else found.drop("runway")


def told(rows: list[Row]) -> list[tuple[str, str, str, float]]:
    """Rule, key, transition and hour of each."""
    return sorted(
        (
            row.rule,
            ",".join(row.key),
            row.transition,
            (row["at"].astimezone(datetime.UTC) - BEGIN).total_seconds() / 3600,
        )
        for row in rows
    )


def test_windows_are_of_rules_and_of_values_of_keys(spark: SparkSession) -> None:
    rules = [gale(), gale("runway", "runway"), gale("all", "origin", "runway")]
    given = readings(spark, ("JFK", 1, 0, 45.0), ("LGA", 2, 0, 45.0), ("LGA", 2, 9, 45.0))
    windows = table(
        spark, (-1, 5, "gale", "JFK"), (-1, 7, None, None, 2), (-1, 3, "all"), (6, 8, "all")
    )
    assert told(transitions(given, rules, maintenance=windows).collect()) == [
        ("all", "JFK,1", "raised", 3),
        ("all", "LGA,2", "raised", 8),
        ("gale", "JFK", "raised", 5),
        ("gale", "LGA", "raised", 0),
        ("runway", "1", "raised", 0),
        ("runway", "2", "raised", 7),
    ]


def test_a_table_that_is_wrong_is_refused(spark: SparkSession) -> None:
    given = readings(spark, ("JFK", 1, 0, 45.0))

    def refused(maintenance: DataFrame) -> list[str]:
        with pytest.raises(RuleError) as raised:
            transitions(given, gale("gale", "origin", "runway"), maintenance=maintenance)
        return str(raised.value).splitlines()

    columns = "start string, begin timestamp, rule int, orgin string, RUNWAY double, runway int"
    assert refused(spark.createDataFrame([], columns)) == [
        "maintenance: two columns have the same name; rename one",
        "maintenance: start is string; cast it to a timestamp",
        "maintenance: end is missing; add a column of timestamps",
        "maintenance: rule is int; give names of rules, or null",
        "maintenance: 'begin' is no key of a rule; use one of start, end, rule, origin, runway",
        "maintenance: 'orgin' is no key of a rule; did you mean origin?",
    ]
    typed = spark.createDataFrame([], "start timestamp, end timestamp_ntz, runway double")
    assert refused(typed) == ["maintenance: runway is double; cast it to int"]
    rows: Any = [("2026-01-05", "2026-01-06")]
    (told_of_list,) = refused(rows)
    assert "is no DataFrame; read a table with spark.read" in told_of_list
    stream = spark.readStream.format("rate").load()
    assert refused(stream) == ["maintenance: is a stream; read a table with spark.read"]
    times = "2026-01-01T02:00:00Z to 2026-01-01T02:00:00Z"
    assert refused(table(spark, (0, 1), (2, 2))) == [
        f"maintenance: {times}: start is not before end; correct one of them"
    ]
    (nothing,) = refused(spark.createDataFrame([(at(0), None, "JFK")], OF_ORIGIN))
    assert nothing == (
        "maintenance: {'start': '2026-01-01T00:00:00Z', 'origin': 'JFK'} has no start, or no end;"
        " give both"
    )


def test_a_table_is_bounded(spark: SparkSession) -> None:
    given = readings(spark, ("JFK", 1, 0, 45.0))
    rows = spark.range(MOST_WINDOWS).selectExpr(
        "timestamp_micros(id) as start", "timestamp_micros(id + 1) as end"
    )
    found = transitions(given, gale(), maintenance=rows)
    assert told(found.collect()) == [("gale", "JFK", "raised", 0)]
    with pytest.raises(RuleError, match="more than 10,000 rows; leave out those of old"):
        transitions(given, gale(), maintenance=rows.union(rows.limit(1)))
    with pytest.raises(RuleError) as raised:
        transitions(given, gale(), maintenance=rows.selectExpr("end as start", "start as end"))
    assert len(raised.value.problems) == 21
    last = "maintenance: 9,980 wrong rows more; correct these first"
    assert raised.value.problems[-1] == last


def test_a_rule_that_there_is_not_is_warned_of(spark: SparkSession) -> None:
    given = readings(spark, ("JFK", 1, 0, 45.0))
    text = "^maintenance: no rule has the name 'gael'; did you mean gale"
    with pytest.warns(UserWarning, match=text) as warned:
        transitions(given, gale(), maintenance=table(spark, (0, 1, "gael"), (0, 1, "gale")))
    assert [one.filename for one in warned] == [__file__]


def test_a_stream_hides_and_tells_over_restarts_with_other_tables(
    spark: SparkSession, tmp_path: Path
) -> None:
    arriving = Arriving(tmp_path / "in", SCHEMA)

    def arrive(origin: str, hour: float, gust: float) -> None:
        given = {"origin": origin, "time_hour": at(hour).isoformat(), "wind_gust": gust}
        arriving.put([json.dumps(given)])

    def found(*windows: tuple[float, float, *tuple[Any, ...]]) -> list[Any]:
        with warnings.catch_warnings(action="error"):
            maintenance = table(spark, *windows) if windows else None
            stream = transitions(arriving.stream(spark), gale(), maintenance=maintenance)
        return [one[1:] for one in told(list(collect(stream, tmp_path)))]

    arrive("JFK", 1, 45.0)
    arrive("LGA", 1, 45.0)
    arrive("EWR", 3, 20.0)
    before = [("LGA", "raised", 1)]
    assert found((0, 9, None, "JFK")) == before
    # The window is longer, and hides no clear of what was told.
    arrive("LGA", 10, 20.0)
    arrive("EWR", 11, 20.0)
    before = [*before, ("LGA", "cleared", 10)]
    assert sorted(found((0, 13))) == sorted(before)
    # Its end comes without a reading of the key.
    arrive("EWR", 14, 20.0)
    before = [*before, ("JFK", "raised", 13)]
    assert sorted(found((0, 13))) == sorted(before)
    # Another one, which is removed.
    arrive("EWR", 15, 45.0)
    arrive("LGA", 16, 20.0)
    assert sorted(found((14, 99))) == sorted(before)
    arrive("LGA", 18, 20.0)
    (added,) = set(found()) - {*before}
    assert added[:2] == ("EWR", "raised")
    assert 15 <= added[2] <= 16
