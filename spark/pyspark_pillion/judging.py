"""From readings to judged readings: one row for each reading and group of rules.

A group is the rules with the same input, keys and event time. A judged reading has no more than the
step function needs: its group and key, its time, its level by each rule of the group, the texts of
the messages, and the numbers of the rules that measure. All groups are rows of one DataFrame, so
that a stream has one stateful operator, whatever rules it has: Spark finds the state of an operator
by its place in the plan.
"""

import datetime
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pillion_rules import CLEAR, MaintenanceWindow, Rule, RuleError
from pillion_rules.measures import Measured
from pillion_rules.names import levels
from pillion_rules.templates import BUILT_IN
from pyspark_pillion.conditions import ConditionError, Conditions, without_ansi
from pyspark_pillion.measuring import measures_of

#: The columns: a JSON array of the group's name and the values of its keys; the event time in
#: microseconds since 1970; the level by each rule, as digits and NO_LEVEL; and the texts and
#: numbers of the group.
PLACE, AT, LEVELS, TEXTS, NUMBERS = "place", "at", "levels", "texts", "numbers"
NO_LEVEL = "-"
#: The name of the first rule with a condition that is null though none of its columns is.
FAILED = "failed"
#: The earliest event time of the row: with several, no watermark passes a later one too early.
MARK = "mark"
#: In the metadata of a column that has a watermark.
WATERMARK = "spark.watermarkDelayMs"
_TIMES = (T.TimestampType, T.TimestampNTZType, T.DateType)
#: A year is left for what is due later.
_TIME_BOUNDS = (
    datetime.datetime(1, 1, 2, tzinfo=datetime.UTC),
    datetime.datetime(9998, 1, 1, tzinfo=datetime.UTC),
)
_BUILT_IN = frozenset(BUILT_IN)
#: Rules of which Spark makes one method. A rule takes some 270 bytes, and the JVM does not compile
#: a method of more than 8,000.
_IN_ONE_METHOD = 10


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MICROSECOND = datetime.timedelta(microseconds=1)


class Place(NamedTuple):
    """A group of rules, and the values of its keys."""

    group: str
    key: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> "Place":
        """Read the column ``place``."""
        group, *key = json.loads(text)
        return cls(group, tuple(key))


@dataclass(frozen=True, slots=True)
class Group:
    """Rules with the same input, keys and event time."""

    rules: tuple[Rule, ...]
    #: The columns of ``texts``.
    texts: tuple[str, ...]
    #: What is measured, by the names of rules.
    measured: Mapping[str, Measured]
    #: Of the rules that measure, by their places: where their numbers are in ``numbers``.
    numbers: Mapping[int, tuple[int, ...]]
    maintenance: Sequence[MaintenanceWindow] = ()
    #: The time before which nothing is told, by rules; without one everything is.
    told_from: Mapping[str, int] | None = None


Groups: TypeAlias = Mapping[str, Group]


class Judged(NamedTuple):
    """Judged readings, and the groups of rules by their names."""

    rows: DataFrame
    groups: Groups


def judged(readings: DataFrame, rules: Sequence[Rule], *, name: str | None = None) -> Judged:
    """Judge readings by the rules; see :func:`has_place` and :func:`has_time` for rows without.
    ``name`` is that of the input, if there are several.

    Raises RuleError with every problem of every rule.
    """
    problems: list[str] = []
    conditions = Conditions(readings)
    places: list[list[Column]] = []
    groups: dict[str, Group] = {}
    own = _BUILT_IN & conditions.types.keys()
    with without_ansi(readings.sparkSession):
        for of_group, together in _grouped(rules, name).items():
            group, place = _group(conditions, of_group, together, own, problems)
            groups[of_group] = group
            places.append(place)
        if problems:
            raise RuleError(problems)
        times = sorted({rule.event_time.lower(): rule.event_time for rule in rules}.values())
        # The column itself, if there is one: it may have a watermark.
        marks = [_moment(conditions, name) for name in times]
        mark = (F.least(*marks) if len(marks) > 1 else marks[0]).alias(MARK)
        if len(places) == 1:
            return Judged(readings.select(mark, *places[0]), groups)
        # What an explode has inside is interpreted.
        every = readings.select(mark, F.array(*(F.struct(*one) for one in places)).alias("every"))
        one = every.select(MARK, F.explode("every").alias("one"))
        return Judged(one.select(MARK, "one.*"), groups)


def _grouped(rules: Iterable[Rule], name: str | None) -> dict[str, tuple[Rule, ...]]:
    groups: dict[str, list[Rule]] = {}
    for rule in rules:
        group = json.dumps([name, rule.event_time, *rule.keys], separators=(",", ":"))
        groups.setdefault(group, []).append(rule)
    return {group: tuple(together) for group, together in groups.items()}


def _group(
    conditions: Conditions,
    name: str,
    rules: tuple[Rule, ...],
    own: Collection[str],
    problems: list[str],
) -> tuple[Group, list[Column]]:
    """Return a group, and its columns of a reading; add what is wrong with its rules."""
    of_rules: list[Column] = []
    columns: list[Column] = []
    measured: dict[str, Measured] = {}
    numbers: dict[int, tuple[int, ...]] = {}
    failed = [F.lit(None).cast("string")]
    for place, rule in enumerate(rules):
        found = [*_unknown_columns(conditions, rule, own)]
        if not rule.is_measuring:
            of_rules.append(_level(conditions, rule, found))
        elif (measures := measures_of(conditions, rule, found)) is not None:
            of_rules.append(F.lit(NO_LEVEL))
            measured[rule.name] = measures.measured
            numbers[place] = tuple(range(len(columns), len(columns) + len(measures.columns)))
            columns += measures.columns
        if (fails := conditions.failure()) is not None:
            failed.append(F.when(fails, F.lit(rule.name)))
        problems += [f"rule {rule.name}: {problem}" for problem in found]
    texts = texts_of(rules, own)
    group = Group(rules, tuple(texts), measured, numbers)
    of_group = _columns(conditions, name, rules, of_rules, texts, columns)
    return group, [*of_group, F.coalesce(*failed).alias(FAILED)]


def texts_of(rules: Iterable[Rule], own: Collection[str]) -> list[str]:
    """Return the columns that only messages need. ``own`` are the columns of the readings with the
    name of a built-in one, which come before it."""
    names = {
        name
        for rule in rules
        for name in rule.columns - {*rule.keys, *(rule.measure or ()), *(rule.rate or ())}
    }
    return sorted(name for name in names if name not in _BUILT_IN or name in own)


def micros_of(time: datetime.datetime) -> int:
    """Return a time with a zone in microseconds since 1970."""
    return (time - EPOCH) // MICROSECOND


def has_place() -> Column:
    """Whether none of the keys of a judged reading is null."""
    return F.col(PLACE).isNotNull()


def has_time() -> Column:
    """Whether a judged reading has a time, within what Python's times hold."""
    first, end = map(micros_of, _TIME_BOUNDS)
    return F.coalesce((F.col(AT) >= first) & (F.col(AT) < end), F.lit(False))


def _columns(
    conditions: Conditions,
    name: str,
    rules: Sequence[Rule],
    of_rules: Sequence[Column],
    texts: Sequence[str],
    numbers: Sequence[Column],
) -> list[Column]:
    """Return one group's columns of a reading."""
    keys = [_key(conditions, key) for key in rules[0].keys]
    is_whole = F.lit(True)
    for key in keys:
        is_whole = is_whole & key.isNotNull()
    place = F.array(F.lit(name), *keys)
    if len(rules) > _IN_ONE_METHOD:
        place = _in_short_methods(place)
    return [
        F.when(is_whole, F.to_json(place)).alias(PLACE),
        F.unix_micros(_moment(conditions, rules[0].event_time)).alias(AT),
        # One text is much cheaper to bring to Python than a list.
        F.concat(*of_rules).alias(LEVELS),
        F.array(*(F.make_valid_utf8(_column(text).cast("string")) for text in texts))
        .cast("array<string>")
        .alias(TEXTS),
        F.array(*numbers).cast("array<double>").alias(NUMBERS),
    ]


def _in_short_methods(array: Column) -> Column:
    """Return the array, by a function without generated code. Spark then makes short methods of the
    columns beside it, and not one for all."""
    return F.zip_with(array, array, lambda one, _: one)


def _key(conditions: Conditions, name: str) -> Column:
    """Return the text of a key. What is no UTF-8 is null: two of them may look the same."""
    found = _column(name).cast("string")
    is_text = isinstance(conditions.types.get(name.lower()), T.StringType | T.BinaryType)
    return F.when(F.is_valid_utf8(found), found) if is_text else found


def _moment(conditions: Conditions, name: str) -> Column:
    found = _column(name)
    kind = conditions.types.get(name.lower())
    return found if isinstance(kind, T.TimestampType) else found.cast("timestamp")


def _unknown_columns(conditions: Conditions, rule: Rule, own: Collection[str]) -> Iterator[str]:
    types = conditions.types
    for field, names in (
        ("keys", rule.keys),
        ("event_time", [rule.event_time]),
        ("message", [] if rule.measure is not None else texts_of([rule], own)),
    ):
        yield from (
            f"{field}: {problem}"
            for name in names
            if (problem := conditions.column_problem(name)) is not None
        )
    if rule.measure is not None:
        yield from (
            f"message: {name!r} is of one reading, and a window has many; use names of measure"
            for name in texts_of([rule], ())
        )
    kind = types.get(rule.event_time.lower())
    if kind is not None and not isinstance(kind, _TIMES):
        yield f"event_time: {rule.event_time!r} is {kind.simpleString()}; cast it to a timestamp"


def _level(conditions: Conditions, rule: Rule, problems: list[str]) -> Column:
    """Return the digit of a reading's level, or NO_LEVEL."""
    if isinstance(rule.severity, str):
        # Any reading counts: the rule watches for their absence.
        return F.lit(str(CLEAR))
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
        return F.lit(NO_LEVEL)
    clear = made.pop("clear", None)
    return _highest(dict(zip(rule.severity, made.values(), strict=True)), clear)


def _highest(held: Mapping[str, Column], clear: Column | None) -> Column:
    numbers = levels()
    if clear is None:
        clear = F.lit(True)
        for one in held.values():
            clear = clear & ~one
    # One expression without nulls: of a hundred rules Spark makes one method.
    most, *others = sorted(held, key=lambda name: -numbers[name])
    found = F.when(held[most], str(numbers[most]))
    for name in others:
        found = found.when(held[name], str(numbers[name]))
    return found.when(clear, str(CLEAR)).otherwise(NO_LEVEL)


def _column(name: str) -> Column:
    return F.col(f"`{name}`")
