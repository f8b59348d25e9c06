"""The syntax tree of a query. Each ``offset`` is a place in the query, for errors."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Operator(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "<>"
    LESS = "<"
    LESS_EQUAL = "<="
    GREATER = ">"
    GREATER_EQUAL = ">="


class Quantifier(StrEnum):
    """Over which items of an array a comparison must hold."""

    ANY = "ANY"
    EVERY = "EVERY"


class Function(StrEnum):
    CLASSNAME = "CLASSNAME"
    DATETIME = "DATETIME"
    LOWERCASE = "LOWERCASE"
    UPPERCASE = "UPPERCASE"


@dataclass(frozen=True, slots=True)
class Literal:
    value: bool | int | float | str
    offset: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a path: ``scope::name[index]``; scope and index are optional."""

    name: str
    offset: int
    scope: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """A property of the indication, or of an embedded instance, as written."""

    steps: tuple[Step, ...]
    offset: int

    def __str__(self) -> str:
        return ".".join(
            (f"{step.scope}::" if step.scope else "")
            + step.name
            + ("" if step.index is None else f"[{step.index}]")
            for step in self.steps
        )


@dataclass(frozen=True, slots=True)
class Call:
    function: Function
    argument: "Term"
    offset: int


Term: TypeAlias = Literal | Path | Call


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``; with a quantifier, left is an array."""

    operator: Operator
    left: Term
    right: Term
    offset: int
    quantifier: Quantifier | None = None


@dataclass(frozen=True, slots=True)
class Like:
    """``term LIKE pattern``. ``pattern_offset`` is the place of the pattern's first character."""

    term: Term
    pattern: str
    pattern_offset: int
    offset: int
    quantifier: Quantifier | None = None


@dataclass(frozen=True, slots=True)
class IsA:
    path: Path
    class_name: str
    offset: int


@dataclass(frozen=True, slots=True)
class IsNull:
    term: Term
    offset: int


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean term as a condition."""

    term: Term
    offset: int


@dataclass(frozen=True, slots=True)
class IsTruth:
    """``condition IS TRUE`` or ``IS FALSE``: never unknown."""

    operand: "Condition"
    wanted: bool


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple["Condition", ...]


Condition: TypeAlias = Comparison | Like | IsA | IsNull | Truth | IsTruth | Not | And | Or


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """``SELECT selected FROM class_name [AS alias] [WHERE condition]``.

    ``selected`` is None for ``*``. It is written from ``selected_offset`` to ``from_offset``.
    """

    selected: tuple[Path, ...] | None
    selected_offset: int
    from_offset: int
    class_name: str
    class_offset: int
    alias: str | None
    condition: Condition | None
