"""Spark applications, one after the other in one JVM, and a deliverer and a listener for each test,
each a process of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.between import Between
from support.processes import ListenerProcess, SidecarProcess, listener_process, sidecar_process
from support.running import listener, resources
from support.spark import start_spark

#: Two cores, and four attempts for each task.
RETRYING = "local[2,4]"


class Applications:
    """Spark: at most one application at a time."""

    def __init__(self) -> None:
        self._running: SparkSession | None = None
        self._master = ""

    def start(self, master: str) -> SparkSession:
        """Start a new application on so many cores, ending the one before."""
        self.stop()
        self._master = master
        self._running = start_spark(
            master=master,
            **{
                # Small, so that a task has several requests and can break off between them.
                "spark.sql.execution.arrow.maxRecordsPerBatch": "16",
                "spark.buffer.size": "1024",
            },
        )
        return self._running

    def any(self) -> SparkSession:
        """An application in which a task has four attempts: the one that runs, or a new one."""
        if self._running is None or self._master != RETRYING:
            return self.start(RETRYING)
        return self._running

    def stop(self) -> None:
        """End the application that runs."""
        if self._running is not None:
            self._running.stop()
            self._running = None


@pytest.fixture(scope="module")
def applications() -> Iterator[Applications]:
    made = Applications()
    yield made
    made.stop()


@dataclass(frozen=True, slots=True)
class Way:
    """The way of an indication."""

    between: Between
    sidecar: SidecarProcess
    listener: ListenerProcess


@contextmanager
def _way(folder: Path) -> Iterator[Way]:
    with listener_process(folder) as listening:
        documents = resources(listener("weather", listening.url))
        with sidecar_process(folder, *documents) as sidecar, Between(sidecar.url) as between:
            yield Way(between, sidecar, listening)


@pytest.fixture
def way(tmp_path: Path) -> Iterator[Way]:
    """A listener, a deliverer that delivers all alerts to it, and who stands before that."""
    with _way(tmp_path) as made:
        yield made
