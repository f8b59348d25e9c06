"""The tutorial of rules, docs/readings-to-alerts.md, from its first line to its last."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.fake_deliverer import FakeDeliverer
from support.house import ROOT
from support.manual import DOCS, REWRITE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = DOCS / "readings-to-alerts.md"


def test_its_steps_print_what_the_page_says(deliverer: FakeDeliverer, tmp_path: Path) -> None:
    # In a process of its own: Spark takes the address from the environment of its start.
    environment = os.environ | {
        "PILLION_URL": deliverer.url,
        "PYTHONPATH": str(ROOT / "tests"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    made = tmp_path / PAGE.name
    command = [sys.executable, "-m", "support.tutorial", str(PAGE), str(made)]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = made.read_text(encoding="utf-8")
    if os.environ.get(REWRITE):
        PAGE.write_text(found, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == found
