"""A table of maintenance windows: checked, and collected once."""

import warnings
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pillion_rules import MaintenanceWindow, Rule, RuleError
from pillion_rules.durations import time_text
from pillion_rules.errors import nearest, shown

#: Maximum rows of a table.
MOST_WINDOWS = 10_000
#: Wrong rows that an error names.
_MOST_NAMED = 20
_START, _END, _RULE = "start", "end", "rule"
_TIMES = (T.TimestampType, T.TimestampNTZType)


def table_problems(
    maintenance: DataFrame, inputs: Sequence[DataFrame], rules: Sequence[Rule]
) -> Iterator[str]:
    """What is wrong with the columns of a table; its rows are not read."""
    given: object = maintenance
    if not isinstance(given, DataFrame):
        yield f"maintenance: {shown(given)} is no DataFrame; read a table with spark.read"
        return
    if maintenance.isStreaming:
        yield "maintenance: is a stream; read a table with spark.read"
        return
    types = {field.name.lower(): field.dataType for field in maintenance.schema}
    if len(types) < len(maintenance.columns):
        yield "maintenance: two columns have the same name; rename one"
    for name in (_START, _END):
        kind = types.pop(name, None)
        if kind is None:
            yield f"maintenance: {name} is missing; add a column of timestamps"
        elif not isinstance(kind, _TIMES):
            yield f"maintenance: {name} is {kind.simpleString()}; cast it to a timestamp"
    kind = types.pop(_RULE, None)
    if kind is not None and not isinstance(kind, T.StringType):
        yield f"maintenance: {_RULE} is {kind.simpleString()}; give names of rules, or null"
    yield from _key_problems(types, inputs, rules)


def _key_problems(
    types: Mapping[str, T.DataType], inputs: Sequence[DataFrame], rules: Sequence[Rule]
) -> Iterator[str]:
    keys = sorted({name.lower() for rule in rules for name in rule.keys})
    of_readings = {field.name.lower(): field.dataType for one in inputs for field in one.schema}
    for name, kind in types.items():
        if name not in keys:
            hint = nearest(name, [_START, _END, _RULE, *keys])
            yield f"maintenance: {shown(name)} is no key of a rule; {hint}"
        elif name in of_readings and _form(kind) != _form(of_readings[name]):
            wanted = of_readings[name].simpleString()
            yield f"maintenance: {name} is {kind.simpleString()}; cast it to {wanted}"


def _form(kind: T.DataType) -> str:
    """Values of two types with one form that are equal have equal texts."""
    return "integer" if isinstance(kind, T.IntegralType) else kind.simpleString()


def collected(maintenance: DataFrame, rules: Sequence[Rule]) -> list[MaintenanceWindow]:
    """Read a table without problems. Raises RuleError for its rows, and warns of rules that there
    are not: a table may be that of several jobs."""
    names = [name.lower() for name in maintenance.columns]
    rows = (
        maintenance.toDF(*names)
        .select(
            *(F.unix_micros(F.col(name).cast("timestamp")).alias(name) for name in (_START, _END)),
            *(F.col(f"`{name}`").cast("string") for name in names if name not in (_START, _END)),
        )
        .limit(MOST_WINDOWS + 1)
        .collect()
    )
    if len(rows) > MOST_WINDOWS:
        raise RuleError([f"maintenance: more than {MOST_WINDOWS:,} rows; leave out those of old"])
    problems = [*_row_problems(rows)]
    if problems:
        left = len(problems) - _MOST_NAMED
        more = [f"maintenance: {left:,} wrong rows more; correct these first"] if left > 0 else []
        raise RuleError([*problems[:_MOST_NAMED], *more])
    found = sorted((_window(row) for row in rows), key=repr)
    known = [rule.name for rule in rules]
    for name in sorted({one.rule for one in found if one.rule is not None} - {*known}):
        warnings.warn(
            f"maintenance: no rule has the name {shown(name)}; {nearest(name, known)}", stacklevel=4
        )
    return found


def _row_problems(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row[_START] is None or row[_END] is None:
            yield f"maintenance: {shown(_without_null(row))} has no start, or no end; give both"
        elif row[_START] >= row[_END]:
            times = f"{time_text(row[_START])} to {time_text(row[_END])}"
            yield f"maintenance: {times}: start is not before end; correct one of them"


def _without_null(row: Row) -> dict[str, object]:
    return {
        name: time_text(value) if name in (_START, _END) else value
        for name, value in row.asDict().items()
        if value is not None
    }


def _window(row: Row) -> MaintenanceWindow:
    given = row.asDict()
    return MaintenanceWindow(
        start=given.pop(_START),
        end=given.pop(_END),
        rule=given.pop(_RULE, None),
        key={name: value for name, value in given.items() if value is not None},
    )
