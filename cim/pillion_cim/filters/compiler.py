"""Compiles a tree to closures, with all checks that need no indication."""

from dataclasses import dataclass

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.filters.evaluation import (
    Test,
    all_of,
    any_of,
    compared,
    like,
    negated,
    quantified,
    quantified_comparison,
)
from pillion_cim.filters.lexer import LONGEST_SHOWN
from pillion_cim.filters.patterns import Matcher, PatternError, compile_pattern
from pillion_cim.filters.scope import Operand, Scope
from pillion_cim.filters.syntax import (
    And,
    Call,
    Comparison,
    Condition,
    Function,
    IsA,
    IsNull,
    IsTruth,
    Like,
    Literal,
    Not,
    Operator,
    Or,
    Path,
    Quantifier,
    Term,
    Truth,
)
from pillion_cim.filters.values import (
    Kind,
    is_ordered,
    kind_of,
    parse_datetime,
)
from pillion_cim.model import CIMInstance, CIMInstanceName, CIMValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A property that must have a value: ``EventID = 'gust'``, alone or ANDed with more.

    An instance with another ``values`` entry *of the same type* under ``column`` does not match.
    One without an entry, or with another type, must be evaluated.
    """

    column: str
    value: str | int


class Compiler:
    def __init__(self, scope: Scope, *, percent: bool) -> None:
        self._scope = scope
        self._percent = percent

    def condition(self, node: Condition) -> Test:
        """Raises FilterError for an invalid name, type or pattern."""
        match node:
            case And(operands):
                return all_of(tuple(self.condition(operand) for operand in operands))
            case Or(operands):
                return any_of(tuple(self.condition(operand) for operand in operands))
            case Not(operand):
                return negated(self.condition(operand))
            case IsTruth(operand, wanted):
                test = self.condition(operand)
                return lambda instance: test(instance) is wanted
            case Comparison():
                return self._comparison(node)
            case Like():
                return self._like(node)
            case _:
                return self._predicate(node)

    def demand(self, node: Condition) -> Demand | None:
        """The simple demand that a true condition implies, if any."""
        match node:
            case And(operands):
                demands = (self.demand(operand) for operand in operands)
                return next((demand for demand in demands if demand is not None), None)
            case Comparison(operator=Operator.EQUAL, quantifier=None):
                left, right = self._operand(node.left), self._operand(node.right)
                left, right = (
                    self._coerced(node.left, left, right),
                    self._coerced(node.right, right, left),
                )
                return _demand(left, right) or _demand(right, left)
            case _:
                return None

    def _predicate(self, node: IsA | IsNull | Truth) -> Test:
        match node:
            case IsA():
                return self._isa(node)
            case IsNull(term):
                get = self._operand(term).get
                return lambda instance: get(instance) is None
            case Truth(term, offset):
                return self._truth(self._operand(term), offset)

    # --- terms

    def _operand(self, term: Term) -> Operand:
        match term:
            case Literal(value):
                return _constant(value)
            case Path():
                return self._scope.resolve(term)
            case Call(Function.DATETIME):
                return self._datetime(term)
            case Call(Function.CLASSNAME):
                return self._classname(term)
            case Call():
                return self._changed_case(term)

    def _datetime(self, call: Call) -> Operand:
        argument = call.argument
        if not isinstance(argument, Literal) or not isinstance(argument.value, str):
            raise self._scope.error("DATETIME takes a string in quotes", argument.offset)
        return _constant(self._parsed_datetime(argument))

    def _parsed_datetime(self, literal: Literal) -> CIMDateTime:
        value = parse_datetime(str(literal.value))
        if value is None:
            raise self._scope.error(
                "this is not a CIM datetime",
                literal.offset,
                "Write yyyymmddhhmmss.mmmmmm+uuu (uuu: minutes from UTC), 25 characters; or an"
                " interval ddddddddhhmmss.mmmmmm:000.",
            )
        if not value.is_exact:
            raise self._scope.error(
                "nothing can be compared with a datetime that has asterisks",
                literal.offset,
                "Give every field a value.",
            )
        return value

    def _classname(self, call: Call) -> Operand:
        argument = self._operand(call.argument)
        self._check_has_class(argument, call.argument.offset, "CLASSNAME")
        get = argument.get
        return Operand(get=lambda instance: _class_of(get(instance)), kind=Kind.STRING)

    def _changed_case(self, call: Call) -> Operand:
        argument = self._operand(call.argument)
        self._check_scalar(argument, call.argument.offset)
        if argument.kind not in (Kind.STRING, Kind.ANY):
            raise self._scope.error(
                f"{call.function} takes a string, not {argument.kind.value}", call.argument.offset
            )
        get = argument.get
        change = str.upper if call.function is Function.UPPERCASE else str.lower

        def changed(instance: CIMInstance) -> CIMValue:
            text = get(instance)
            return change(text) if isinstance(text, str) else None

        return Operand(get=changed, kind=Kind.STRING)

    # --- predicates

    def _comparison(self, node: Comparison) -> Test:
        left = self._operand(node.left)
        right = self._compared(node.right, left)
        left = self._coerced(node.left, left, right)
        right = self._coerced(node.right, right, left)
        self._check_scalar(right, node.right.offset)
        if node.quantifier is None:
            self._check_scalar(left, node.left.offset)
        else:
            self._check_array(left, node.left.offset, node.quantifier)
        self._check_types(node, left, right)
        if node.quantifier is not None:
            return quantified_comparison(node.quantifier, node.operator, left.get, right.get)
        return compared(node.operator, left, right)

    def _compared(self, term: Term, other: Operand) -> Operand:
        """A name on the right may be a text without its quotes."""
        if not isinstance(term, Path):
            return self._operand(term)
        match other.kind:
            case Kind.NUMBER:
                advice = "Write a number."
            case Kind.BOOLEAN:
                advice = "Write TRUE or FALSE."
            case _:
                advice = f"Write '{term.steps[0].name[:LONGEST_SHOWN]}' if it is a text."
        return self._scope.resolve(term, advice=advice)

    def _coerced(self, term: Term, operand: Operand, other: Operand) -> Operand:
        """A string constant beside a datetime is a datetime."""
        is_text = isinstance(term, Literal) and operand.kind is Kind.STRING
        if is_text and isinstance(term, Literal) and other.kind is Kind.DATETIME:
            return _constant(self._parsed_datetime(term))
        return operand

    def _check_types(self, node: Comparison, left: Operand, right: Operand) -> None:
        kinds = (left.kind, right.kind)
        for operand, term in ((left, node.left), (right, node.right)):
            if operand.kind in (Kind.REFERENCE, Kind.INSTANCE):
                raise self._scope.error(
                    f"{operand.kind.value} cannot be compared",
                    term.offset,
                    "Use IS NULL or ISA, or name a property in it (embedded instances only).",
                )
        if Kind.ANY not in kinds and left.kind is not right.kind:
            raise self._scope.error(
                f"TypeMismatch: {left.kind.value} is compared with {right.kind.value}",
                node.offset,
                _advice(kinds),
            )
        if node.operator not in (Operator.EQUAL, Operator.NOT_EQUAL) and not all(
            map(is_ordered, kinds)
        ):
            raise self._scope.error(
                f"booleans have no order, so {node.operator} means nothing",
                node.offset,
                "Use = or <>.",
            )

    def _like(self, node: Like) -> Test:
        operand = self._operand(node.term)
        if node.quantifier is None:
            self._check_scalar(operand, node.term.offset)
        else:
            self._check_array(operand, node.term.offset, node.quantifier)
        if operand.kind not in (Kind.STRING, Kind.ANY):
            raise self._scope.error(
                f"LIKE compares a string, not {operand.kind.value}", node.term.offset
            )
        matches = self._pattern(node)
        if node.quantifier is not None:
            return quantified(node.quantifier, operand.get, lambda item: like(matches, item))
        get = operand.get
        return lambda instance: like(matches, get(instance))

    def _pattern(self, node: Like) -> Matcher:
        try:
            return compile_pattern(node.pattern, percent=self._percent)
        except PatternError as error:
            offset = self._scope.offset_in_string(node.pattern_offset, error.position)
            raise self._scope.error(error.message, offset, error.remedy) from None

    def _isa(self, node: IsA) -> Test:
        operand = self._operand(node.path)
        self._check_has_class(operand, node.path.offset, "ISA")
        get, test = operand.get, self._scope.class_test(node.class_name)

        def isa(instance: CIMInstance) -> bool | None:
            found = get(instance)
            if isinstance(found, CIMInstance):
                return test.holds(found)
            class_name = _class_of(found)
            return None if class_name is None else test[class_name]

        return isa

    def _truth(self, operand: Operand, offset: int) -> Test:
        self._check_scalar(operand, offset)
        if operand.kind not in (Kind.BOOLEAN, Kind.ANY):
            raise self._scope.error(
                f"{operand.kind.value} is no condition by itself", offset, "Compare it: = 'value'."
            )
        get = operand.get

        def truth(instance: CIMInstance) -> bool | None:
            value = get(instance)
            return value if isinstance(value, bool) else None

        return truth

    # --- checks

    def _check_scalar(self, operand: Operand, offset: int) -> None:
        if operand.is_array:
            raise self._scope.error(
                "TypeMismatch: this is an array, and one value is needed here",
                offset,
                "In DMTF:CQL, write ANY before it, or an index: [0].",
            )

    def _check_array(self, operand: Operand, offset: int, quantifier: Quantifier) -> None:
        if not operand.is_array and operand.kind is not Kind.ANY:
            raise self._scope.error(
                f"{quantifier} needs an array, and this is {operand.kind.value}",
                offset,
                f"Leave {quantifier} out.",
            )

    def _check_has_class(self, operand: Operand, offset: int, what: str) -> None:
        has_class = operand.kind in (Kind.INSTANCE, Kind.REFERENCE, Kind.ANY)
        if operand.is_array or not has_class:
            raise self._scope.error(
                f"{what} needs something that has a class, and this is"
                f" {'an array' if operand.is_array else operand.kind.value}",
                offset,
                "Name the class after FROM (or its alias), or an embedded instance.",
            )


def _advice(kinds: tuple[Kind, Kind]) -> str:
    if Kind.STRING in kinds and Kind.NUMBER in kinds:
        return "Write numbers without quotes and texts in quotes."
    if Kind.BOOLEAN in kinds:
        return "Compare a boolean with TRUE or FALSE, without quotes."
    return ""


def _demand(column: Operand, constant: Operand) -> Demand | None:
    value = constant.constant
    # Not isinstance: a boolean is no number here.
    if column.column is None or type(value) not in (str, int):
        return None
    assert isinstance(value, str | int)
    return Demand(column=column.column, value=value)


def _constant(value: CIMValue) -> Operand:
    kind = kind_of(value)
    assert kind is not None
    return Operand(get=lambda _instance: value, kind=kind, constant=value)


def _class_of(value: CIMValue) -> str | None:
    return value.class_name if isinstance(value, CIMInstance | CIMInstanceName) else None
