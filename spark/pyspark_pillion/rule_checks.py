"""Whether rules, inputs and settings fit together, before a job starts."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

from pyspark.sql import DataFrame, GroupedData, SparkSession

from pillion_rules import Rule, RuleError
from pillion_rules.errors import nearest, shown
from pillion_rules.unless import unless_problems
from pyspark_pillion.judging import WATERMARK
from pyspark_pillion.maintenance import table_problems

_EMPTY_BATCHES = "spark.sql.streaming.noDataMicroBatches.enabled"
_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def check(
    inputs: Mapping[str | None, DataFrame],
    of_inputs: Mapping[str | None, Sequence[Rule]],
    rules: Sequence[Rule],
    *,
    until: datetime.datetime | None,
    maintenance: DataFrame | None,
    by_clock: bool,
) -> None:
    """Raise RuleError with every problem that is not one of a single rule alone."""
    given: Sequence[object] = [*inputs.values()]
    for one in given:
        if not isinstance(one, DataFrame):
            raise RuleError(
                [f"inputs: {shown(one)} is no DataFrame; give one, or a dictionary of them by name"]
            )
    problems = [*_rule_problems(rules), *_input_problems(of_inputs, rules)]
    problems += flag_problems(by_clock=by_clock)
    if find_spec("pandas") is None:
        problems.append("rules: Spark needs pandas for them; pip install 'pillion[spark-rules]'")
    kinds = {one.isStreaming for one in inputs.values()}
    if len(kinds) > 1:
        problems.append("inputs: some are streams and some are not; give all of one kind")
    if not all(hasattr(one, "_jdf") for one in inputs.values()):
        problems.append("rules: not with Spark Connect in this version; use a classic session")
    elif True in kinds:
        session = next(iter(inputs.values())).sparkSession
        problems += _stream_problems(session, until, by_clock=by_clock)
        for name, one in inputs.items():
            problems += _watermark_problems(one, of_inputs[name])
    else:
        problems += _batch_problems(until, by_clock=by_clock)
    if maintenance is not None and all(hasattr(one, "_jdf") for one in inputs.values()):
        problems += table_problems(maintenance, [*inputs.values()], rules)
    if problems:
        raise RuleError(problems)


def flag_problems(**flags: object) -> Iterable[str]:
    """What is wrong with arguments that are true or false."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            yield f"{name}: {shown(value)} is not True or False"


def _input_problems(
    of_inputs: Mapping[str | None, Sequence[Rule]], rules: Sequence[Rule]
) -> Iterable[str]:
    if not of_inputs:
        yield "inputs: there is none; give one at least"
    for name, found in of_inputs.items():
        if name is not None and not found and rules:
            yield (
                f"inputs: no rule reads {shown(name)}; remove it, or set input of a rule. A stream "
                "that goes on needs its inputs: keep a rule that never holds"
            )
    names = [str(name) for name in of_inputs if name is not None]
    for rule in rules:
        if rule.input is None and names:
            yield f"rule {rule.name}: input: is missing; give the name of one of the inputs"
        elif rule.input is not None and rule.input not in of_inputs:
            problem = nearest(rule.input, names) if names else 'give inputs as {"NAME": readings}'
            yield f"rule {rule.name}: input: {shown(rule.input)} is not given; {problem}"


def _rule_problems(rules: Sequence[Rule]) -> Iterable[str]:
    if not rules:
        yield "rules: there is none; give one at least"
    names = [rule.name for rule in rules]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"rule {name}: two rules have this name; rename one"
    yield from unless_problems(rules)


def _batch_problems(until: datetime.datetime | None, *, by_clock: bool) -> Iterable[str]:
    if until is not None and getattr(until, "tzinfo", None) is None:
        yield f"until: {until!r} is no time with a zone; use datetime(…, tzinfo=UTC)"
    if by_clock:
        yield "by_clock: only for a stream; of a batch, until gives the time"


def _stream_problems(
    session: SparkSession, until: datetime.datetime | None, *, by_clock: bool
) -> Iterable[str]:
    if until is not None:
        yield "until: only for a batch; a stream goes on"
    if not hasattr(GroupedData, "transformWithState"):
        yield "rules: over a stream they need pyspark 4.1 or later"
    if find_spec("google") is None or find_spec("google.protobuf") is None:
        yield "rules: over a stream Spark needs protobuf; pip install 'pillion[spark-rules]'"
    if session.conf.get(_STORE) != _ROCKSDB:
        yield f'rules: over a stream they need RocksDB; spark.conf.set("{_STORE}", "{_ROCKSDB}")'
    if by_clock and session.conf.get(_EMPTY_BATCHES) != "true":
        yield f'by_clock: set spark.conf.set("{_EMPTY_BATCHES}", "true")'


def _watermark_problems(readings: DataFrame, rules: Sequence[Rule]) -> Iterable[str]:
    times = {rule.event_time.lower() for rule in rules}
    own = [field.name for field in readings.schema if WATERMARK in field.metadata]
    plan = readings._jdf.queryExecution().analyzed().toString()
    if not own and "EventTimeWatermark" in plan:
        yield (
            f"event_time: {rules[0].event_time!r} has lost the watermark of the stream; "
            "use withWatermark's column, or F.window_time(…) of a window"
        )
    if own and times != {own[0].lower()}:
        yield (
            f"event_time: the readings have a watermark on {own[0]!r}; use this column in all"
            " rules, or remove withWatermark"
        )
