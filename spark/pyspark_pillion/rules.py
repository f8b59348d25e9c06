"""Rules over readings: from the rows of a DataFrame to the transitions of alerts."""

import datetime
import functools
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pillion_rules import CLEAR, Reading, Rule, RuleError, Transition, step
from pillion_rules.errors import nearest
from pillion_rules.machine import MOST_PENDING
from pillion_rules.names import levels
from pillion_rules.templates import BUILT_IN
from pyspark_pillion.conditions import ConditionError, condition, without_ansi

__all__ = ["Rule", "transitions"]

# The same type for Spark and for Arrow.
_TEXT = (T.StringType(), pa.string())
_TIME = (T.TimestampType(), pa.timestamp("us", tz="UTC"))
#: One row is one transition.
_COLUMNS: dict[str, tuple[T.DataType, pa.DataType]] = {
    "rule": _TEXT,
    "key": (T.ArrayType(T.StringType(), containsNull=False), pa.list_(pa.string())),
    "transition": _TEXT,
    "level": _TEXT,
    "at": _TIME,
    "since": _TIME,
    "count": (T.LongType(), pa.int64()),
    "text": _TEXT,
    "reason": _TEXT,
    "raised_at": _TIME,
    "raised_level": _TEXT,
}
SCHEMA = T.StructType(
    [
        T.StructField(name, of_spark, nullable=name == "reason")
        for name, (of_spark, _) in _COLUMNS.items()
    ]
)
_ARROW = pa.schema([(name, of_arrow) for name, (_, of_arrow) in _COLUMNS.items()])
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
#: Readings of one key that are taken at a time; two parts wait in a state.
_PART = MOST_PENDING // 2
#: Fields that this version does not evaluate.
_PLANNED = ("input", "window", "measure", "rate")
# Columns between Spark and the step function.
_KEY, _AT, _LEVELS, _VALUES = "key", "at", "levels", "values"
_BUILT_IN = frozenset(BUILT_IN)


def transitions(
    readings: DataFrame, rules: Rule | Iterable[Rule], *, until: datetime.datetime | None = None
) -> DataFrame:
    """Return what the rules make of a batch of readings, such as a table of last year: a row for
    each transition. Nothing is sent.

    The columns are ``rule``, ``key`` (texts), ``transition``, ``level``, ``at``, ``since``,
    ``count``, ``text``, ``reason`` (of a clear that no reading caused), ``raised_at`` and
    ``raised_level``. The rows of one key and rule are in order within a partition; sort by ``at``
    to see all in order.

    ``until``: the time up to which everything is due, with a time zone; by default that of the last
    reading, for which the readings are read once more. A later reading is left out, and so is one
    whose time or key is null.

    Raises RuleError with every problem of the rules, before a job starts.
    """
    given = [rules] if isinstance(rules, Rule) else list(rules)
    _check(readings, given)
    groups: dict[tuple[Sequence[str], str], list[Rule]] = {}
    for rule in given:
        groups.setdefault((tuple(rule.keys), rule.event_time), []).append(rule)
    problems: list[str] = []
    with without_ansi(readings.sparkSession):
        judged = [_judged(readings, together, problems) for together in groups.values()]
    if problems:
        raise RuleError(problems)
    found = [
        _applied(levelled, together, until=_micros(until))
        for together, levelled in zip(groups.values(), judged, strict=True)
    ]
    return functools.reduce(DataFrame.unionAll, found)


def _check(readings: DataFrame, rules: Sequence[Rule]) -> None:
    problems: list[str] = []
    if find_spec("pandas") is None:
        problems.append("rules: Spark needs pandas for them; pip install 'pillion[spark-rules]'")
    if not hasattr(readings, "_jdf"):
        problems.append("rules: not with Spark Connect in this version; use a classic session")
    elif readings.isStreaming:
        problems.append("readings: a stream is not evaluated in this version; use a batch")
    if not rules:
        problems.append("rules: there is none; give one at least")
    names = [rule.name for rule in rules]
    problems += [
        f"rule {name}: two rules have this name; rename one"
        for name in sorted({name for name in names if names.count(name) > 1})
    ]
    for rule in rules:
        problems += [
            f"rule {rule.name}: {name}: not evaluated in this version; remove it"
            for name in _PLANNED
            if getattr(rule, name) is not None
        ]
    if problems:
        raise RuleError(problems)


def _judged(readings: DataFrame, rules: Sequence[Rule], problems: list[str]) -> DataFrame:
    """One row for each reading, for rules of the same keys and time: its key, its time, its level
    by each rule, and the texts of the messages."""
    of_rules: list[Column] = []
    for rule in rules:
        found = [*_unknown_columns(readings, rule)]
        of_rules.append(_level(readings, rule, found))
        problems += [f"rule {rule.name}: {problem}" for problem in found]
    if problems:
        return readings
    texts = [_column(name).cast("string") for name in _texts(rules)]
    whole = readings.select(
        F.array(*(_column(name).cast("string") for name in rules[0].keys)).alias(_KEY),
        F.unix_micros(_column(rules[0].event_time).cast("timestamp")).alias(_AT),
        F.array(*of_rules).cast("array<int>").alias(_LEVELS),
        F.array(*texts).cast("array<string>").alias(_VALUES),
    )
    is_whole = F.col(_AT).isNotNull() & ~F.exists(_KEY, lambda one: one.isNull())
    return whole.where(is_whole)


def _unknown_columns(readings: DataFrame, rule: Rule) -> Iterator[str]:
    types = {one.name.lower(): one.dataType for one in readings.schema}
    for field, names in (
        ("keys", rule.keys),
        ("event_time", [rule.event_time]),
        ("message", _texts([rule])),
    ):
        for name in names:
            if name.lower() not in types:
                remedy = nearest(name, readings.columns)
                yield f"{field}: {name!r} is no column of the readings; {remedy}"
    kind = types.get(rule.event_time.lower())
    if kind is not None and not isinstance(kind, _TIMES):
        yield f"event_time: {rule.event_time!r} is {kind.simpleString()}; cast it to a timestamp"


def _texts(rules: Iterable[Rule]) -> list[str]:
    """The columns that only messages need."""
    return sorted({name for rule in rules for name in rule.columns - set(rule.keys) - _BUILT_IN})


def _level(readings: DataFrame, rule: Rule, problems: list[str]) -> Column:
    if isinstance(rule.severity, str):
        # Any reading counts: the rule watches for their absence.
        return F.lit(CLEAR)
    numbers = levels()
    held: list[tuple[int, Column]] = []
    for name, text in rule.severity.items():
        try:
            held.append((numbers[name], condition(readings, text)))
        except ConditionError as error:
            problems.append(f"severity {name}: {error}")
    clear: Column | None = None
    if rule.clear is not None:
        try:
            clear = condition(readings, rule.clear)
        except ConditionError as error:
            problems.append(f"clear: {error}")
    if problems:
        return F.lit(None)
    if clear is None:
        clear = ~held[0][1]
        for _, one in held[1:]:
            clear = clear & ~one
    found = F.when(clear, CLEAR)
    for number, one in sorted(held, key=lambda pair: pair[0]):
        found = F.when(one, number).otherwise(found)
    return found


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def _applied(judged: DataFrame, rules: Sequence[Rule], *, until: int | None) -> DataFrame:
    if until is None:
        (last,) = judged.agg(F.max(_AT)).first() or (None,)
        until = 0 if last is None else last

    def stepped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _stepped(rules, _rows(batches), until=until)
        while part := list(islice(found, _PART)):
            yield _batch(part)

    # In a partition the rows of a key are beside each other, and none is held but the present part.
    together = judged.repartition(_KEY).sortWithinPartitions(_KEY, _AT)
    return together.mapInArrow(stepped, SCHEMA)


#: Key, time, level by each rule, and texts of the messages.
_Row: TypeAlias = tuple[list[str], int, list[int | None], list[str | None]]


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in (_KEY, _AT, _LEVELS, _VALUES))
        yield from zip(*columns, strict=True)


def _stepped(rules: Sequence[Rule], rows: Iterable[_Row], *, until: int) -> Iterator[Transition]:
    """The transitions of all keys; the rows are in order of keys and times."""
    names = _texts(rules)
    for key, of_key in groupby(rows, itemgetter(0)):
        readings = (
            (at, of_rules, _without_nulls(zip(names, values, strict=True)))
            for _, at, of_rules, values in of_key
            if at <= until
        )
        states: list[bytes | None] = [None] * len(rules)
        while part := list(islice(readings, _PART)):
            # The part before is complete but for its last time, which may go on in this one.
            watermark = part[0][0] - 1
            for number, rule in enumerate(rules):
                given = (Reading(at, of_rules[number], values) for at, of_rules, values in part)
                made = step(rule, key, states[number], given, watermark=watermark)
                states[number] = made.state
                yield from made.transitions
        for rule, state in zip(rules, states, strict=True):
            yield from step(rule, key, state, (), watermark=until).transitions


def _without_nulls(values: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    return {name: value for name, value in values if value is not None}


def _micros(time: datetime.datetime | None) -> int | None:
    """Raises RuleError for a time without a zone."""
    if time is None:
        return None
    if time.tzinfo is None:
        raise RuleError([f"until: {time} has no time zone; use datetime(…, tzinfo=UTC)"])
    return (time - _EPOCH) // datetime.timedelta(microseconds=1)


def _batch(found: Iterable[Transition]) -> pa.RecordBatch:
    rows: list[dict[str, Any]] = [
        {
            "rule": one.rule,
            "key": list(one.key),
            "transition": one.transition.value,
            "level": one.level,
            "at": one.at,
            "since": one.since,
            "count": one.count,
            "text": one.text,
            "reason": None if one.reason is None else one.reason.value,
            "raised_at": one.raised_at,
            "raised_level": one.raised_level,
        }
        for one in found
    ]
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)
