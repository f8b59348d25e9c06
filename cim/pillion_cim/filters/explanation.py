"""Why a filter does not select an indication: the values of what its WHERE names."""

from collections.abc import Iterator
from typing import assert_never

from pillion_cim.filters.lexer import find_dialect
from pillion_cim.filters.parser import parse
from pillion_cim.filters.scope import Scope
from pillion_cim.filters.syntax import (
    And,
    Call,
    Comparison,
    Condition,
    IsA,
    IsNull,
    IsTruth,
    Like,
    Literal,
    Not,
    Or,
    Path,
    Term,
    Truth,
)
from pillion_cim.model import CIMInstance, CIMValue
from pillion_cim.schema import Schema


def compared_values(
    query: str, *, language: str, schema: Schema, instance: CIMInstance
) -> dict[str, CIMValue]:
    """Return the values of the properties that WHERE names, by their paths as written; None: NULL,
    or absent. The query has been compiled with ``schema``."""
    dialect = find_dialect(language)
    assert dialect is not None
    tree = parse(query, dialect)
    if tree.condition is None:
        return {}
    scope = Scope(tree, text=query, schema=schema)
    return {str(path): scope.resolve(path).get(instance) for path in _paths(tree.condition)}


def _paths(node: Condition) -> Iterator[Path]:
    match node:
        case And(operands) | Or(operands):
            for operand in operands:
                yield from _paths(operand)
        case Not(operand) | IsTruth(operand):
            yield from _paths(operand)
        case Comparison():
            yield from (*_of_term(node.left), *_of_term(node.right))
        case Like(term) | IsNull(term) | Truth(term):
            yield from _of_term(term)
        case IsA(path):
            yield path
        case _:
            assert_never(node)


def _of_term(term: Term) -> Iterator[Path]:
    match term:
        case Path():
            yield term
        case Call():
            yield from _of_term(term.argument)
        case Literal():
            pass
