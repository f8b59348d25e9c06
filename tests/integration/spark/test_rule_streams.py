"""Rules over a stream of readings, in a real Spark."""

import asyncio
import datetime
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pillion_rules import Rule, RuleError
from pyspark_pillion import Published
from pyspark_pillion.rules import indications, raise_alerts, transitions
from support.fake_deliverer import Answer, FakeDeliverer, HangUp, Seen
from support.listening import listening
from support.manual import DOCS, blocks
from support.rule_streams import ROCKSDB, Arriving, collect, read_flights, run_to_end
from support.running import listener, resources, running
from support.spark import start_spark
from support.weather import FLIGHTS_SCHEMA, flights_table, rules_of_two_inputs, weather_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

TESTS = Path(__file__).parents[2]
BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
SCHEMA = "origin string, time_hour timestamp, wind_gust double"


def gale(**changes: Any) -> Rule:
    fields: dict[str, Any] = {
        "name": "weather.gale",
        "keys": ["origin"],
        "event_time": "time_hour",
        "severity": {"Critical": "wind_gust > 60", "Minor": "wind_gust > 40"},
        "clear": "wind_gust < 30",
        "message": "{origin}: gusts of {wind_gust} mph",
    }
    return Rule(**fields | changes)


def silent(event_time: str = "time_hour") -> Rule:
    return Rule(
        "station.silent", keys=["origin"], event_time=event_time, severity="Major", silent="3 hours"
    )


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    zone = {"spark.sql.session.timeZone": "America/New_York"}
    session = start_spark(master="local[2]", **zone, **ROCKSDB)
    yield session
    session.stop()


def reading(origin: str | None, hour: float | None, gust: float | None) -> str:
    at = None if hour is None else BEGIN + datetime.timedelta(hours=hour)
    made = {"origin": origin, "time_hour": at and at.isoformat(), "wind_gust": gust}
    return json.dumps(made)


def told(rows: Sequence[Row]) -> list[tuple[str, str, str, str, float]]:
    """Rule, place, transition, level and hour of each, in order."""
    made = [
        (row.rule, ",".join(row.key), row.transition, row.level, hours(row["at"])) for row in rows
    ]
    return sorted(made, key=lambda one: (one[4], one[0] != "weather.gale", one))


def hours(time: datetime.datetime) -> float:
    return (time.astimezone(datetime.UTC) - BEGIN).total_seconds() / 3600


@pytest.fixture
def arriving(tmp_path: Path) -> Arriving:
    return Arriving(tmp_path / "in", SCHEMA)


def test_a_gale_is_raised_gets_worse_and_ends_over_three_micro_batches(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    arriving.put(reading("JFK", hour, gust) for hour, gust in ((0, 20.0), (1, 45.0), (2, None)))
    arriving.put([reading("JFK", 3, 61.0), reading("LGA", 3, 10.0)])
    arriving.put([reading("JFK", 4, 20.0)])
    rules = [gale(), silent()]
    found = transitions(arriving.stream(spark), rules)
    assert told(collect(found, tmp_path)) == [
        ("weather.gale", "JFK", "raised", "Minor", 1),
        ("weather.gale", "JFK", "changed", "Critical", 3),
    ]
    # The watermark passes the last reading, and LGA is silent.
    arriving.put([reading("JFK", 7, 20.0)])
    assert told(collect(found, tmp_path))[2:] == [
        ("weather.gale", "JFK", "cleared", "Critical", 4),
        ("station.silent", "LGA", "raised", "Major", 6),
    ]


def test_what_is_due_at_the_watermark_is_told(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    rule = gale(hold="2 hours", watermark="1 hour")
    arriving.put([reading("JFK", 1, 45.0)])
    arriving.put([reading("LGA", 4, 10.0)])
    found = collect(transitions(arriving.stream(spark), rule), tmp_path)
    assert told(found) == [("weather.gale", "JFK", "raised", "Minor", 3)]


def test_readings_that_are_left_out_are_counted(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    future = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=300)
    arriving.put(
        [
            reading("JFK", 1, 45.0),
            reading(None, 1, 45.0),
            reading("JFK", None, 45.0),
            json.dumps({"origin": "JFK", "time_hour": future.isoformat(), "wind_gust": 45.0}),
        ]
    )
    arriving.put([reading("JFK", 2, 20.0)])
    found = transitions(arriving.stream(spark), gale())
    writer = found.writeStream.format("noop")
    query = run_to_end(writer, tmp_path / "checkpoint")
    seen = [one["observedMetrics"]["rules.readings"].asDict() for one in query.recentProgress]
    left_out = {"withoutKey": 1, "withoutTime": 1, "ahead": 1}
    assert seen[0] == {"readings": 4, **left_out, "failed": 0, "failedRules": []}
    # A time in the future has not moved the watermark.
    assert seen[1]["readings"] == 1
    state = [one["stateOperators"][0]["numRowsDroppedByWatermark"] for one in query.recentProgress]
    assert sum(state) == 0


def test_a_rule_with_columns_runs_on_and_counts_where_they_fail(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")

    def run() -> list[tuple[int, int, list[str]]]:
        """Readings of each micro-batch, those for which a condition fails, and of which rules."""
        column = F.col("wind_gust")
        severity = {"Critical": column > 60, "Minor": "1000 / (wind_gust - 45) > 100"}
        rules = [gale(severity=severity, clear=column < 30), silent()]
        writer = transitions(arriving.stream(spark), rules).writeStream.format("parquet")
        query = run_to_end(writer.option("path", out), tmp_path / "checkpoint")
        seen = [one["observedMetrics"]["rules.readings"] for one in query.recentProgress]
        return [(one.readings, one.failed, one.failedRules) for one in seen if one.readings]

    arriving.put(reading("JFK", hour, gust) for hour, gust in ((0, 45.0), (1, 61.0), (2, None)))
    arriving.put([reading("JFK", 3, 45.0), reading("LGA", 3, 45.0)])
    assert run() == [(3, 1, ["weather.gale"]), (2, 2, ["weather.gale"])]
    arriving.put([reading("JFK", 4, 20.0)])
    arriving.put([reading("JFK", 5, 20.0)])
    assert run() == [(1, 0, []), (1, 0, [])]
    assert told(spark.read.parquet(out).collect()) == [
        ("weather.gale", "JFK", "raised", "Critical", 1),
        ("weather.gale", "JFK", "cleared", "Critical", 4),
    ]


def test_a_watermark_of_the_streams_own_is_used(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    arriving.put([reading("JFK", 1, 45.0)])
    arriving.put([reading("JFK", 6, 20.0)])
    own = arriving.stream(spark).withWatermark("time_hour", "10 hours")
    assert collect(transitions(own, gale()), tmp_path) == []
    arriving.put([reading("JFK", 12, 20.0)])
    assert told(collect(transitions(own, gale()), tmp_path)) == [
        ("weather.gale", "JFK", "raised", "Minor", 1)
    ]
    other = silent("other")
    given = own.withColumn("other", F.col("time_hour"))
    with pytest.raises(RuleError, match="event_time: the readings have a watermark on 'time_hour'"):
        transitions(given, [gale(), other])


def test_rules_of_other_keys_and_times_share_one_operator(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    arriving.put([reading("JFK", 1, 45.0), reading("LGA", 1, 45.0)])
    arriving.put([reading("JFK", 2, 20.0)])
    stream = arriving.stream(spark).withColumn("later", F.expr("time_hour + interval 1 hour"))
    other = gale(name="any", keys=["origin", "wind_gust"], event_time="later")
    found = transitions(stream, [gale(), other])
    raised = [("weather.gale", place, "raised", "Minor", 1) for place in ("JFK", "LGA")]
    # The earlier time moves the watermark, and nothing is late.
    assert told(collect(found, tmp_path)) == raised
    arriving.put([reading("JFK", 3, 20.0)])
    assert told(collect(found, tmp_path)) == [
        *raised,
        ("weather.gale", "JFK", "cleared", "Minor", 2),
        *(("any", f"{place},45.0", "raised", "Minor", 2) for place in ("JFK", "LGA")),
    ]


def test_rules_are_edited_added_and_removed_on_one_checkpoint(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    def run(*rules: Rule) -> list[tuple[str, str, str, str, float]]:
        return told(collect(transitions(arriving.stream(spark), rules), tmp_path))

    by_gust = gale(name="by.gust", keys=["wind_gust"])
    arriving.put([reading("JFK", 1, 45.0)])
    arriving.put([reading("JFK", 2, 45.0)])
    before = run(gale(), by_gust)
    assert before == [
        ("weather.gale", "JFK", "raised", "Minor", 1),
        ("by.gust", "45.0", "raised", "Minor", 1),
    ]
    # One rule is edited, one added, and the only one with these keys removed.
    edited = gale(severity={"Fatal/NonRecoverable": "wind_gust > 41"})
    arriving.put([reading("JFK", 3, 45.0), reading("LGA", 3, 1.0)])
    arriving.put([reading("JFK", 4, 45.0)])
    after = run(edited, silent())[2:]
    assert after == [
        # At the last watermark, where its reading of 2 hours still waits.
        ("by.gust", "45.0", "cleared", "Minor", 2 - 1 / 60),
        ("weather.gale", "JFK", "changed", "Fatal/NonRecoverable", 3),
    ]
    arriving.put([reading("JFK", 8, 45.0)])
    found = run(edited, silent())[4:]
    assert ("station.silent", "LGA", "raised", "Major", 6) in found
    # All rules may go, but one.
    arriving.put([reading("JFK", 9, 45.0)])
    rest = run(gale(name="new"))
    assert ("weather.gale", "JFK", "cleared", "Fatal/NonRecoverable", 8 - 1 / 60) in rest
    assert ("new", "JFK", "raised", "Minor", 9) not in rest


def test_the_manuals_thresholds_from_a_table(
    spark: SparkSession, arriving: Arriving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PILLION_URL", "http://127.0.0.1:9")
    arriving.stream(spark).createOrReplaceTempView("weather")
    limits = spark.createDataFrame([("JFK", 40.0), ("LGA", 60.0)], "origin string, max_gust double")
    limits.createOrReplaceTempView("limits")
    (program,) = (one for one in blocks(DOCS / "rules.md", "python") if "limits" in one)
    names: dict[str, Any] = {"spark": spark}
    exec(compile(program, "rules.md", "exec"), names)
    assert isinstance(names["alerts"], DataStreamWriter)
    # EWR has no threshold.
    for hour, gust in ((1, 50.0), (2, 10.0), (3, 10.0)):
        arriving.put(reading(origin, hour, gust) for origin in ("JFK", "LGA", "EWR"))
    rows = collect(transitions(names["readings"], names["gale"]), tmp_path)
    assert told(rows) == [
        ("weather.gale", "JFK", "raised", "Minor", 1),
        ("weather.gale", "JFK", "cleared", "Minor", 2),
    ]
    assert {row.text for row in rows} == {
        f"JFK: gusts of {gust} mph, limit 40.0" for gust in (50.0, 10.0)
    }


# --------------------------------------------------------------------- a year of two inputs


@dataclass(frozen=True)
class Year:
    """Weather and flights of a year, and their rules."""

    inputs: Mapping[str, DataFrame]
    rules: Sequence[Rule]

    def until(self, delay: datetime.timedelta) -> datetime.datetime:
        """How far the watermark gets: that of the input that ends first."""
        ends = [
            one.selectExpr(f"unix_micros(max({TIMES[name]}))").collect()[0][0]
            for name, one in self.inputs.items()
        ]
        return datetime.datetime.fromtimestamp(min(ends) / 1e6, datetime.UTC) - delay

    def arriving(self, folder: Path, parts: int, *, late_by: int = 0) -> Mapping[str, Arriving]:
        """The readings in the order of their arrival, up to so many hours late."""
        made = {}
        for name, one in self.inputs.items():
            schema = FLIGHTS_SCHEMA if name == "flights" else weather_job().records_schema()
            made[name] = Arriving(folder / name, schema)
            put(made[name], one, TIMES[name], parts, late_by=late_by)
        return made


TIMES = {"weather": "time_hour", "flights": "sched"}


@pytest.fixture(scope="module")
def year(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Year:
    job = weather_job()
    weather: DataFrame = job.read_weather(spark, str(job.find_data()))
    flights = read_flights(spark, flights_table(tmp_path_factory.mktemp("flights")))
    return Year({"weather": weather.cache(), "flights": flights.cache()}, rules_of_two_inputs())


def identities(rows: Sequence[Row]) -> set[Any]:
    return {(*row[:1], *row["key"], *row[2:]) for row in rows}


def put(
    arriving: Arriving, readings: DataFrame, time: str, parts: int, *, late_by: int = 0
) -> None:
    shuffle, hour = random.Random(parts), 3_600_000_000
    lines = readings.selectExpr(f"unix_micros({time})", "to_json(struct(*))").collect()
    order = sorted(lines, key=lambda row: row[0] + shuffle.random() * late_by * hour)
    for number in range(parts):
        part = order[number * len(order) // parts : (number + 1) * len(order) // parts]
        arriving.put(line for _, line in part)


CUTS = [
    pytest.param(1, 0, id="one"),
    pytest.param(12, 1, id="shuffled within"),
    pytest.param(30, 6, id="shuffled within the watermark"),
]


@pytest.mark.parametrize(("parts", "late_by"), CUTS)
def test_a_year_of_weather_and_flights_gives_the_same_set_however_it_is_cut(
    spark: SparkSession, year: Year, tmp_path: Path, parts: int, late_by: int
) -> None:
    delay = datetime.timedelta(hours=late_by, minutes=1)
    found = transitions(year.inputs, year.rules, until=year.until(delay))
    expected = identities(found.collect())
    counts = Counter(one[0] for one in expected)
    assert counts.keys() == {rule.name for rule in year.rules}
    assert len(expected) > 1_000

    arriving = {
        name: one.stream(spark).withWatermark(TIMES[name], f"{late_by} hours 1 minute")
        for name, one in year.arriving(tmp_path, parts, late_by=late_by).items()
    }
    rows = collect(transitions(arriving, year.rules), tmp_path)
    assert identities(rows) == expected
    assert len(rows) == len(expected)


def test_a_job_that_is_killed_three_times_sends_what_a_batch_sends(
    year: Year, deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    until = year.until(datetime.timedelta(minutes=1))
    found = transitions(year.inputs, year.rules, until=until)
    expected = {row.value for row in indications(found, year.rules, source="nyc").collect()}
    year.arriving(tmp_path, 8)
    job = [sys.executable, "-m", "support.rule_job", str(tmp_path), deliverer.url]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "SPARK_LOCAL_IP": "127.0.0.1"}

    process: list[subprocess.Popen[bytes]] = []
    for requests, is_accepted in ((1, True), (2, False), (3, True)):

        def kill(fake: FakeDeliverer, seen: Seen, is_accepted: bool = is_accepted) -> Answer:
            os.killpg(process[-1].pid, signal.SIGKILL)
            if is_accepted:
                fake.accept(seen)
            raise HangUp

        deliverer.script.extend([FakeDeliverer.accept] * requests + [kill])
        process.append(subprocess.Popen(job, env=environment, start_new_session=True))
        assert process[-1].wait() == -signal.SIGKILL
    process.append(subprocess.Popen(job, env=environment, start_new_session=True))
    assert process[-1].wait() == 0
    lines = [json.dumps(line) for line in deliverer.accepted]
    assert {json.dumps(json.loads(line)) for line in expected} == set(lines)
    assert len(lines) == len(expected) > 1_000
    assert deliverer.duplicates > 0


# --------------------------------------------------------------------- alerts


def stream_of(
    readings: DataFrame, rule: Rule, url: str, *, replay: bool = False
) -> DataStreamWriter:
    made = raise_alerts(readings, rule, source="nyc", url=url, replay=replay)
    assert isinstance(made, DataStreamWriter)
    return made


def test_an_alert_is_one_group_whose_indications_name_its_raise(
    spark: SparkSession, arriving: Arriving, deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    arriving.put(reading("JFK", hour, gust) for hour, gust in ((1, 45.0), (2, 61.0), (3, 20.0)))
    arriving.put([reading("JFK", 4, 45.0)])
    arriving.put([reading("JFK", 5, 45.0)])
    rule = gale(alert_type="Environmental Alert", cause="High Winds")
    writer = stream_of(arriving.stream(spark), rule, deliverer.url, replay=True)
    query = run_to_end(writer, tmp_path / "checkpoint")
    raised, changed, cleared, again = deliverer.accepted
    assert raised["properties"] == {
        "AlertType": 6,
        "PerceivedSeverity": 4,
        "ProbableCause": 103,
        "EventID": "weather.gale",
        "EventTime": "20260101010000.000000+000",
        "AlertingManagedElement": "origin=JFK",
        "Message": "JFK: gusts of 45.0 mph",
        "MessageID": "raised",
        "OwningEntity": "Pillion",
        "MessageArguments": ["Minor", "2026-01-01T01:00:00.000000Z", "1"],
        "IndicationIdentifier": raised["properties"]["IndicationIdentifier"],
    }
    assert [line["properties"]["PerceivedSeverity"] for line in deliverer.accepted] == [4, 6, 2, 4]
    told_of = [line["properties"]["MessageID"] for line in deliverer.accepted]
    assert told_of == ["raised", "changed", "cleared", "raised"]
    named = [raised["properties"]["IndicationIdentifier"]]
    assert [
        one["properties"].get("CorrelatedIndications") for one in (changed, cleared, again)
    ] == [*(named, named, None)]
    groups = [line["group"] for line in deliverer.accepted]
    assert groups[0] == groups[1] == groups[2] != groups[3]
    counts = [one["observedMetrics"]["rules.transitions"] for one in query.recentProgress]
    assert sum(one.transitions for one in counts) == 4
    assert sum(one.tooOld for one in counts) == 0


def test_old_transitions_are_not_sent_unless_they_are_replayed(
    spark: SparkSession, arriving: Arriving, deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    arriving.put([reading("JFK", 1, 45.0)])
    arriving.put([reading("JFK", 2, 20.0)])
    stream = stream_of(arriving.stream(spark), gale(), deliverer.url)
    query = run_to_end(stream, tmp_path / "checkpoint")
    counts = [one["observedMetrics"]["rules.transitions"] for one in query.recentProgress]
    assert sum(one.tooOld for one in counts) == 1
    # The clear of a rule that was removed says the time of its last reading, and is sent.
    arriving.put([reading("JFK", 3, 45.0)])
    arriving.put([reading("JFK", 4, 45.0)])
    run_to_end(
        stream_of(arriving.stream(spark), gale(), deliverer.url, replay=True),
        tmp_path / "checkpoint",
    )
    arriving.put([reading("JFK", 5, 45.0)])
    other = gale(keys=["origin", "wind_gust"])
    run_to_end(stream_of(arriving.stream(spark), other, deliverer.url), tmp_path / "checkpoint")
    arriving.put([reading("LGA", 9, 1.0)])
    run_to_end(stream_of(arriving.stream(spark), other, deliverer.url), tmp_path / "checkpoint")
    severities = [one["properties"]["PerceivedSeverity"] for one in deliverer.accepted]
    # What no run has told, with its clear, then raised, and removed.
    assert severities == [4, 2, 4, 2]
    cleared = deliverer.accepted[-1]
    assert cleared["properties"]["AlertingManagedElement"] == "JFK"
    deliverer.reset()

    batch = (
        spark.read.schema(SCHEMA)
        .json(str(tmp_path / "in"))
        .where(F.col("time_hour") < F.lit(BEGIN + datetime.timedelta(hours=3)))
    )

    def alerts(rule: Rule, *, replay: bool = False) -> tuple[int, int]:
        """Accepted ones and duplicates."""
        made = raise_alerts(batch, rule, source="nyc", url=deliverer.url, replay=replay)
        assert isinstance(made, Published)
        return made.accepted, made.duplicate

    with pytest.warns(UserWarning, match="older than max_age: 2; of these only alerts that"):
        assert alerts(gale()) == (0, 0)
    assert alerts(gale(max_age="3650 days")) == (2, 0)
    assert alerts(gale(), replay=True) == (0, 2)


def test_an_old_alert_that_lasts_is_sent_beside_a_rule_with_a_long_watermark(
    spark: SparkSession, arriving: Arriving, deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    now = (datetime.datetime.now(datetime.UTC) - BEGIN).total_seconds() / 3600
    for ago, place, gust in (
        *((90, "JFK", 45.0), (90, "LGA", 45.0), (80, "LGA", 10.0)),
        *((30, "JFK", 45.0), (1, "EWR", 10.0)),
    ):
        arriving.put([reading(place, now - ago, gust)])
    slow = gale(name="slow", severity={"Major": "wind_gust > 90"}, watermark="20 hours")
    made = raise_alerts(arriving.stream(spark), [gale(), slow], source="nyc", url=deliverer.url)
    assert isinstance(made, DataStreamWriter)
    query = run_to_end(made, tmp_path / "checkpoint")
    (one,) = deliverer.accepted
    assert one["properties"]["AlertingManagedElement"] == "origin=JFK"
    at = datetime.datetime.strptime(one["properties"]["EventTime"][:14], "%Y%m%d%H%M%S")
    assert round(hours(at.replace(tzinfo=datetime.UTC)) - now) == -90
    counts = [one["observedMetrics"]["rules.transitions"] for one in query.recentProgress]
    assert sum(one.tooOld for one in counts) == 3


def test_control_characters_in_a_key_stop_no_stream(
    spark: SparkSession, arriving: Arriving, deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    arriving.put([reading("a\x01b\uffff", 1, 45.0), reading("JFK", 2, 1.0)])
    arriving.put([reading("JFK", 3, 1.0)])
    run_to_end(
        stream_of(arriving.stream(spark), gale(), deliverer.url, replay=True),
        tmp_path / "checkpoint",
    )
    (one,) = deliverer.accepted
    assert one["properties"]["AlertingManagedElement"] == "origin=a\ufffdb\ufffd"
    assert one["properties"]["Message"] == "a\ufffdb\ufffd: gusts of 45.0 mph"


def test_own_watermarks_that_an_aggregate_hides_are_refused(
    spark: SparkSession, arriving: Arriving
) -> None:
    counted = (
        arriving.stream(spark)
        .withWatermark("time_hour", "1 hour")
        .groupBy("origin", F.window("time_hour", "1 hour").alias("w"))
        .agg(F.max("wind_gust").alias("wind_gust"))
    )
    ends = counted.selectExpr("origin", "w.end as time_hour", "wind_gust")
    with pytest.raises(RuleError, match=r"event_time: 'time_hour' has lost the watermark.*window_"):
        transitions(ends, gale())
    transitions(
        counted.select("origin", F.window_time("w").alias("time_hour"), "wind_gust"), gale()
    )


async def test_a_listener_that_is_down_for_the_whole_stream_costs_it_nothing(
    spark: SparkSession, arriving: Arriving, tmp_path: Path
) -> None:
    for begin in range(0, 120, 30):
        hours = range(begin, begin + 30)
        arriving.put(reading("JFK", hour, (45.0, 61.0, 20.0)[hour % 3]) for hour in hours)
    # The watermark does not pass the last reading.
    count = 119
    place = tmp_path / "deliverer"
    place.mkdir()
    async with listening(status=503) as there:
        documents = resources(listener("ops", there.url), durability="Disk")
        async with running(place, *documents, journal=tmp_path / "journal") as run:
            query = await asyncio.to_thread(
                lambda: run_to_end(
                    stream_of(
                        arriving.stream(spark), gale(), run.deliverer.intake_url, replay=True
                    ),
                    tmp_path / "checkpoint",
                )
            )
            assert (query.exception(), there.arrivals) == (None, [])
            assert run.queue("ops").depth == count
            there.behave()
            run.retry("ops")
            await there.delivered(count)
    assert [one.text("Message") for one in there.arrivals[:3]] == [
        f"JFK: gusts of {gust} mph" for gust in ("45.0", "61.0", "20.0")
    ]
