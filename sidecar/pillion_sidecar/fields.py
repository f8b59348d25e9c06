"""Declarations of a resource kind: field types, fields, rules, and the values read from them. One
``declared(...)`` gives an attribute, its schema field (:func:`structure`), the conversion
(:func:`build`), and whether a handler depends on it (:func:`relevant`)."""

import dataclasses
import functools
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from enum import StrEnum
from typing import (
    Any,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    dataclass_transform,
    get_args,
    overload,
)

_NUMBER = r"(?:[0-9]*[1-9][0-9]*(?:\.[0-9]*)?|[0-9]*\.[0-9]*[1-9][0-9]*)"
_UNIT = "(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})"

#: For RE2 and Python.
QUANTITY = f"{_NUMBER}{_UNIT}?"
LONGEST_QUANTITY = 32

_LETTERS = "inumkKMGTPE"
_BINARY = "KMGTPE"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def amount(quantity: str | int) -> Decimal:
    text = str(quantity)
    number = text.rstrip(_LETTERS)
    unit = text[len(number) :]
    if unit.endswith("i"):
        return Decimal(number) * Decimal(1024) ** (1 + _BINARY.index(unit[0]))
    return Decimal(number).scaleb(_DECIMAL[unit])


#: Checked, with defaults.
JSONObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition on a node, for the API server (CEL) and for Python; tests prove that they agree.
    ``holds`` gets the value of CEL's ``self``: defaults applied, types and bounds checked."""

    cel: str
    holds: Callable[[Any], bool]
    message: str
    remedy: str
    #: Field below the node; empty: the node itself.
    field: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A condition on a node and its previous value (``oldSelf``). Only the API server evaluates
    it."""

    cel: str
    message: str
    remedy: str
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Bounds are in characters, as in the API server."""

    max_length: int
    min_length: int = 0
    values: tuple[str, ...] = ()
    #: OpenAPI format, for what only the API server writes.
    format: str = ""
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """Bounds are inclusive."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """With or without a fraction. Bounds are inclusive."""

    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A Kubernetes quantity greater than 0, such as 500m or 1Gi, or a whole number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list type: set, map (``key`` names an item's key) or atomic."""

    item: "Text | Struct"
    max_items: int
    key: str = ""
    atomic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    value: Text
    max_properties: int
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    fields: tuple["Field", ...]
    rules: tuple[Rule, ...] = ()
    #: Kind of the core API object that ``name`` refers to, or empty.
    refers_to: str = ""
    transitions: tuple[Transition, ...] = ()


FieldType = Text | Integer | Number | Boolean | Quantity | ListOf | MapOf | Struct
RULED = Text | MapOf | Struct


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: FieldType
    #: Sentences for ``kubectl explain``.
    description: str
    _: KW_ONLY
    required: bool = False
    #: JSON default, or None.
    default: Any = None
    #: The effective default in words, if the schema has none.
    assumed: str = ""


def required(name: str, type: FieldType, description: str) -> Field:
    return Field(name, type, description, required=True)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    path: str
    description: str
    _: KW_ONLY
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    plural: str
    short_name: str
    description: str
    spec: Struct
    status: Struct
    columns: tuple[Column, ...]
    spec_description: str
    spec_optional: bool = False
    name_length: int = 253
    #: Rules beyond those of Kubernetes.
    name_rules: tuple[Rule, ...] = ()


_T = TypeVar("_T")
_Convert = Callable[[Any], Any]


class Declaration(TypedDict, total=False):
    """How a resource writes an attribute. Without ``assumed``, the attribute's default applies;
    without that the field is required."""

    #: Sentences for ``kubectl explain``.
    description: str
    #: Default: the attribute's name in camel case.
    name: str
    #: Default: by the attribute's type, if an enumeration, bool or resource.
    type: FieldType
    #: Default: the attribute's default, except for an object.
    json_default: Any
    #: The effective default in words, if the schema has none.
    assumed: str
    #: From JSON; default: by the attribute's type.
    convert: _Convert
    #: Its fields are in the object of the enclosing value.
    inline: bool
    #: Whether a listener's handler reads it; default: true.
    handler_relevant: bool
    #: Whether the handler that relays reads it; default: false.
    relay_relevant: bool
    #: Further fields of the same attribute.
    more: tuple[Field, ...]
    default_factory: Callable[[], Any]
    repr: bool


@overload
def declared(*, default: _T, **how: Unpack[Declaration]) -> _T: ...
@overload
def declared(**how: Unpack[Declaration]) -> Any: ...
def declared(*, default: Any = dataclasses.MISSING, **how: Unpack[Declaration]) -> Any:
    """An attribute of a :func:`resource`, and its field."""
    return dataclasses.field(
        default=default,
        default_factory=how.get("default_factory", cast("Any", dataclasses.MISSING)),
        repr=how.get("repr", True),
        metadata=cast("Mapping[str, Any]", how),
    )


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(declared, dataclasses.field)
)
def resource(cls: type[_T]) -> type[_T]:
    """Make a class a frozen dataclass whose attributes are :func:`declared`."""
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)


def one_of(values: Iterable[str]) -> Text:
    texts = tuple(map(str, values))
    return Text(values=texts, max_length=max(map(len, texts)))


def structure(
    *parts: type | Field,
    rules: tuple[Rule, ...] = (),
    transitions: tuple[Transition, ...] = (),
    refers_to: str = "",
) -> Struct:
    """The JSON object with the fields of ``parts``: fields, or classes that declare them."""
    fields = [
        field for part in parts for field in ((part,) if isinstance(part, Field) else _fields(part))
    ]
    return Struct(fields=tuple(fields), rules=rules, transitions=transitions, refers_to=refers_to)


def build(value: type[_T], spec: Mapping[str, Any], **given: Any) -> _T:
    """Build a value from a checked ``spec``; never fails. ``given``: attributes that do not come
    from ``spec`` alone."""
    for attribute, field, convert in _conversions(cast("Any", value)):
        if attribute not in given and (field is None or field in spec):
            given[attribute] = convert(spec if field is None else spec[field])
    return value(**given)


def relevant(value: type, *, to_relay: bool = False) -> tuple[str, ...]:
    """Names of attributes that a listener's handler depends on, or the one that relays with
    ``to_relay``. Undeclared ones count for the former."""
    return tuple(
        attribute.name
        for attribute in _attributes(value)
        if (
            attribute.metadata.get("relay_relevant", False)
            if to_relay
            else attribute.metadata.get("handler_relevant", True)
        )
    )


def _attributes(value: type) -> tuple["dataclasses.Field[Any]", ...]:
    return dataclasses.fields(cast("Any", value))


def _fields(value: type) -> Iterator[Field]:
    for attribute in _attributes(value):
        how = cast("Declaration", attribute.metadata)
        if how.get("inline"):
            yield from _fields(_type(attribute))
        elif "description" in how:
            yield _field(attribute, how)
            yield from how.get("more", ())


def _field(attribute: "dataclasses.Field[Any]", how: Declaration) -> Field:
    annotation, assumed = _type(attribute), how.get("assumed", "")
    kind = how.get("type") or (Boolean() if annotation is bool else one_of(annotation))
    default = how.get("json_default")
    if "json_default" not in how and not assumed and not isinstance(kind, Struct):
        default = _as_json(attribute.default)
    has_default = (attribute.default, attribute.default_factory) != (dataclasses.MISSING,) * 2
    return Field(
        name=_name(attribute),
        type=kind,
        description=how["description"],
        required=not has_default and not assumed,
        default=default,
        assumed=assumed,
    )


def _type(attribute: "dataclasses.Field[Any]") -> Any:
    annotation: Any = attribute.type
    if isinstance(annotation, types.UnionType):
        annotation = next(one for one in get_args(annotation) if one is not types.NoneType)
    return annotation


def _as_json(default: Any) -> Any:
    match default:
        case StrEnum():
            return default.value
        case float():
            return int(default)
        case tuple():
            return list(default)
        case dataclasses.MISSING:
            return None
        case _:
            return default


def _name(attribute: "dataclasses.Field[Any]") -> str:
    first, *words = attribute.name.split("_")
    name: str = attribute.metadata.get("name", "")
    return name or first + "".join(word.capitalize() for word in words)


@functools.cache
def _conversions(value: type) -> tuple[tuple[str, str | None, _Convert], ...]:
    """(attribute, field or None for the whole object, conversion)."""
    found: list[tuple[str, str | None, _Convert]] = []
    for attribute in _attributes(value):
        how = cast("Declaration", attribute.metadata)
        if how.get("inline"):
            found.append((attribute.name, None, functools.partial(build, _type(attribute))))
        elif "description" in how:
            convert = how.get("convert") or _conversion(_type(attribute), how.get("type"))
            found.append((attribute.name, _name(attribute), convert))
    return tuple(found)


def _conversion(annotation: Any, kind: FieldType | None) -> _Convert:
    if isinstance(kind, ListOf):
        item: Any = get_args(annotation)[0]
        if isinstance(kind.item, Struct):
            return lambda values: tuple(build(item, value) for value in values)
        return tuple
    if dataclasses.is_dataclass(annotation):
        return functools.partial(build, cast("Any", annotation))
    if isinstance(kind, Struct) and annotation is str:
        return lambda reference: str(reference["name"])
    if isinstance(annotation, type) and issubclass(annotation, StrEnum | float | str):
        return annotation
    return lambda value: value


def cel_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def cel_matches(operand: str, regex: str) -> str:
    return f"{operand}.matches({cel_text(f'^(?:{regex})$')})"


def whole(regex: str) -> Callable[[str], bool]:
    """The equivalent of ``cel_matches`` in Python. Compiled at first use: most fields are rare."""
    return lambda text: re.fullmatch(regex, text) is not None


def matching(regex: str, *, message: str, remedy: str, when: str = "") -> Rule:
    """A rule: the whole text matches ``regex``, unless it matches ``when``. Expressions use what
    RE2 and Python's ``re`` share."""
    wanted = whole(regex)
    concerned = whole(when) if when else None
    cel = cel_matches("self", regex)
    return Rule(
        cel=cel if not when else f"!{cel_matches('self', when)} || {cel}",
        holds=lambda text: (concerned is not None and not concerned(text)) or wanted(text),
        message=message,
        remedy=remedy,
    )


def unlike(regex: str, *, message: str, remedy: str) -> Rule:
    unwanted = whole(regex)
    return Rule(
        cel=f"!{cel_matches('self', regex)}",
        holds=lambda text: not unwanted(text),
        message=message,
        remedy=remedy,
    )


def text_matching(
    regex: str, *, max_length: int, min_length: int = 1, message: str, remedy: str
) -> Text:
    rules = (matching(regex, message=message, remedy=remedy),)
    return Text(min_length=min_length, max_length=max_length, rules=rules)
