"""Checks filters' queries while a configuration is loaded."""

from collections.abc import Callable
from dataclasses import dataclass

from pillion_cim.filters import FilterError, compile_filter
from pillion_cim.schema import ClassDeclaration, Schema, extend, nearest

_MOST_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterProblem:
    """A problem in a query; line and column count from 1."""

    message: str
    remedy: str
    line: int
    column: int
    #: The query is in force, but may not do what its author intends.
    is_warning: bool = False


#: Gets query and language; returns None if the query is valid.
CheckQuery = Callable[[str, str], FilterProblem | None]


def query_checker(schema: Schema) -> CheckQuery:
    def check_query(query: str, language: str) -> FilterProblem | None:
        try:
            compiled = compile_filter(query, language=language, schema=schema)
        except FilterError as error:
            return FilterProblem(
                message=error.message,
                remedy=error.remedy or "See the manual for what a query may hold.",
                line=error.line,
                column=error.column,
            )
        return _unknown(compiled.unknown_classes, schema)

    return check_query


def _unknown(classes: tuple[str, ...], schema: Schema) -> FilterProblem | None:
    if not classes:
        return None
    near = nearest(classes[0], schema.names())
    meant = f"Did you mean {near}? " if near else ""
    named = ", ".join(name[:80] for name in classes[:5])
    return FilterProblem(
        message=f"no class {named} is known, so it stands for itself alone, without subclasses",
        remedy=f"{meant}Classes are declared in IndicationService.spec.classes, or by MOF.",
        line=1,
        column=1,
        is_warning=True,
    )


class Queries:
    """Checks queries against the schema's and a service's classes."""

    def __init__(
        self, schema: Schema, *, checker: Callable[[Schema], CheckQuery] = query_checker
    ) -> None:
        self._schema = schema
        self._checker = checker
        self._kept: dict[tuple[ClassDeclaration, ...], CheckQuery] = {}

    def declaring(self, classes: tuple[ClassDeclaration, ...]) -> CheckQuery:
        """Raises DeclarationError if a class cannot be declared."""
        check = self._kept.pop(classes, None)
        if check is None:
            check = self._checker(extend(self._schema, classes))
        self._kept[classes] = check
        if len(self._kept) > _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return check
