"""A real Spark in this process."""

import os
import sys
from typing import Any

from pyspark.sql import SparkSession


def start_spark(*, master: str, **settings: str) -> SparkSession:
    """Start Spark on ``master``, with what tests always want: quiet, and on loopback alone."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder.master(master).appName("pillion tests")
    fixed = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "700m",
    }
    for name, value in (fixed | settings).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session
