"""Rules over readings: from the rows of a DataFrame to the transitions of alerts, and to
indications of them."""

import datetime
import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pillion_rules import Rule, RuleError, Untold
from pillion_rules.durations import DAY
from pillion_rules.errors import shown
from pyspark_pillion.alerts import alert_properties, identity
from pyspark_pillion.judging import (
    AT,
    FAILED,
    MARK,
    WATERMARK,
    Group,
    Judged,
    has_place,
    has_time,
    judged,
    micros_of,
)
from pyspark_pillion.maintenance import collected
from pyspark_pillion.publishing import Published, publish
from pyspark_pillion.publishing import indications as lines
from pyspark_pillion.rule_checks import check, flag_problems
from pyspark_pillion.stepping import UNTOLD, over_batch, over_stream

__all__ = ["Rule", "indications", "raise_alerts", "transitions"]

#: Names of the metrics that a stream observes.
READINGS, TRANSITIONS = "rules.readings", "rules.transitions"
_MILLISECOND = 1_000
#: One input, or several by their names.
Readings: TypeAlias = DataFrame | Mapping[str, DataFrame]


def transitions(
    readings: Readings,
    rules: Rule | Iterable[Rule],
    *,
    until: datetime.datetime | None = None,
    maintenance: DataFrame | None = None,
    by_clock: bool = False,
) -> DataFrame:
    """Return what the rules make of readings: a row for each transition. Nothing is sent.

    ``readings`` is a DataFrame, or several by the names that ``input`` of the rules has.

    The columns are ``rule``, ``key`` (texts), ``transition``, ``level``, ``at``, ``since``,
    ``count``, ``text``, ``reason`` (of a clear that no reading caused), ``raised_at`` and
    ``raised_level``. The rows of one key and rule are in order within a partition; sort by ``at``
    to see all in order. A reading whose time or one of whose keys is null is left out.

    Of a batch, ``until`` is the time up to which everything is due, with a time zone; by default
    that of the last reading, for which the readings are read once more. Later ones are left out.
    Without ``until`` a warning has the number of readings that are left out for a null, and of
    those for which a condition fails: it is null though none of its columns is.

    Of a stream, the transitions come as the watermark passes them. If the stream has no watermark,
    it gets the longest ``watermark`` of the rules, and readings that are further before the clock
    than ``ahead`` are left out. ``rules.readings`` of the progress counts those left out, and those
    for which a condition fails; of several inputs ``rules.readings.NAME`` does.

    ``maintenance`` is a table of windows in which nothing is told but the clear of an alert that
    was told; what still is raised at the end of a window is raised then. Its columns are ``start``
    and ``end``, the first time after the window; and ``rule`` and keys of rules, where null stands
    for all. It is read here, once.

    Of a stream, ``by_clock`` raises alerts of ``silent`` also while the whole input is idle. Spark
    then runs a micro-batch at each trigger: give one; ``availableNow`` does not end.

    Raises RuleError with every problem of the rules, before the readings are read.
    """
    found = _transitions(
        readings, _listed(rules), until=until, maintenance=maintenance, by_clock=by_clock
    )
    return found.where(_is_told()).drop(UNTOLD)


def indications(found: DataFrame, rules: Rule | Iterable[Rule], *, source: str) -> DataFrame:
    """Return transitions as one column ``value``, each a line of JSON that the data source takes.

    IndicationIdentifier is made of the source, rule, key, transition, level and event time.
    CorrelatedIndications of all but a raise names the raise. An alert, from a raise to its clear,
    is one ``group``. Raises ConfigurationError.
    """
    properties = alert_properties(_listed(rules), source=source)
    return lines(found, source=source, identity=identity(), properties=properties)


def raise_alerts(
    readings: Readings,
    rules: Rule | Iterable[Rule],
    *,
    source: str,
    url: str | None = None,
    options: Mapping[str, str] | None = None,
    until: datetime.datetime | None = None,
    maintenance: DataFrame | None = None,
    replay: bool = False,
    by_clock: bool = False,
) -> Published | DataStreamWriter | None:
    """Publish the transitions of readings as indications; see :func:`transitions`.

    Returns what :func:`pyspark_pillion.publish` returns: of a batch the counts, of a stream the
    ``DataStreamWriter`` to set up further and start.

    A transition that is older than ``max_age`` of its rule is not sent, unless ``replay`` is true:
    a job that begins with old readings does not tell the alerts of last year. Of a stream
    ``rules.transitions`` of the progress counts them; of a batch a warning has their number, and,
    also with ``until``, those of :func:`transitions`.

    Raises RuleError and ConfigurationError, before a job starts.
    """
    given = _listed(rules)
    if problems := [*flag_problems(replay=replay)]:
        raise RuleError(problems)
    judging = None if until is None else Observation(READINGS)
    now = datetime.datetime.now(datetime.UTC)
    found = _transitions(
        *(readings, given),
        until=until,
        maintenance=maintenance,
        by_clock=by_clock,
        judging=judging,
        clock=None if replay else micros_of(now),
    )
    send = functools.partial(
        publish,
        source=source,
        identity=identity(),
        properties=alert_properties(given, source=source),
        url=url,
        options=options,
    )
    counts = [F.count(F.lit(1)).alias("transitions")]
    counts += [F.count_if(F.col(UNTOLD) == one.value).alias(one.value) for one in Untold]
    if found.isStreaming:
        return send(found.observe(TRANSITIONS, *counts).where(_is_told()))
    seen = Observation(TRANSITIONS)
    published = send(found.observe(seen, *counts).where(_is_told()))
    if old := seen.get[Untold.AGE.value]:
        warnings.warn(
            f"transitions older than max_age: {old:,}; of these only alerts that still last are "
            "sent. To send all, use replay=True",
            stacklevel=2,
        )
    if judging is not None:
        _warn(judging.get, stacklevel=3)
    return published


def _listed(rules: object) -> list[Rule]:
    found: list[Rule] = []
    for one in rules if isinstance(rules, Iterable) else [rules]:
        if not isinstance(one, Rule):
            raise RuleError([f"rules: {shown(one)} is no Rule; make one with Rule(…)"])
        found.append(one)
    return found


def _transitions(
    readings: Readings,
    rules: Sequence[Rule],
    *,
    until: datetime.datetime | None,
    maintenance: DataFrame | None,
    by_clock: bool,
    judging: Observation | None = None,
    clock: int | None = None,
) -> DataFrame:
    """``judging`` observes the counts of a batch with ``until``; without it they are told now.
    ``clock`` is the present time, if there are transitions that are too old to be told."""
    inputs: Mapping[str | None, DataFrame]
    inputs = dict(readings.items()) if isinstance(readings, Mapping) else {None: readings}
    of_inputs = {
        name: [rule for rule in rules if name is None or rule.input == name] for name in inputs
    }
    check(inputs, of_inputs, rules, until=until, maintenance=maintenance, by_clock=by_clock)
    windows = [] if maintenance is None else collected(maintenance, rules)
    found: list[Judged] = []
    problems: list[str] = []
    for name, one in inputs.items():
        try:
            found.append(_judged(one, of_inputs[name], name))
        except RuleError as error:
            problems += error.problems
    if problems:
        raise RuleError(problems)
    rows = functools.reduce(DataFrame.union, (one.rows for one in found))
    groups = {
        name: replace(
            group, maintenance=windows, told_from=_told_from(group, inputs.values(), rules, clock)
        )
        for one in found
        for name, group in one.groups.items()
    }
    if rows.isStreaming:
        if by_clock:
            rows = _with_ticks(rows)
        return over_stream(Judged(rows, groups), by_clock=by_clock)
    is_kept = has_place() & has_time()
    if until is None:
        last = F.max(F.when(is_kept, F.col(AT))).alias("last")
        (counts,) = rows.agg(last, *_counts()).collect()
        _warn(counts.asDict(), stacklevel=4)
        end = counts["last"] or 0
    else:
        end = micros_of(until)
        if judging is not None:
            rows = rows.observe(judging, *_counts())
    return over_batch(Judged(rows.where(is_kept), groups), until=end)


def _is_told() -> Column:
    return F.col(UNTOLD).isNull()


def _told_from(
    group: Group, inputs: Iterable[DataFrame], rules: Sequence[Rule], clock: int | None
) -> Mapping[str, int]:
    """Return the time before which a rule tells nothing. Without ``max_age`` it is a day before
    what the longest watermark holds back: a quick rule may be beside a slow one."""
    if clock is None:
        return {}
    own = [
        field.metadata[WATERMARK] * _MILLISECOND
        for one in inputs
        for field in one.schema
        if WATERMARK in field.metadata
    ]
    delay = max([rule.durations.watermark for rule in rules] + own)
    ages = {
        rule.name: delay + DAY if rule.max_age is None else rule.durations.max_age
        for rule in group.rules
    }
    return {name: clock - age for name, age in ages.items()}


def _judged(readings: DataFrame, rules: Sequence[Rule], name: str | None) -> Judged:
    """Judge one input; of a stream without the readings that are left out."""
    found = judged(readings, rules, name=name)
    if not readings.isStreaming:
        return found
    metric = READINGS if name is None else f"{READINGS}.{name}"
    return found._replace(rows=_with_watermark(found.rows, rules, metric))


def _counts() -> list[Column]:
    """What is told of judged readings."""
    return [
        F.count(F.lit(1)).alias("readings"),
        F.count_if(~has_place()).alias("withoutKey"),
        F.count_if(~has_time()).alias("withoutTime"),
        F.count(FAILED).alias("failed"),
        F.collect_set(FAILED).alias("failedRules"),
    ]


def _warn(counts: Mapping[str, Any], *, stacklevel: int) -> None:
    """Tell the counts of a batch."""
    for name, what in (("withoutKey", "not every key"), ("withoutTime", "no time")):
        if number := counts[name]:
            warnings.warn(
                f"{number:,} readings have {what}, and are left out; fill or filter them",
                stacklevel=stacklevel,
            )
    if number := counts["failed"]:
        rules = ", ".join(sorted(counts["failedRules"]))
        warnings.warn(
            f"{number:,} readings make a condition or what is measured null though none of its "
            f"columns is (rules {rules}); correct it, or use try_divide or try_cast where null "
            "is right",
            stacklevel=stacklevel,
        )


# -------------------------------------------------------------------------- streams


def _with_ticks(found: DataFrame) -> DataFrame:
    """Join an input that always has rows, and drop them. After a start Spark runs no micro-batch
    until an input has rows, and then one at each trigger."""
    ticks = found.sparkSession.readStream.format("rate").load()
    nothing = (F.lit(None).cast(field.dataType).alias(field.name) for field in found.schema)
    return found.union(ticks.where(F.lit(False)).select(*nothing))


def _with_watermark(found: DataFrame, rules: Sequence[Rule], metric: str) -> DataFrame:
    has_own = WATERMARK in found.schema[MARK].metadata
    ahead = max(rule.durations.ahead for rule in rules)
    is_ahead = F.lit(False) if has_own else F.col(AT) > F.unix_micros(F.current_timestamp()) + ahead
    is_ahead = has_time() & is_ahead
    seen = found.observe(
        metric,
        *_counts(),
        F.count_if(is_ahead).alias("ahead"),
    )
    kept = seen.where(has_place() & has_time() & ~is_ahead).drop(FAILED)
    if has_own:
        return kept
    delay = max(rule.durations.watermark for rule in rules)
    return kept.withWatermark(MARK, f"{delay // 1000} milliseconds")
