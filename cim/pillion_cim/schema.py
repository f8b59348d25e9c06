"""The classes that Pillion knows: the indications of CIM schema 2.49, with their properties, and
those that a service declares beside them.

Names are looked up without regard to case, as DSP0004 wants, and always given back as the schema
spells them. A class that is not here may still travel; its property types must then be stated.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.types import INTEGER_RANGES, CIMType, EmbeddedObject, PropertyType


@dataclass(frozen=True, slots=True)
class CIMClass:
    """One class, with all that it inherits. Mappings are keyed by the schema's spelling."""

    name: str
    superclass: str | None
    abstract: bool
    #: The type of each property. Instances share this mapping.
    types: Mapping[str, PropertyType]
    #: Properties that must be given and not NULL.
    required: frozenset[str]
    #: For a property with a ValueMap: the name of each value, both as the schema writes them.
    value_names: Mapping[str, Mapping[str, str]]
    #: How to see quickly that a plain value is valid, for the properties where that is possible:
    #: ``str`` for a string, ``list`` for an array of strings, ``CIMDateTime`` for a datetime, the
    #: range for an integer.
    quick_checks: Mapping[str, type | tuple[int, int]] = field(repr=False)
    _spellings: Mapping[str, str] = field(repr=False)
    #: Whether it may have properties that are not declared.
    open: bool = False

    def spelling(self, property_name: str) -> str | None:
        """Return a property's name as the schema spells it, or None if the class has none such."""
        if property_name in self.types:
            return property_name
        return self._spellings.get(property_name.casefold())


class Schema:
    __slots__ = ("_ancestors", "_base", "_classes", "_names", "_spellings")

    def __init__(self, classes: Mapping[str, CIMClass], *, base: "Schema | None" = None) -> None:
        """``base`` has those of the classes that are not declared by a service."""
        self._base = base
        self._names = tuple(classes)
        self._classes = {name.casefold(): found for name, found in classes.items()}
        # Exact spellings too: most look-ups then need no casefold.
        self._classes.update(classes)
        self._ancestors = {
            found.name.casefold(): frozenset(self._line(found)) for found in classes.values()
        }
        self._spellings: dict[str, str] = {}
        for found in classes.values():
            for name in found.types:
                self._spellings.setdefault(name.casefold(), name)

    def _line(self, start: CIMClass) -> Iterator[str]:
        name: str | None = start.name
        while name is not None:
            yield name.casefold()
            above = self._classes.get(name.casefold())
            name = above.superclass if above is not None else None

    def get(self, class_name: str) -> CIMClass | None:
        """Return a class by its name, whatever the case; None if it is not known."""
        found = self._classes.get(class_name)
        return found if found is not None else self._classes.get(class_name.casefold())

    @property
    def base(self) -> "Schema":
        """The packaged classes alone. What is kept or sent is read with these, so that it means the
        same whatever a service declares by then."""
        return self if self._base is None else self._base

    def extended(self, classes: Mapping[str, CIMClass]) -> "Schema":
        """A schema with further classes, whose superclasses are among them or here."""
        return Schema({**{found.name: found for found in self}, **classes}, base=self.base)

    def names(self) -> tuple[str, ...]:
        return self._names

    def __iter__(self) -> Iterator[CIMClass]:
        return iter({found.name: found for found in self._classes.values()}.values())

    def is_a(self, class_name: str, ancestor: str) -> bool:
        """Whether a class is another or descends from it. An unknown class is only itself."""
        wanted, name = ancestor.casefold(), class_name.casefold()
        return name == wanted or wanted in self._ancestors.get(name, ())

    def spelling(self, property_name: str) -> str | None:
        """Return the name of a property of any class as the schema spells it, or None."""
        return self._spellings.get(property_name.casefold())


def load_schema() -> Schema:
    """Read the packaged schema. Takes about a millisecond; keep what it returns."""
    file = resources.files("pillion_cim").joinpath("data/cim-schema-2.49.json")
    return build_schema(json.loads(file.read_text(encoding="utf-8")))


def build_schema(document: Mapping[str, Any]) -> Schema:
    """Build a schema from its JSON document, as ``tools/make_cim_schema.py`` writes it.

    ``document["classes"]`` lists classes, a superclass before its subclasses. Each says only what
    differs from its superclass.
    """
    shared: dict[str, PropertyType] = {}
    classes: dict[str, CIMClass] = {}
    for entry in document["classes"]:
        classes[entry["name"]] = make_class(
            entry["name"],
            above=classes.get(entry["superclass"]) if entry["superclass"] else None,
            properties=entry["properties"],
            abstract=entry.get("abstract", False),
            shared=shared,
        )
    return Schema(classes)


def make_class(
    name: str,
    *,
    above: CIMClass | None,
    properties: Mapping[str, Mapping[str, Any]],
    abstract: bool = False,
    is_open: bool = False,
    shared: dict[str, PropertyType] | None = None,
) -> CIMClass:
    """Make a class with all that it inherits; ``properties`` are its own, as in the document of
    :func:`build_schema`. Equal types of ``shared`` are one object."""
    if above is not None and not properties:
        # Nothing of its own: thousands of these share their superclass's mappings.
        return replace(above, name=name, superclass=above.name, abstract=abstract, open=is_open)
    shared = {} if shared is None else shared
    types = dict(above.types) if above else {}
    required = set(above.required) if above else set()
    value_names = dict(above.value_names) if above else {}
    for given, declared in properties.items():
        # A property that is declared anew keeps the spelling that the superclass has.
        known = (above.spelling(given) if above else None) or given
        types[known] = _property_type(declared["type"], shared)
        if declared.get("required"):
            required.add(known)
        if "values" in declared:
            value_names[known] = declared["values"]
    return CIMClass(
        name=name,
        superclass=above.name if above else None,
        abstract=abstract,
        types=types,
        required=frozenset(required),
        value_names=value_names,
        quick_checks=_quick_checks(types),
        _spellings={known.casefold(): known for known in types},
        open=is_open,
    )


def _quick_checks(types: Mapping[str, PropertyType]) -> dict[str, type | tuple[int, int]]:
    checks: dict[str, type | tuple[int, int]] = {}
    for name, declared in types.items():
        if declared.embedded is not None:
            continue
        if declared.is_array:
            if declared.cim_type is CIMType.STRING:
                checks[name] = list
        elif declared.cim_type in INTEGER_RANGES:
            checks[name] = INTEGER_RANGES[declared.cim_type]
        elif declared.cim_type is CIMType.STRING:
            checks[name] = str
        elif declared.cim_type is CIMType.DATETIME:
            checks[name] = CIMDateTime
    return checks


def _property_type(text: str, shared: dict[str, PropertyType]) -> PropertyType:
    """``uint16``, ``string[]``, ``object`` (an embedded object): equal types are one object."""
    found = shared.get(text)
    if found is None:
        base, is_array = text.removesuffix("[]"), text.endswith("[]")
        embedded = base in EmbeddedObject.__members__.values()
        found = shared[text] = PropertyType(
            cim_type=CIMType.STRING if embedded else CIMType(base),
            is_array=is_array,
            embedded=EmbeddedObject(base) if embedded else None,
        )
    return found
