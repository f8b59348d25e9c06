"""publish() and the data source in a real Spark: both shapes, identities, retries, refusals."""

import datetime
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_pillion import (
    ConfigurationError,
    Published,
    identifier,
    indications,
    publish,
    register,
)
from support.fake_deliverer import FakeDeliverer, accept_and_hang_up, full, status
from support.publisher import identifiers_of
from support.weather import weather_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

#: The hour of the year's strongest gust at LaGuardia.
STORM = "20130131080000.000000+000"
ALERT: dict[str, Any] = {"AlertType": 6, "PerceivedSeverity": 4, "ProbableCause": 52}


def alerts(spark: SparkSession, count: int = 10, *, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).withColumn("name", F.format_string("n%d", "id"))


def save(df: DataFrame, deliverer: FakeDeliverer, **given: str) -> None:
    register(df.sparkSession)
    options = {"source": "test", "url": deliverer.url, **given}
    df.write.format("pillion").mode("append").options(**options).save()


def test_publish_makes_indications_and_counts_them(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    published = publish(
        alerts(spark),
        source="test",
        identity=["id"],
        properties={**ALERT, "EventID": F.col("name"), "Message": 'it\'s "so"', "Trending": None},
        url=deliverer.url,
    )

    assert published == Published(accepted=10, duplicate=0, rejected=0, delivered=10, discarded={})
    line = next(a for a in deliverer.accepted if a["properties"]["EventID"] == "n3")
    identifier = line["properties"].pop("IndicationIdentifier")
    assert len(identifier) == 64
    assert line == {
        "class": "CIM_AlertIndication",
        "properties": {**ALERT, "EventID": "n3", "Message": 'it\'s "so"'},
    }
    assert {seen.query["source"] for seen in deliverer.published} == {"test"}


def test_publishing_again_in_other_partitions_publishes_nothing_twice(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    counts = []
    for partitions in (2, 3, 1):
        df = alerts(spark, partitions=partitions)
        published = publish(df, source="test", identity=["id"], properties=ALERT, url=deliverer.url)
        assert isinstance(published, Published)
        counts.append((published.accepted, published.duplicate, published.delivered))

    assert counts == [(10, 0, 10), (0, 10, 0), (0, 10, 0)]
    assert len(deliverer.accepted) == len(set(identifiers_of(deliverer))) == 10


def test_a_thread_of_the_jobs_own_publishes(spark: SparkSession, deliverer: FakeDeliverer) -> None:
    def published() -> object:
        return publish(
            alerts(spark), source="test", identity=["id"], properties=ALERT, url=deliverer.url
        )

    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(published).result() is not None
    assert len(deliverer.accepted) == 10


def lines(df: DataFrame, **given: Any) -> list[dict[str, Any]]:
    made = indications(df, **{"source": "s", "properties": ALERT} | given)
    return [json.loads(row.value) for row in made.collect()]


def identities(df: DataFrame, **given: Any) -> list[str]:
    return [line["properties"]["IndicationIdentifier"] for line in lines(df, **given)]


def test_identities_differ_wherever_their_values_do(spark: SparkSession) -> None:
    rows = [("a", "bc"), ("ab", "c"), (None, "c"), ("null", "c"), ("", "c"), ("c", None)]
    df = spark.createDataFrame(rows, "x string, y string")

    found = identities(df, identity=["x", "y"])
    assert len(set(found)) == len(rows)
    assert found == identities(df, identity=[F.col("x"), F.col("y")])
    others = [identities(df, identity=["y", "x"]), identities(df, identity=["x", "y"], source="t")]
    others.append(identities(df, identity=["x", "y"], class_name="CIM_ThresholdIndication"))
    assert not any(a == b for other in others for a, b in zip(found, other, strict=True))


def test_structured_rows_can_have_the_identifier_that_publish_makes(spark: SparkSession) -> None:
    df = spark.sql("SELECT 'a' AS x, TIMESTAMP_NTZ'2013-01-01 00:00:00.000001' AS at")
    (row,) = df.select(identifier(["x", F.col("at")], source="s").alias("made")).collect()
    assert identities(df, identity=["x", "at"]) == [row.made]


def test_identities_and_times_do_not_depend_on_the_sessions_zone(spark: SparkSession) -> None:
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    # The hours around New York's change to summer time, and the two that winter time repeats.
    moments = [1362898800 + 1800 * i for i in range(8)] + [1383454800, 1383458400]
    df = spark.createDataFrame([(m,) for m in moments], "s long").select(
        F.timestamp_micros(F.col("s") * 1_000_000 + 7).alias("at")
    )
    expected = [
        datetime.datetime.fromtimestamp(m, datetime.UTC).strftime("%Y%m%d%H%M%S.000007+000")
        for m in moments
    ]
    found = []
    try:
        for name in ("America/New_York", "UTC", "Asia/Kathmandu"):
            spark.conf.set("spark.sql.session.timeZone", name)
            found.append(
                lines(
                    df,
                    identity=["at"],
                    properties={**ALERT, "EventTime": F.col("at"), "expires": F.col("at")},
                )
            )
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)

    assert [line["properties"]["EventTime"] for line in found[0]] == expected
    assert found[0][0]["expires"] == "2013-03-10T07:00:00.000007Z"
    assert found[0] == found[1] == found[2]


def test_times_without_a_zone_keep_identities_apart_by_the_microsecond(
    spark: SparkSession,
) -> None:
    df = spark.sql(
        "SELECT TIMESTAMP_NTZ'2013-01-01 00:00:00.000001' AS at"
        " UNION ALL SELECT TIMESTAMP_NTZ'2013-01-01 00:00:00.000002'"
    )
    assert len(set(identities(df, identity=["at"]))) == 2


def test_every_problem_of_publish_is_told_before_a_task_starts(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        publish(
            alerts(spark),
            source="",
            identity=["absent"],
            properties={
                "IndicationIdentifier": "x",
                "source": "y",
                "EventTime": datetime.datetime(2013, 1, 1),
            },
            url=deliverer.url,
            options={"batchsise": "1"},
            output_mode="complete",
        )

    assert len(caught.value.problems) == 10
    assert deliverer.requests == []


def test_a_stream_with_a_misspelt_option_is_refused_before_it_starts(spark: SparkSession) -> None:
    rows = spark.readStream.format("rate").load()
    options = {"batchSise": "1"}
    with pytest.raises(ConfigurationError, match="did you mean batchSize"):
        publish(rows, source="s", identity=["value"], properties=ALERT, options=options)


def test_types_of_publish_are_told_before_a_task_starts(spark: SparkSession) -> None:
    df = alerts(spark)
    properties = {**ALERT, "PerceivedSeverity": F.col("name"), "EventID": F.col("id")}
    with pytest.raises(ConfigurationError) as caught:
        indications(df, source="s", identity=[F.array("id")], properties=properties)

    assert [text.split()[0] for text in caught.value.problems] == [
        "PerceivedSeverity",
        "EventID",
        "identity",
    ]


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (F.rand, "identity 2 depends on rand, which differs from run to run"),
        (F.monotonically_increasing_id, "identity 2 depends on monotonically_increasing_id"),
        (lambda: F.expr("uuid()"), "identity 2 depends on uuid"),
        (lambda: F.unix_timestamp() + 1, "identity 2 depends on current_timestamp"),
        (F.current_date, "identity 2 depends on current_date"),
    ],
)
def test_an_identity_of_the_run_is_refused_also_when_a_column_hides_it(
    spark: SparkSession, key: Any, told: str
) -> None:
    hidden = alerts(spark).withColumn("k", key()).withColumn("k", F.concat("k", F.lit("x")))
    for df, identity in ((alerts(spark), ["id", key()]), (hidden, ["id", "k"])):
        with pytest.raises(ConfigurationError, match=told):
            indications(df, source="s", identity=identity, properties=ALERT)


def test_other_columns_and_conditions_may_depend_on_the_run(spark: SparkSession) -> None:
    df = alerts(spark).where(F.rand() < 2).withColumn("file", F.input_file_name())
    properties = {**ALERT, "EventTime": F.current_timestamp()}
    made = indications(df, source="s", identity=["id", "file"], properties=properties)
    assert made.columns == ["value"]


def test_a_key_is_found_as_spark_finds_it(spark: SparkSession) -> None:
    df = alerts(spark, 2).withColumn("s", F.struct(F.col("id").alias("b")))
    assert identities(df, identity=["ID"]) == identities(df, identity=["s.b"])
    with pytest.raises(ConfigurationError, match=r"identity has 's\.\*', which the rows do not"):
        indications(df, source="s", identity=["s.*"], properties=ALERT)


def test_rows_whose_identity_is_null_are_rejected(
    spark: SparkSession, deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    published = publish(
        alerts(spark, 10).withColumn("k", F.when(F.col("id") >= 4, F.col("id"))),
        source="test",
        identity=["k"],
        properties=ALERT,
        url=deliverer.url,
        options={"onInvalid": "rejects", "rejectsPath": str(tmp_path)},
    )

    assert isinstance(published, Published)
    assert (published.accepted, published.duplicate, published.rejected) == (6, 0, 4)
    assert len(published.publishers) == 2


def test_a_class_outside_the_schema_is_published(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    speed = F.struct(F.lit("uint16").alias("type"), F.col("id").alias("value"))
    for _ in range(2):
        published = publish(
            alerts(spark, 1),
            source="test",
            identity=["id"],
            properties={"Speed": speed},
            class_name="ACME_FanIndication",
            url=deliverer.url,
        )

    assert isinstance(published, Published)
    assert (published.accepted, published.duplicate) == (0, 1)
    (line,) = deliverer.accepted
    assert line["properties"]["Speed"] == {"type": "uint16", "value": 0}
    assert line["properties"]["IndicationIdentifier"]["type"] == "string"


def test_a_group_is_published_in_order_by_one_task(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    publish(
        alerts(spark, 40, partitions=4),
        source="test",
        identity=["id"],
        properties={**ALERT, "group": (F.col("id") % 3).cast("string"), "EventID": F.col("name")},
        url=deliverer.url,
        options={"batchSize": "3"},
        order_by=["id"],
    )

    assert len(deliverer.accepted) == 40
    for group in "012":
        found = [a["properties"]["EventID"] for a in deliverer.accepted if a["group"] == group]
        assert found == [f"n{n}" for n in range(int(group), 40, 3)]


def test_an_order_needs_a_group_and_columns(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError) as caught:
        publish(alerts(spark), source="s", identity=["id"], properties=ALERT, order_by=["absent"])
    assert [text.split()[0] for text in caught.value.problems] == ["order_by"] * 2


def test_reading_and_tables_of_the_format_are_refused(spark: SparkSession) -> None:
    register(spark)
    with pytest.raises(AnalysisException, match="there is no table of it to create"):
        spark.sql("CREATE TABLE t USING pillion")
    with pytest.raises(AnalysisException, match="publishes, and reads nothing"):
        spark.read.format("pillion").load()


SQL_LINE = """
SELECT to_json(struct('CIM_AlertIndication' AS class, struct(string(id) AS IndicationIdentifier,
  6 AS AlertType, 4 AS PerceivedSeverity, 52 AS ProbableCause) AS properties)) AS value
FROM range(3)
"""


def test_sql_publishes_by_a_temporary_view(spark: SparkSession, deliverer: FakeDeliverer) -> None:
    register(spark)
    options = f"OPTIONS (source 'sql', url '{deliverer.url}')"
    spark.sql(f"CREATE TEMPORARY VIEW alerts (value STRING) USING pillion {options}")
    for _ in range(2):
        spark.sql(f"INSERT INTO alerts {SQL_LINE}")
    assert sorted(identifiers_of(deliverer)) == ["0", "1", "2"]
    assert {seen.query["source"] for seen in deliverer.published} == {"sql"}
    with pytest.raises(AnalysisException, match="nothing can be overwritten"):
        spark.sql(f"INSERT OVERWRITE alerts {SQL_LINE}")
    spark.catalog.dropTempView("alerts")


@contextmanager
def table(spark: SparkSession) -> Iterator[str]:
    try:
        yield "pillion_alerts"
    finally:
        spark.sql("DROP TABLE pillion_alerts")


def test_a_table_of_the_format_is_refused_when_it_is_written_to(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    register(spark)
    options = f"OPTIONS (source 'sql', url '{deliverer.url}')"
    with table(spark) as name:
        spark.sql(f"CREATE TABLE {name} (value STRING) USING pillion {options}")
        with pytest.raises(AnalysisException, match="write CREATE TEMPORARY VIEW"):
            spark.sql(f"INSERT INTO {name} {SQL_LINE}")
    assert deliverer.requests == []


def test_save_as_table_publishes_and_leaves_a_table_without_options(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    register(spark)
    options = {"source": "sql", "url": deliverer.url}
    writer = spark.sql(SQL_LINE).write.format("pillion").mode("append").options(**options)
    with table(spark) as name:
        for _ in range(2):
            writer.saveAsTable(name)
        with pytest.raises(AnalysisException, match="write CREATE TEMPORARY VIEW"):
            spark.sql(f"INSERT INTO {name} {SQL_LINE}")
    assert (len(deliverer.accepted), deliverer.duplicates) == (3, 3)


def test_publish_demands_an_identity(spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="identity is empty"):
        indications(alerts(spark), source="s", identity=[], properties=ALERT)


def test_a_time_parser_that_drops_microseconds_is_refused(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        with pytest.raises(ConfigurationError, match="timeParserPolicy"):
            indications(alerts(spark), source="s", identity=["id"], properties=ALERT)
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")


def test_structured_rows_are_published(spark: SparkSession, deliverer: FakeDeliverer) -> None:
    df = alerts(spark, 3).select(
        F.col("name").alias("IndicationIdentifier"),
        *(F.lit(value).alias(name) for name, value in ALERT.items()),
        F.timestamp_seconds("id").alias("happened"),
        F.when(F.col("id") == 1, "one").alias("Message"),
    )
    save(df, deliverer, columns="EventTime=happened")

    found = sorted(deliverer.accepted, key=lambda a: str(a["properties"]["EventTime"]))
    assert [line["properties"] for line in found] == [
        {"IndicationIdentifier": "n0", **ALERT, "EventTime": "19700101000000.000000+000"},
        {
            "IndicationIdentifier": "n1",
            **ALERT,
            "EventTime": "19700101000001.000000+000",
            "Message": "one",
        },
        {"IndicationIdentifier": "n2", **ALERT, "EventTime": "19700101000002.000000+000"},
    ]


def test_lines_are_published_as_they_are(spark: SparkSession, deliverer: FakeDeliverer) -> None:
    line = '{"class":"CIM_AlertIndication","group":"g","properties":{"AlertType":6}}'
    save(spark.createDataFrame([(line,)], "value string"), deliverer)

    assert deliverer.accepted == [json.loads(line)]


@pytest.mark.parametrize(
    ("mode", "given", "told"),
    [
        ("overwrite", {}, "nothing can be overwritten at a listener"),
        ("append", {"batchSise": "1", "ack": "x"}, "did you mean batchSize"),
    ],
)
def test_what_cannot_work_is_refused_before_any_task(
    spark: SparkSession, deliverer: FakeDeliverer, mode: str, given: dict[str, str], told: str
) -> None:
    register(spark)
    options = {"source": "s", "url": deliverer.url, **given}
    writer = alerts(spark).select(F.lit("{}").alias("value")).write.format("pillion")
    with pytest.raises(AnalysisException, match=told):
        writer.mode(mode).options(**options).save()

    assert deliverer.requests == []


def test_tasks_that_fail_and_run_again_publish_each_row_once(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    # Each breaks off an attempt after it has had rows accepted.
    broken = status(404, document={"reason": "injected"})
    deliverer.script += [full(), broken, full(), accept_and_hang_up, full(), broken]
    published = publish(
        alerts(spark, 400, partitions=3),
        source="test",
        identity=["id"],
        properties=ALERT,
        url=deliverer.url,
        options={"batchSize": "20"},
    )

    assert isinstance(published, Published)
    # What an attempt had published before it broke off is no duplicate of an earlier save.
    assert (published.accepted, published.duplicate, published.delivered) == (400, 0, 400)
    assert len(deliverer.accepted) == len(set(identifiers_of(deliverer))) == 400
    assert deliverer.duplicates > 0
    publishers = {seen.headers["pillion-publisher"] for seen in deliverer.published}
    assert len(publishers) == 5


def test_invalid_rows_fail_the_save_once_and_are_quoted(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    with pytest.raises(PySparkException, match="99 is no uint16 that CIM knows"):
        publish(
            alerts(spark, 1, partitions=1),
            source="test",
            identity=["id"],
            properties={**ALERT, "PerceivedSeverity": 99},
            url=deliverer.url,
        )

    # No task runs again for them.
    assert len(deliverer.published) == 1


def test_invalid_rows_can_be_rejected_to_files(
    spark: SparkSession, deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    severity = F.when(F.col("id") % 5 == 0, 99).otherwise(4)
    published = publish(
        alerts(spark, 20),
        source="test",
        identity=["id"],
        properties={**ALERT, "PerceivedSeverity": severity},
        url=deliverer.url,
        options={"onInvalid": "rejects", "rejectsPath": str(tmp_path)},
    )

    assert isinstance(published, Published)
    assert (published.accepted, published.rejected) == (16, 4)
    files = sorted(tmp_path.iterdir())
    assert [file.suffix for file in files] == [".ndjson"] * 2
    rows = [json.loads(row) for file in files for row in file.read_text().splitlines()]
    assert {row["field"] for row in rows} == {"properties.PerceivedSeverity"}
    assert len(rows) == 4


def test_discarded_indications_fail_the_save_or_are_reported(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    deliverer.discards = {"wbem": {"attempts-exceeded": 1}}
    arguments: dict[str, Any] = {"source": "test", "identity": ["id"], "properties": ALERT}
    df, waiting = alerts(spark, 4), {"flushLevel": "delivered"}
    with pytest.raises(PySparkException, match="wbem: attempts-exceeded 1"):
        publish(df, **arguments, url=deliverer.url, options=waiting)
    reported = publish(df, **arguments, url=deliverer.url)

    assert isinstance(reported, Published)
    assert reported.discarded == {"wbem: attempts-exceeded": 2}


def test_an_empty_frame_publishes_nothing(spark: SparkSession, deliverer: FakeDeliverer) -> None:
    published = publish(
        alerts(spark, 0), source="test", identity=["id"], properties=ALERT, url=deliverer.url
    )

    assert isinstance(published, Published)
    assert published.accepted == 0
    assert deliverer.requests == []


def test_real_weather_raises_514_distinct_alerts_and_none_twice(
    spark: SparkSession, deliverer: FakeDeliverer
) -> None:
    example = weather_job()
    weather = example.read_weather(spark, str(example.find_data()))
    assert weather.count() == 26_115
    deliverer.script += [accept_and_hang_up, status(503, retry_after="0"), status(404)]
    first = example.publish_alerts(example.dangerous(weather).repartition(4), url=deliverer.url)
    again = example.publish_alerts(example.dangerous(weather).repartition(3), url=deliverer.url)

    assert (first.accepted, first.duplicate) == (514, 0)
    assert (again.accepted, again.duplicate) == (0, 514)
    assert len(deliverer.accepted) == len(set(identifiers_of(deliverer))) == 514
    found = [alert["properties"] for alert in deliverer.accepted]
    assert {alert["PerceivedSeverity"] for alert in found} == {4, 5, 6}
    assert {(alert["AlertType"], alert["ProbableCause"]) for alert in found} == {(6, 52)}
    (storm,) = (a for a in found if a["EventTime"] == STORM and a["SystemName"] == "LGA")
    assert storm["Message"] == "LGA: gusts of 62 mph"
    assert storm["PerceivedSeverity"] == 6
