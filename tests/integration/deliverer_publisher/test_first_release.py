"""Publishers of Spark and deliverers, one of today and one of the first release."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_pillion.deliverer import Deliverer
from pyspark_pillion.options import parse_options
from pyspark_pillion.rejects import FailAtCommit
from pyspark_pillion.sending import Counts, Sender
from support.first_release import first_release
from support.publisher import FakePace
from support.resources import write
from support.running import alert, listener, resources
from support.sidecar import sidecar

PACKAGES = ("cim", "sidecar", "cli", "spark", "operator")
TASK = """
import sys
import pyarrow as pa
from pyspark.sql import types as T
from pyspark_pillion.source import DefaultSource
schema = T.StructType([T.StructField("value", T.StringType())])
writer = DefaultSource({"source": "test", "url": sys.argv[1]}).writer(schema, False)
counts = writer.write(iter([pa.record_batch([pa.array(sys.argv[2:])], names=["value"])])).counts
print(counts.accepted, counts.duplicate, counts.delivered)
"""


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that runs the first release."""
    tree = first_release(tmp_path_factory.mktemp("first-release"))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(tree / name) for name in PACKAGES)}


def texts(*identifiers: str) -> list[str]:
    return [json.dumps(alert(identifier)) for identifier in identifiers]


def publish(url: str, *identifiers: str, publisher: str, earlier: tuple[str, ...] = ()) -> Counts:
    """Publish as one task attempt of today."""
    options = parse_options({"source": "test", "url": url})
    deliverer = Deliverer(options.address({}), timeout=30)
    sender = Sender(
        deliverer,
        options=options,
        publisher=publisher,
        rejects=FailAtCommit(),
        pace=FakePace(),
        earlier=earlier,
    )
    sender.send(pa.array(texts(*identifiers)))
    sender.flush()
    deliverer.close()
    return sender.finish()


async def test_a_task_of_today_publishes_to_a_deliverer_of_the_first_release(
    first: dict[str, str], tmp_path: Path
) -> None:
    write(tmp_path, *resources(listener("siem", "http://127.0.0.1:9/")))
    async with sidecar(tmp_path, environment=first) as old:
        assert old.intake, old.said
        before = await asyncio.to_thread(publish, old.intake, "a", publisher="task.0")
        again = await asyncio.to_thread(
            publish, old.intake, "a", "b", publisher="task.1", earlier=("task.0",)
        )
    assert (before.accepted, before.duplicate, before.repeated) == (1, 0, 0)
    # It does not tell what it accepted from the attempt before.
    assert (again.accepted, again.duplicate, again.repeated) == (1, 1, 1)


def test_a_task_of_the_first_release_publishes_to_a_deliverer_of_today(
    first: dict[str, str], house: Any
) -> None:
    house.deliver_to()
    done = subprocess.run(
        [sys.executable, "-c", TASK, house.between.url, *texts("a", "b", "a")],
        capture_output=True,
        text=True,
        env=first,
        check=False,
    )
    assert done.stdout == "2 1 2\n", done.stderr
    assert house.identifiers() == ["a", "b"]
