"""All rules of the schema, each with its place, and what a case of one is."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.fields import (
    FieldType,
    Kind,
    ListOf,
    MapOf,
    Rule,
    Struct,
    Text,
    Transition,
)
from support.resources import JSON, document


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A rule and the field that it complains of, items of lists and maps written ``[]``."""

    kind: str
    field: str
    rule: Rule | Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A resource that breaks exactly one rule, and one that mends it."""

    kind: str
    #: The field that is complained of, such as ``spec.repeatKey[0]``.
    field: str
    #: The start of the message that the rule has.
    says: str
    refused: JSON
    mended: JSON
    #: What it is a change of; None: it is made.
    before: JSON | None = None
    #: Of the refused and of the mended one.
    names: tuple[str, str] = ("x", "x")

    def __str__(self) -> str:
        return f"{self.kind}-{self.field}-{self.says}".replace(" ", "-")

    def resources(self) -> tuple[JSON, JSON]:
        """The refused and the mended one, as documents."""
        bad, good = self.names
        return document(self.kind, bad, self.refused), document(self.kind, good, self.mended)

    def breaks(self, placed: Placed) -> bool:
        """Whether this is a case of the rule."""
        return (
            (placed.kind, placed.field) == (self.kind, general(self.field))
            and isinstance(placed.rule, Transition) == (self.before is not None)
            and placed.rule.message.startswith(self.says)
        )


def general(path: str) -> str:
    """A path with the indexes and keys of items taken out."""
    return re.sub(r"\[[^]]*\]", "[]", path)


def schema(kind: str) -> Kind:
    """The kind of this name."""
    return next(known for known in KINDS if known.name == kind)


def every_rule() -> list[Placed]:
    """All rules of all kinds: those on names and specs, and those on changes."""
    return [placed for kind in KINDS for placed in _rules_of(kind)]


def _rules_of(kind: Kind) -> Iterator[Placed]:
    for rule in kind.name_rules:
        yield Placed(kind=kind.name, field="metadata.name", rule=rule)
    for path, node in nodes(kind.spec, "spec"):
        rules: list[Rule | Transition] = []
        if isinstance(node, Text | MapOf | Struct):
            rules.extend(node.rules)
        if isinstance(node, Struct):
            rules.extend(node.transitions)
        for one in rules:
            where = f"{path}.{one.field}" if one.field else path
            yield Placed(kind=kind.name, field=where, rule=one)


def nodes(kind: FieldType, path: str) -> Iterator[tuple[str, FieldType]]:
    """Every node below a type, with its path."""
    yield path, kind
    match kind:
        case Struct():
            for below in kind.fields:
                yield from nodes(below.type, f"{path}.{below.name}")
        case ListOf():
            yield from nodes(kind.item, f"{path}[]")
        case MapOf():
            yield from nodes(kind.value, f"{path}[]")
