"""The data source: what Spark calls on the driver and in each task."""

import json
import logging
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_pillion.columns import column_problems
from pyspark_pillion.deliverer import Deliverer
from pyspark_pillion.errors import ConfigurationError
from pyspark_pillion.lines import Bounds, Lines, line_column, requests, structured_lines, text_lines
from pyspark_pillion.options import Options, parse_options
from pyspark_pillion.sending import Counts, FailOnInvalid, Rejects, RejectsFile, Sender, SystemPace
from pyspark_pillion.tracing import Trace, task_span, trace_of

FORMAT = "pillion"

log = logging.getLogger("pyspark_pillion")


@dataclass(slots=True)
class TaskCounts(WriterCommitMessage):
    counts: Counts


class DefaultSource(DataSource):
    """``df.write.format("pillion")`` and ``df.writeStream.format("pillion")``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        """Make the writer of one save. Raises ConfigurationError with every problem."""
        return BatchWriter(_job(self.options, schema, overwrite=overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        """Make the writer of one micro-batch. Raises ConfigurationError with every problem."""
        return StreamWriter(_job(self.options, schema, overwrite=overwrite))


def register(spark: SparkSession) -> None:
    """Register the format with a session, as ``--py-files`` needs."""
    spark.dataSource.register(DefaultSource)


@dataclass(frozen=True, slots=True)
class Job:
    """The settings of the tasks of one save or micro-batch; pickled."""

    options: Options
    #: None for structured rows.
    line_column: str | None
    #: The same for all partitions and attempts.
    save: str
    trace: Trace = field(default_factory=Trace)


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
    trace = trace_of(parsed.traceparent, parsed.tracestate, environ=os.environ)
    return Job(parsed, line_column(schema.fieldNames()), uuid.uuid4().hex, trace)


class _Writer:
    def __init__(self, job: Job) -> None:
        self.job = job

    def write(self, iterator: Iterator[Any]) -> TaskCounts:
        return publish_partition(iterator, self.job)


class BatchWriter(_Writer, DataSourceArrowWriter):
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        report(messages, self.job.options, batch=None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        report_abort(messages, batch=None)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """One micro-batch. Spark makes a new writer at commit, so all counts are in messages."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report(messages, self.job.options, batch=batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        report_abort(messages, batch=batchId)


def publish_partition(batches: Iterable[Any], job: Job) -> TaskCounts:
    """Publish one task attempt's rows, and return once they have reached ``flushLevel``.

    Raises a PublishError.
    """
    options = job.options
    address = options.address(os.environ)
    deliverer = Deliverer(address, timeout=options.timeout, access=options.access)
    attempt = Attempt.current(job)
    rejects = _rejects(options, attempt)
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
    return TaskCounts(sender.finish())


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

    @classmethod
    def current(cls, job: Job) -> "Attempt":
        context = TaskContext.get()
        if context is None:
            return cls(f"spark/{job.save}", job.save)
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        work = f"{query}.{batch}" if query else "batch"
        where = f"{context.stageId()}.{context.partitionId()}.{context.taskAttemptId()}"
        return cls(f"spark/{work}/{job.save}/{where}", f"part-{where}-{job.save}")


def _rejects(options: Options, attempt: Attempt) -> Rejects:
    if options.rejects_path is None:
        return FailOnInvalid()
    return RejectsFile(directory=options.rejects_path, name=attempt.file)


def report(
    messages: list[WriterCommitMessage | None], options: Options, *, batch: int | None
) -> None:
    """Log the counts of a save or micro-batch on the driver, and append them to ``reportPath``."""
    total = _total(messages)
    where = "save" if batch is None else f"batch {batch}"
    nobody = ", ".join(f"{count} {reason}" for reason, count in total.unreached.items())
    _log(
        logging.WARNING if total.discarded or total.rejected or nobody else logging.INFO,
        f"{where} of {options.source}: {total.accepted} accepted, {total.duplicate} duplicate,"
        f" {total.rejected} rejected, {total.delivered} delivered,"
        f" {sum(total.discarded.values())} discarded {total.discarded or ''}".rstrip()
        + (f", for no listener: {nobody}" if nobody else ""),
    )
    if options.report_path is not None:
        with open(options.report_path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"batch": batch} | asdict(total)) + "\n")


def report_abort(messages: list[WriterCommitMessage | None], *, batch: int | None) -> None:
    """Accepted rows stay accepted; a repeat finds them by their identity."""
    total = _total(messages)
    failed = sum(message is None for message in messages)
    where = "save" if batch is None else f"batch {batch}"
    _log(
        logging.WARNING,
        f"{where} failed in {failed} of {len(messages)} tasks; {total.taken} rows of the others"
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
