"""What Spark calls: the writers, their messages, and the partition's way from rows to answers."""

import json
import logging
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyarrow.fs import FileSelector, _MockFileSystem
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import types as T

from py_files import write as write_archive
from pyspark_pillion.errors import (
    ConfigurationError,
    InvalidIndicationsError,
    RequestRefusedError,
)
from pyspark_pillion.lines import Invalid
from pyspark_pillion.rejects import RejectsObject, Summary
from pyspark_pillion.sending import Counts
from pyspark_pillion.source import (
    BatchWriter,
    DefaultSource,
    RowStreamWriter,
    StreamWriter,
    TaskCounts,
    register,
)
from support.fake_deliverer import FakeDeliverer, full, status
from support.publisher import identifiers_of, lines_of

SPARK = Path(__file__).parents[3] / "spark"
LINES = T.StructType([T.StructField("value", T.StringType())])
SHORTS = ("AlertType", "PerceivedSeverity", "ProbableCause", "Trending")
ROWS = T.StructType(
    [
        T.StructField("EventID", T.StringType()),
        *(T.StructField(name, T.ShortType()) for name in SHORTS),
    ]
)


def writer(deliverer: FakeDeliverer, *, schema: T.StructType = LINES, **given: str) -> BatchWriter:
    options = {"source": "weather", "url": deliverer.url, **given}
    return DefaultSource(options).writer(schema, overwrite=False)


def message(writer: BatchWriter, *batches: Any) -> TaskCounts:
    # As Spark does it: the writer travels pickled, and so does its message.
    found = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter(batches))))
    assert isinstance(found, TaskCounts)
    return found


def write(writer: BatchWriter, *batches: Any) -> Counts:
    return message(writer, *batches).counts


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
    shorts = {name: pa.array([2], pa.int16()) for name in SHORTS}
    rows = batch(EventID=pa.array(["gust"]), **shorts)
    write(writer(deliverer, schema=ROWS, className="CIM_ThresholdIndication"), rows)

    assert deliverer.accepted == [
        {
            "class": "CIM_ThresholdIndication",
            "properties": {"EventID": "gust", **dict.fromkeys(SHORTS, 2)},
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


@dataclass(frozen=True)
class FakeContext:
    """Task 2 of stage 7."""

    number: int

    def stageId(self) -> int:
        return 7

    def partitionId(self) -> int:
        return 2

    def attemptNumber(self) -> int:
        return self.number

    def taskAttemptId(self) -> int:
        return 100 + self.number

    def getLocalProperty(self, key: str) -> None:
        return None


def run_task(made: BatchWriter, monkeypatch: pytest.MonkeyPatch, *, number: int) -> TaskCounts:
    monkeypatch.setattr(TaskContext, "get", lambda: FakeContext(number))
    return message(made, batch(value=lines_of("a", "b", "c")))


def test_what_earlier_attempts_of_a_task_published_is_no_duplicate(
    deliverer: FakeDeliverer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = writer(deliverer, batchSize="1", retrySeconds="1")
    for number in range(2):
        # Each attempt has one more row accepted, and breaks off.
        deliverer.script += [full(), *[full()] * number, status(404)]
        with pytest.raises(RequestRefusedError):
            run_task(made, monkeypatch, number=number)
    counts = run_task(made, monkeypatch, number=2).counts

    assert (counts.accepted, counts.duplicate, counts.repeated) == (3, 0, 0)
    assert counts.delivered == 3
    assert len(deliverer.accepted) == 3


def test_duplicates_are_counted_apart_if_the_deliverer_does_not_know_the_earlier_attempt(
    deliverer: FakeDeliverer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # One of the first release, which does not tell.
    deliverer.instance = None
    write(writer(deliverer), batch(value=lines_of("a")))
    made = writer(deliverer)
    first = run_task(made, monkeypatch, number=0)
    again = run_task(made, monkeypatch, number=1)
    assert (first.counts.accepted, first.counts.duplicate, first.counts.repeated) == (2, 1, 0)
    assert (again.counts.accepted, again.counts.duplicate, again.counts.repeated) == (0, 3, 3)
    caplog.set_level(logging.INFO, "pyspark_pillion")
    made.commit([again])
    assert "0 accepted, 3 duplicate, 3 of them of tasks that ran again, 0" in caplog.messages[0]


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
    rejects = {"onInvalid": "rejects", "rejectsPath": str(tmp_path)}
    made = writer(deliverer, flushLevel="delivered", **rejects)
    with pytest.raises(Exception, match="queue-full"):
        write(made, batch(value=pa.array([None, *lines_of("a").to_pylist()], pa.string())))

    assert list(tmp_path.iterdir()) == []


def test_invalid_rows_fail_the_save_once_with_counts_over_all_tasks(
    deliverer: FakeDeliverer,
) -> None:
    made = writer(deliverer)
    tasks = [
        message(made, batch(value=pa.array([None, "!{}", *lines_of(name).to_pylist()])))
        for name in "ab"
    ]
    assert identifiers_of(deliverer) == ["a", "b"]
    with pytest.raises(InvalidIndicationsError) as caught:
        made.commit([*tasks, None])

    text = str(caught.value)
    assert text.startswith("4 rows of the save are no indications; the others are published")
    assert "\n2 x the row holds no text\n" in text
    assert "2 x identity: all values of its identity are null" in text


def test_what_an_error_quotes_of_invalid_rows_is_bounded() -> None:
    total = Summary()
    for task in range(50):
        one = Summary()
        one.add([Invalid("y" * 5000, f"{task}/{row} is wrong") for row in range(50)])
        total.merge(one)
    with pytest.raises(InvalidIndicationsError) as caught:
        total.check(where="save")

    assert str(caught.value).startswith("2500 rows")
    assert "2480 x other reasons" in str(caught.value)
    assert len(str(caught.value)) < 3000


def test_rejects_appear_in_a_file_system_of_pyarrow_when_the_attempt_has_succeeded() -> None:
    system = _MockFileSystem()
    for name in ("kept", "dropped"):
        made = RejectsObject(find=lambda: (system, "bucket/rejects"), name=name)
        made.add([Invalid("null", "the row holds no text")])
        if name == "kept":
            made.keep()
        made.drop()

    (found,) = system.get_file_info(FileSelector("bucket", recursive=True))[1:]
    assert found.path == "bucket/rejects/kept.ndjson"
    content = system.open_input_stream(found.path).read()
    assert json.loads(content) == {"line": "null", "reason": "the row holds no text", "field": ""}


def test_rows_without_an_identifier_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    DefaultSource({"source": "s"}).writer(ROWS, overwrite=False)
    assert "no column IndicationIdentifier" in caplog.messages[0]
    caplog.clear()
    renamed = {"source": "s", "columns": "IndicationIdentifier=EventID"}
    DefaultSource(renamed).writer(ROWS, overwrite=False)
    DefaultSource({"source": "s"}).writer(LINES, overwrite=False)
    assert caplog.messages == []


def test_a_report_names_the_publishers_to_ask_faults_of(
    deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    made = writer(deliverer, reportPath=str(tmp_path / "report"))
    made.commit([message(made, batch(value=lines_of("a"))), message(made)])

    (line,) = map(json.loads, (tmp_path / "report").read_text().splitlines())
    assert line["publishers"] == [deliverer.published[0].headers["pillion-publisher"]]


@pytest.mark.parametrize("method", ["schema", "reader", "streamReader"])
def test_reading_is_refused_with_the_way_to_write(method: str) -> None:
    with pytest.raises(ConfigurationError, match="publishes, and reads nothing"):
        getattr(DefaultSource({}), method)(*([] if method == "schema" else [LINES]))


def test_a_stream_of_spark_4_0_has_lines_alone(
    deliverer: FakeDeliverer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_pillion.source._ARROW_STREAMS", None)
    source = DefaultSource({"source": "s", "url": deliverer.url})
    made = source.streamWriter(LINES, overwrite=False)
    assert isinstance(made, RowStreamWriter)
    made.write(iter([(line,) for line in lines_of("a", "b").to_pylist()]))
    assert identifiers_of(deliverer) == ["a", "b"]
    with pytest.raises(ConfigurationError, match=r"needs pyspark 4\.1 or later: use publish"):
        source.streamWriter(ROWS, overwrite=False)


class _Refused(AnalysisException):
    def __init__(self, condition: str) -> None:
        super().__init__("refused")
        self._of = condition

    def getCondition(self) -> str:
        return self._of


def test_what_spark_4_0_has_found_by_itself_is_not_registered_again() -> None:
    session = Mock(spec=["dataSource"])
    session.dataSource.register.side_effect = _Refused("DATA_SOURCE_ALREADY_EXISTS")
    register(session)
    session.dataSource.register.side_effect = _Refused("INVALID_PYTHON_DATA_SOURCE")
    with pytest.raises(_Refused):
        register(session)


IMPORTS = """
import sys, types
import pyspark.sql.datasource as found
if {version!r} == "3.5":
    sys.modules["pyspark.sql.datasource"] = None
else:
    del found.DataSourceStreamArrowWriter
import pyspark_pillion
print(pyspark_pillion.source.StreamWriter.__mro__[3].__name__)
"""


@pytest.mark.parametrize(
    ("version", "told"),
    [("3.5", "ImportError: pyspark_pillion needs pyspark 4.0"), ("4.0", "DataSourceStreamWriter")],
)
def test_older_versions_of_spark_work_or_are_refused_with_a_sentence(
    version: str, told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS.format(version=version)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SPARK)},
        check=False,
    )
    assert told in done.stdout + done.stderr


def test_the_archive_for_py_files_has_all_that_the_driver_needs(tmp_path: Path) -> None:
    archive = tmp_path / "pyspark_pillion.zip"
    write_archive(archive)
    program = (
        "import pyspark_pillion.columns as c; print(c.__file__);"
        "print(c.required_problems([], class_name='CIM_AlertIndication'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(archive)},
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.startswith(str(archive))
    assert "AlertType is missing" in done.stdout


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
