"""The data source: what Spark calls on the driver and in each task."""

import json
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession, datasource
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_pillion.columns import column_problems
from pyspark_pillion.deliverer import Deliverer
from pyspark_pillion.errors import ConfigurationError
from pyspark_pillion.lines import Bounds, Lines, line_column, requests, structured_lines, text_lines
from pyspark_pillion.options import Options, parse_options
from pyspark_pillion.rejects import Summary, rejects_at
from pyspark_pillion.sending import Counts, Sender, SystemPace
from pyspark_pillion.tracing import Trace, task_span, trace_of

FORMAT = "pillion"

#: Streams by Arrow; None in Spark 4.0, whose streams give rows.
_ARROW_STREAMS: Any = getattr(datasource, "DataSourceStreamArrowWriter", None)
#: Rows of Spark 4.0 that become one Arrow batch.
_ROWS = 5000
#: Maximum publishers that a report names.
MOST_PUBLISHERS = 1000

_WRITE_ONLY = (
    "the format pillion publishes, and reads nothing: there is no table of it to create or to read."
    " Use publish(), or write and writeStream with options; in SQL, INSERT INTO a temporary view of"
    " it with a column and options"
)

log = logging.getLogger("pyspark_pillion")


@dataclass(slots=True)
class TaskCounts(WriterCommitMessage):
    counts: Counts
    #: Of the rows that fail the save.
    invalid: Summary = field(default_factory=Summary)
    #: "" if the task published nothing.
    publisher: str = ""
    #: Query and batch, also within ``foreachBatch``.
    stream: tuple[str, int] | None = None


class DefaultSource(DataSource):
    """``df.write.format("pillion")`` and ``df.writeStream.format("pillion")``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Make the writer of one save. Raises ConfigurationError with every problem."""
        job = _job(self.options, schema, overwrite=overwrite)
        if job.unidentified:
            _log(logging.WARNING, f"save of {job.options.source}: {_UNIDENTIFIED}")
        return BatchWriter(job)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Make the writer of one micro-batch. Raises ConfigurationError with every problem."""
        job = _job(self.options, schema, overwrite=overwrite)
        return StreamWriter(job) if _ARROW_STREAMS is not None else RowStreamWriter(job)

    def schema(self) -> StructType:
        """Spark asks for it to read, and for a table. Raises ConfigurationError."""
        raise ConfigurationError([_WRITE_ONLY])

    def reader(self, schema: StructType) -> "datasource.DataSourceReader":
        """Raises ConfigurationError."""
        raise ConfigurationError([_WRITE_ONLY])

    def streamReader(self, schema: StructType) -> "datasource.DataSourceStreamReader":
        """Raises ConfigurationError."""
        raise ConfigurationError([_WRITE_ONLY])


def register(spark: SparkSession) -> None:
    """Register the format with a session, as ``--py-files`` needs."""
    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        # Spark 4.0 refuses what it has found by itself.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    session: Any = spark
    if hasattr(session, "_jvm"):
        # Spark looks for formats in the session of the thread, and a new thread has none.
        of_jvm = session._get_j_spark_session_class(session._jvm)
        of_jvm.setActiveSession(session._jsparkSession)


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of the tasks of one save or micro-batch; pickled."""

    options: Options
    #: None for structured rows.
    line_column: str | None
    #: The same for all partitions and attempts.
    save: str
    #: Whether the rows have no IndicationIdentifier.
    unidentified: bool = False
    trace: Trace = field(default_factory=Trace)


_UNIDENTIFIED = (
    "the rows have no column IndicationIdentifier, so no row is recognised as a duplicate: what a"
    " task or a batch publishes again is delivered again"
)


def _job(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Job:
    problems: list[str] = []
    if overwrite:
        problems.append(
            'nothing can be overwritten at a listener: use mode("append"), or outputMode("append")'
        )
    parsed: Options | None = None
    try:
        parsed = parse_options(options)
        parsed.address(os.environ)
    except ConfigurationError as error:
        problems += error.problems
    if parsed is not None:
        columns, class_name = parsed.columns, parsed.class_name
        problems += column_problems(schema, class_name=class_name, columns=columns)
    if problems or parsed is None:
        raise ConfigurationError(problems)
    whole = line_column(schema.fieldNames())
    properties = {parsed.columns.get(name, name).casefold() for name in schema.fieldNames()}
    unidentified = whole is None and "indicationidentifier" not in properties
    trace = trace_of(parsed.traceparent, parsed.tracestate, environ=os.environ)
    return Job(parsed, whole, uuid.uuid4().hex, unidentified, trace)


class _Writer:
    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[Any]) -> TaskCounts:
        return publish_partition(iterator, self.job)


class BatchWriter(_Writer, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        report(messages, self.job, batch=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        report_abort(messages, batch=None)


class _StreamWriter(_Writer):
    """One micro-batch. Spark makes a new writer at commit, so all counts are in messages."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report(messages, self.job, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report_abort(messages, batch=batchId)


class StreamWriter(_StreamWriter, _ARROW_STREAMS or DataSourceStreamWriter):  # type: ignore[misc]
    """With Spark 4.1 and later."""


class RowStreamWriter(_StreamWriter, DataSourceStreamWriter):
    """With Spark 4.0: whole lines alone, since rows have lost the types of their columns."""

    def __init__(self, job: Job) -> None:
        if job.line_column is None:
            raise ConfigurationError(
                [
                    "a stream of structured rows needs pyspark 4.1 or later: use publish(), which"
                    " makes lines of them"
                ]
            )
        super().__init__(job)

    def write(self, iterator: Iterator[Any]) -> TaskCounts:
        return publish_partition(_line_batches(iterator), self.job)


def _line_batches(rows: Iterator[Any]) -> Iterator[Any]:
    while texts := [row[0] for row in islice(rows, _ROWS)]:
        yield pa.record_batch([pa.array(texts, pa.string())], names=["value"])


def publish_partition(batches: Iterable[Any], job: Job) -> TaskCounts:
    """Publish one task attempt's rows, and return once they have reached ``flushLevel``.

    Raises a PublishError.
    """
    options = job.options
    address = options.address(os.environ)
    deliverer = Deliverer(address, timeout=options.timeout, access=options.access)
    attempt = Attempt.current(job)
    rejects = rejects_at(options.rejects_path, name=attempt.file)
    attributes: dict[str, str | int] = {
        "messaging.client.id": attempt.publisher,
        "messaging.pillion.source": options.source,
        "server.address": address.host,
        "server.port": address.port,
    }
    with task_span(job.trace, environ=os.environ, attributes=attributes) as span:
        sender = Sender(
            deliverer,
            options=options,
            publisher=attempt.publisher,
            rejects=rejects,
            pace=SystemPace(),
            earlier=attempt.earlier,
            speculative=attempt.speculative,
            trace=span.headers,
        )
        bounds = Bounds(rows=options.batch_size, size=options.batch_bytes)
        try:
            for lines in requests(map(_reader(job), batches), bounds=bounds, invalid=rejects.add):
                sender.send(lines)
            sender.flush()
            rejects.keep()
        finally:
            span.rows = sender.counts.taken
            deliverer.close()
            rejects.drop()
    counts = sender.finish()
    publisher = attempt.publisher if counts.taken else ""
    return TaskCounts(counts, rejects.summary, publisher, attempt.stream)


def _reader(job: Job) -> Callable[[Any], Lines]:
    if job.line_column is not None:
        return text_lines
    options = job.options
    return partial(structured_lines, class_name=options.class_name, columns=options.columns)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The publisher ID and file name of a task attempt. Never part of an identity: the rows of a
    partition differ between attempts and replays."""

    publisher: str
    file: str
    #: The publisher IDs of earlier attempts, and of those that may run at the same time.
    earlier: tuple[str, ...] = ()
    speculative: tuple[str, ...] = ()
    stream: tuple[str, int] | None = None

    @classmethod
    def current(cls, job: Job) -> "Attempt":
        context = TaskContext.get()
        if context is None:
            return cls(f"spark/{job.save}", job.save)
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        stream = (query, int(batch)) if query and batch else None
        work = f"{query}.{batch}" if stream else "batch"
        task = f"{context.stageId()}.{context.partitionId()}"
        number = context.attemptNumber()
        ids = [f"spark/{work}/{job.save}/{task}.{attempt}" for attempt in range(number + 2)]
        # A stage that runs again counts its attempts anew, and must not share a file.
        file = f"part-{task}.{context.taskAttemptId()}-{job.save}"
        return cls(ids[number], file, tuple(ids[:number]), (ids[-1],), stream)


def report(messages: list[WriterCommitMessage | None], job: Job, *, batch: int | None) -> None:
    """Log the counts of a save or micro-batch on the driver, and append them to ``reportPath``.

    Raises InvalidIndicationsError if rows of any task were invalid.
    """
    total, options = _total(messages), job.options
    invalid, publishers, query = Summary(), [], None
    for message in messages:
        if isinstance(message, TaskCounts):
            query, batch = message.stream or (query, batch)
            invalid.merge(message.invalid)
            publishers += [message.publisher] if message.publisher else []
    where = "save" if batch is None else f"batch {batch}"
    again = f", {total.repeated} of them of tasks that ran again" if total.repeated else ""
    healed = f", {total.redelivered} redelivered" if total.redelivered else ""
    nobody = ", ".join(f"{count} {reason}" for reason, count in total.unreached.items())
    _log(
        logging.WARNING if total.discarded or total.rejected or nobody else logging.INFO,
        f"{where} of {options.source}: {total.accepted} accepted, {total.duplicate} duplicate"
        f"{again}{healed},"
        f" {total.rejected} rejected, {total.delivered} delivered,"
        f" {sum(total.discarded.values())} discarded {total.discarded or ''}".rstrip()
        + (f", for no listener: {nobody}" if nobody else "")
        + (f"; {_UNIDENTIFIED}" if job.unidentified and batch is not None else ""),
    )
    if options.report_path is not None:
        named = {"publishers": publishers[:MOST_PUBLISHERS]}
        with open(options.report_path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"query": query, "batch": batch} | asdict(total) | named) + "\n")
    invalid.check(where=where)


def report_abort(messages: list[WriterCommitMessage | None], *, batch: int | None) -> None:
    """Accepted rows stay accepted; a repeat finds them by their identity."""
    total = _total(messages)
    failed = sum(message is None for message in messages)
    where = "save" if batch is None else f"batch {batch}"
    # Spark aborts a save that its commit has refused, too: then no task has failed.
    failure = f"in {failed} of {len(messages)} tasks" if failed else "at its commit"
    _log(
        logging.WARNING,
        f"{where} failed {failure}; {total.taken} rows that were published"
        " stay published, and are recognised when they come again",
    )


def _total(messages: list[WriterCommitMessage | None]) -> Counts:
    total = Counts()
    for message in messages:
        if isinstance(message, TaskCounts):
            total.add(message.counts)
    return total


def _log(level: int, text: str) -> None:
    # The commit runs in a process of Spark without logging; stderr is the driver's log.
    if not log.hasHandlers():
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    log.log(level, text)
