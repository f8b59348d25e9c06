"""The Spark data source "pillion" and the publish() helper.

Spark finds ``DefaultSource`` here by itself where the package is installed; :func:`register` makes
it known where it is not.
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
