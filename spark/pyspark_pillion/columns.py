"""Checks the schema of the rows on the driver."""

from collections.abc import Iterable, Mapping

from pyspark.sql import types as T

from pyspark_pillion.classes import class_problems, known_class, property_name_problem
from pyspark_pillion.lines import ENVELOPE, line_column


def column_problems(
    schema: T.StructType, *, class_name: str, columns: Mapping[str, str]
) -> list[str]:
    """Return the problems of a schema. ``columns`` maps column names to property names."""
    names = schema.fieldNames()
    problems = [
        f"option columns names {column!r}, which the rows do not have"
        for column in columns
        if column not in names
    ]
    if line_column(names) is not None:
        return problems + _line_problems(schema[0])
    if not names:
        problems.append("the rows have no columns")
    properties = [columns.get(name, name) for name in names]
    problems += [
        f"two columns stand for {name!r}: drop one of them, or rename it"
        for name in repeated_names(properties)
    ]
    for name, field in zip(properties, schema.fields, strict=True):
        problems += property_problems(name, field.dataType, class_name=class_name)
    return problems + required_problems(properties, class_name=class_name)


def required_problems(names: Iterable[str], *, class_name: str) -> list[str]:
    """Return the problems of a class and of the required properties that it does not get."""
    known = known_class(class_name)
    if known is None:
        return class_problems(class_name)
    return [
        f"{name} is missing: {known.name} requires it, as {known.types[name]}"
        for name in known.missing(names)
    ]


def _line_problems(field: T.StructField) -> list[str]:
    if isinstance(field.dataType, T.StringType):
        return []
    return [
        f"column {field.name!r} is {field.dataType.simpleString()}: a column of that name, alone,"
        " has to be text, each a JSON object"
    ]


def repeated_names(names: Iterable[str]) -> list[str]:
    """Return the names that differ from an earlier one by case at most."""
    seen: set[str] = set()
    repeated = []
    for name in names:
        if name.casefold() in seen:
            repeated.append(name)
        seen.add(name.casefold())
    return repeated


def property_problems(name: str, kind: T.DataType, *, class_name: str) -> list[str]:
    """Return why values of a Spark type cannot be values of the property."""
    unsupported = _unsupported(kind)
    if unsupported:
        return [f"{name} is {kind.simpleString()}: {unsupported}"]
    if name in ENVELOPE:
        return _envelope_problems(name, kind)
    known = known_class(class_name)
    if known is None or _states_type(kind):
        return []
    spelled = known.spelling(name)
    if spelled is None:
        return [property_name_problem(known, name)]
    return [] if isinstance(kind, T.NullType) else _mismatch(name, kind, known.types[spelled])


def _states_type(kind: T.DataType) -> bool:
    return isinstance(kind, T.StructType) and {"type", "value"} <= set(kind.fieldNames())


def _unsupported(kind: T.DataType) -> str:
    """Return the remedy for a type without a CIM type; empty text if there is one."""
    if isinstance(kind, T.ArrayType):
        nested = isinstance(kind.elementType, T.ArrayType | T.TimestampType)
        remedy = "an array holds plain values" if nested else ""
        return remedy or _unsupported(kind.elementType)
    if isinstance(kind, T.StructType):
        return next(filter(None, (_unsupported_within(f.dataType) for f in kind.fields)), "")
    if isinstance(kind, T.TimestampNTZType):
        return "it has no time zone; cast it to timestamp in the zone that is meant"
    if isinstance(kind, T.DateType):
        return 'a CIM datetime is a moment; use .cast("timestamp")'
    plain = T.StringType | T.NumericType | T.BooleanType | T.TimestampType | T.NullType
    return "" if isinstance(kind, plain) else "no CIM type holds it; make it text or a number"


def _unsupported_within(kind: T.DataType) -> str:
    if isinstance(kind, T.TimestampType):
        return "a moment inside a struct has to be formatted as CIM datetime text"
    return _unsupported(kind)


def _envelope_problems(name: str, kind: T.DataType) -> list[str]:
    good = isinstance(kind, T.StringType | T.NullType)
    if name == "expires":
        good = good or isinstance(kind, T.TimestampType)
    wanted = "a timestamp or RFC 3339 text" if name == "expires" else "text"
    return [] if good else [f"{name} is {kind.simpleString()}: it has to be {wanted}"]


def _mismatch(name: str, kind: T.DataType, wanted: str) -> list[str]:
    shown = f"{name} is {kind.simpleString()}, its CIM type {wanted}"
    if wanted.startswith(("uint", "sint")) and not _whole(kind):
        return [f'{shown}: use .cast("int")']
    if wanted == "boolean" and not isinstance(kind, T.BooleanType):
        return [f'{shown}: use .cast("boolean")']
    if wanted == "datetime" and not isinstance(kind, T.TimestampType | T.StringType):
        return [f'{shown}: use .cast("timestamp"), or CIM datetime text']
    if wanted == "string" and not isinstance(kind, T.StringType):
        return [f'{shown}: use .cast("string")']
    if wanted == "string[]" and not _texts(kind):
        return [f'{shown}: use .cast("array<string>")']
    if wanted in ("object", "instance") and not isinstance(kind, T.StructType):
        return [f"{shown}: use a struct of class and properties"]
    return []


def _whole(kind: T.DataType) -> bool:
    return isinstance(kind, T.IntegralType) or (isinstance(kind, T.DecimalType) and kind.scale == 0)


def _texts(kind: T.DataType) -> bool:
    return isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.StringType)
