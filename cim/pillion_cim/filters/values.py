"""Compares CIM values with the results True, False and None (unknown). Unknown is every comparison
with NULL, between different kinds, of instances and references, and of datetimes whose asterisks
leave it open."""

import operator
from collections.abc import Callable
from enum import Enum
from typing import Any

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.filters.syntax import Operator
from pillion_cim.model import (
    CIMInstance,
    CIMInstanceName,
    CIMType,
    CIMValue,
    EmbeddedObject,
    PropertyType,
)


class Kind(Enum):
    """Values of one kind can be compared: all numbers are one kind, and all texts."""

    BOOLEAN = "a boolean"
    NUMBER = "a number"
    STRING = "a string"
    DATETIME = "a datetime"
    REFERENCE = "a reference"
    INSTANCE = "an embedded instance"
    #: Unknown before there is a value.
    ANY = "a value"


OPERATIONS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQUAL: operator.eq,
    Operator.NOT_EQUAL: operator.ne,
    Operator.LESS: operator.lt,
    Operator.LESS_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_EQUAL: operator.ge,
}

_KINDS: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    str: Kind.STRING,
    CIMDateTime: Kind.DATETIME,
    CIMInstanceName: Kind.REFERENCE,
    CIMInstance: Kind.INSTANCE,
}
_COMPARABLE = frozenset((Kind.BOOLEAN, Kind.NUMBER, Kind.STRING))
_EQUALITY = frozenset((Operator.EQUAL, Operator.NOT_EQUAL))


def declared_kind(declared: PropertyType) -> Kind:
    if declared.embedded is EmbeddedObject.INSTANCE or declared.embedded is EmbeddedObject.OBJECT:
        return Kind.INSTANCE
    match declared.cim_type:
        case CIMType.BOOLEAN:
            return Kind.BOOLEAN
        case CIMType.STRING | CIMType.CHAR16:
            return Kind.STRING
        case CIMType.DATETIME:
            return Kind.DATETIME
        case CIMType.REFERENCE:
            return Kind.REFERENCE
        case _:
            return Kind.NUMBER


def kind_of(value: CIMValue) -> Kind | None:
    """None for NULL and for an array."""
    return _KINDS.get(type(value))


def is_ordered(kind: Kind) -> bool:
    """Whether < and > apply to the kind."""
    return kind is not Kind.BOOLEAN


def compare(how: Operator, left: CIMValue, right: CIMValue) -> bool | None:
    kind, other = kind_of(left), kind_of(right)
    if kind is None or other is None:
        return None
    if Kind.DATETIME in (kind, other):
        return _compare_datetimes(how, as_datetime(left), as_datetime(right))
    if kind is not other or kind not in _COMPARABLE:
        return None
    if kind is Kind.BOOLEAN and how not in _EQUALITY:
        return None
    return OPERATIONS[how](left, right)


def parse_datetime(text: str) -> CIMDateTime | None:
    """None for a text that is no datetime."""
    try:
        return CIMDateTime(text)
    except ValueError:
        return None


def as_datetime(value: CIMValue) -> CIMDateTime | None:
    """Also convert a text, which a sender that does not know the class may send."""
    if isinstance(value, str):
        return parse_datetime(value)
    return value if isinstance(value, CIMDateTime) else None


def _compare_datetimes(
    how: Operator, left: CIMDateTime | None, right: CIMDateTime | None
) -> bool | None:
    if left is None or right is None:
        return None
    order = left.compare(right)
    return None if order is None else OPERATIONS[how](order, 0)
