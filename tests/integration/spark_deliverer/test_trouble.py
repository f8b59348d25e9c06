"""Listeners that are bad, slow or silent, and rows that are wrong: what a Spark job is told."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_pillion import Published, publish
from support.processes import ListenerProcess, listener_process, sidecar_process
from support.resources import JSON, alert_filter, subscription
from support.running import listener, resources

pytestmark = pytest.mark.spark

CAPACITY = 40
SLOW_ROWS = 100


@contextmanager
def bound(*, listening: bool) -> Iterator[str]:
    """An address that refuses whoever connects, or lets connect and never answers."""
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        if listening:
            found.listen()
        yield f"http://127.0.0.1:{found.getsockname()[1]}/"


def routed(*destinations: JSON) -> tuple[JSON, ...]:
    """Each destination gets the alerts whose EventID is its name."""
    names = [document["metadata"]["name"] for document in destinations]
    query = "SELECT * FROM CIM_AlertIndication WHERE EventID = '{}'"
    return resources(
        *destinations,
        filters=tuple(alert_filter(name, query=query.format(name)) for name in names),
        subscriptions=tuple(subscription(name, name, name) for name in names),
    )


@dataclass(frozen=True, slots=True)
class Town:
    """A deliverer with a destination ``good`` that delays, ``broken`` and ``hung``."""

    url: str
    good: ListenerProcess


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    folder = tmp_path_factory.mktemp("town")
    with (
        bound(listening=False) as broken,
        bound(listening=True) as hung,
        listener_process(folder, "--delay", "0.005") as good,
    ):
        documents = routed(
            listener("good", good.url, queueSize=CAPACITY, queueFullPolicy="Reject"),
            listener("broken", broken, retry={"attempts": 0, "intervalSeconds": 1}),
            listener("hung", hung),
        )
        with sidecar_process(folder, *documents) as sidecar:
            yield Town(sidecar.url, good)


@pytest.fixture
def spark(applications: Any) -> SparkSession:
    found: SparkSession = applications.any()
    return found


def send(
    rows: DataFrame, to: str, *, town: Town, source: str, severity: Any = 4, **options: str
) -> Published:
    """Publish rows to a destination."""
    published = publish(
        rows,
        source=source,
        identity=["id"],
        properties={
            "AlertType": 6,
            "PerceivedSeverity": severity,
            "ProbableCause": 52,
            "EventID": to,
            "Message": F.col("id").cast("string"),
        },
        url=town.url,
        options=options,
    )
    assert isinstance(published, Published)
    return published


def test_what_a_broken_listener_loses_fails_the_save(spark: SparkSession, town: Town) -> None:
    with pytest.raises(PySparkException, match="discarded: broken: attempts-exceeded 2"):
        send(spark.range(0, 2, 1, 1), "broken", town=town, source="fail", flushLevel="delivered")


def test_what_a_broken_listener_loses_is_reported(spark: SparkSession, town: Town) -> None:
    rows = spark.range(0, 2, 1, 1)
    waiting = {"flushLevel": "delivered", "onUndelivered": "report"}
    reported = send(rows, "broken", town=town, source="report", **waiting)

    assert (reported.accepted, reported.delivered) == (2, 0)
    assert reported.discarded == {"broken: attempts-exceeded": 2}


def test_a_flush_that_takes_too_long_fails_the_save(spark: SparkSession, town: Town) -> None:
    late = (
        r"delivered within 1 s \(option flushTimeoutSeconds\); pending: originals of duplicates 1"
    )
    # What is quoted is the last attempt; the first was told that its own row is pending.
    waiting = {"flushLevel": "delivered", "flushTimeoutSeconds": "1"}
    with pytest.raises(PySparkException, match=late):
        send(spark.range(1), "hung", town=town, source="late", **waiting)


def test_no_listener_delays_a_job_by_default(spark: SparkSession, town: Town) -> None:
    published = send(spark.range(1), "hung", town=town, source="early")

    assert (published.accepted, published.delivered) == (1, 0)


def test_rows_that_the_deliverer_refuses_are_rejected_to_files(
    spark: SparkSession, town: Town, tmp_path: Path
) -> None:
    severity = F.when(F.col("id") % 5 == 0, 70_000).otherwise(4)
    published = send(
        spark.range(0, 20, 1, 2),
        "good",
        town=town,
        source="rejects",
        severity=severity,
        flushLevel="delivered",
        onInvalid="rejects",
        rejectsPath=str(tmp_path),
    )

    assert (published.accepted, published.rejected, published.delivered) == (16, 4, 16)
    rows = [json.loads(row) for file in tmp_path.iterdir() for row in file.read_text().splitlines()]
    refused = sorted(json.loads(row["line"])["properties"]["Message"] for row in rows)
    assert refused == ["0", "10", "15", "5"]
    assert {row["field"] for row in rows} == {"properties.PerceivedSeverity"}
    assert all("(got 70000); write an integer from 0 to 65535" in row["reason"] for row in rows)


def test_rows_that_the_deliverer_refuses_fail_the_save(spark: SparkSession, town: Town) -> None:
    with pytest.raises(PySparkException, match="uint16 goes from 0 to 65535"):
        send(spark.range(2), "good", town=town, source="wrong", severity=70_000)


def test_back_pressure_slows_a_job_down_and_costs_neither_rows_nor_order(
    spark: SparkSession, town: Town
) -> None:
    before = len(town.good.record())
    rows = spark.range(0, SLOW_ROWS, 1, 1)
    options = {"batchSize": str(SLOW_ROWS), "flushLevel": "delivered"}
    published = send(rows, "good", town=town, source="slow", **options)

    assert (published.accepted, published.duplicate) == (SLOW_ROWS, 0)
    arrived = town.good.record()[before:]
    assert [line["properties"]["Message"] for line in arrived] == [str(n) for n in range(SLOW_ROWS)]
    numbers = [line["number"] for line in arrived]
    assert numbers == list(range(numbers[0], numbers[0] + SLOW_ROWS))
