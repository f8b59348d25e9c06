"""Cases of rules whose conditions Spark evaluates: what each rule makes of columns."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import DataFrame, SparkSession

from pillion_rules import (
    JudgedReading,
    KeyStep,
    MaintenanceWindow,
    Reading,
    RuleSet,
    Transition,
)
from pillion_rules.cases import Case, play
from pyspark_pillion.errors import ConfigurationError
from pyspark_pillion.judging import AT, EPOCH, LEVELS, MICROSECOND, NUMBERS, PLACE, TEXTS, judged
from pyspark_pillion.stepping import RuleGroups

_TRUTH = {"true": True, "false": False}


def start() -> SparkSession:
    """Start Spark in this process, quietly. Raises ConfigurationError without Java."""
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[1]").appName("pillion rules test")
    try:
        session = builder.config(map=settings).getOrCreate()
    except PySparkRuntimeError as error:
        raise ConfigurationError([f"Spark did not start: {error}"]) from None
    session.sparkContext.setLogLevel("ERROR")
    return session


def run(session: SparkSession, case: Case) -> tuple[list[Transition], int]:
    """Return the transitions of a case, and how many readings were late.

    The type of a column is double if all its values are numbers, boolean if all are true or false,
    and else string. Raises RuleError if the rule does not fit the columns.
    """
    # Either other rules are judged too, or the case says when they are raised.
    rule = case.rule if case.others else replace(case.rule, unless=None)
    found = judged(_frame(session, case), [rule, *case.others])
    ((name, group),) = found.groups.items()
    spans = [*case.maintenance, *case.unless]
    windows = [MaintenanceWindow(start=start, end=end, rule=rule.name) for start, end in spans]
    rules = RuleSet(group.rules, group.measured, windows)
    rows = found.rows.select(PLACE, AT, LEVELS, TEXTS, NUMBERS).collect()
    readings = RuleGroups(found.groups).readings(name, (tuple(row) for row in rows))

    def take(state: bytes | None, ready: Sequence[JudgedReading], watermark: int) -> KeyStep:
        return rules.step(case.key, state, ready, watermark=watermark)

    transitions, late = play(case, ((one[0], one) for one in readings), take)
    return [one for one in transitions if one.rule == rule.name], late


def _frame(session: SparkSession, case: Case) -> DataFrame:
    """The readings of a case in the order of their arrival."""
    rule, readings = case.rule, case.readings
    keys = dict(zip(rule.keys, case.key, strict=True))
    names = sorted({name for one in readings for name in one.values} - {*keys, rule.event_time})
    columns = {name: _values(name, readings) for name in names}
    schema = [f"`{name}` string" for name in keys]
    schema += [f"`{rule.event_time}` timestamp"]
    schema += [f"`{name}` {kind}" for name, (kind, _) in columns.items()]
    rows = [
        (
            *keys.values(),
            EPOCH + one.at * MICROSECOND,
            *(found[place] for _, found in columns.values()),
        )
        for place, one in enumerate(readings)
    ]
    return session.createDataFrame(rows, ", ".join(schema)).coalesce(1)


def _values(name: str, readings: Sequence[Reading]) -> tuple[str, list[object]]:
    """Return the type of a column, and its values. An empty text and ``null`` are no value."""
    texts = [one.values.get(name, "") for one in readings]
    texts = ["" if text in ("null", "~") else text for text in texts]
    given = [text for text in texts if text]
    if given and all(text in _TRUTH for text in given):
        return "boolean", [_TRUTH.get(text) for text in texts]
    if given and _are_numbers(given):
        return "double", [float(text) if text else None for text in texts]
    return "string", [text or None for text in texts]


def _are_numbers(texts: Iterable[str]) -> bool:
    try:
        for text in texts:
            float(text)
    except ValueError:
        return False
    return True
