"""Single values of the JSON form: conversion both ways where JSON lacks the type."""

import math
import re
from typing import Any, Final

from pillion_cim.datetimes import CIMDateTime, parse_rfc3339
from pillion_cim.model import CIMScalar
from pillion_cim.types import INTEGER_RANGES, CIMType, PropertyType

_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}")
_SPECIAL_REALS: Final = {"NaN": math.nan, "INF": math.inf, "-INF": -math.inf}


def convert_scalar(value: Any, property_type: PropertyType) -> CIMScalar:
    """Convert a JSON value that is not an object. Its range is not checked here.

    Raises ValueError that says what is wrong.
    """
    cim_type = property_type.cim_type
    if property_type.embedded is not None:
        raise ValueError("not an embedded instance")
    if cim_type is CIMType.REFERENCE:
        raise ValueError("not a reference")
    if isinstance(value, dict | list | tuple):
        raise ValueError(f"expected a {cim_type}")  # noqa: TRY004 - one kind of error for bad data
    if cim_type is CIMType.DATETIME:
        return _datetime(value)
    if cim_type is CIMType.REAL32 or cim_type is CIMType.REAL64:
        return _real(value)
    if cim_type is CIMType.UINT64 or cim_type is CIMType.SINT64:
        return _long(value)
    scalar: CIMScalar = value
    return scalar


def encode_scalar(value: CIMScalar | None) -> Any:
    """Return the JSON value of a value that is neither an instance nor a reference."""
    if isinstance(value, CIMDateTime):
        return value.text
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    return value


def describe_remedy(property_type: PropertyType) -> str:
    """Say how a value of a type is written."""
    cim_type = property_type.cim_type
    if property_type.embedded is not None:
        return 'write {"class": "NAME", "properties": {…}}'
    if cim_type in INTEGER_RANGES:
        low, high = INTEGER_RANGES[cim_type]
        return f"write an integer from {low} to {high}"
    return {
        CIMType.BOOLEAN: "write true or false",
        CIMType.STRING: "write text, without control characters",
        CIMType.CHAR16: "write one character",
        CIMType.REAL32: 'write a number, or one of "NaN", "INF", "-INF"',
        CIMType.REAL64: 'write a number, or one of "NaN", "INF", "-INF"',
        CIMType.DATETIME: "write 25 characters, as 20261121133000.000000+000, or an RFC 3339 time",
    }.get(cim_type, 'write {"class": "NAME", "keys": {…}}')


def _datetime(value: Any) -> CIMDateTime:
    if not isinstance(value, str):
        raise ValueError("not a datetime")  # noqa: TRY004 - one kind of error for bad data
    if value[14:15] == ".":
        return CIMDateTime(value)
    try:
        return parse_rfc3339(value)
    except (ValueError, OverflowError):
        raise ValueError("not a datetime") from None


def _real(value: Any) -> float:
    if isinstance(value, str) and value in _SPECIAL_REALS:
        return _SPECIAL_REALS[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")  # noqa: TRY004 - one kind of error for bad data
    try:
        real = float(value)
    except OverflowError:
        raise ValueError("out of range of a real64") from None
    if not math.isfinite(real):
        raise ValueError("JSON has no such number")
    return real


def _long(value: Any) -> CIMScalar:
    if isinstance(value, str):
        if _DECIMAL.fullmatch(value) is None:
            raise ValueError("not an integer in decimal digits")
        return int(value)
    scalar: CIMScalar = value
    return scalar
