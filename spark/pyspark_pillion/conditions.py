"""The conditions of rules: SQL text or a Column, judged before Spark analyses it.

A rule may come from somebody who is not trusted with the job. So a condition is one scalar
expression of the row's own columns and of functions that give the same answer whenever the row is
read: no subquery, aggregate, window, reflection or function of the user's own, no clock, no chance.
"""

import functools
import itertools
import operator
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.classic.column import Column as ClassicColumn

from pillion_rules.errors import nearest
from pillion_rules.fields import ColumnText

#: Maximum parts of one expression, and of parentheses in each other.
MOST_PARTS, DEEPEST = 1_000, 100
_ANSI = "spark.sql.ansi.enabled"
_CLOCK = re.compile(
    r"\b(date|timestamp\w*)\s*['\"]\s*(now|today|tomorrow|yesterday)\s*['\"]", re.IGNORECASE
)
_TIME = re.compile("DATE|TIMESTAMP")
_OF_CLOCK = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
#: The second is a column of a DataFrame, as readings["gust"].
ATTRIBUTES = frozenset({"UnresolvedAttribute", "AttributeReference"})
#: Nodes of Catalyst's syntax tree, as its parser makes them.
_NODES = frozenset(
    {"Literal", "Cast", "CaseWhen", "Concat", "TimestampDiff", "UnresolvedExtractValue"}
    | {"And", "Or", "Not", "IsNull", "IsNotNull", "In", "Like", "ILike", "RLike"}
    | {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"}
    | {"LessThan", "LessThanOrEqual"}
    | {"Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder"}
    | {"UnaryMinus", "UnaryPositive", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"}
)
#: Operators are functions in a Column.
_OPERATORS = frozenset(
    {"<", "<=", "=", "<=>", ">=", ">", "!", "and", "or", "in", "like", "ilike"}
    | {"+", "-", "*", "/", "%", "&", "|", "^", "~"}
)
#: Functions of a row alone.
FUNCTIONS = frozenset(
    {"abs", "acos", "asin", "atan", "atan2", "bround", "ceil", "ceiling", "cos", "cosh", "degrees"}
    | {"exp", "floor", "greatest", "hypot", "least", "ln", "log", "log10", "log2", "mod"}
    | {"negative", "pmod", "pow", "power", "radians", "round", "sign", "signum", "sin", "sinh"}
    | {"sqrt", "tan", "tanh", "try_add", "try_divide", "try_multiply", "try_subtract", "try_mod"}
    | {"between", "coalesce", "if", "ifnull", "isnan", "isnotnull", "isnull", "nanvl", "nullif"}
    | {"nvl", "nvl2", "try_cast", "array_contains", "size", "cardinality"}
    | {"char_length", "concat", "concat_ws", "contains", "endswith", "instr", "left", "length"}
    | {"locate", "lower", "ltrim", "regexp_like", "replace", "right", "rlike", "rtrim", "split"}
    | {"try_element_at", "startswith", "substr", "substring", "trim", "upper"}
    | {"date_diff", "datediff", "date_part", "datepart", "day", "dayofmonth", "dayofweek"}
    | {"dayofyear", "extract", "hour", "minute", "month", "quarter", "second", "unix_micros"}
    | {"unix_millis", "unix_seconds", "weekday", "weekofyear", "year"}
)
#: Whoever writes one of them wants null, or takes a part that may be null, as those of an array.
_NULL_ON_PURPOSE = frozenset(
    {"nullif", "array_contains", "try_cast", "try_element_at"}
    | {"try_add", "try_divide", "try_mod", "try_multiply", "try_subtract"}
)


class ConditionError(Exception):
    """Says what is wrong with a condition, and the remedy."""


@contextmanager
def without_ansi(session: SparkSession) -> Iterator[None]:
    """What is analysed meanwhile gives null where ANSI SQL ends the query, as for 1 / 0."""
    before = session.conf.get(_ANSI)
    session.conf.set(_ANSI, "false")
    try:
        yield
    finally:
        session.conf.set(_ANSI, str(before))


class Conditions:
    """The conditions on the columns of ``readings``. A text may be a ColumnText."""

    def __init__(self, readings: DataFrame) -> None:
        self._readings = readings
        session: Any = readings.sparkSession
        self._jvm = session._jvm
        self._session = session._jsparkSession
        fields = readings.schema.fields
        not_null = [T.StructField(one.name, one.dataType, nullable=False) for one in fields]
        self._without_nulls = session.createDataFrame([], T.StructType(not_null))
        self._failures: list[Column] = []
        self._names = [field.name for field in fields]
        #: Types by the names of the columns in lower case.
        self.types = {field.name.lower(): field.dataType for field in fields}

    def column_problem(self, name: str) -> str | None:
        """Return what is wrong with the name of a column, and the remedy; None: nothing."""
        if name.lower() in self.types:
            return None
        return f"{name!r} is no column of the readings; {nearest(name, self._names)}"

    def column_of(self, text: str) -> Column:
        """Return a condition. Raises ConditionError."""
        tree = self.tree_of(text)
        self._judge(tree)
        made = text.column if isinstance(text, ColumnText) else F.expr(text)
        return self._condition(tree, made, text)

    def condition_of(self, tree: Any) -> Column:
        """Return a condition that is part of another expression. Raises ConditionError."""
        self._judge(tree)
        return self._condition(tree, self._column(tree), tree.sql())

    def scalar_of(self, tree: Any) -> tuple[Column, T.DataType]:
        """Return an expression of a reading, and its type. Raises ConditionError."""
        self._judge(tree)
        made = self._column(tree)
        kind = self._type_of(made)
        self._note_failure(tree, made)
        return made, kind

    def tree_of(self, text: str) -> Any:
        """Return Catalyst's syntax tree of a text or Column. Raises ConditionError."""
        # The parser makes a literal of them, of the present time.
        if (found := _CLOCK.search(text)) is not None:
            raise ConditionError(f"{found[0]} depends on the clock; compare columns of the row")
        if _depth(text) > DEEPEST:
            raise ConditionError(f"it has more than {DEEPEST} parentheses in each other")
        try:
            if isinstance(text, ColumnText):
                return self._session.expression(text.column._jc)
            if "${" in text:
                raise ConditionError("Spark replaces '${' by a setting; compare columns of the row")
            return self._session.sessionState().sqlParser().parseExpression(text)
        except PySparkException as error:
            raise ConditionError(f"{text!r} is no SQL: {_first_line(error)}") from None

    def _condition(self, tree: Any, made: Column, text: str) -> Column:
        kind = self._type_of(made)
        if not isinstance(kind, T.BooleanType):
            raise ConditionError(
                f"{text!r} is {kind.simpleString()}, and a condition is true or false; "
                "compare it with a value"
            )
        self._note_failure(tree, made)
        return made

    def _note_failure(self, tree: Any, made: Column) -> None:
        if not _is_null_on_purpose(tree) and self._may_fail(made):
            known = (self._column(one).isNotNull() for one in _attributes(tree).values())
            self._failures.append(functools.reduce(operator.and_, known, made.isNull()))

    def _column(self, tree: Any) -> Column:
        return ClassicColumn(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(tree))

    def _type_of(self, made: Column) -> T.DataType:
        try:
            selected = self._readings.select(made)
            (field,) = selected.schema.fields
        except AnalysisException as error:
            raise ConditionError(_first_line(error)) from None
        _check_casts(selected)
        return field.dataType

    def failure(self) -> Column | None:
        """Return whether a condition made since the last call is null though none of its columns
        is; None: that cannot be."""
        found, self._failures = self._failures, []
        return functools.reduce(operator.or_, found) if found else None

    def _may_fail(self, made: Column) -> bool:
        try:
            (field,) = self._without_nulls.select(made).schema.fields
        except AnalysisException:
            # A column of the readings themselves: readings["gust"].
            return True
        return bool(field.nullable)

    def _judge(self, tree: Any) -> None:
        for parts, node in enumerate(nodes(tree)):
            if parts >= MOST_PARTS:
                raise ConditionError(f"it has more than {MOST_PARTS:,} parts; make it shorter")
            kind = node.getClass().getSimpleName()
            if kind in ATTRIBUTES:
                # A name without a column may be a function without parentheses: current_date.
                problem = self.column_problem(attribute(node))
                if problem is not None:
                    raise ConditionError(problem)
            elif kind == "UnresolvedFunction":
                _check_function(node)
            elif kind not in _NODES:
                raise ConditionError(
                    f"{_shown(node, kind)!r} is more than an expression of the row; use columns, "
                    "comparisons, arithmetic and functions of one row"
                )


def nodes(tree: Any) -> Iterator[Any]:
    """Return all parts of a tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        children = node.children()
        waiting += [children.apply(position) for position in range(children.size())]


def called(node: Any) -> str:
    """Return the name of the function that a node calls, in lower case."""
    parts = node.nameParts()
    return ".".join(str(parts.apply(place)) for place in range(parts.size())).lower()


def attribute(node: Any) -> str:
    """Return the name of the column that a node is, without fields of it."""
    is_name = node.getClass().getSimpleName() == "UnresolvedAttribute"
    return str(node.nameParts().apply(0) if is_name else node.name())


def _attributes(tree: Any) -> dict[str, Any]:
    """Return the columns of a tree by their texts."""
    return {
        node.toString(): node
        for node in nodes(tree)
        if node.getClass().getSimpleName() in ATTRIBUTES
    }


def _check_casts(selected: DataFrame) -> None:
    """Raises ConditionError if a constant text becomes a time: Spark takes 'now' for one."""
    of_plan: Any = selected
    made = of_plan._jdf.queryExecution().analyzed().expressions().apply(0)
    for node in nodes(made):
        if node.getClass().getSimpleName() != "Cast" or not _TIME.match(node.dataType().sql()):
            continue
        child = node.child()
        if child.dataType().sql() != "STRING" or not child.foldable():
            continue
        is_plain = child.getClass().getSimpleName() == "Literal" and child.value() is not None
        if not is_plain or _OF_CLOCK.match(str(child.value())):
            raise ConditionError(
                f"{child.sql()} as a time may depend on the clock; write for example "
                "timestamp'2026-01-01 00:00:00'"
            )


def _check_function(node: Any) -> None:
    name = called(node)
    is_known = name in FUNCTIONS or name in _OPERATORS
    if not is_known or node.isDistinct() or node.filter().isDefined():
        raise ConditionError(
            f"the function {name!r} is not allowed in a rule: it may depend on more than the row; "
            f"{_nearest_function(name)}"
        )


def _is_null_on_purpose(tree: Any) -> bool:
    return any(_may_be_null(node, node.getClass().getSimpleName()) for node in nodes(tree))


def _may_be_null(node: Any, kind: str) -> bool:
    match kind:
        case "UnresolvedFunction":
            return called(node) in _NULL_ON_PURPOSE
        case "CaseWhen":
            return bool(node.elseValue().isEmpty())
        case "Cast":
            return str(node.evalMode()) == "TRY"
        case "Literal":
            return node.value() is None
    return kind == "UnresolvedExtractValue"


def _depth(text: str) -> int:
    steps = (1 if one == "(" else -1 for one in text if one in "()")
    return max(itertools.accumulate(steps), default=0)


def _shown(node: Any, kind: str) -> str:
    return "*" if kind == "UnresolvedStar" else str(node.sql())


def _nearest_function(name: str) -> str:
    found = nearest(name, sorted(FUNCTIONS))
    return found if found.startswith("did") else "compute it as a column of the readings"


def _first_line(error: PySparkException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if line.strip()), lines[0])[:300]
