"""Rules over readings: from the rows of a DataFrame to the transitions of alerts, and to
indications of them."""

import datetime
import functools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

from pyspark.sql import Column, DataFrame, GroupedData, Observation
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pillion_rules import Reason, Rule, RuleError
from pyspark_pillion.alerts import alert_properties, by_rule, identity
from pyspark_pillion.judging import TIME, built_in_columns, has_place, has_time, judged
from pyspark_pillion.publishing import Published, publish
from pyspark_pillion.publishing import indications as lines
from pyspark_pillion.stepping import WATERMARK, micros_of, over_batch, over_stream

__all__ = ["Rule", "indications", "raise_alerts", "transitions"]

#: Names of the metrics that a stream observes.
READINGS, TRANSITIONS = "rules.readings", "rules.transitions"
#: Fields that this version does not evaluate.
_PLANNED = ("input", "window", "measure", "rate")
_STORE = "spark.sql.streaming.stateStore.providerClass"
_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SECOND = 1_000_000


def transitions(
    readings: DataFrame,
    rules: Rule | Iterable[Rule],
    *,
    until: datetime.datetime | None = None,
    by_clock: bool = False,
) -> DataFrame:
    """Return what the rules make of readings: a row for each transition. Nothing is sent.

    The columns are ``rule``, ``key`` (texts), ``transition``, ``level``, ``at``, ``since``,
    ``count``, ``text``, ``reason`` (of a clear that no reading caused), ``raised_at`` and
    ``raised_level``. The rows of one key and rule are in order within a partition; sort by ``at``
    to see all in order. A reading whose time or one of whose keys is null is left out.

    Of a batch, ``until`` is the time up to which everything is due, with a time zone; by default
    that of the last reading, for which the readings are read once more. Later ones are left out.

    Of a stream, the transitions come as the watermark passes them. If the stream has no watermark,
    it gets the longest ``watermark`` of the rules, and readings that are further before the clock
    than ``ahead`` are left out. ``rules.readings`` of the progress counts those left out.

    Of a stream, ``by_clock`` raises alerts of ``silent`` also while the whole input is idle. Spark
    then runs a micro-batch at each trigger: give one; ``availableNow`` does not end.

    Raises RuleError with every problem of the rules, before a job starts.
    """
    return _transitions(readings, _listed(rules), until, by_clock=by_clock)


def indications(found: DataFrame, rules: Rule | Iterable[Rule], *, source: str) -> DataFrame:
    """Return transitions as one column ``value``, each a line of JSON that the data source takes.

    IndicationIdentifier is made of the source, rule, key, transition, level and event time.
    CorrelatedIndications of all but a raise names the raise. An alert, from a raise to its clear,
    is one ``group``. Raises ConfigurationError.
    """
    properties = alert_properties(_listed(rules), source=source)
    return lines(found, source=source, identity=identity(), properties=properties)


def raise_alerts(
    readings: DataFrame,
    rules: Rule | Iterable[Rule],
    *,
    source: str,
    url: str | None = None,
    options: Mapping[str, str] | None = None,
    until: datetime.datetime | None = None,
    replay: bool = False,
    by_clock: bool = False,
) -> Published | DataStreamWriter | None:
    """Publish the transitions of readings as indications; see :func:`transitions`.

    Returns what :func:`pyspark_pillion.publish` returns: of a batch the counts, of a stream the
    ``DataStreamWriter`` to set up further and start.

    A transition that is older than ``max_age`` of its rule is not sent, unless ``replay`` is true:
    a job that begins with old readings does not tell the alerts of last year. Of a stream
    ``rules.transitions`` of the progress counts them; of a batch a warning has their number.

    Raises RuleError and ConfigurationError, before a job starts.
    """
    given = _listed(rules)
    found = _transitions(readings, given, until, by_clock=by_clock)
    send = functools.partial(
        publish,
        source=source,
        identity=identity(),
        properties=alert_properties(given, source=source),
        url=url,
        options=options,
    )
    is_old = F.lit(False) if replay else _is_old(given)
    counts = [F.count(F.lit(1)).alias("transitions"), F.count_if(is_old).alias("tooOld")]
    if found.isStreaming:
        return send(found.observe(TRANSITIONS, *counts).where(~is_old))
    seen = Observation(TRANSITIONS)
    published = send(found.observe(seen, *counts).where(~is_old))
    if old := seen.get["tooOld"]:
        warnings.warn(
            f"{old:,} transitions are older than max_age, and were not sent; "
            "to send them, use replay=True",
            stacklevel=2,
        )
    return published


def _listed(rules: Rule | Iterable[Rule]) -> list[Rule]:
    return [rules] if isinstance(rules, Rule) else list(rules)


def _transitions(
    readings: DataFrame,
    rules: Sequence[Rule],
    until: datetime.datetime | None,
    *,
    by_clock: bool,
) -> DataFrame:
    _check(readings, rules, until, by_clock=by_clock)
    found, own = judged(readings, rules), built_in_columns(readings)
    if readings.isStreaming:
        return over_stream(_with_watermark(found, rules), rules, own=own, by_clock=by_clock)
    last = None if until is None else micros_of(until)
    kept = found.where(has_place() & has_time())
    return over_batch(kept, rules, own=own, until=last)


# -------------------------------------------------------------------------- checks


def _check(
    readings: DataFrame,
    rules: Sequence[Rule],
    until: datetime.datetime | None,
    *,
    by_clock: bool,
) -> None:
    problems = [*_rule_problems(rules)]
    if find_spec("pandas") is None:
        problems.append("rules: Spark needs pandas for them; pip install 'pillion[spark-rules]'")
    if not hasattr(readings, "_jdf"):
        problems.append("rules: not with Spark Connect in this version; use a classic session")
    elif readings.isStreaming:
        problems += _stream_problems(readings, rules, until)
        if by_clock and readings.sparkSession.conf.get(_EMPTY_BATCHES) != "true":
            problems.append(f'by_clock: set spark.conf.set("{_EMPTY_BATCHES}", "true")')
    else:
        problems += _batch_problems(until, by_clock=by_clock)
    if problems:
        raise RuleError(problems)


def _rule_problems(rules: Sequence[Rule]) -> Iterable[str]:
    if not rules:
        yield "rules: there is none; give one at least"
    names = [rule.name for rule in rules]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"rule {name}: two rules have this name; rename one"
    for rule in rules:
        for name in _PLANNED:
            if getattr(rule, name) is not None:
                yield f"rule {rule.name}: {name}: not evaluated in this version; remove it"


def _batch_problems(until: datetime.datetime | None, *, by_clock: bool) -> Iterable[str]:
    if until is not None and until.tzinfo is None:
        yield f"until: {until} has no time zone; use datetime(…, tzinfo=UTC)"
    if by_clock:
        yield "by_clock: only for a stream; of a batch, until gives the time"


def _stream_problems(
    readings: DataFrame, rules: Sequence[Rule], until: datetime.datetime | None
) -> Iterable[str]:
    if until is not None:
        yield "until: only for a batch; a stream goes on"
    if not hasattr(GroupedData, "transformWithState"):
        yield "rules: over a stream they need pyspark 4.1 or later"
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        yield "rules: over a stream Spark needs protobuf; pip install 'pillion[spark-rules]'"
    if readings.sparkSession.conf.get(_STORE) != _ROCKSDB:
        yield f'rules: over a stream they need RocksDB; spark.conf.set("{_STORE}", "{_ROCKSDB}")'
    times = {rule.event_time.lower() for rule in rules}
    own = [field.name for field in readings.schema if WATERMARK in field.metadata]
    if own and times != {own[0].lower()}:
        yield (
            f"event_time: the readings have a watermark on {own[0]!r}; use this column in all"
            " rules, or remove withWatermark"
        )


# -------------------------------------------------------------------------- streams


def _with_watermark(found: DataFrame, rules: Sequence[Rule]) -> DataFrame:
    has_own = WATERMARK in found.schema[TIME].metadata
    ahead = max(rule.durations.ahead for rule in rules)
    is_ahead = (
        F.lit(False) if has_own else F.col(TIME) > F.current_timestamp() + _interval(F.lit(ahead))
    )
    is_ahead = has_time() & is_ahead
    seen = found.observe(
        READINGS,
        F.count(F.lit(1)).alias("readings"),
        F.count_if(~has_place()).alias("withoutKey"),
        F.count_if(~has_time()).alias("withoutTime"),
        F.count_if(is_ahead).alias("ahead"),
    )
    kept = seen.where(has_place() & has_time() & ~is_ahead)
    if has_own:
        return kept
    delay = max(rule.durations.watermark for rule in rules)
    return kept.withWatermark(TIME, f"{delay // 1000} milliseconds")


def _is_old(rules: Sequence[Rule]) -> Column:
    """Whether a transition is older than its rule's ``max_age``. The clear of a rule that was
    removed, or has other keys now, is not: its time may be that of the last reading."""
    age = _interval(by_rule({rule.name: rule.durations.max_age for rule in rules}))
    is_old = F.coalesce(F.col("at") < F.current_timestamp() - age, F.lit(False))
    return is_old & ~F.col("reason").eqNullSafe(Reason.REMOVED.value)


def _interval(micros: Column) -> Column:
    return F.make_interval(secs=micros / F.lit(_SECOND))
