"""The Spark data source "pillion" and the publish() helper.

Spark finds ``DefaultSource`` by itself if the package is installed; else call :func:`register`.
"""

try:
    import pyspark.sql.datasource as _datasource  # noqa: F401
except ModuleNotFoundError as _error:
    raise ImportError(
        "pyspark_pillion needs pyspark 4.0 or later, whose data sources are written in Python;"
        " streams of structured rows need 4.1"
    ) from _error

from pyspark_pillion.errors import ConfigurationError, PillionError, PublishError
from pyspark_pillion.progress import ReportListener
from pyspark_pillion.publishing import Published, Value, identifier, indications, publish
from pyspark_pillion.source import DefaultSource, register

__all__ = [
    "ConfigurationError",
    "DefaultSource",
    "PillionError",
    "PublishError",
    "Published",
    "ReportListener",
    "Value",
    "identifier",
    "indications",
    "publish",
    "register",
]
