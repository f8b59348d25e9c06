"""The declarations of a resource kind: field types, fields, rules, and the values read from them.

Validation, the CRDs and the reference manual are derived from a kind's declaration. One
``declared(...)`` gives a value's attribute, the field of the schema (:func:`structure`), the
conversion from the one to the other (:func:`build`), and whether a handler depends on it
(:func:`relevant`).
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Iterator, Mapping
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

#: The whole of a quantity more than 0, for RE2 and for Python alike.
QUANTITY = f"{_NUMBER}{_UNIT}?"
#: The most characters of one.
LONGEST_QUANTITY = 32

_LETTERS = "inumkKMGTPE"
_BINARY = "KMGTPE"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def amount(quantity: str | int) -> Decimal:
    """The number that a quantity stands for, which :data:`QUANTITY` matches."""
    text = str(quantity)
    number = text.rstrip(_LETTERS)
    unit = text[len(number) :]
    if unit.endswith("i"):
        return Decimal(number) * Decimal(1024) ** (1 + _BINARY.index(unit[0]))
    return Decimal(number).scaleb(_DECIMAL[unit])


#: A checked JSON object with its defaults, as a rule gets it.
JSONObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition over one node, written twice: for the API server (CEL) and for this program.

    ``holds`` gets the same value as CEL's ``self``: defaults applied, types and bounds checked.
    A test proves that the two agree.
    """

    cel: str
    holds: Callable[[Any], bool]
    #: What is wrong, without a full stop.
    message: str
    #: What to do about it: a sentence.
    remedy: str
    #: The field below the node that the complaint is about; empty: the node itself.
    field: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A condition over a node and its previous value, ``oldSelf`` in CEL.

    Only the API server evaluates it: a folder of files has no previous values.
    """

    cel: str
    #: What is wrong, without a full stop.
    message: str
    #: What to do about it: a sentence.
    remedy: str
    #: The field below the node that the complaint is about.
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string. Bounds are in characters, as the API server counts them."""

    max_length: int
    min_length: int = 0
    values: tuple[str, ...] = ()
    #: OpenAPI format, for what only the API server writes.
    format: str = ""
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """A whole number within bounds, both included."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean:
    """true or false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A Kubernetes quantity more than 0, such as 500m or 1Gi; a whole number stands for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list; a set when its order says nothing, a map when ``key`` names an item's key, and
    atomic when it is written and replaced as a whole."""

    item: "Text | Struct"
    max_items: int
    key: str = ""
    atomic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """An object with keys that users choose; its rules limit them."""

    value: Text
    max_properties: int
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    fields: tuple["Field", ...]
    rules: tuple[Rule, ...] = ()
    #: The kind of the object of the core API that its ``name`` refers to; empty: none.
    refers_to: str = ""
    transitions: tuple[Transition, ...] = ()


FieldType = Text | Integer | Boolean | Quantity | ListOf | MapOf | Struct
#: The types that may have rules.
RULED = Text | MapOf | Struct


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: FieldType
    #: Sentences, as ``kubectl explain`` shows them.
    description: str
    _: KW_ONLY
    required: bool = False
    #: The JSON default; None: no default.
    default: Any = None
    #: The effective default, in words, if the schema has none.
    assumed: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of ``kubectl get``; priority 1 shows with ``-o wide`` alone."""

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
    #: What ``spec`` says, for ``kubectl explain KIND.spec``.
    spec_description: str
    #: Whether a resource without ``spec`` is complete.
    spec_optional: bool = False
    #: The longest metadata.name.
    name_length: int = 253
    #: What metadata.name must be, beyond what Kubernetes asks of every name.
    name_rules: tuple[Rule, ...] = ()


_T = TypeVar("_T")
_Convert = Callable[[Any], Any]


class Declaration(TypedDict, total=False):
    """How a resource writes an attribute, where the attribute's own definition does not say.

    A field without ``assumed`` has the attribute's default, or is required where that has none.
    """

    #: Sentences, as ``kubectl explain`` shows them.
    description: str
    #: Default: the attribute's name in camel case.
    name: str
    #: Default: from the attribute's own type, an enumeration, bool or resource.
    type: FieldType
    #: Default: the attribute's default, except for an object.
    json_default: Any
    #: The effective default, in words, if the schema has none.
    assumed: str
    #: From the JSON value to the attribute's; default: by the attribute's type.
    convert: _Convert
    #: Its fields are in the object of the enclosing value, not in an object of their own.
    inline: bool
    #: Whether a handler of a listener reads it; default: true.
    handler_relevant: bool
    #: Whether the handler that relays to a gateway reads it; default: false.
    relay_relevant: bool
    #: Further fields of the same attribute.
    more: tuple[Field, ...]
    #: As in ``dataclasses.field``.
    default_factory: Callable[[], Any]
    repr: bool


@overload
def declared(*, default: _T, **how: Unpack[Declaration]) -> _T: ...
@overload
def declared(**how: Unpack[Declaration]) -> Any: ...
def declared(*, default: Any = dataclasses.MISSING, **how: Unpack[Declaration]) -> Any:
    """An attribute of a :func:`resource`, and the field that it is read from."""
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
    """Make a class a frozen dataclass, whose attributes are :func:`declared`."""
    return dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)


def one_of(values: type[StrEnum]) -> Text:
    texts = tuple(value.value for value in values)
    return Text(values=texts, max_length=max(map(len, texts)))


def structure(
    *parts: type | Field,
    rules: tuple[Rule, ...] = (),
    transitions: tuple[Transition, ...] = (),
    refers_to: str = "",
) -> Struct:
    """The JSON object with the fields that ``parts`` are, or that values of a class declare."""
    fields = [
        field for part in parts for field in ((part,) if isinstance(part, Field) else _fields(part))
    ]
    return Struct(fields=tuple(fields), rules=rules, transitions=transitions, refers_to=refers_to)


def build(value: type[_T], spec: Mapping[str, Any], **given: Any) -> _T:
    """The value of a checked ``spec``. Cannot fail.

    ``given`` holds the attributes that do not come from ``spec``, or not from it alone.
    """
    for attribute, field, convert in _conversions(cast("Any", value)):
        if attribute not in given and (field is None or field in spec):
            given[attribute] = convert(spec if field is None else spec[field])
    return value(**given)


def relevant(value: type, *, to_relay: bool = False) -> tuple[str, ...]:
    """The names of the attributes that a handler of a listener depends on, or with ``to_relay`` the
    one that relays. Those that declare nothing are relevant to the former."""
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
    """An attribute's type without None."""
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
    """Attribute, its field (None: the whole object), and the way from the one to the other."""
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
        # A reference.
        return lambda reference: str(reference["name"])
    if isinstance(annotation, type) and issubclass(annotation, StrEnum | float | str):
        return annotation
    return lambda value: value
