"""The counts of each batch of a stream, beside Spark's own progress of it.

The commit of a batch runs in another process than the query's Python code, and Spark has no metrics
of a data source in Python: ``reportPath`` is the way between them.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from pyspark_pillion.publishing import Published

#: Bytes that are read of a report at a time.
_MOST_BYTES = 16 * 1024 * 1024
#: Batches whose progress has not come.
_MOST_BATCHES = 100


class ReportListener(StreamingQueryListener):
    """Calls ``told`` with the progress and the counts of each batch that had rows.

    ``report_path`` is the option ``reportPath`` of the queries. ``told`` runs in a thread of the
    listeners of Spark, which logs what it raises.
    """

    def __init__(
        self, report_path: str, told: Callable[[StreamingQueryProgress, Published], object]
    ) -> None:
        """What the report has by now is of earlier runs, and is left out."""
        self._path = report_path
        self._told = told
        self._offset = os.path.getsize(report_path) if os.path.exists(report_path) else 0
        self._counts: dict[tuple[str, int], Published] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Of no interest."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Tell what the report has of the batch: a batch is committed before its progress comes."""
        progress = event.progress
        for document in self._reports():
            self._counts[document["query"], document["batch"]] = Published.of(document)
        for key in list(self._counts)[:-_MOST_BATCHES]:
            del self._counts[key]
        counts = self._counts.pop((str(progress.id), progress.batchId), None)
        if counts is not None:
            self._told(progress, counts)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Of no interest."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Of no interest."""

    def _reports(self) -> Iterator[Mapping[str, Any]]:
        try:
            with open(self._path, "rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    # Another file took its place.
                    self._offset = 0
                file.seek(self._offset)
                read = file.read(_MOST_BYTES)
        except FileNotFoundError:
            return
        # A line may still be written.
        whole = read[: read.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            document = json.loads(line)
            if document["query"] is not None:
                yield document
