"""The CIM classes that the driver knows: names, types and required properties.

``classes.json`` is made from the deliverer's schema. A service may declare further classes, which
only the deliverer knows.
"""

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

#: How similar an unknown class must be to a known one to be taken for a misspelt one.
_MISSPELT = 0.85
#: Maximum letters of an unknown name that are compared.
_LETTERS_COMPARED = 80


@dataclass(frozen=True, slots=True)
class KnownClass:
    """A class with all that it inherits. ``types`` is by the schema's spelling."""

    name: str
    types: Mapping[str, str]
    required: tuple[str, ...]

    def spelling(self, name: str) -> str | None:
        """Return a property's name as the schema spells it: case does not count (DSP0004)."""
        if name in self.types:
            return name
        return {known.casefold(): known for known in self.types}.get(name.casefold())

    def missing(self, names: Iterable[str]) -> list[str]:
        """Return the required properties that are not among the names."""
        given = {name.casefold() for name in names}
        return [name for name in self.required if name.casefold() not in given]


@cache
def _classes() -> Mapping[str, KnownClass]:
    text = resources.files("pyspark_pillion").joinpath("classes.json").read_text(encoding="utf-8")
    return {
        name.casefold(): KnownClass(name, declared["types"], tuple(declared["required"]))
        for name, declared in json.loads(text).items()
    }


def known_class(name: str) -> KnownClass | None:
    """Return a class of the schema, without regard to case; None if it is not there."""
    return _classes().get(name.casefold())


def nearest(name: str, names: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """Return the most similar of some names, without regard to case."""
    by_folded = {known.casefold(): known for known in names}
    wanted = name[:_LETTERS_COMPARED].casefold()
    found = difflib.get_close_matches(wanted, by_folded, n=1, cutoff=cutoff)
    return by_folded[found[0]] if found else None


def class_problems(name: str) -> list[str]:
    """Return the problem of a class that is not known and nearly has the name of one that is.

    A class with another prefix is a vendor's.
    """
    if known_class(name) is not None or not name.casefold().startswith("cim_"):
        return []
    near = nearest(name, (known.name for known in _classes().values()), cutoff=_MISSPELT)
    return [f"the class {name} is not known: did you mean {near}?"] if near else []


def property_name_problem(known: KnownClass, name: str) -> str:
    """Return the problem of a property that the class does not have."""
    near = nearest(name, known.types)
    meant = f"did you mean {near}? Else " if near else ""
    return (
        f"{name} is no property of {known.name}: {meant}state its type, as"
        ' F.struct(F.lit("string").alias("type"), value.alias("value"))'
    )
