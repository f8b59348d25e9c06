"""Rules over the readings of a DataFrame, in a real Spark."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from pillion_rules import CLEAR, Reading, Rule, RuleError, Transition, step
from pillion_rules.names import levels
from pyspark_pillion.judging import judged
from pyspark_pillion.rules import raise_alerts, transitions
from support.fake_deliverer import FakeDeliverer
from support.weather import RULES, weather_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
SCHEMA = "origin string, time_hour timestamp, wind_gust double, visib double"
GALE = Rule(
    "weather.gale",
    keys=["origin"],
    event_time="time_hour",
    severity={"Critical": "wind_gust > 60", "Minor": "wind_gust > 40"},
    clear="wind_gust < 30",
    keep="3 hours",
    message="{origin}: gusts of {wind_gust} mph",
)
FOG = Rule(
    "weather.fog",
    keys=["origin"],
    event_time="time_hour",
    severity={"Major": "visib < 1"},
    clear="visib > 3",
    hold="2 hours",
)
SILENT = Rule(
    "station.silent",
    keys=["origin"],
    event_time="time_hour",
    severity="Major",
    silent="3 hours",
    forget="1 day",
)


def readings(spark: SparkSession, *rows: tuple[str | None, float | None, Any, Any]) -> DataFrame:
    """Of a place: hour, gust, sight."""
    made = [
        (origin, None if hour is None else BEGIN + hour * HOUR, gust, sight)
        for origin, hour, gust, sight in rows
    ]
    return spark.createDataFrame(made, SCHEMA).repartition(3)


def told(found: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rule, place, transition, level and hour of each, in order."""
    rows = found.selectExpr(
        *("rule", "key[0] as place", "transition", "level"),
        f"(unix_micros(at) - {int(BEGIN.timestamp())} * 1000000L) / 3600000000 as hour",
        *columns,
    ).collect()
    return sorted((tuple(row) for row in rows), key=lambda row: (row[4], row))


def test_a_gale_is_raised_gets_worse_and_ends(spark: SparkSession) -> None:
    given = readings(
        spark,
        *(("JFK", hour, gust, None) for hour, gust in enumerate([20.0, 45.0, None, 61.0, 35.0])),
        *(("JFK", hour, 10.0, None) for hour in range(5, 10)),
        ("LGA", 1, 39.0, None),
    )
    found = told(transitions(given, GALE), "text", "count")
    text = "JFK: gusts of {} mph"
    assert found == [
        ("weather.gale", "JFK", "raised", "Minor", 1, text.format("45.0"), 1),
        ("weather.gale", "JFK", "changed", "Critical", 3, text.format("61.0"), 2),
        ("weather.gale", "JFK", "cleared", "Critical", 8, text.format("10.0"), 2),
    ]


def test_several_rules_and_what_is_due_without_a_reading(spark: SparkSession) -> None:
    given = readings(
        spark,
        *(("JFK", hour, 50.0, 0.5) for hour in (0, 1)),
        ("LGA", 6, 10.0, 10.0),
    )
    found = told(transitions(given, [GALE, FOG, SILENT]))
    assert found == [
        ("weather.gale", "JFK", "raised", "Minor", 0),
        ("weather.fog", "JFK", "raised", "Major", 2),
        ("station.silent", "JFK", "raised", "Major", 4),
    ]
    earlier = transitions(given, [GALE, FOG, SILENT], until=BEGIN + HOUR)
    assert told(earlier) == found[:1]


def test_many_rules_make_no_method_that_the_jvm_does_not_compile(spark: SparkSession) -> None:
    of_spark: Any = spark
    made = of_spark._jvm.org.apache.spark.sql.execution.debug.package.codegenStringSeq
    many = [
        replace(GALE, name=f"{key}.{number}", keys=[key], severity={"Minor": f"visib < {number}"})
        for key in ("origin", "wind_gust")
        for number in range(50)
    ]
    for given in (many[:50], many):
        rows: Any = judged(readings(spark), given).rows
        stages = made(rows._jdf.queryExecution().executedPlan())
        sizes = [stages.apply(one)._3().maxMethodCodeSize() for one in range(stages.size())]
        assert max(sizes, default=0) < 8_000


def test_rows_without_a_key_or_a_time_and_columns_of_another_case(spark: SparkSession) -> None:
    given = readings(spark, (None, 0, 50.0, 1.0), ("JFK", None, 50.0, 1.0), ("JFK", 2, 50.0, 1.0))
    with pytest.warns(UserWarning, match="are left out") as warned:
        found = transitions(given.withColumnRenamed("origin", "ORIGIN"), GALE)
    assert [str(one.message) for one in warned] == [
        "1 readings have not every key, and are left out; fill or filter them",
        "1 readings have no time, and are left out; fill or filter them",
    ]
    assert told(found) == [("weather.gale", "JFK", "raised", "Minor", 2)]


def test_text_that_is_no_utf8_stops_nothing(spark: SparkSession) -> None:
    given = readings(spark, ("JFK", 0, 50.0, 1.0), ("LGA", 1, 50.0, 1.0))
    wrong = F.expr("cast(X'ff41' as string)")
    rule = Rule(
        "r",
        keys=["origin"],
        event_time="time_hour",
        severity={"Major": "wind_gust > 40"},
        message="{note}",
    )
    found = transitions(given.withColumn("note", wrong), rule)
    assert [row.text for row in found.collect()] == ["\ufffdA"] * 2
    # As a key it may look like another one.
    keys = F.when(F.col("origin") == "JFK", wrong).otherwise(F.col("origin"))
    given = given.withColumn("note", F.lit("a")).withColumn("origin", keys)
    with pytest.warns(UserWarning, match="1 readings have not every key"):
        found = transitions(given, rule)
    assert [row.key for row in found.collect()] == [["LGA"]]


def rule_of(name: str, *conditions: str | Column) -> Rule:
    severity = dict(zip(("Major", "Minor"), conditions, strict=False))
    return Rule(name, keys=["origin"], event_time="time_hour", severity=severity)


@pytest.mark.parametrize(
    "make",
    [
        lambda: "wind_gust / visib > 10 or cast(origin as int) > 3",
        lambda: (F.col("wind_gust") / F.col("visib") > 10) | (F.col("origin").cast("int") > 3),
    ],
    ids=["SQL", "Column"],
)
def test_a_condition_that_ansi_refuses_is_null_and_told(
    spark: SparkSession, make: Callable[[], str | Column]
) -> None:
    given = readings(
        spark,
        *(("JFK", hour, gust, sight) for hour, gust, sight in ((0, 50.0, 0.0), (1, 50.0, 1.0))),
        *(("LGA", hour, gust, sight) for hour, gust, sight in ((0, 5.0, 0.0), (1, None, 0.0))),
    )
    before = spark.conf.get("spark.sql.ansi.enabled")
    with pytest.warns(
        UserWarning,
        match=r"^2 readings make a condition or what is measured null though none of its columns "
        r"is \(rules ratio\);",
    ):
        found = transitions(given, [rule_of("ratio", make()), rule_of("low", "visib < 0")])
    assert told(found) == [("ratio", "JFK", "raised", "Major", 1)]
    assert spark.conf.get("spark.sql.ansi.enabled") == before == "true"


def test_conditions_that_fail_are_told_by_reading_and_rule(spark: SparkSession) -> None:
    given = readings(spark, *(("JFK", hour, 5.0, float(hour % 2)) for hour in range(4)))
    of_frame = given["wind_gust"] / given["visib"] > 10
    rules = [
        rule_of("both", "origin > 3", "wind_gust / visib > 10"),
        rule_of("column", F.ln(-given["wind_gust"]) > 1, of_frame),
        *(
            rule_of(f"on.purpose.{number}", text)
            for number, text in enumerate(
                [
                    "try_divide(wind_gust, visib) > 10",
                    "wind_gust / nullif(visib, 0) > 10",
                    "try_cast(origin as int) > 3",
                    "case when visib > 0 then wind_gust > 10 end",
                    "if(visib > 0, wind_gust > 10, null)",
                    "split(origin, 'F')[3] = 'K'",
                ]
            )
        ),
    ]
    with pytest.warns(UserWarning, match=r"^4 readings make a condition or .*\(rules both\)"):
        transitions(given, rules)
    with pytest.warns(UserWarning, match=r"^4 readings make a condition or .*\(rules column\)"):
        transitions(given, rules[1:])
    assert transitions(given, rules[2:]).isEmpty()


def test_with_until_the_counts_are_told_when_alerts_are_raised(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    given = readings(spark, ("JFK", 0, 50.0, 0.0), (None, 0, 50.0, 1.0))
    with pytest.warns(UserWarning, match="readings") as warned:
        raise_alerts(
            *(given, rule_of("ratio", "wind_gust / visib > 10")),
            source="nyc",
            url=deliverer.url,
            until=BEGIN + HOUR,
        )
    assert [str(one.message).split(",")[0] for one in warned] == [
        "1 readings have not every key",
        "1 readings make a condition or what is measured null though none of its columns is (rules "
        "ratio); correct it",
    ]


def columns() -> list[tuple[Column, str]]:
    """Columns, and what they are in SQL."""
    gust, sight = F.col("wind_gust"), F.col("visib")
    return [
        (gust > 60, "wind_gust > 60"),
        ((gust >= 1) & (gust < 50) | ~(sight <= 1), "wind_gust between 1 and 49 or not visib <= 1"),
        (gust != 50, "wind_gust != 50"),
        (gust.isNull() | sight.isNotNull(), "wind_gust is null or visib is not null"),
        (gust.eqNullSafe(50), "wind_gust <=> 50"),
        (F.col("origin").isin("JFK", "EWR"), "origin in ('JFK', 'EWR')"),
        (F.col("origin").like("J%"), "origin like 'J%'"),
        (F.col("origin").startswith("L"), "startswith(origin, 'L')"),
        (F.abs(-gust) + gust * 2 - gust / 2 > 100, "2.5 * wind_gust > 100"),
        (gust.cast("int") % 2 == 0, "cast(wind_gust as int) % 2 = 0"),
        (F.when(gust > 60, sight > 1).otherwise(False), "if(wind_gust > 60, visib > 1, false)"),
        (F.coalesce(gust, sight) > 1, "coalesce(wind_gust, visib) > 1"),
        (F.hour("time_hour") > 20, "hour(time_hour) > 20"),
        (F.expr("wind_gust > 40 and visib < 5"), "wind_gust > 40 and visib < 5"),
        (F.lit(True), "true"),
    ]


def test_a_column_gives_what_its_sql_gives(spark: SparkSession) -> None:
    values = [None, 0.5, 3.0, 50.0, 61.0]
    given = readings(
        spark,
        *(
            (origin, 5 * hour + minor, gust, sight)
            for origin in ("JFK", "LGA")
            for hour, gust in enumerate(values)
            for minor, sight in enumerate(values)
        ),
    )
    pairs = columns()
    of_columns = [rule_of(f"r{number:02}", one) for number, (one, _) in enumerate(pairs)]
    of_texts = [rule_of(f"r{number:02}", text) for number, (_, text) in enumerate(pairs)]
    found = told(transitions(given, of_columns))
    assert found == told(transitions(given, of_texts))
    assert {row[0] for row in found} == {rule.name for rule in of_columns}
    # A rule is the same one in the next run, whose DataFrame is another one.
    runs = [
        rule_of("r", one["wind_gust"] > 1) for one in (given, readings(spark, ("JFK", 0, 1.0, 1.0)))
    ]
    assert runs[0] == runs[1]
    assert repr(runs[0]) == repr(runs[1])


def test_thresholds_come_from_a_column_or_from_a_table(spark: SparkSession) -> None:
    limits = spark.createDataFrame([("JFK", 40.0), ("LGA", 60.0)], "origin string, limit double")
    given = readings(
        spark,
        *((origin, 0, 50.0, 49.0) for origin in ("JFK", "LGA", "EWR")),
        *((origin, 1, 30.0, 49.0) for origin in ("JFK", "LGA", "EWR")),
    ).join(F.broadcast(limits), "origin", "left")
    rules = [
        rule_of("text", "wind_gust > limit"),
        rule_of("column", F.col("wind_gust") > F.col("limit")),
        rule_of("of.frame", given["wind_gust"] > limits["limit"]),
    ]
    found = told(transitions(given, [*rules, rule_of("own", "wind_gust > visib")]))
    # EWR has no threshold.
    ones = [(name, "JFK") for name in ("column", "of.frame", "text")]
    owns = [("own", place) for place in ("EWR", "JFK", "LGA")]
    assert sorted(found) == sorted(
        (name, place, kind, "Major", hour)
        for name, place in (*ones, *owns)
        for kind, hour in (("raised", 0), ("cleared", 1))
    )


def test_many_readings_of_one_key_give_what_one_step_gives(spark: SparkSession) -> None:
    gusts = [(number * number) % 83 for number in range(12_000)]
    given = readings(
        spark, *(("JFK", hour / 4, float(one), None) for hour, one in enumerate(gusts))
    )
    rule = Rule(
        "gusts", keys=["origin"], event_time="time_hour", severity=GALE.severity, hold="15 minutes"
    )
    numbers = levels()

    def level(gust: int) -> int:
        return numbers["Critical"] if gust > 60 else numbers["Minor"] if gust > 40 else 0

    begin, quarter = int(BEGIN.timestamp()) * 1_000_000, 900_000_000
    whole = [Reading(begin + n * quarter, level(gust)) for n, gust in enumerate(gusts)]
    state, found = None, []
    for one in whole:
        made = step(rule, ("JFK",), state, [one], watermark=one.at - 1)
        state = made.state
        found += made.transitions
    found += step(rule, ("JFK",), state, (), watermark=whole[-1].at).transitions
    expected = [(one.transition.value, one.level, one.at) for one in found]
    rows = transitions(given, rule).selectExpr("transition", "level", "unix_micros(at)").collect()
    assert [tuple(row) for row in rows] == expected
    assert len(expected) > 1_000


def refused(given: DataFrame, rules: Sequence[Rule], **options: Any) -> str:
    with pytest.raises(RuleError) as raised:
        transitions(given, rules, **options)
    return str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("wind_gust >", "is no SQL"),
        ("wind_gist > 4", "'wind_gist' is no column of the readings; did you mean wind_gust?"),
        ("wind_gust", "is double, and a condition is true or false"),
        ("wind_gust > (select 1)", "is more than an expression of the row"),
        ("exists(select 1)", "is more than an expression of the row"),
        ("wind_gust in (select 1)", "is more than an expression of the row"),
        ("rand() > 0.5", "the function 'rand' is not allowed in a rule"),
        ("current_date > time_hour", "'current_date' is no column"),
        ("reflect('java.lang.System', 'exit') = 'x'", "the function 'reflect' is not allowed"),
        ("count(*) > 1", "the function 'count' is not allowed"),
        ("time_hour > timestamp'now'", "timestamp'now' depends on the clock"),
        ("time_hour > cast('now' as timestamp)", "'now' as a time may depend on the clock"),
        ("time_hour > ' Today'", "' Today' as a time may depend on the clock"),
        ("cast(time_hour as date) > concat('to', 'day')", "may depend on the clock"),
        ("time_hour > date ' Today '", "depends on the clock"),
        ("origin = '${env:PATH}'", "Spark replaces '${' by a setting"),
        ("element_at(array(visib), 0) > 1", "the function 'element_at' is not allowed"),
        ("sum(visib) over (partition by origin) > 1", "is more than an expression of the row"),
        ("a.b.abs(visib) > 1", "the function 'a.b.abs' is not allowed"),
        (" or ".join(["visib > 1"] * 400), "it has more than 1,000 parts"),
        ("(" * 4_900 + "visib > 1" + ")" * 4_900, "more than 100 parentheses in each other"),
    ],
)
def test_a_condition_that_is_more_than_one_of_the_row_is_refused(
    spark: SparkSession, text: str, words: str
) -> None:
    rule = Rule("r", keys=["origin"], event_time="time_hour", severity={"Major": text})
    given = readings(spark, ("JFK", 0, 1.0, 1.0))
    said = refused(given, [rule])
    assert said.startswith("rule r: severity Major: ")
    assert words in said
    assert len(said) < 2_000


WRONG_COLUMNS: dict[str, tuple[Callable[[DataFrame], Column], str]] = {
    "no condition": (lambda _: F.col("wind_gust"), "is double, and a condition is true or false"),
    "no SQL": (lambda _: F.expr("wind_gust >"), "is no SQL"),
    "no column": (lambda _: F.col("wind_gist") > 1, "did you mean wind_gust?"),
    "of another frame": (
        lambda given: given.withColumn("visib", F.lit(1.0))["visib"] > 1,
        "visib",
    ),
    "a column that is gone": (
        lambda given: given.select(F.col("wind_gust").alias("x"))["x"] > 1,
        "'x' is no col",
    ),
    "chance": (lambda _: F.rand() > 0.5, "the function 'rand' is not allowed"),
    "the clock": (lambda _: F.current_timestamp() > F.col("time_hour"), "'current_timestamp' is"),
    "today in SQL": (lambda _: F.expr("time_hour > date'today'"), "depends on the clock"),
    "an aggregate": (lambda _: F.sum(F.col("wind_gust")) > 1, "the function 'sum' is not allowed"),
    "a window": (
        lambda _: F.sum(F.col("wind_gust")).over(Window.partitionBy("origin")) > 1,
        "is more than an expression of the row",
    ),
    "a function of one's own": (
        lambda _: F.udf(lambda gust: gust > 1, "boolean")(F.col("wind_gust")),
        "is more than an expression",
    ),
    "a subquery": (
        lambda given: given.select(F.max(F.col("wind_gust"))).scalar() > 1,
        "is more than an express",
    ),
    "a subquery in SQL": (lambda _: F.expr("exists(select 1)"), "is more than an expression"),
    "all columns": (lambda _: F.col("*"), "'*' is more than an expression of the row"),
    "a name": (
        lambda _: (F.col("wind_gust") > 1).alias("x"),
        "is more than an expression of the row",
    ),
    "a lambda": (
        lambda _: F.exists(F.array(F.col("wind_gust")), lambda one: one > 1),
        "'exists' is not allowed",
    ),
    "other columns": (lambda given: given.colRegex("`vis.*`") > 1, "is more than an expression"),
    "too much": (
        lambda _: F.col("visib").isin(*range(1_001)),
        "it has more than 1,000 parts",
    ),
}


@pytest.mark.parametrize("name", WRONG_COLUMNS)
def test_a_column_that_is_more_than_a_condition_of_the_row_is_refused(
    spark: SparkSession, name: str
) -> None:
    given = readings(spark, ("JFK", 0, 1.0, 1.0))
    make, words = WRONG_COLUMNS[name]
    said = refused(given, [rule_of("r", make(given))])
    assert said.startswith("rule r: severity Major: ")
    assert words in said


def test_all_problems_are_told_at_once(spark: SparkSession) -> None:
    given = readings(spark, ("JFK", 0, 1.0, 1.0))
    wrong = Rule(
        "wrong",
        keys=["orgin"],
        event_time="visib",
        severity={"Major": "visib"},
        clear="uuid() = 'x'",
        message="{wind_gusts}",
    )
    other = Rule("other", keys=["origin"], event_time="tim", severity={"Major": "visib < 1"})
    said = refused(given, [wrong, other]).splitlines()
    assert [line.split(":")[:2] for line in said] == [
        ["rule wrong", " keys"],
        ["rule wrong", " message"],
        ["rule wrong", " event_time"],
        ["rule wrong", " severity Major"],
        ["rule wrong", " clear"],
        ["rule other", " event_time"],
    ]


def test_rules_that_do_not_fit_together_are_refused(spark: SparkSession) -> None:
    given = readings(spark, ("JFK", 0, 1.0, 1.0))
    assert "two rules have this name" in refused(given, [GALE, GALE])
    assert "there is none" in refused(given, [])
    for until in (datetime.datetime(2026, 1, 1), "2026-01-01"):
        assert "is no time with a zone" in refused(given, [GALE], until=until)
    assert "rules: 3 is no Rule" in refused(given, [3])
    assert "rules: None is no Rule" in refused(given, None)


#: Of the rules of examples/rules/weather.yaml in the year 2013.
TRANSITIONS = 575
#: The levels of the rules of examples/rules/weather.yaml, evaluated by hand.
LEVELS: dict[str, Callable[[Mapping[str, float | None]], str | None]] = {
    "weather.gale": lambda row: _first(
        ("Critical", row["wind_gust"], lambda gust: gust > 60),
        ("Minor", row["wind_gust"], lambda gust: gust > 40),
        ("clear", row["wind_gust"], lambda gust: gust < 30),
    ),
    "weather.fog": lambda row: _first(
        ("Major", row["visib"], lambda sight: sight < 1),
        ("clear", row["visib"], lambda sight: sight > 3),
    ),
    "weather.frost": lambda row: _first(
        ("Minor", row["temp"], lambda temp: temp < 32), ("clear", row["temp"], lambda _: True)
    ),
    "weather.rain": lambda row: _first(
        ("Minor", row["precip"], lambda rain: rain > 0.3), ("clear", row["precip"], lambda _: True)
    ),
    "station.silent": lambda _: "clear",
}


def _first(*levels_of: tuple[str, float | None, Callable[[float], bool]]) -> str | None:
    return next((name for name, one, holds in levels_of if one is not None and holds(one)), None)


def test_a_year_of_real_weather_gives_what_the_step_function_gives(spark: SparkSession) -> None:
    job = weather_job()
    rules = Rule.load(RULES)
    whole = job.read_weather(spark, str(job.find_data()))
    rows = whole.selectExpr(
        *("origin", "unix_micros(time_hour) as at", "wind_gust", "visib", "temp", "precip")
    ).collect()
    until = max(row["at"] for row in rows)
    expected = set()
    numbers = {**levels(), "clear": CLEAR}
    for rule in rules:
        for place in {row["origin"] for row in rows}:
            of_place = [
                Reading(row["at"], None if name is None else numbers[name])
                for row in rows
                if row["origin"] == place
                for name in [LEVELS[rule.name](row.asDict())]
            ]
            state, done = None, 0
            for one in sorted(of_place, key=lambda reading: reading.at):
                made = step(rule, (place,), state, [one], watermark=one.at - 1)
                state, done = made.state, done + 1
                expected |= {_identity(found) for found in made.transitions}
            assert done > 8_000
            last = step(rule, (place,), state, (), watermark=until)
            expected |= {_identity(found) for found in last.transitions}
    found = transitions(whole.orderBy(F.rand(7)), rules)
    told_of = found.selectExpr(
        *("rule", "key[0]", "transition", "level", "unix_micros(at)", "unix_micros(since)")
    ).collect()
    assert {tuple(row) for row in told_of} == expected
    assert len(told_of) == len(expected) == TRANSITIONS
    assert {row[0] for row in told_of} == {rule.name for rule in rules}


def _identity(one: Transition) -> tuple[str, str, str, str, int, int]:
    return one.rule, one.key[0], one.transition.value, one.level, one.at, one.since
