"""Filter queries: WQL and part of DMTF:CQL, compiled once and evaluated often (D.4)."""

from dataclasses import dataclass

from pillion_cim.filters.compiler import Compiler, Demand
from pillion_cim.filters.evaluation import Test
from pillion_cim.filters.lexer import CQL, WQL, Dialect, FilterError, find_dialect
from pillion_cim.filters.parser import MAX_QUERY_LENGTH, parse
from pillion_cim.filters.scope import ClassTest, Scope
from pillion_cim.model import CIMInstance
from pillion_cim.schema import Schema

__all__ = [
    "MAX_QUERY_LENGTH",
    "Demand",
    "Filter",
    "FilterError",
    "compile_filter",
    "without_list",
]

#: The root class of indications.
ROOT = "CIM_Indication"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A query that selects indications (D.4).

    ``properties`` are those that the query lists after SELECT, as the class spells them; None for
    ``*``. The filter itself removes nothing from an indication. ``demand`` is a value that WHERE
    requires of one property, if any.
    """

    query: str
    language: str
    class_names: tuple[str, ...]
    properties: tuple[str, ...] | None
    demand: Demand | None
    #: The classes in the query that the schema lacks.
    unknown_classes: tuple[str, ...]
    #: Whether it selects every class, declared or not.
    _selects_all: bool
    _class_test: ClassTest
    _condition: Test | None

    @property
    def has_condition(self) -> bool:
        return self._condition is not None

    def selects(self, class_name: str) -> bool:
        return self._selects_all or self._class_test[class_name]

    def condition(self, instance: CIMInstance) -> bool | None:
        """The value of WHERE for any class; None: unknown; True without a WHERE."""
        return True if self._condition is None else self._condition(instance)

    def evaluate(self, instance: CIMInstance) -> bool | None:
        """The value of the whole query: False for another class, else that of WHERE."""
        return self.condition(instance) if self._selects_instance(instance) else False

    def _selects_instance(self, instance: CIMInstance) -> bool:
        return self._selects_all or self._class_test.holds(instance)

    def matches(self, instance: CIMInstance) -> bool:
        """Whether the class is selected and WHERE is true (not unknown)."""
        if not self._selects_instance(instance):
            return False
        return self._condition is None or self._condition(instance) is True


def compile_filter(query: str, *, language: str, schema: Schema) -> Filter:
    """Compile a query in ``WQL`` or ``DMTF:CQL`` (also named ``CIM:CQL``).

    A class unknown to ``schema`` can be selected, and is not checked.

    Raises:
        FilterError: the problem, with line, column and remedy.
    """
    dialect = _dialect(query, language)
    tree = parse(query, dialect)
    scope = Scope(tree, text=query, schema=schema)
    compiler = Compiler(scope, percent=dialect.extended)
    selected = None if tree.selected is None else tuple(map(scope.property_name, tree.selected))
    class_test = scope.class_test(tree.class_name)
    condition = None if tree.condition is None else compiler.condition(tree.condition)
    return Filter(
        query=query,
        language=dialect.name,
        class_names=(tree.class_name,),
        properties=selected,
        demand=None if tree.condition is None else compiler.demand(tree.condition),
        unknown_classes=tuple(scope.unknown_classes),
        _selects_all=tree.class_name.casefold() == ROOT.casefold(),
        _class_test=class_test,
        _condition=condition,
    )


def without_list(query: str, *, language: str) -> str:
    """Return the query with ``*`` in place of its list of properties. Raises FilterError."""
    tree = parse(query, _dialect(query, language))
    if tree.selected is None:
        return query
    return f"{query[: tree.selected_offset]}* {query[tree.from_offset :]}"


def _dialect(query: str, language: str) -> Dialect:
    dialect = find_dialect(language)
    if dialect is None:
        message = f"the query language {language!r} is not known"
        remedy = f"Set it to {CQL.name} or {WQL.name}."
        raise FilterError(message, query=query, offset=0, remedy=remedy)
    return dialect
