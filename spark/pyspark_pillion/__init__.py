"""The Spark data source "pillion" and the publish() helper.

Spark finds ``DefaultSource`` by itself if the package is installed; else call :func:`register`.
"""

from pyspark_pillion.errors import ConfigurationError, PillionError, PublishError
from pyspark_pillion.publishing import Published, Value, indications, publish
from pyspark_pillion.source import DefaultSource, register

__all__ = [
    "ConfigurationError",
    "DefaultSource",
    "PillionError",
    "PublishError",
    "Published",
    "Value",
    "indications",
    "publish",
    "register",
]
