"""The rules that measure: what Spark computes of each reading, and the formulas of the rest.

Spark parses ``measure``, ``rate`` and the conditions. What a reading alone decides becomes columns
of numbers; what several readings decide becomes formulas, which are data.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pillion_rules import Rule
from pillion_rules.errors import nearest
from pillion_rules.formulas import (
    ANY_OPERANDS,
    CONDITIONS,
    OF_CONDITIONS,
    OPERATIONS,
    Formula,
    Literal,
    Name,
    Operation,
    takes,
)
from pillion_rules.measures import Aggregate, Measured
from pillion_rules.names import levels
from pyspark_pillion.conditions import (
    ATTRIBUTES,
    ConditionError,
    Conditions,
    attribute,
    called,
    nodes,
)

#: Maximum parts of a formula, which is evaluated by recursion.
MOST_PARTS = 200
#: Functions of a window, and the aggregates that each is made of.
_AGGREGATES = {
    "avg": (Aggregate.SUM, Aggregate.COUNT),
    "count": (Aggregate.COUNT,),
    "count_if": (Aggregate.COUNT,),
    "max": (Aggregate.MAX,),
    "mean": (Aggregate.SUM, Aggregate.COUNT),
    "min": (Aggregate.MIN,),
    "sum": (Aggregate.SUM,),
}
#: Operators of a Column, by name and number of operands; 0 is any.
_OPERATORS = {
    **{("<", 0): "LessThan", ("<=", 0): "LessThanOrEqual", (">", 0): "GreaterThan"},
    **{(">=", 0): "GreaterThanOrEqual", ("=", 0): "EqualTo", ("<=>", 0): "EqualNullSafe"},
    **{("and", 0): "And", ("or", 0): "Or", ("!", 0): "Not", ("not", 0): "Not", ("in", 0): "In"},
    **{("+", 0): "Add", ("-", 0): "Subtract", ("*", 0): "Multiply", ("/", 0): "Divide"},
    **{("%", 0): "Remainder", ("negative", 0): "UnaryMinus", ("-", 1): "UnaryMinus"},
    **{("isnull", 0): "IsNull", ("isnotnull", 0): "IsNotNull"},
}
_FUNCTIONS = frozenset(name for name in OPERATIONS if name.islower())
#: Types of numbers in Spark.
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double"})


class Measures(NamedTuple):
    """What a rule measures, and the numbers that it needs of each reading."""

    measured: Measured
    columns: list[Column]


def measures_of(conditions: Conditions, rule: Rule, problems: list[str]) -> Measures | None:
    """Return what a rule measures; None: it has problems, which are added."""
    found = (_OfWindows if rule.measure is not None else _OfRates)(conditions, rule)

    def parsed(field: str, text: str, translate: Callable[[Any], Formula]) -> Formula:
        try:
            return translate(found.tree(text))
        except ConditionError as error:
            problems.append(f"{field}: {error}")
            return Literal(None)

    field = "measure" if rule.measure is not None else "rate"
    values = {
        name: parsed(f"{field} {name}", text, found.value(name))
        for name, text in (rule.measure or rule.rate or {}).items()
    }
    found.declare(values)
    assert not isinstance(rule.severity, str)
    numbers = levels()
    severities = tuple(
        (numbers[name], parsed(f"severity {name}", rule.severity[name], found.condition))
        for name in sorted(rule.severity, key=lambda name: -numbers[name])
    )
    clear = None if rule.clear is None else parsed("clear", rule.clear, found.condition)
    if problems:
        return None
    measured = Measured(
        rule=rule,
        aggregates=tuple(found.aggregates.values()),
        numbers=tuple(found.columns),
        values=values,
        severities=severities,
        clear=clear,
    )
    return Measures(measured, [*found.columns.values()])


class _Formulas:
    """Translates Catalyst's trees, and gathers the columns of the numbers by their names."""

    #: What else an error names as possible.
    more = ""

    def __init__(self, conditions: Conditions, rule: Rule) -> None:
        self.conditions = conditions
        self.columns: dict[str, Column] = {}
        self.aggregates: dict[str, Aggregate] = {}
        self._true_or_false: set[str] = set()
        self._names = {name.lower(): name for name in rule.measure or rule.rate or {}}

    def declare(self, values: Mapping[str, Formula]) -> None:
        """Conditions may follow, of these values."""
        self._true_or_false |= {name for name, one in values.items() if self._is_condition(one)}

    def tree(self, text: str) -> Any:
        tree = self.conditions.tree_of(text)
        if sum(1 for _ in nodes(tree)) > MOST_PARTS:
            raise ConditionError(f"it has more than {MOST_PARTS} parts; make it shorter")
        return tree

    def value(self, name: str) -> Callable[[Any], Formula]:
        """Return what translates the value of a name."""
        raise NotImplementedError

    def leaf(self, node: Any) -> Formula | None:
        """Return what a part of a condition is, if it is known; None: its parts decide."""
        raise NotImplementedError

    def condition(self, tree: Any) -> Formula:
        made = self._translated(tree, self.leaf)
        if self._is_condition(made):
            return made
        raise ConditionError(
            f"{tree.sql()!r} is a number, and a condition is true or false; compare it with a value"
        )

    def _is_condition(self, made: Formula) -> bool | None:
        """Whether a formula is true or false, not a number; None: it is null."""
        match made:
            case Literal(value):
                return None if value is None else isinstance(value, bool)
            case Name(name):
                return name in self._true_or_false
            case Operation(name, operands) if name in ANY_OPERANDS - CONDITIONS:
                return any(map(self._is_condition, operands))
            case Operation(name):
                return name in CONDITIONS

    def _check(self, node: Any, name: str, operands: Sequence[Formula]) -> None:
        """Raises ConditionError if an operation does not take these operands."""
        kinds = {self._is_condition(one) for one in operands} - {None}
        if not takes(name, len(operands)):
            raise ConditionError(f"the function {name!r} does not take {len(operands)} values")
        if name in ANY_OPERANDS:
            wrong = "compares a number with a condition" if len(kinds) > 1 else ""
        elif name in OF_CONDITIONS:
            wrong = "has a number for a condition" if False in kinds else ""
        else:
            wrong = "has a condition for a number" if True in kinds else ""
        if wrong:
            raise ConditionError(f"{node.sql()!r} {wrong}; compare numbers, and join comparisons")

    def _translated(self, node: Any, leaf: Callable[[Any], Formula | None]) -> Formula:
        """Translate a tree whose leaves are literals, and what ``leaf`` knows."""
        found = leaf(node)
        if found is not None:
            return found
        kind = node.getClass().getSimpleName()
        if kind == "Literal":
            return Literal(_number(node))
        children = node.children()
        name = kind
        if kind == "UnresolvedFunction":
            name = called(node)
            name = _OPERATORS.get((name, children.size()), _OPERATORS.get((name, 0), name))
        if name not in OPERATIONS:
            raise ConditionError(
                f"{node.sql()!r} is not possible with values that are measured; use comparisons, "
                f"AND, OR, NOT, arithmetic, and {', '.join(sorted(_FUNCTIONS))}{self.more}"
            )
        parts = [children.apply(place) for place in range(children.size())]
        operands = tuple(self._translated(one, leaf) for one in parts)
        self._check(node, name, operands)
        return Operation(name, operands)

    def _measured(self, node: Any) -> Name | None:
        """Return the measured value of a name; None: the node is none."""
        if node.getClass().getSimpleName() != "UnresolvedAttribute":
            return None
        name = self._names.get(attribute(node).lower())
        return None if name is None or node.nameParts().size() > 1 else Name(name)


class _OfWindows(_Formulas):
    more = f"; in measure also the aggregates {', '.join(_AGGREGATES)}"

    def value(self, name: str) -> Callable[[Any], Formula]:
        def translated(tree: Any) -> Formula:
            made = self._translated(tree, self._aggregate)
            if not any(self._is_aggregate(one) for one in nodes(tree)):
                raise ConditionError(
                    f"{tree.sql()!r} has no aggregate; write for example avg(delay) or count(*)"
                )
            return made

        return translated

    def leaf(self, node: Any) -> Formula | None:
        found = self._measured(node)
        if found is None and node.getClass().getSimpleName() in ATTRIBUTES:
            raise ConditionError(
                f"{node.sql()!r} is no name of measure; {nearest(node.sql(), self._names)}"
            )
        return found

    def _is_aggregate(self, node: Any) -> bool:
        return node.getClass().getSimpleName() == "UnresolvedFunction" and (
            called(node) in _AGGREGATES
        )

    def _aggregate(self, node: Any) -> Formula | None:
        kind = node.getClass().getSimpleName()
        if kind in ATTRIBUTES:
            raise ConditionError(
                f"{node.sql()!r} is of one reading, and a window has many; write for example "
                f"max({node.sql()})"
            )
        if not self._is_aggregate(node):
            return None
        name, children = called(node), node.children()
        if children.size() != 1 or node.isDistinct() or node.filter().isDefined():
            raise ConditionError(
                f"{node.sql()!r}: an aggregate has one expression, and neither DISTINCT nor "
                "FILTER; write for example count_if(delay > 30)"
            )
        column = self._argument(name, children.apply(0))
        # Two functions of one expression may count different readings.
        text = f"{name} {children.apply(0).sql()}"
        parts = [self._part(one, text, column) for one in _AGGREGATES[name]]
        return parts[0] if len(parts) == 1 else Operation("Divide", tuple(parts))

    def _argument(self, function: str, node: Any) -> Column:
        if function == "count_if":
            return F.when(self.conditions.condition_of(node), 1.0)
        found, kind = self.conditions.scalar_of(node)
        if function == "count":
            counted = _finite(found) if isinstance(kind, T.NumericType) else found
            return F.when(counted.isNotNull(), 1.0)
        return _double(node, found, kind)

    def _part(self, kind: Aggregate, text: str, column: Column) -> Name:
        name = f"{kind} of {text}"
        self.columns[name], self.aggregates[name] = column, kind
        return Name(name)


class _OfRates(_Formulas):
    def value(self, name: str) -> Callable[[Any], Formula]:
        def translated(tree: Any) -> Formula:
            self.columns[name] = _double(tree, *self.conditions.scalar_of(tree))
            return Name(name)

        return translated

    def leaf(self, node: Any) -> Formula | None:
        """Take what does not depend on a rate from the reading."""
        if (found := self._measured(node)) is not None:
            return found
        inside = [*nodes(node)]
        has_rate = any(self._measured(one) is not None for one in inside)
        has_column = any(one.getClass().getSimpleName() in ATTRIBUTES for one in inside)
        if has_rate or not has_column:
            return None
        text = node.sql()
        column, kind = self.conditions.scalar_of(node)
        self.columns[text] = _double(node, column, kind)
        if isinstance(kind, T.BooleanType):
            self._true_or_false.add(text)
        return Name(text)


def _double(node: Any, column: Column, kind: T.DataType) -> Column:
    """Return a number without those that are not finite, which are no reading of anything."""
    if not isinstance(kind, T.NumericType | T.BooleanType):
        raise ConditionError(
            f"{node.sql()!r} is {kind.simpleString()}, and what is measured is a number; cast it"
        )
    return _finite(column)


def _finite(column: Column) -> Column:
    found = column.cast("double")
    return F.when(F.abs(found) < float("inf"), found)


def _number(node: Any) -> float | None:
    value, kind = node.value(), node.dataType().simpleString()
    if value is None:
        return None
    if kind == "boolean":
        return bool(value)
    # Times and intervals are whole numbers, too.
    if kind in _NUMBERS or kind.startswith("decimal"):
        return float(str(value))
    raise ConditionError(f"{node.sql()} is no number; compare what is measured with numbers")
