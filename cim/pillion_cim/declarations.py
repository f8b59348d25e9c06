"""Classes that a service declares beside the schema's: vendors' classes (D.4, D.6).

A class that is declared by its name and superclass alone may have properties that nobody declared:
it is *open*. One that MOF declares has the properties that it and its superclasses declare.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pillion_cim import CIMDataError
from pillion_cim.schema import CIMClass, Schema, make_class
from pillion_cim.values import is_identifier

#: Classes that a service may declare, those of its MOF among them.
MOST_CLASSES = 5_000
#: Declared classes that may stand above one another.
MOST_LEVELS = 100
#: Characters of a class's or property's name.
MOST_CHARACTERS = 256
#: Names that an unknown one is compared with, letter by letter.
_MOST_COMPARED = 1_000


@dataclass(frozen=True, slots=True)
class PropertyDeclaration:
    """One property: ``type`` as in ``uint16``, ``string[]``, ``instance`` (embedded)."""

    name: str
    type: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class ClassDeclaration:
    name: str
    #: None: a class without a superclass.
    superclass: str | None
    #: What it declares itself; None: its properties are not declared.
    properties: tuple[PropertyDeclaration, ...] | None = None
    abstract: bool = False


class DeclarationError(CIMDataError):
    """The declaration of a class is not valid."""

    def __init__(self, class_name: str, message: str, remedy: str) -> None:
        super().__init__(f"{class_name[:80]}: {message}. {remedy}")
        self.class_name = class_name
        self.message = message
        self.remedy = remedy


def extend(schema: Schema, declarations: Sequence[ClassDeclaration]) -> Schema:
    """Return ``schema`` with the classes declared beside its own, in any order.

    Raises:
        DeclarationError: too many classes, one that is there already, an unknown superclass, or
            classes that descend from one another in a circle.
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
    """The class and those above it that are not made yet, the uppermost last."""
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
    """Return the known class that an unknown one most likely is, or is derived from; None for none.

    The class whose name, without its schema's prefix, is the longest end of ``name``
    (``CIM_AlertIndication`` for ``HP_StorageAlertIndication``), else one spelled much like it, of
    the first ``compared``: a comparison takes up to 0.2 ms.
    """
    # Imported here: only a name that is not known needs it.
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
