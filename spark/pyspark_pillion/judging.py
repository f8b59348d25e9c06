"""From readings to judged readings: one row for each reading and group of rules.

A group is the rules with the same keys and event time. A judged reading has no more than the step
function needs: its group and key, its time, its level by each rule of the group, and the texts of
the messages. All groups are rows of one DataFrame, so that a stream has one stateful operator,
whatever rules it has: Spark finds the state of an operator by its place in the plan.
"""

import datetime
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pillion_rules import CLEAR, Rule, RuleError
from pillion_rules.names import levels
from pillion_rules.templates import BUILT_IN
from pyspark_pillion.conditions import ConditionError, Conditions, without_ansi

#: The columns: a JSON array of the group's name and the values of its keys; the event time, as a
#: timestamp; the level by each rule; the texts of :func:`texts_of`; and the name of the first rule
#: with a condition that is null though none of its columns is, if there is one.
PLACE, TIME, LEVELS, TEXTS, FAILED = "place", "time", "levels", "texts", "failed"
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
#: A year is left for what is due later.
_TIME_BOUNDS = (
    datetime.datetime(1, 1, 2, tzinfo=datetime.UTC),
    datetime.datetime(9998, 1, 1, tzinfo=datetime.UTC),
)
_BUILT_IN = frozenset(BUILT_IN)


class Place(NamedTuple):
    """A group of rules, and the values of its keys."""

    group: str
    key: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Place":
        """Read the column ``place``."""
        group, *key = json.loads(text)
        return cls(group, tuple(key))


def grouped(rules: Iterable[Rule]) -> dict[str, tuple[Rule, ...]]:
    """Return the rules by the names of their groups."""
    groups: dict[str, list[Rule]] = {}
    for rule in rules:
        # The first member is for the name of an input.
        name = json.dumps([None, rule.event_time, *rule.keys], separators=(",", ":"))
        groups.setdefault(name, []).append(rule)
    return {name: tuple(together) for name, together in groups.items()}


def texts_of(rules: Iterable[Rule], own: Collection[str]) -> list[str]:
    """Return the columns that only messages need. ``own`` are the columns of the readings with the
    name of a built-in one, which come before it."""
    names = {name for rule in rules for name in rule.columns - set(rule.keys)}
    return sorted(name for name in names if name not in _BUILT_IN or name in own)


def built_in_columns(readings: DataFrame) -> frozenset[str]:
    """Return the columns with the name of a built-in one of messages."""
    return _BUILT_IN & {name.lower() for name in readings.columns}


def judged(readings: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    """Judge readings by the rules; see :func:`has_place` and :func:`has_time` for rows without.

    Raises RuleError with every problem of every rule.
    """
    problems: list[str] = []
    conditions = Conditions(readings)
    places: list[Column] = []
    own = built_in_columns(readings)
    with without_ansi(readings.sparkSession):
        for name, together in grouped(rules).items():
            of_rules: list[Column] = []
            failed = [F.lit(None).cast("string")]
            for rule in together:
                found = [*_unknown_columns(conditions, rule, own)]
                of_rules.append(_level(conditions, rule, found))
                if (fails := conditions.failure()) is not None:
                    failed.append(F.when(fails, F.lit(rule.name)))
                problems += [f"rule {rule.name}: {problem}" for problem in found]
            texts = texts_of(together, own)
            place = _place(conditions, name, together, of_rules, texts)
            places.append(place.withField(FAILED, F.coalesce(*failed)))
        if problems:
            raise RuleError(problems)
        names = {rule.event_time.lower() for rule in rules}
        if len(names) > 1:
            return readings.select(F.explode(F.array(*places)).alias("one")).select("one.*")
        # The column itself: it may have a watermark.
        time = _moment(conditions, rules[0].event_time).alias(TIME)
        one = readings.select(time, F.explode(F.array(*places)).alias("one"))
        return one.select(f"one.{PLACE}", TIME, f"one.{LEVELS}", f"one.{TEXTS}", f"one.{FAILED}")


def has_place() -> Column:
    """Whether none of the keys of a judged reading is null."""
    return F.col(PLACE).isNotNull()


def has_time() -> Column:
    """Whether a judged reading has a time, within what Python's times hold."""
    return F.coalesce(F.col(TIME).between(*_TIME_BOUNDS), F.lit(False))


def _place(
    conditions: Conditions,
    name: str,
    rules: Sequence[Rule],
    of_rules: Sequence[Column],
    texts: Sequence[str],
) -> Column:
    """One group's part of a reading."""
    keys = [_column(key).cast("string") for key in rules[0].keys]
    is_whole = F.lit(True)
    for key in keys:
        is_whole = is_whole & key.isNotNull()
    return F.struct(
        F.when(is_whole, F.to_json(F.array(F.lit(name), *keys))).alias(PLACE),
        _moment(conditions, rules[0].event_time).alias(TIME),
        F.array(*of_rules).cast("array<int>").alias(LEVELS),
        F.array(*(_column(text).cast("string") for text in texts))
        .cast("array<string>")
        .alias(TEXTS),
    )


def _moment(conditions: Conditions, name: str) -> Column:
    found = _column(name)
    kind = conditions.types.get(name.lower())
    return found if isinstance(kind, T.TimestampType) else found.cast("timestamp")


def _unknown_columns(conditions: Conditions, rule: Rule, own: Collection[str]) -> Iterator[str]:
    types = conditions.types
    for field, names in (
        ("keys", rule.keys),
        ("event_time", [rule.event_time]),
        ("message", texts_of([rule], own)),
    ):
        yield from (
            f"{field}: {problem}"
            for name in names
            if (problem := conditions.column_problem(name)) is not None
        )
    kind = types.get(rule.event_time.lower())
    if kind is not None and not isinstance(kind, _TIMES):
        yield f"event_time: {rule.event_time!r} is {kind.simpleString()}; cast it to a timestamp"


def _level(conditions: Conditions, rule: Rule, problems: list[str]) -> Column:
    if isinstance(rule.severity, str):
        # Any reading counts: the rule watches for their absence.
        return F.lit(CLEAR)
    texts = {f"severity {name}": text for name, text in rule.severity.items()}
    if rule.clear is not None:
        texts["clear"] = rule.clear
    made: dict[str, Column] = {}
    for field, text in texts.items():
        try:
            made[field] = conditions.column_of(text)
        except ConditionError as error:
            problems.append(f"{field}: {error}")
    if problems:
        return F.lit(None)
    clear = made.pop("clear", None)
    return _highest(dict(zip(rule.severity, made.values(), strict=True)), clear)


def _highest(held: Mapping[str, Column], clear: Column | None) -> Column:
    numbers = levels()
    if clear is None:
        clear = F.lit(True)
        for one in held.values():
            clear = clear & ~one
    found = F.when(clear, CLEAR)
    for name in sorted(held, key=lambda name: numbers[name]):
        found = F.when(held[name], numbers[name]).otherwise(found)
    return found


def _column(name: str) -> Column:
    return F.col(f"`{name}`")
