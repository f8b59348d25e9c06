"""Values whose attributes declare the fields that they are read from.

One ``declared(...)`` gives the attribute, the field of the schema (:func:`structure`), the way from
the one to the other (:func:`build`), and whether a handler depends on it (:func:`relevant`).
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Iterator, Mapping
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

from pillion_sidecar.config.schema.fields import (
    Boolean,
    Field,
    FieldType,
    ListOf,
    Rule,
    Struct,
    Text,
    Transition,
)

_T = TypeVar("_T")
_Convert = Callable[[Any], Any]


class Declaration(TypedDict, total=False):
    """How an attribute is written in a resource, as far as the attribute does not tell it.

    A field without ``assumed`` has the attribute's default, or is required where that has none.
    """

    #: Sentences, as ``kubectl explain`` shows them.
    description: str
    #: Left out: the attribute's name in camel case.
    name: str
    #: Left out: by the attribute's own type, an enumeration, bool or resource.
    type: FieldType
    #: Left out: the attribute's default, but of an object.
    json_default: Any
    #: What is assumed where the field is left out and the schema has no default for it.
    assumed: str
    #: From the JSON value to the attribute's; left out: by the attribute's type.
    convert: _Convert
    #: Its fields stand beside those of the value that holds it, not in an object of their own.
    inline: bool
    #: Whether a handler of a listener reads it; left out: it does.
    handler_relevant: bool
    #: Whether the handler that relays to a gateway reads it; left out: it does not.
    relay_relevant: bool
    #: Fields that the same attribute is made from, beside the first.
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
    """A text that is one of an enumeration's values."""
    texts = tuple(value.value for value in values)
    return Text(values=texts, max_length=max(map(len, texts)))


def structure(
    value: type,
    *more: Field,
    rules: tuple[Rule, ...] = (),
    transitions: tuple[Transition, ...] = (),
) -> Struct:
    """The JSON object that a value is read from; ``more`` are fields that it does not keep."""
    return Struct(fields=(*_fields(value), *more), rules=rules, transitions=transitions)


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
    """The type of an attribute where it is not None."""
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
