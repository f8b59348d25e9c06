"""Programs with another version of Spark than that of the tests."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from pillion_testbed.spark_versions import packages
from support.house import ROOT


def run_with(
    version: str, command: Sequence[str], *, folder: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder with a version of Spark, on loopback alone. Skips the test if the
    version is missing."""
    found = home(version).parent
    given = {
        "PYTHONPATH": f"{found}:{ROOT / 'tests'}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(home(version)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Spark fails if others have taken the 16 ports that it tries for its pages.
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false pyspark-shell",
    }
    with subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | given | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, errors = process.communicate()
        finally:
            # Spark is a process of its own, and Spark Connect another.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def home(version: str) -> Path:
    """Return Spark's folder."""
    found = packages(version)
    if not found.exists():
        pytest.skip(f"pyspark {version} is missing: make spark-matrix fetches it")
    return found / "pyspark"
