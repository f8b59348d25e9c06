"""The closures of a filter, and the logic that joins them. Kleene's logic: None is unknown; AND is
the minimum and OR the maximum in the order False, None, True; NOT unknown is unknown."""

from collections.abc import Callable
from typing import Any, TypeAlias

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.filters.patterns import Matcher
from pillion_cim.filters.scope import Getter, Operand
from pillion_cim.filters.syntax import Operator, Quantifier
from pillion_cim.filters.values import OPERATIONS, Kind, as_datetime, compare
from pillion_cim.model import CIMInstance, CIMValue

Test: TypeAlias = Callable[[CIMInstance], bool | None]
ItemTest: TypeAlias = Callable[[CIMValue], bool | None]

_FLIPPED = {
    Operator.EQUAL: Operator.EQUAL,
    Operator.NOT_EQUAL: Operator.NOT_EQUAL,
    Operator.LESS: Operator.GREATER,
    Operator.LESS_EQUAL: Operator.GREATER_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.GREATER_EQUAL: Operator.LESS_EQUAL,
}


def like(matches: Matcher, value: CIMValue) -> bool | None:
    return matches(value) if isinstance(value, str) else None


def compared(how: Operator, left: Operand, right: Operand) -> Test:
    if left.constant is not None and right.constant is None:
        how, left, right = _FLIPPED[how], right, left
    get_left, get_right, constant = left.get, right.get, right.constant

    def slowly(instance: CIMInstance) -> bool | None:
        return compare(how, get_left(instance), get_right(instance))

    fits = left.column is not None and type(constant) in (bool, int, float, str)
    if fits and left.kind in (right.kind, Kind.ANY):
        return _quickly(left.column or "", OPERATIONS[how], constant, slowly)
    if isinstance(constant, CIMDateTime):
        return _compared_with_datetime(OPERATIONS[how], get_left, constant)
    return slowly


def _compared_with_datetime(
    operation: Callable[[Any, Any], bool], get: Getter, constant: CIMDateTime
) -> Test:
    limit, is_interval = constant.microseconds(), constant.is_interval

    def test(instance: CIMInstance) -> bool | None:
        value = as_datetime(get(instance))
        if value is None or value.is_interval is not is_interval:
            return None
        moment = value.microseconds()
        return None if moment is None or limit is None else operation(moment, limit)

    return test


def _quickly(
    name: str, operation: Callable[[Any, Any], bool], constant: CIMValue, slowly: Test
) -> Test:
    """The fast path for a property and a constant."""
    expected = type(constant)

    def test(instance: CIMInstance) -> bool | None:
        value = instance.values.get(name)
        if value.__class__ is expected:
            return operation(value, constant)
        return slowly(instance)

    return test


def quantified_comparison(
    quantifier: Quantifier, how: Operator, get: Getter, get_other: Getter
) -> Test:
    """``ANY array how other``: the OR of its items' comparisons; EVERY is their AND."""
    joined = _JOINED[quantifier]

    def test(instance: CIMInstance) -> bool | None:
        array, other = get(instance), get_other(instance)
        if not isinstance(array, tuple):
            return None
        return joined([compare(how, item, other) for item in array])

    return test


def quantified(quantifier: Quantifier, get: Getter, item_test: ItemTest) -> Test:
    """The OR (ANY) or the AND (EVERY) of a test of each item."""
    joined = _JOINED[quantifier]

    def test(instance: CIMInstance) -> bool | None:
        array = get(instance)
        return joined([item_test(item) for item in array]) if isinstance(array, tuple) else None

    return test


def _any(truths: list[bool | None]) -> bool | None:
    return True if True in truths else None if None in truths else False


def _every(truths: list[bool | None]) -> bool | None:
    return False if False in truths else None if None in truths else True


_JOINED = {Quantifier.ANY: _any, Quantifier.EVERY: _every}


def negated(test: Test) -> Test:
    def negation(instance: CIMInstance) -> bool | None:
        truth = test(instance)
        return None if truth is None else not truth

    return negation


def all_of(tests: tuple[Test, ...]) -> Test:
    """Stops at the first False."""

    def conjunction(instance: CIMInstance) -> bool | None:
        outcome: bool | None = True
        for test in tests:
            truth = test(instance)
            if truth is False:
                return False
            if truth is None:
                outcome = None
        return outcome

    return conjunction


def any_of(tests: tuple[Test, ...]) -> Test:
    """Stops at the first True."""

    def disjunction(instance: CIMInstance) -> bool | None:
        outcome: bool | None = False
        for test in tests:
            truth = test(instance)
            if truth:
                return True
            if truth is None:
                outcome = None
        return outcome

    return disjunction
