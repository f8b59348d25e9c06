"""What Spark calls: the writers, their messages, and the partition's way from rows to answers."""

import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from pyspark_pillion.errors import ConfigurationError, InvalidIndicationsError
from pyspark_pillion.sending import Counts
from pyspark_pillion.source import BatchWriter, DefaultSource, StreamWriter, TaskCounts
from support.fake_deliverer import FakeDeliverer
from support.publisher import identifiers_of, lines_of

LINES = T.StructType([T.StructField("value", T.StringType())])
ROWS = T.StructType(
    [T.StructField("EventID", T.StringType()), T.StructField("Trending", T.ShortType())]
)


def writer(deliverer: FakeDeliverer, *, schema: T.StructType = LINES, **given: str) -> BatchWriter:
    options = {"source": "weather", "url": deliverer.url, **given}
    return DefaultSource(options).writer(schema, overwrite=False)


def write(writer: BatchWriter, *batches: Any) -> Counts:
    # As Spark does it: the writer travels pickled, and so does its message.
    message = pickle.loads(pickle.dumps(writer)).write(iter(batches))
    found = pickle.loads(pickle.dumps(message))
    assert isinstance(found, TaskCounts)
    return found.counts


def batch(**columns: Any) -> Any:
    return pa.record_batch(list(columns.values()), names=list(columns))


def test_the_format_is_named_pillion() -> None:
    assert DefaultSource.name() == "pillion"


@pytest.mark.parametrize("method", ["writer", "streamWriter"])
def test_overwriting_is_refused_together_with_every_other_problem(method: str) -> None:
    schema = T.StructType([T.StructField("value", T.LongType())])
    with pytest.raises(ConfigurationError) as caught:
        getattr(DefaultSource({"source": "s", "url": "x"}), method)(schema, True)

    assert "append" in caught.value.problems[0]
    assert caught.value.problems[1].startswith("option url")
    assert len(caught.value.problems) == 2


def test_columns_that_cannot_work_are_refused_before_any_task() -> None:
    schema = T.StructType([T.StructField("value", T.LongType())])
    with pytest.raises(ConfigurationError, match="column 'value' is bigint"):
        DefaultSource({"source": "s"}).writer(schema, overwrite=False)


def test_a_stream_has_a_writer_of_its_own() -> None:
    made = DefaultSource({"source": "s", "queryname": "q"}).streamWriter(LINES, overwrite=False)

    assert isinstance(made, StreamWriter)


def test_lines_are_published_in_requests_of_batch_size_and_flushed(
    deliverer: FakeDeliverer,
) -> None:
    counts = write(
        writer(deliverer, batchSize="2"),
        batch(value=lines_of("a", "b", "c")),
        batch(value=lines_of("d")),
    )

    assert [len(seen.lines) for seen in deliverer.published] == [2, 2]
    assert identifiers_of(deliverer) == ["a", "b", "c", "d"]
    assert len(deliverer.flushed) == 1
    assert (counts.accepted, counts.delivered) == (4, 4)


def test_structured_rows_are_published_as_lines(deliverer: FakeDeliverer) -> None:
    rows = batch(EventID=pa.array(["gust"]), Trending=pa.array([2], pa.int16()))
    write(writer(deliverer, schema=ROWS, className="CIM_ThresholdIndication"), rows)

    assert deliverer.accepted == [
        {
            "class": "CIM_ThresholdIndication",
            "properties": {"EventID": "gust", "Trending": 2},
        }
    ]


def test_no_rows_make_no_request(deliverer: FakeDeliverer) -> None:
    assert write(writer(deliverer)) == Counts()
    assert deliverer.requests == []


def test_every_attempt_publishes_under_an_id_of_its_save(deliverer: FakeDeliverer) -> None:
    for name in "ab":
        write(writer(deliverer), batch(value=lines_of(name)))

    publishers = {seen.headers["pillion-publisher"] for seen in deliverer.published}
    assert len(publishers) == 2


def test_rejected_rows_appear_when_the_attempt_has_succeeded(
    deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    made = writer(deliverer, onInvalid="rejects", rejectsPath=str(tmp_path))
    value = pa.array([None, *lines_of("a").to_pylist(), "[]"], pa.string())
    counts = write(made, batch(value=value))

    (file,) = tmp_path.iterdir()
    assert file.suffix == ".ndjson"
    assert [json.loads(row)["line"] for row in file.read_text().splitlines()] == ["null", "[]"]
    assert (counts.accepted, counts.rejected) == (1, 2)


def test_a_failed_attempt_leaves_no_rejects(deliverer: FakeDeliverer, tmp_path: Path) -> None:
    deliverer.discards = {"d": {"queue-full": 1}}
    made = writer(deliverer, onInvalid="rejects", rejectsPath=str(tmp_path))
    with pytest.raises(Exception, match="queue-full"):
        write(made, batch(value=pa.array([None, *lines_of("a").to_pylist()], pa.string())))

    assert list(tmp_path.iterdir()) == []


def test_a_row_without_text_fails_the_task(deliverer: FakeDeliverer) -> None:
    with pytest.raises(InvalidIndicationsError, match="the row holds no text"):
        write(writer(deliverer), batch(value=pa.array([None], pa.string())))


def test_commit_sums_the_tasks_logs_them_and_appends_them_to_the_report(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    report = tmp_path / "report"
    made = DefaultSource({"source": "s", "reportPath": str(report)}).streamWriter(LINES, False)
    counts = Counts(accepted=2, duplicate=1, delivered=3)
    counts.discarded["d: queue-full"] = 1
    caplog.set_level(logging.INFO, "pyspark_pillion")
    made.commit([TaskCounts(counts), TaskCounts(counts), None], 7)
    made.commit([], 8)

    first, second = map(json.loads, report.read_text().splitlines())
    assert (first["batch"], first["accepted"], first["duplicate"]) == (7, 4, 2)
    assert first["discarded"] == {"d: queue-full": 2}
    assert second["batch"] == 8
    assert caplog.records[0].levelname == "WARNING"
    assert caplog.messages[0] == (
        "batch 7 of s: 4 accepted, 2 duplicate, 0 rejected, 6 delivered,"
        " 2 discarded {'d: queue-full': 2}"
    )


def test_a_commit_says_what_reaches_no_listener(caplog: pytest.LogCaptureFixture) -> None:
    made = DefaultSource({"source": "s"}).streamWriter(LINES, False)
    counts = Counts(accepted=2, unreached={"unrouted": 2})
    caplog.set_level(logging.INFO, "pyspark_pillion")
    made.commit([TaskCounts(counts), TaskCounts(counts)], 7)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().endswith("0 discarded, for no listener: 4 unrouted")


def test_abort_says_how_many_tasks_failed(
    deliverer: FakeDeliverer, caplog: pytest.LogCaptureFixture
) -> None:
    writer(deliverer).abort([TaskCounts(Counts(accepted=3)), None])

    assert "save failed in 1 of 2 tasks; 3 rows" in caplog.messages[0]
