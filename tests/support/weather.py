"""The Spark job of ``examples/spark-weather``, and what it has to come to."""

import importlib.util
from pathlib import Path
from types import ModuleType

RECORDS = 26_115
ALERTS = 514
#: Of a severity of 5 and more.
MAJOR_ALERTS = 204
EXAMPLE = Path(__file__).parents[2] / "examples" / "spark-weather" / "weather_alerts.py"
RULES = EXAMPLE.parents[1] / "rules" / "weather.yaml"


def weather_job() -> ModuleType:
    """A copy of the example of one's own."""
    found = importlib.util.spec_from_file_location("weather_alerts", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module
