"""Expressions of the values that a rule measures, as plain data.

Spark parses a condition such as ``late > 30 and n > 20`` on the driver. The values are known only
where the state of a key is, so they are judged there, by the rules of SQL: null is None, and so is
what has no finite value.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

#: True and False are numbers, too.
Value: TypeAlias = float | bool | None


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value

    def of(self, values: Mapping[str, Value]) -> Value:
        return self.value


@dataclass(frozen=True, slots=True)
class Name:
    """A value that is given."""

    name: str

    def of(self, values: Mapping[str, Value]) -> Value:
        return values[self.name]


@dataclass(frozen=True, slots=True)
class Operation:
    """One of :data:`OPERATIONS`."""

    name: str
    operands: "tuple[Formula, ...]"

    def of(self, values: Mapping[str, Value]) -> Value:
        found = OPERATIONS[self.name]([one.of(values) for one in self.operands])
        return None if isinstance(found, float) and not math.isfinite(found) else found


Formula: TypeAlias = Literal | Name | Operation
_Operation: TypeAlias = Callable[[Sequence[Value]], Value]


def _strict(function: Callable[..., Value]) -> _Operation:
    """Null if an operand is null."""

    def operation(operands: Sequence[Value]) -> Value:
        if any(one is None for one in operands):
            return None
        try:
            return function(*operands)
        except (ArithmeticError, ValueError):
            return None

    return operation


def _and(operands: Sequence[Value]) -> Value:
    if any(one is not None and not one for one in operands):
        return False
    return None if None in operands else True


def _or(operands: Sequence[Value]) -> Value:
    if any(operands):
        return True
    return None if None in operands else False


def _in(operands: Sequence[Value]) -> Value:
    value, *others = operands
    return _or([None if None in (value, one) else value == one for one in others])


def _coalesce(operands: Sequence[Value]) -> Value:
    return next((one for one in operands if one is not None), None)


def _extreme(choose: Callable[..., Value]) -> _Operation:
    def operation(operands: Sequence[Value]) -> Value:
        return choose((one for one in operands if one is not None), default=None)

    return operation


#: By the names of Catalyst's nodes, and of SQL's functions.
OPERATIONS: Mapping[str, _Operation] = {
    "And": _and,
    "Or": _or,
    "Not": _strict(operator.not_),
    "EqualTo": _strict(operator.eq),
    "EqualNullSafe": lambda operands: operands[0] == operands[1],
    "GreaterThan": _strict(operator.gt),
    "GreaterThanOrEqual": _strict(operator.ge),
    "LessThan": _strict(operator.lt),
    "LessThanOrEqual": _strict(operator.le),
    "IsNull": lambda operands: operands[0] is None,
    "IsNotNull": lambda operands: operands[0] is not None,
    "In": _in,
    "Add": _strict(operator.add),
    "Subtract": _strict(operator.sub),
    "Multiply": _strict(operator.mul),
    "Divide": _strict(operator.truediv),
    "Remainder": _strict(math.fmod),
    "UnaryMinus": _strict(operator.neg),
    "UnaryPositive": lambda operands: operands[0],
    "abs": _strict(abs),
    "between": _strict(lambda value, low, high: low <= value <= high),
    "coalesce": _coalesce,
    "greatest": _extreme(max),
    "least": _extreme(min),
    "sqrt": _strict(math.sqrt),
}
#: Those that are true or false.
CONDITIONS = frozenset(
    {"And", "Or", "Not", "EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"}
    | {"LessThan", "LessThanOrEqual", "IsNull", "IsNotNull", "In", "between"}
)
#: Those of conditions.
OF_CONDITIONS = frozenset({"And", "Or", "Not"})
#: Those whose operands are all numbers or all conditions.
ANY_OPERANDS = frozenset(
    {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan"}
    | {"LessThanOrEqual", "IsNull", "IsNotNull", "In", "between"}
    | {"coalesce", "greatest", "least"}
)


def takes(name: str, count: int) -> bool:
    """Whether an operation takes so many operands."""
    if name in ("greatest", "least"):
        return count > 1
    try:
        OPERATIONS[name]([1.0] * count)
    except (TypeError, ValueError, IndexError):
        return False
    return count > 0
