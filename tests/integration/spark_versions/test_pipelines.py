"""Declarative pipelines, by Spark's own runner: the example of docs/spark.md."""

import json
from pathlib import Path

import pytest

from support.manual import DOCS, blocks
from support.other_spark import home, run_with
from support.processes import listener_process, sidecar_process
from support.running import listener, resources

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

VERSION = "4.3"
GUSTS = (("JFK", 50.0), ("LGA", 10.0))
(FLOW,) = (block for block in blocks(DOCS / "spark.md", "python") if "create_sink" in block)
TABLE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession


@dp.table
def weather():
    schema = "origin string, time_hour timestamp, wind_gust double"
    return SparkSession.active().readStream.schema(schema).json({folder!r})
"""


def pipeline(folder: Path) -> Path:
    """The pipeline's specification."""
    definitions = folder / "definitions"
    definitions.mkdir()
    (definitions / "flow.py").write_text(FLOW)
    readings = folder / "in"
    readings.mkdir()
    time = "2013-01-01T10:00:00Z"
    rows = [{"origin": origin, "time_hour": time, "wind_gust": gust} for origin, gust in GUSTS]
    (readings / "1.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (definitions / "table.py").write_text(TABLE.format(folder=str(readings)))
    specification = folder / "spark-pipeline.yml"
    made = {
        "name": "gales",
        "storage": (folder / "storage").as_uri(),
        "libraries": [{"glob": {"include": "definitions/**"}}],
    }
    specification.write_text(json.dumps(made))
    return specification


def test_a_flow_publishes_to_a_sink(tmp_path: Path) -> None:
    specification = pipeline(tmp_path)
    command = [str(home(VERSION) / "bin" / "spark-pipelines"), "run", "--spec", str(specification)]
    with (
        listener_process(tmp_path) as arriving,
        sidecar_process(tmp_path, *resources(listener("all", arriving.url))) as sidecar,
    ):
        done = run_with(VERSION, command, folder=tmp_path, PILLION_URL=sidecar.url)
        assert done.returncode == 0, done.stderr
        arriving.arrived(1)
        (alert,) = arriving.record()
    assert alert["properties"]["SystemName"] == "JFK"
    assert len(alert["properties"]["IndicationIdentifier"]) == 64
