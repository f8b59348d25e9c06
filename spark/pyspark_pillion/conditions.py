"""The conditions of rules: SQL text, judged before Spark analyses it.

A rule may come from somebody who is not trusted with the job. So a condition is one scalar
expression of the row's own columns and of functions that give the same answer whenever the row is
read: no subquery, aggregate, window, reflection or function of the user's own, no clock, no chance.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from pillion_rules.errors import nearest

#: Maximum parts of one expression.
MOST_PARTS = 1_000
_ANSI = "spark.sql.ansi.enabled"
_CLOCK = re.compile(
    r"\b(date|timestamp\w*)\s*['\"]\s*(now|today|tomorrow|yesterday)\s*['\"]", re.IGNORECASE
)
#: Nodes of Catalyst's syntax tree, as its parser makes them.
_NODES = frozenset(
    {"Literal", "Cast", "CaseWhen", "Concat", "TimestampDiff", "UnresolvedExtractValue"}
    | {"And", "Or", "Not", "IsNull", "IsNotNull", "In", "Like", "ILike", "RLike"}
    | {"EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"}
    | {"LessThan", "LessThanOrEqual"}
    | {"Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder"}
    | {"UnaryMinus", "UnaryPositive", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"}
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
    """The conditions on the columns of ``readings``."""

    def __init__(self, readings: DataFrame) -> None:
        self._readings = readings
        session: Any = readings.sparkSession
        self._parser = session._jsparkSession.sessionState().sqlParser()
        fields = readings.schema.fields
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
        made, kind = self.scalar_of(text)
        if not isinstance(kind, T.BooleanType):
            raise ConditionError(
                f"{text!r} is {kind.simpleString()}, and a condition is true or false; "
                "compare it with a value"
            )
        return made

    def scalar_of(self, text: str) -> tuple[Column, T.DataType]:
        """Return an expression of a reading, and its type. Raises ConditionError."""
        self._judge(text)
        made = F.expr(text)
        try:
            (field,) = self._readings.select(made).schema.fields
        except AnalysisException as error:
            raise ConditionError(_first_line(error)) from None
        return made, field.dataType

    def tree_of(self, text: str) -> Any:
        """Return Catalyst's syntax tree of a text. Raises ConditionError."""
        # The parser makes a literal of them, of the present time.
        if (found := _CLOCK.search(text)) is not None:
            raise ConditionError(f"{found[0]} depends on the clock; compare columns of the row")
        if "${" in text:
            raise ConditionError("Spark replaces '${' by a setting; compare columns of the row")
        try:
            return self._parser.parseExpression(text)
        except PySparkException as error:
            raise ConditionError(f"{text!r} is no SQL: {_first_line(error)}") from None

    def _judge(self, text: str) -> None:
        for parts, node in enumerate(nodes(self.tree_of(text))):
            if parts >= MOST_PARTS:
                raise ConditionError(f"it has more than {MOST_PARTS:,} parts; make it shorter")
            kind = node.getClass().getSimpleName()
            if kind == "UnresolvedAttribute":
                # A name without a column may be a function without parentheses: current_date.
                problem = self.column_problem(str(node.nameParts().apply(0)))
                if problem is not None:
                    raise ConditionError(problem)
            elif kind == "UnresolvedFunction":
                _check_function(node)
            elif kind not in _NODES:
                raise ConditionError(
                    f"{node.sql() if kind != 'UnresolvedStar' else '*'!r} is more than an "
                    "expression of the row; use columns, comparisons, arithmetic and functions of "
                    "one row"
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


def _check_function(node: Any) -> None:
    name = called(node)
    if name not in FUNCTIONS or node.isDistinct() or node.filter().isDefined():
        raise ConditionError(
            f"the function {name!r} is not allowed in a rule: it may depend on more than the row; "
            f"{_nearest_function(name)}"
        )


def _nearest_function(name: str) -> str:
    found = nearest(name, sorted(FUNCTIONS))
    return found if found.startswith("did") else "compute it as a column of the readings"


def _first_line(error: PySparkException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return next((line for line in lines if line.strip()), lines[0])[:300]
