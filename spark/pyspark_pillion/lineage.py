"""What the columns of an identity are made of: found on the driver, in the analysed plan.

An identity must be the same whenever the same row is published again. Catalyst knows which
expressions are not deterministic, and a plan names where a column comes from. Spark Connect has no
plan here; there only the text of the given expressions is looked at.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame

#: Expressions of the time of the run, which Catalyst takes for deterministic.
_RUN_TIME = frozenset(
    {"CurrentTimestamp", "CurrentDate", "CurrentTime", "CurrentBatchTimestamp", "LocalTimestamp"}
    | {"Now"}
)
#: Not deterministic for Catalyst, and yet of the content: where in a file the row was.
_CONTENT = frozenset({"InputFileName", "InputFileBlockStart", "InputFileBlockLength"})
#: Expressions looked at before the rest is taken for good.
_MOST = 10_000
_TEXT = re.compile(
    r"\b(rand|randn|random|randstr|uniform|uuid|shuffle|monotonically_increasing_id|now|curdate"
    r"|spark_partition_id|current_timestamp|current_date|current_time|localtimestamp)\(",
    re.IGNORECASE,
)
_REMEDY = "make the identity of columns that are the same when the row is published again"


def identity_problems(df: DataFrame, keys: Sequence[Column], *, update: bool = False) -> list[str]:
    """Return why the keys cannot tell the rows of a DataFrame apart.

    ``update``: whether the rows of a group come again when they change, as in update mode.
    """
    aliased = [key.alias(f"key {position}") for position, key in enumerate(keys)]
    selected = df.select(*aliased)
    if not hasattr(selected, "_jdf"):
        return _text_problems(keys)
    return _Plan(selected._jdf.queryExecution().analyzed()).problems(len(keys), update=update)


def _text_problems(keys: Sequence[Column]) -> list[str]:
    found = [(position, _TEXT.search(str(key))) for position, key in enumerate(keys, 1)]
    return [_differs(position, match.group(1)) for position, match in found if match]


def _differs(position: int, name: str) -> str:
    return f"identity {position} depends on {name}, which differs from run to run: {_REMEDY}"


def _items(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(position) for position in range(sequence.size()))


def _kind(node: Any) -> str:
    name: str = node.getClass().getSimpleName()
    return name


class _Plan:
    """An analysed plan of the JVM, whose uppermost node selects the keys."""

    def __init__(self, plan: Any) -> None:
        self._keys = plan
        self._left = _MOST
        #: The expressions with names, by the number that Catalyst gives them.
        self._named: dict[int, Any] = {}
        self._aggregates = False
        self._collect(plan)

    def _collect(self, plan: Any) -> None:
        nodes = [plan]
        while nodes and self._left > 0:
            node = nodes.pop()
            self._aggregates = self._aggregates or _kind(node) == "Aggregate"
            nodes += _items(node.children())
            for expression in _items(node.expressions()):
                self._left -= 1
                if _kind(expression) == "Alias":
                    self._named[expression.exprId().id()] = expression

    def problems(self, count: int, *, update: bool) -> list[str]:
        """Return the problems of the first so many columns."""
        found: list[str] = []
        versions = False
        for position, key in zip(range(count), _items(self._keys.expressions()), strict=False):
            self._left = _MOST
            for expression in self._sources(key):
                versions = versions or _kind(expression) == "AggregateExpression"
                if _is_of_the_run(expression):
                    found.append(_differs(position + 1, expression.prettyName()))
                    break
        if update and self._aggregates and not versions:
            found.append(
                "identity has only what the rows are grouped by: in update mode each version of a"
                " group after the first would be dropped as a duplicate; add what differs between"
                " versions, such as a severity or a count"
            )
        return found

    def _sources(self, start: Any) -> Iterator[Any]:
        """Yield the expressions that a column is made of, through the whole plan."""
        left, seen = [start], set()
        while left and self._left > 0:
            self._left -= 1
            expression = left.pop()
            yield expression
            left += _items(expression.children())
            if _kind(expression) == "AttributeReference":
                number = expression.exprId().id()
                if number in self._named and number not in seen:
                    left.append(self._named[number])
                seen.add(number)


def _is_of_the_run(expression: Any) -> bool:
    kind = _kind(expression)
    if kind in _RUN_TIME:
        return True
    if expression.deterministic() or kind in _CONTENT:
        return False
    # The innermost one, which has the name to tell.
    return all(child.deterministic() for child in _items(expression.children()))
