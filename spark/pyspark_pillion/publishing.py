"""``publish()``: columns to indications inside the JVM.

The identity of an indication is the digest of its source, its class and the columns that the caller
names. Partitions, attempts and row order differ between a run and its replay, so duplicates cannot
be found by them.
"""

import dataclasses
import datetime
import functools
import json
import operator
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pyspark_pillion.classes import known_class
from pyspark_pillion.columns import property_problems, repeated_names, required_problems
from pyspark_pillion.errors import ConfigurationError
from pyspark_pillion.lineage import identity_problems
from pyspark_pillion.lines import ENVELOPE, NULL_IDENTITY
from pyspark_pillion.options import class_name as checked_class_name
from pyspark_pillion.options import parse_options
from pyspark_pillion.source import FORMAT, register
from pyspark_pillion.tracing import PARENT, STATE, current_span

#: A column, or a plain value that is the same in every row. Text is a value.
Value: TypeAlias = Column | str | int | float | bool | datetime.datetime | list[str] | None

#: CIM datetime text (DSP0004 5.2.4), in UTC whatever the session's time zone.
CIM_TIME = {"timestampFormat": "yyyyMMddHHmmss.SSSSSS'+000'", "timeZone": "UTC"}
#: Spark's own format for times without a zone drops the microseconds, and would merge identities.
IDENTITY_FORMAT = {
    **CIM_TIME,
    "timestampNTZFormat": "yyyyMMddHHmmss.SSSSSS",
    "ignoreNullFields": "false",
}
RFC3339_TIME = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "timeZone": "UTC"}

IDENTIFIER = "IndicationIdentifier"

#: Columns beside the lines that are to be published in order.
_GROUP = "pillion_group"
_ORDER = "pillion_order_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The counts of one batch. ``delivered`` and ``discarded`` count targets: a row with two
    listeners counts twice, and a duplicate counts only if its original was discarded.
    ``discarded`` counts by ``DESTINATION: REASON``; ``unreached`` counts accepted rows that go to
    no listener, by ``unrouted``, ``ended`` and ``suppressed``.

    ``repeated`` of the duplicates may be of earlier attempts of this save, which the deliverer does
    not know any more. ``redelivered`` went again to listeners that had missed them.
    ``publishers`` are the first 1,000 IDs for ``/v1/faults``."""

    accepted: int
    duplicate: int
    rejected: int
    delivered: int
    discarded: Mapping[str, int]
    unreached: Mapping[str, int] = dataclasses.field(default_factory=dict)
    repeated: int = 0
    redelivered: int = 0
    publishers: Sequence[str] = dataclasses.field(default=(), compare=False, repr=False)

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> "Published":
        """Read a line of ``reportPath``."""
        return cls(**{one.name: report[one.name] for one in dataclasses.fields(cls)})


def publish(
    df: DataFrame,
    *,
    source: str,
    identity: Sequence[str | Column],
    properties: Mapping[str, Value] | None = None,
    class_name: str = "CIM_AlertIndication",
    url: str | None = None,
    options: Mapping[str, str] | None = None,
    output_mode: str = "append",
    order_by: Sequence[str | Column] = (),
) -> "Published | DataStreamWriter | None":
    """Publish each row as an indication, and return once the rows have reached ``flushLevel``.

    ``source`` and ``identity`` are what duplicates are told by; see :func:`indications` for these
    and for ``properties``. ``options`` are those of the data source. Returns the counts, or None
    where the commit ran on another machine (Spark Connect). For a streaming ``df``, returns the
    ``DataStreamWriter`` to set up further (checkpoint, trigger) and start; ``output_mode`` is
    ``append`` or ``update``, which goes by way of ``foreachBatch``.

    With ``order_by`` the rows with the same ``group`` are published in the order of these columns,
    by one task; a stream then goes by way of ``foreachBatch``, too.

    Raises ConfigurationError with every problem that can be seen before a task starts; what fails
    later is Spark's own exception, quoting the PublishError of the task.
    """
    given = dict(options or {}) | {"source": source} | ({"url": url} if url is not None else {})
    if not (df.isStreaming or {PARENT, STATE} & {name.lower() for name in given}):
        # A stream outlives the span that starts it.
        given |= current_span()
    problems = _option_problems(given)
    if output_mode not in ("append", "update"):
        problems.append(f"output_mode is {output_mode!r}: choose append or update")
    lines = _indications(
        df,
        source,
        identity=identity,
        properties=properties,
        class_name=class_name,
        found=problems,
        update=df.isStreaming and output_mode == "update",
        order_by=order_by,
    )
    register(df.sparkSession)
    if not df.isStreaming:
        return _save(_in_order(lines), given)
    if output_mode == "update" or order_by:
        return lines.writeStream.outputMode(output_mode).foreachBatch(
            lambda batch, _: _append(_in_order(batch), given)
        )
    return lines.writeStream.outputMode("append").format(FORMAT).options(**given)


def indications(
    df: DataFrame,
    *,
    source: str,
    identity: Sequence[str | Column],
    properties: Mapping[str, Value] | None = None,
    class_name: str = "CIM_AlertIndication",
) -> DataFrame:
    """Return the rows as one column ``value``, each a line of JSON that the data source takes.

    ``identity`` names what tells two indications of the source apart: columns, or expressions of
    them, whose values are the same whenever the same thing is published again. Never the time of
    the run, a random number, or a generated row number. IndicationIdentifier is made from them.

    ``properties`` maps property names to columns or plain values (text is a value; write
    ``col("x")`` for a column); without it, every column is the property of its name. ``group``,
    ``expires`` and ``sourceNamespace`` go beside the properties. Nulls are left out; timestamps
    become CIM datetimes in UTC.

    Raises ConfigurationError with every problem.
    """
    return _indications(
        df, source, identity=identity, properties=properties, class_name=class_name, found=[]
    )


def _indications(
    df: DataFrame,
    source: str,
    *,
    identity: Sequence[str | Column],
    properties: Mapping[str, Value] | None,
    class_name: str,
    found: Sequence[str],
    update: bool = False,
    order_by: Sequence[str | Column] = (),
) -> DataFrame:
    named = {name: df[_quoted(name)] for name in df.columns} if properties is None else properties
    problems = [*found, *_shape_problems(df, identity, named)]
    problems += _class_problems(class_name, named)
    problems += _order_problems(df, order_by, named)
    if problems:
        raise ConfigurationError(problems)
    columns = {name: _column(value) for name, value in named.items() if value is not None}
    keys = [_key(df, key) if isinstance(key, str) else key for key in identity]
    typed = df.select(
        *(column.alias(name) for name, column in columns.items()),
        *(key.alias(f"key {i}") for i, key in enumerate(keys)),
    ).schema
    problems = _type_problems(typed, count=len(columns), class_name=class_name)
    problems += identity_problems(df, keys, update=update)
    if problems:
        raise ConfigurationError(problems)
    columns[IDENTIFIER] = _identifier_property(keys, source=source, class_name=class_name)
    line = _line(columns, class_name=class_name, schema=typed)
    # Not an error of the plan: such a row is invalid like any other, and option onInvalid counts.
    if all(field.nullable for field in typed.fields[-len(keys) :]):
        line = F.concat(F.when(_all_null(keys), NULL_IDENTITY).otherwise(""), line)
    order = [_key(df, key) if isinstance(key, str) else key for key in order_by]
    return df.select(
        line.alias("value"),
        *(columns["group"].alias(_GROUP) for _ in order[:1]),
        *(key.alias(f"{_ORDER}{position}") for position, key in enumerate(order)),
    )


def _in_order(lines: DataFrame) -> DataFrame:
    """The lines alone: those of a group in one partition, in their order."""
    order = [name for name in lines.columns if name.startswith(_ORDER)]
    if not order:
        return lines
    return lines.repartition(_GROUP).sortWithinPartitions(*order).select("value")


def identifier(
    identity: Sequence[str | Column], *, source: str, class_name: str = "CIM_AlertIndication"
) -> Column:
    """Return the IndicationIdentifier that :func:`publish` gives a row, as text.

    It is for structured rows where Spark must not analyse them, as in a flow of a declarative
    pipeline. The columns of ``identity`` are not checked.
    """
    # The digest is of JSON, so a null differs from the text ``null``, and two lists of values never
    # have the same text. Keys count by position: renaming a column changes nothing.
    fields = [F.lit(source).alias("source"), F.lit(class_name).alias("class")]
    for position, key in enumerate(identity):
        fields.append((F.col(key) if isinstance(key, str) else key).alias(str(position)))
    return F.sha2(F.to_json(F.struct(*fields), IDENTITY_FORMAT), 256)


def _identifier_property(keys: Sequence[Column], *, source: str, class_name: str) -> Column:
    made = identifier(keys, source=source, class_name=class_name)
    if known_class(class_name) is not None:
        return made
    # A class outside the schema gives its properties no types.
    return F.struct(F.lit("string").alias("type"), made.alias("value"))


def _all_null(keys: Sequence[Column]) -> Column:
    return functools.reduce(operator.and_, (key.isNull() for key in keys))


def _key(df: DataFrame, name: str) -> Column:
    """The column of a name, as Spark resolves it: in any case, or within a struct."""
    return df[_quoted(name)] if name in df.columns else df[name]


def _is_column(df: DataFrame, name: str) -> bool:
    if name in df.columns:
        return True
    try:
        return len(df.select(name).columns) == 1 and not name.endswith("*")
    except AnalysisException:
        return False


def _order_problems(
    df: DataFrame, order_by: Sequence[str | Column], named: Mapping[str, Value]
) -> list[str]:
    if isinstance(order_by, str):
        return [f"order_by is {order_by!r}: give a list of columns"]
    problems = [
        f"order_by has {key!r}, which the rows do not have"
        for key in order_by
        if isinstance(key, str) and not _is_column(df, key)
    ]
    if order_by and named.get("group") is None:
        problems.append(
            "order_by needs a group: give properties the column group, whose rows keep their order"
        )
    return problems


def _class_problems(class_name: str, named: Mapping[str, Value]) -> list[str]:
    try:
        checked_class_name(class_name)
    except ValueError as error:
        return [f"class_name {error}"]
    given = [name for name, value in named.items() if value is not None]
    problems = [
        f"{name!r} is there twice: case makes no difference" for name in repeated_names(named)
    ]
    return problems + required_problems(given, class_name=class_name)


def _line(columns: Mapping[str, Column], *, class_name: str, schema: T.StructType) -> Column:
    envelope = [F.lit(class_name).alias("class")]
    for name in ENVELOPE:
        if name in columns:
            envelope.append(_envelope(columns[name], schema[name].dataType).alias(name))
    properties = [column.alias(name) for name, column in columns.items() if name not in ENVELOPE]
    line = F.struct(*envelope, F.struct(*properties).alias("properties"))
    return F.to_json(line, {**CIM_TIME, "ignoreNullFields": "true"})


def _envelope(column: Column, kind: T.DataType) -> Column:
    if not isinstance(kind, T.TimestampType):
        return column
    # to_json has one format for all timestamps of a line, and a line's is the CIM datetime.
    return F.get_json_object(F.to_json(F.struct(column.alias("t")), RFC3339_TIME), "$.t")


def _column(value: Value) -> Column:
    if isinstance(value, Column):
        return value
    if isinstance(value, list):
        return F.array(*(F.lit(item) for item in value))
    return F.lit(value)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _option_problems(given: Mapping[str, str]) -> list[str]:
    try:
        parse_options(given)
    except ConfigurationError as error:
        return list(error.problems)
    return []


def _shape_problems(
    df: DataFrame, identity: Sequence[str | Column], named: Mapping[str, Value]
) -> list[str]:
    problems = []
    if isinstance(identity, str) or not identity:
        problems.append("identity is empty: name the columns that tell two indications apart")
    else:
        problems += [
            f"identity has {key!r}, which the rows do not have"
            for key in identity
            if isinstance(key, str) and not _is_column(df, key)
        ]
    if IDENTIFIER.casefold() in map(str.casefold, named):
        problems.append(f"{IDENTIFIER} is made from identity: leave it out of the properties")
    if "source" in named:
        problems.append("source is said once, for all rows: leave it out of the properties")
    if df.sparkSession.conf.get("spark.sql.legacy.timeParserPolicy") == "LEGACY":
        problems.append(
            "spark.sql.legacy.timeParserPolicy is LEGACY, which cannot write microseconds: set it"
            " to CORRECTED"
        )
    problems += [
        f"{name} is {value}, a time without a zone: give it tzinfo"
        for name, value in named.items()
        if isinstance(value, datetime.datetime) and value.tzinfo is None
    ]
    return problems


def _type_problems(schema: T.StructType, *, count: int, class_name: str) -> list[str]:
    problems = []
    for field in schema.fields[:count]:
        problems += property_problems(field.name, field.dataType, class_name=class_name)
    for position, field in enumerate(schema.fields[count:]):
        if not isinstance(field.dataType, T.AtomicType) or isinstance(field.dataType, T.NullType):
            problems.append(
                f"identity {position + 1} is {field.dataType.simpleString()}: an identity is made"
                " of single values"
            )
    return problems


def _append(lines: DataFrame, given: Mapping[str, str]) -> None:
    lines.write.format(FORMAT).mode("append").options(**given).save()


def _save(lines: DataFrame, given: Mapping[str, str]) -> Published | None:
    if any(name.lower() == "reportpath" for name in given):
        _append(lines, given)
        return None
    with tempfile.TemporaryDirectory(prefix="pillion-") as directory:
        path = os.path.join(directory, "report")
        _append(lines, {**given, "reportPath": path})
        try:
            with open(path, encoding="utf-8") as file:
                counts: dict[str, Any] = json.loads(file.read())
        except FileNotFoundError:
            return None
    return Published.of(counts)
