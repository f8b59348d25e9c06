"""Rules with windows, with rates and over several inputs, in a real Spark."""

import datetime
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pillion_rules import Rule, RuleError
from pyspark_pillion.rules import raise_alerts, transitions
from support.rule_streams import ROCKSDB, Arriving
from support.spark import start_spark
from support.weather import FLIGHT_RULES

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
FLIGHTS = "carrier string, sched timestamp, dep_delay double, gate string"
WEATHER = "origin string, time_hour timestamp, pressure double, temp double"
LATE = Rule(
    "late.flights",
    keys=["carrier"],
    event_time="sched",
    window="1 hour",
    slide="10 minutes",
    measure={"late": "avg(dep_delay)", "n": "count(*)"},
    severity={"Major": "late > 30 and n > 2"},
    message="{carrier}: {late} minutes late, of {n} flights",
)
FALLS = Rule(
    "pressure.falls",
    keys=["origin"],
    event_time="time_hour",
    rate={"drop": "pressure"},
    per="1 hour",
    severity={"Major": "drop < -3", "Critical": "drop < -3 and pressure < 980"},
    message="{origin}: {drop} an hour to {pressure}",
)

RULES = Rule.load(FLIGHT_RULES)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = start_spark(master="local[2]", **ROCKSDB)
    yield session
    session.stop()


def flight(carrier: str, minute: float, delay: float | None) -> str:
    at = (BEGIN + minute * MINUTE).isoformat()
    return json.dumps({"carrier": carrier, "sched": at, "dep_delay": delay, "gate": "A"})


def weather(origin: str, minute: float, pressure: float | None) -> str:
    at = (BEGIN + minute * MINUTE).isoformat()
    return json.dumps({"origin": origin, "time_hour": at, "pressure": pressure, "temp": 50.0})


def told(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Rule, key, transition, level, minute and text of each, in order."""
    made = [
        (
            *(row.rule, ",".join(row.key), row.transition, row.level),
            (row["at"].astimezone(datetime.UTC) - BEGIN) / MINUTE,
            row.text,
        )
        for row in rows
    ]
    return sorted(made, key=lambda one: (one[4], one))


def batch(spark: SparkSession, folder: Path, schema: str, lines: Sequence[str]) -> DataFrame:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "all.json").write_text("".join(f"{line}\n" for line in lines))
    return spark.read.schema(schema).json(str(folder))


def test_a_window_of_late_flights_raises_and_clears(spark: SparkSession, tmp_path: Path) -> None:
    lines = [
        *(flight("UA", minute, 40.5) for minute in (1, 2, 61)),
        flight("UA", 62, None),
        *(flight("AA", minute, 45.0) for minute in (1, 11, 21)),
        flight("AA", 200, 0.0),
    ]
    found = told(transitions(batch(spark, tmp_path / "b", FLIGHTS, lines), LATE).collect())
    assert found == [
        ("late.flights", "AA", "raised", "Major", 30, "AA: 45 minutes late, of 3 flights"),
        ("late.flights", "AA", "cleared", "Major", 70, "AA: 45 minutes late, of 2 flights"),
    ]
    # Another minute, and the window has three.
    lines.append(flight("UA", 59, 1000.0))
    found = told(transitions(batch(spark, tmp_path / "b", FLIGHTS, lines), LATE).collect())
    assert [one[2:] for one in found if one[1] == "UA"] == [
        ("raised", "Major", 60, "UA: 360.333 minutes late, of 3 flights"),
        ("cleared", "Major", 120, "UA: 40.5 minutes late, of 2 flights"),
    ]
    # Conditions may be Columns.
    fields = {
        one: getattr(LATE, one) for one in ("keys", "event_time", "window", "slide", "measure")
    }
    condition = (F.col("late") > 30) & (F.col("n") > 2)
    rule = Rule("late.flights", **fields, severity={"Major": condition}, message=LATE.message)
    again = told(transitions(batch(spark, tmp_path / "b", FLIGHTS, lines), rule).collect())
    assert [one for one in again if one[1] == "UA"] == [one for one in found if one[1] == "UA"]


def test_two_functions_of_one_expression_are_two_measures(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [flight("UA", minute, 40.0 * minute) for minute in range(3)]
    rule = Rule(
        "counts",
        keys=["carrier"],
        event_time="sched",
        window="1 hour",
        measure={"all": "count(dep_delay > 0)", "late": "count_if(dep_delay > 0)"},
        severity={"Major": "late < all"},
        message="{late} of {all}",
    )
    found = told(
        transitions(
            batch(spark, tmp_path, FLIGHTS, [*lines, flight("UA", 90, 1.0)]), rule
        ).collect()
    )
    assert [one[2:] for one in found] == [("raised", "Major", 60, "2 of 3")]


def test_a_fall_of_pressure_is_that_of_the_last_reading_with_a_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = [weather("JFK", at * 60, value) for at, value in enumerate([1000, 998, None, 990, 980])]
    lines += [weather("JFK", 300, 970.0), weather("JFK", 360, 971.0), weather("LGA", 360, 900.0)]
    found = told(transitions(batch(spark, tmp_path, WEATHER, lines), FALLS).collect())
    assert [one[1:] for one in found] == [
        ("JFK", "raised", "Major", 180, "JFK: -4 an hour to 990.0"),
        ("JFK", "changed", "Critical", 300, "JFK: -10 an hour to 970.0"),
        ("JFK", "cleared", "Critical", 360, "JFK: 1 an hour to 971.0"),
    ]
    fields = {one: getattr(FALLS, one) for one in ("keys", "event_time", "rate", "per", "message")}
    drop, pressure = F.col("drop"), F.col("pressure")
    severity = {"Major": drop < -3, "Critical": (drop < -3) & (pressure < 980)}
    columns = Rule("pressure.falls", **fields, severity=severity)
    assert told(transitions(batch(spark, tmp_path, WEATHER, lines), columns).collect()) == found


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"measure": {"late": "dep_delay"}}, "'dep_delay' is of one reading, and a window has"),
        ({"measure": {"late": "avg(delay)"}}, "'delay' is no column of the readings; did you"),
        ({"measure": {"late": "sum(distinct dep_delay)"}}, "neither DISTINCT nor FILTER"),
        ({"measure": {"late": "avg(gate)"}}, "'gate' is string, and what is measured is a number"),
        ({"measure": {"late": "stddev(dep_delay)"}}, "not possible with values that are measured"),
        ({"measure": {"late": "avg(rand())"}}, "the function 'rand' is not allowed in a rule"),
        ({"measure": {"late": "avg(avg(dep_delay))"}}, "the function 'avg' is not allowed"),
        ({"measure": {"late": "(select 1)"}}, "not possible with values that are measured"),
        ({"measure": {"late": "5"}}, "'5' has no aggregate; write for example avg(delay)"),
        ({"measure": {"late": "percentile(dep_delay, 0.9)"}}, "also the aggregates avg, count,"),
        ({"severity": {"Major": "late > interval 1 day"}}, "is no number"),
        ({"severity": {"Major": "late > timestamp'2026-01-01'"}}, "is no number"),
        ({"severity": {"Major": "late < 50 < 60"}}, "compares a number with a condition"),
        ({"severity": {"Major": "late > true"}}, "compares a number with a condition"),
        ({"severity": {"Major": "not 5"}}, "has a number for a condition"),
        ({"severity": {"Major": "late > 50 and 5"}}, "has a number for a condition"),
        ({"severity": {"Major": "late + true > 5"}}, "has a condition for a number"),
        ({"severity": {"Major": "coalesce(true, late) = 1"}}, "compares a number with a"),
        ({"severity": {"Major": "greatest() = 1"}}, "the function 'greatest' does not take 0"),
        ({"severity": {"Major": "lat > 3"}}, "'lat' is no name of measure; did you mean late?"),
        ({"severity": {"Major": "late"}}, "'late' is a number, and a condition is true or false"),
        ({"severity": {"Major": "late > 'x'"}}, "'x' is no number"),
        ({"severity": {"Major": "abs(late, 3) > 1"}}, "the function 'abs' does not take 2 values"),
        ({"severity": {"Major": "late > now()"}}, "not possible with values that are measured"),
        ({"severity": {"Major": " + ".join(["late"] * 200) + " > 1"}}, "more than 200 parts"),
        ({"clear": "dep_delay < 3"}, "clear: 'dep_delay' is no name of measure"),
        ({"message": "{gate}"}, "message: 'gate' is of one reading, and a window has many"),
        ({"input": "flights"}, "input: 'flights' is not given; give inputs as"),
    ],
)
def test_wrong_windows_are_refused_before_a_job(
    spark: SparkSession, changes: dict[str, Any], problem: str
) -> None:
    fields = {
        one: getattr(LATE, one)
        for one in ("keys", "event_time", "window", "slide", "measure", "severity", "message")
    }
    if "late" not in str(changes.get("severity", "late")) or "message" not in changes:
        fields["message"] = "{rule}"
    rule = Rule("late.flights", **{**fields, **changes})
    with pytest.raises(RuleError) as raised:
        transitions(spark.createDataFrame([], FLIGHTS), rule)
    assert problem in str(raised.value)


def test_a_window_counts_what_is_finite_and_tells_what_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    delays = [2.0, 4.0, None, float("nan"), float("inf"), 0.0]
    at = [BEGIN + one * MINUTE for one in range(len(delays))]
    flights = spark.createDataFrame(
        [("UA", one, delay, "A") for one, delay in zip(at, delays, strict=True)], FLIGHTS
    )
    counts = Rule(
        "counts",
        keys=["carrier"],
        event_time="sched",
        window="1 hour",
        measure={"n": "count(dep_delay)", "total": "sum(dep_delay)", "some": "count(*) > 5"},
        severity={"Major": "n > 0 and some"},
        message="{n} of {total}, {some}",
    )
    found = transitions(flights, counts, until=BEGIN + 60 * MINUTE).collect()
    assert [one.text for one in found] == ["3 of 6, true"]
    fields = {one: getattr(counts, one) for one in ("keys", "event_time", "window")}
    inverse = Rule(
        "inverse", **fields, measure={"n": "avg(1 / dep_delay)"}, severity={"Major": "n > 3"}
    )
    with pytest.warns(UserWarning, match=r"^1 readings make a condition or what is .*inverse"):
        transitions(flights, inverse)


def test_wrong_inputs_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    flights, stations = (spark.createDataFrame([], one) for one in (FLIGHTS, WEATHER))
    stream = Arriving(tmp_path, WEATHER).stream(spark)
    for inputs, problem in (
        ({"flights": flights}, "rule pressure.falls: input: 'weather' is not given; use one of"),
        ({"flights": flights, "weather": stations, "x": stations}, "inputs: no rule reads 'x'"),
        ({"flights": flights, "weather": stream}, "some are streams and some are not"),
        ({}, "inputs: there is none"),
    ):
        with pytest.raises(RuleError, match=problem):
            transitions(inputs, RULES)
    wrong: Any = [(1, 2)]
    with pytest.raises(RuleError, match=r"inputs: .* is no DataFrame; give one, or a dictionary"):
        transitions({"flights": wrong}, LATE)
    wrong = "yes"
    with pytest.raises(RuleError, match="by_clock: 'yes' is not True or False"):
        transitions(flights, LATE, by_clock=wrong)
    with pytest.raises(RuleError, match="replay: 'yes' is not True or False"):
        raise_alerts(flights, LATE, source="a", replay=wrong)
    with pytest.raises(RuleError, match=r"rule late.flights: input: is missing"):
        transitions({"flights": flights}, LATE)
    one = Rule("a", input="flights", keys=["k"], event_time="sched", severity={"Major": "b > 1"})
    other = Rule("b", input="weather", keys=["l"], event_time="sched", severity={"Major": "c > 1"})
    with pytest.raises(RuleError) as raised:
        transitions({"flights": flights, "weather": stations}, [one, other])
    assert {one.split(":")[0] for one in raised.value.problems} == {"rule a", "rule b"}
