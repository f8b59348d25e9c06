"""The classes that Pillion knows: the indications of CIM schema 2.49, and those that a service
declares. Names are looked up without regard to case (DSP0004) and returned in the schema's
spelling. An unknown class may still travel; its property types must then be stated."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import Any

from pillion_cim import CIMDataError
from pillion_cim.datetimes import CIMDateTime
from pillion_cim.model import INTEGER_RANGES, CIMType, EmbeddedObject, PropertyType, is_identifier

#: Maximum classes that a service may declare, with those of its MOF.
MOST_CLASSES = 5_000
#: Maximum depth of declared classes.
MOST_LEVELS = 100
#: Maximum length of a class's or property's name.
MOST_CHARACTERS = 256
#: Maximum names compared with an unknown one.
_MOST_COMPARED = 1_000
#: Maximum letters of an unknown property name that are compared.
_LETTERS_COMPARED = 60


@dataclass(frozen=True, slots=True)
class CIMClass:
    """One class, with all that it inherits. Mappings are keyed by the schema's spelling."""

    name: str
    superclass: str | None
    abstract: bool
    #: Instances share this mapping.
    types: Mapping[str, PropertyType]
    #: Must be given and not NULL.
    required: frozenset[str]
    #: For a property with a ValueMap: the name of each value, both as the schema writes them.
    value_names: Mapping[str, Mapping[str, str]]
    #: A quick check of a plain value, for some properties: ``str`` for a string, ``list`` for an
    #: array of strings, ``CIMDateTime`` for a datetime, the range for an integer.
    quick_checks: Mapping[str, type | tuple[int, int]] = field(repr=False)
    _spellings: Mapping[str, str] = field(repr=False)
    #: Whether it may have undeclared properties.
    open: bool = False

    def spelling(self, property_name: str) -> str | None:
        """Return a property's name as the schema spells it; None if the class lacks it."""
        if property_name in self.types:
            return property_name
        return self._spellings.get(property_name.casefold())

    def closest(self, property_name: str) -> str | None:
        """Return the property with the most similar name; None if no name is similar."""
        # Late: only an unknown name needs it.
        from difflib import get_close_matches

        wanted = property_name[:_LETTERS_COMPARED].casefold()
        found = get_close_matches(wanted, self._spellings, n=1, cutoff=0.7)
        return self._spellings[found[0]] if found else None


class Schema:
    __slots__ = ("_ancestors", "_base", "_classes", "_names", "_spellings")

    def __init__(self, classes: Mapping[str, CIMClass], *, base: "Schema | None" = None) -> None:
        """``base`` has the classes that no service declares."""
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
        """Return a class, without regard to case; None if it is unknown."""
        found = self._classes.get(class_name)
        return found if found is not None else self._classes.get(class_name.casefold())

    @property
    def base(self) -> "Schema":
        """The packaged classes alone. Stored and sent data is read with these, so that its meaning
        does not depend on a service's declarations."""
        return self if self._base is None else self._base

    def extended(self, classes: Mapping[str, CIMClass]) -> "Schema":
        """A schema with further classes, whose superclasses are among them or here."""
        return Schema({**{found.name: found for found in self}, **classes}, base=self.base)

    def names(self) -> tuple[str, ...]:
        return self._names

    def __iter__(self) -> Iterator[CIMClass]:
        return iter({found.name: found for found in self._classes.values()}.values())

    def is_a(self, class_name: str, ancestor: str) -> bool:
        """Whether a class is ``ancestor`` or descends from it. An unknown class is only itself."""
        wanted, name = ancestor.casefold(), class_name.casefold()
        return name == wanted or wanted in self._ancestors.get(name, ())

    def spelling(self, property_name: str) -> str | None:
        """Return the name of a property of any class as the schema spells it, or None."""
        return self._spellings.get(property_name.casefold())


def load_schema() -> Schema:
    """Read the packaged schema. Takes about a millisecond; keep the result."""
    file = resources.files("pillion_cim").joinpath("data/cim-schema-2.49.json")
    return build_schema(json.loads(file.read_text(encoding="utf-8")))


def build_schema(document: Mapping[str, Any]) -> Schema:
    """Build a schema from its JSON document, as ``tools/make_cim_schema.py`` writes it.

    ``document["classes"]`` lists classes, a superclass before its subclasses, each with only what
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
    """Make a class with all that it inherits; ``properties`` are its own, as in
    :func:`build_schema`. Equal types of ``shared`` are one object."""
    if above is not None and not properties:
        # Nothing of its own: thousands of these share their superclass's mappings.
        return replace(above, name=name, superclass=above.name, abstract=abstract, open=is_open)
    shared = {} if shared is None else shared
    types = dict(above.types) if above else {}
    required = set(above.required) if above else set()
    value_names = dict(above.value_names) if above else {}
    for given, declared in properties.items():
        # A redeclared property keeps the superclass's spelling.
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


@dataclass(frozen=True, slots=True)
class PropertyDeclaration:
    """``type`` is as in ``uint16``, ``string[]``, ``instance`` (embedded)."""

    name: str
    type: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class ClassDeclaration:
    name: str
    #: None: no superclass.
    superclass: str | None
    #: Its own; None: its properties are not declared.
    properties: tuple[PropertyDeclaration, ...] | None = None
    abstract: bool = False


class DeclarationError(CIMDataError):
    def __init__(self, class_name: str, message: str, remedy: str) -> None:
        super().__init__(f"{class_name[:80]}: {message}. {remedy}")
        self.class_name = class_name
        self.message = message
        self.remedy = remedy


def extend(schema: Schema, declarations: Sequence[ClassDeclaration]) -> Schema:
    """Return ``schema`` with the declared classes, in any order.

    Raises:
        DeclarationError: too many classes, an existing one, an unknown superclass, or a circle.
    """
    if not declarations:
        return schema
    if len(declarations) > MOST_CLASSES:
        message = f"{len(declarations):,} classes are declared, more than {MOST_CLASSES:,}"
        raise DeclarationError(declarations[0].name, message, "Declare fewer.")
    declared = _by_name(schema, declarations)
    made: dict[str, CIMClass] = {}
    levels: dict[str, int] = {}
    for declaration in declarations:
        for one in reversed(_chain(declaration, declared, made, schema)):
            above = _superclass(one, made, schema)
            level = levels[one.name.casefold()] = 1 + levels.get(
                (one.superclass or "").casefold(), 0
            )
            if level > MOST_LEVELS:
                message = f"more than {MOST_LEVELS} declared classes stand above it"
                raise DeclarationError(one.name, message, "Derive it from a class further up.")
            made[one.name.casefold()] = make_class(
                one.name,
                above=above,
                properties={
                    own.name: {"type": own.type, "required": own.required}
                    for own in one.properties or ()
                },
                abstract=one.abstract,
                is_open=one.properties is None or (above is not None and above.open),
            )
    return schema.extended({found.name: found for found in made.values()})


def _by_name(
    schema: Schema, declarations: Iterable[ClassDeclaration]
) -> Mapping[str, ClassDeclaration]:
    declared: dict[str, ClassDeclaration] = {}
    for one in declarations:
        _check_names(one)
        if schema.get(one.name) is not None:
            message = "the CIM schema has this class already"
            raise DeclarationError(one.name, message, "Remove it: it is known.")
        if one.name.casefold() in declared:
            raise DeclarationError(one.name, "it is declared twice", "Keep one of the two.")
        declared[one.name.casefold()] = one
    return declared


def _check_names(one: ClassDeclaration) -> None:
    properties = (own.name for own in one.properties or ())
    for name in (one.name, one.superclass or one.name, *properties):
        if not is_identifier(name) or len(name) > MOST_CHARACTERS:
            message = f"{name[:40]!r} is no name"
            raise DeclarationError(one.name, message, "Use letters, digits and underscores.")


def _chain(
    start: ClassDeclaration,
    declared: Mapping[str, ClassDeclaration],
    made: Mapping[str, CIMClass],
    schema: Schema,
) -> list[ClassDeclaration]:
    """The class and its superclasses that are not made yet, the uppermost last."""
    chain: dict[str, ClassDeclaration] = {}
    one: ClassDeclaration | None = start
    while one is not None and one.name.casefold() not in made:
        if one.name.casefold() in chain:
            circle = [other.name for other in chain.values()]
            circle = circle[[name.casefold() for name in circle].index(one.name.casefold()) :]
            shown = " : ".join([*circle[:5], *(["…"] if len(circle) > 5 else []), one.name])
            message = f"it descends from itself: {shown}"
            raise DeclarationError(one.name, message, "Correct one superclass.")
        chain[one.name.casefold()] = one
        above = one.superclass
        if above is None or schema.get(above) is not None:
            break
        if above.casefold() not in declared:
            raise DeclarationError(
                one.name,
                f"its superclass {above[:80]} is not known",
                _meant(above, [*(other.name for other in declared.values()), *schema.names()]),
            )
        one = declared[above.casefold()]
    return list(chain.values())


def _superclass(
    one: ClassDeclaration, made: Mapping[str, CIMClass], schema: Schema
) -> CIMClass | None:
    if one.superclass is None:
        return None
    return schema.get(one.superclass) or made[one.superclass.casefold()]


def _meant(name: str, known: Sequence[str]) -> str:
    near = nearest(name, known)
    meant = f"Did you mean {near}? " if near else ""
    return f"{meant}Declare it too, or name a class that is known."


def nearest(name: str, known: Iterable[str], *, compared: int = _MOST_COMPARED) -> str | None:
    """Return the known class that an unknown one most likely is or derives from; or None.

    It is the class whose name without the schema's prefix is the longest end of ``name``
    (``CIM_AlertIndication`` for ``HP_StorageAlertIndication``), else one of similar spelling among
    the first ``compared``: a comparison takes up to 0.2 ms.
    """
    # Late: only an unknown name needs it.
    from difflib import get_close_matches

    wanted = name[:MOST_CHARACTERS].casefold()
    folded = {candidate.casefold(): candidate for candidate in known}
    if wanted in folded:
        return folded[wanted]
    bare = ((candidate.partition("_")[2] or candidate, candidate) for candidate in folded)
    ends = [pair for pair in bare if wanted.endswith(pair[0])]
    if ends:
        return folded[max(ends, key=lambda pair: len(pair[0]))[1]]
    alike = get_close_matches(wanted, list(folded)[:compared], n=1, cutoff=0.7)
    return folded[alike[0]] if alike else None
