"""From judged readings to transitions, by the step function: over a batch or over a stream."""

import datetime
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from pillion_rules import JudgedReading, RuleSet, Transition
from pillion_rules.durations import HOUR
from pillion_rules.machine import MOST_PENDING
from pillion_rules.measures import Numbers
from pillion_rules.rule_set import MOST_BYTES
from pyspark_pillion.idle import LOOKS, Look, idle_until, look
from pyspark_pillion.judging import (
    AT,
    EPOCH,
    LEVELS,
    MARK,
    MICROSECOND,
    NO_LEVEL,
    NUMBERS,
    PLACE,
    TEXTS,
    WATERMARK,
    Group,
    Groups,
    Judged,
    Place,
)

logger = logging.getLogger("pyspark_pillion")

# The same type for Spark and for Arrow.
_TEXT = (T.StringType(), pa.string())
_TIME = (T.TimestampType(), pa.timestamp("us", tz="UTC"))
#: Why a transition is not told; null: it is.
UNTOLD = "untold"
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
    UNTOLD: _TEXT,
}
SCHEMA = T.StructType(
    [
        T.StructField(name, of_spark, nullable=name in ("reason", UNTOLD))
        for name, (of_spark, _) in _COLUMNS.items()
    ]
)
_ARROW = pa.schema([(name, of_arrow) for name, (_, of_arrow) in _COLUMNS.items()])
#: Microseconds of a millisecond, in which Spark has watermarks and timers.
_MILLISECOND = 1_000
#: Readings of one key that are taken at a time; two parts wait in a state.
_PART = MOST_PENDING // 2
#: While an alert is raised, its key is looked at so often: its rule may be removed.
_LOOK = HOUR

#: Place, event time in microseconds, level by each rule, texts of the messages, and numbers.
_Row: TypeAlias = tuple[str, int, str, Sequence[str | None], Sequence[float | None]]
_ROW = (PLACE, AT, LEVELS, TEXTS, NUMBERS)
_REMOVED = Group((), (), {}, {})


@lru_cache(maxsize=10_000)
def _levels(digits: str) -> Sequence[int | None]:
    """Most readings have the levels of many others."""
    return tuple(None if one == NO_LEVEL else int(one) for one in digits)


class RuleGroups:
    """The rules of all groups."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._sets = {
            name: RuleSet(one.rules, one.measured, one.maintenance, one.told_from)
            for name, one in groups.items()
        }

    def of(self, group: str) -> RuleSet:
        """Return the rules of a group; all of them may have been removed."""
        return self._sets.get(group, RuleSet(()))

    def readings(self, name: str, rows: Iterable[_Row]) -> Iterator[JudgedReading]:
        group = self._groups.get(name, _REMOVED)
        for _, at, digits, values, numbers in rows:
            levels = _levels(digits)
            pairs = zip(group.texts, values, strict=True)
            texts = {column: value for column, value in pairs if value is not None}
            if not group.numbers:
                yield at, levels, texts
                continue
            judged: list[int | Numbers | None] = [*levels]
            for place, places in group.numbers.items():
                judged[place] = [numbers[one] for one in places]
            yield at, judged, texts


# -------------------------------------------------------------------------- over a batch


def over_batch(judged: Judged, *, until: int) -> DataFrame:
    """Return the transitions of a batch up to ``until``."""
    rows, groups = judged.rows.select(*_needed(judged.groups)), judged.groups

    def stepped(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = batch_transitions(RuleGroups(groups), _rows(batches), until=until)
        while part := list(islice(found, _PART)):
            yield pa.RecordBatch.from_pylist([_values(one) for one in part], schema=_ARROW)

    # In a partition the rows of a key are beside each other, and none is held but the present part.
    together = rows.repartition(PLACE).sortWithinPartitions(PLACE, AT)
    return together.mapInArrow(stepped, SCHEMA)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[_Row]:
    for batch in batches:
        given = batch.to_pydict()
        columns = (given.get(name) or repeat((), batch.num_rows) for name in _ROW)
        yield from zip(*columns, strict=True)


def _needed(groups: Groups) -> Iterator[str]:
    """Return the columns without those that are empty: in Python each takes a microsecond a row."""
    yield from (PLACE, AT, LEVELS)
    if any(group.texts for group in groups.values()):
        yield TEXTS
    if any(group.numbers for group in groups.values()):
        yield NUMBERS


def batch_transitions(
    rules: RuleGroups, rows: Iterable[_Row], *, until: int
) -> Iterator[Transition]:
    """The transitions of all keys; the rows are in order of places and times."""
    for text, of_key in groupby(rows, itemgetter(0)):
        place = Place.of(text)
        rule_set, state = rules.of(place.group), None
        readings = rules.readings(place.group, (row for row in of_key if row[1] <= until))
        while part := list(islice(readings, _PART)):
            # The part before is complete but for its last time, which may go on in this one.
            made = rule_set.step(place.key, state, part, watermark=part[0][0] - 1)
            state = made.state
            yield from made.all_transitions
        yield from rule_set.step(place.key, state, (), watermark=until).all_transitions


# -------------------------------------------------------------------------- over a stream


def over_stream(judged: Judged, *, by_clock: bool) -> DataFrame:
    """Return the transitions of a stream, whose column ``mark`` has a watermark."""
    delay = judged.rows.schema[MARK].metadata[WATERMARK]
    rows = judged.rows.select(MARK, *_needed(judged.groups))
    return rows.groupBy(PLACE).transformWithState(
        statefulProcessor=Processor(judged.groups, delay=delay if by_clock else None),
        outputStructType=SCHEMA,
        outputMode="Append",
        timeMode="ProcessingTime" if by_clock else "EventTime",
    )


class Processor(StatefulProcessor):
    """One key's state is that of its rules, and the time of its one timer.

    The timer is by event time. With ``delay``, the milliseconds by which readings may come late, it
    is by the clock: the key is looked at in each micro-batch that may have something due, and some
    times within ``silent``; its state has the last look.
    """

    def __init__(self, groups: Groups, *, delay: int | None = None) -> None:
        self._groups = groups
        self._delay = delay
        self._ahead = max(rule.durations.ahead for one in groups.values() for rule in one.rules)
        self._late = 0

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._rules = RuleGroups(self._groups)
        schema = "state binary, timer long"
        if self._delay is not None:
            schema += ", watermark long, clock long, still long"
        self._state = handle.getValueState("rules", schema)

    def handleInputRows(
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: Any,
    ) -> Iterator[Row]:
        """Take the readings of a key that a micro-batch has. Raises StateError."""
        yield from self._stepped(key[0], _taken(rows), timerValues)

    def handleExpiredTimer(
        self,
        key: tuple[str],
        timerValues: Any,
        expiredTimerInfo: Any,
    ) -> Iterator[Row]:
        """Take what is due. Raises StateError."""
        # Spark deletes this timer itself.
        expired = expiredTimerInfo.getExpiryTimeInMs()
        yield from self._stepped(key[0], iter(()), timerValues, expired=expired)

    def close(self) -> None:
        """Tell what was left out beside the late readings that Spark counts."""
        if self._late and self._delay is None:
            logger.warning(
                "%d readings were left out: more than %d times of one key, or %d MB, waited for "
                "the watermark",
                self._late,
                MOST_PENDING,
                MOST_BYTES // 1_000_000,
            )
        elif self._late:
            logger.warning("%d readings were left out: they were late", self._late)

    def _stepped(
        self, text: str, rows: Iterator[_Row], times: Any, *, expired: int | None = None
    ) -> Iterator[Row]:
        place = Place.of(text)
        rule_set = self._rules.of(place.group)
        watermark = times.getCurrentWatermarkInMs() * _MILLISECOND
        state, timer, *looked = self._state.get() or (None, None)
        now, clock = self._look(looked, times, rule_set.silent)
        if expired is None:
            # A key with readings is not idle.
            clock = None
        readings = self._rules.readings(place.group, rows)
        if now is not None:
            readings = self._in_time(readings, watermark)
        due: int | None = None
        for part, through in _in_parts(readings, watermark):
            made = rule_set.step(place.key, state, part, watermark=through, clock=clock)
            state, due = made.state, made.due
            self._late += made.late
            if due is not None and now is not None:
                due = self._next_look(now, due, rule_set.silent)
            elif due is not None and made.is_raised:
                due = min(due, watermark + _LOOK)
            yield from (Row(**_values(one)) for one in made.all_transitions)
        # Spark's timers have milliseconds, and none may be early.
        self._keep(
            state,
            now,
            before=None if timer == expired else timer,
            timer=None if due is None else -(-due // _MILLISECOND),
        )

    def _in_time(
        self, readings: Iterable[JudgedReading], watermark: int
    ) -> Iterator[JudgedReading]:
        """Leave out late readings, as Spark does where timers are by event time."""
        for one in readings:
            if one[0] > watermark:
                yield one
            else:
                self._late += 1

    def _look(
        self, before: Sequence[int], times: Any, silent: int | None
    ) -> tuple[Look | None, int | None]:
        """Return the present look, and the time that has come for ``silent`` by the clock."""
        if self._delay is None:
            return None, None
        last = Look(*before) if before else None
        shortest = (silent or 0) // _MILLISECOND
        now = look(
            last,
            watermark=times.getCurrentWatermarkInMs(),
            clock=times.getCurrentProcessingTimeInMs(),
            silent=shortest,
        )
        end = idle_until(last, now, silent=shortest)
        return now, None if end is None else (end - self._delay) * _MILLISECOND

    def _next_look(self, now: Look, due: int, silent: int | None) -> int:
        """Return when to look by the clock for what is due by event time. Before ``reached``
        neither the watermark nor the clock can have passed it, unless readings are from further in
        the future than ``ahead``."""
        assert self._delay is not None
        reached = due + self._delay * _MILLISECOND - self._ahead
        clock = now.clock * _MILLISECOND
        longest = clock + (_LOOK if silent is None else min(_LOOK, silent // LOOKS))
        # The timers of this micro-batch are taken.
        return max(clock + 1, min(longest, reached))

    def _keep(
        self, state: bytes | None, now: Look | None, *, before: int | None, timer: int | None
    ) -> None:
        if before is not None and before != timer:
            self._handle.deleteTimer(before)
        if state is None:
            self._state.clear()
            return
        if timer is not None and before != timer:
            self._handle.registerTimer(timer)
        self._state.update((state, timer, *(now or ())))


def _taken(rows: Iterator[Row]) -> Iterator[_Row]:
    """Take the columns by their places: a Row looks for a name among all names."""
    for first in rows:
        # A column that is not needed is an empty one at the end.
        names = [*first.__fields__]
        chosen = itemgetter(*(names.index(name) if name in names else -1 for name in _ROW))
        for row in chain([first], rows):
            yield chosen((*row, ()))


def _in_parts(
    readings: Iterable[JudgedReading], watermark: int
) -> Iterator[tuple[Sequence[JudgedReading], int]]:
    """Yield the readings of a micro-batch, which has them in any order, in the order of time, and
    how far each part may be taken: the last time of a part may go on in the next. At least one."""
    taken = sorted(readings, key=itemgetter(0))
    for begin in range(0, len(taken) or 1, _PART):
        part = taken[begin : begin + _PART]
        is_last = begin + _PART >= len(taken)
        yield part, watermark if is_last else min(watermark, part[-1][0] - 1)


# -------------------------------------------------------------------------- transitions


def _values(one: Transition) -> Mapping[str, Any]:
    return {
        "rule": one.rule,
        "key": list(one.key),
        "transition": one.transition.value,
        "level": one.level,
        "at": _time(one.at),
        "since": _time(one.since),
        "count": one.count,
        "text": one.text,
        "reason": None if one.reason is None else one.reason.value,
        "raised_at": _time(one.raised_at),
        "raised_level": one.raised_level,
        UNTOLD: None if one.untold is None else one.untold.value,
    }


def _time(micros: int) -> datetime.datetime:
    return EPOCH + micros * MICROSECOND
