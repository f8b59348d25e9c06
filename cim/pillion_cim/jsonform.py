"""The typed JSON form of instances, after CIM-RS (DSP0211).

``{"class": "CIM_AlertIndication", "properties": {"AlertType": 5, …}}``. A value's CIM type comes
from its class, or is stated: ``{"type": "uint16", "value": 3}``, with ``"array": true`` for an
array. The values:

- integers as JSON integers, those of 64 bits also as decimal text;
- reals as numbers; the three that JSON lacks as ``"NaN"``, ``"INF"``, ``"-INF"`` (DSP0201);
- datetimes as their 25 characters; a point in time is also read in RFC 3339;
- an embedded instance as an instance; its type is stated as ``instance`` or ``object``;
- a reference as ``{"class": …, "keys": {…}, "namespace": …, "host": …}``.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pillion_cim import CIMDataError
from pillion_cim.datetimes import CIMDateTime, parse_rfc3339
from pillion_cim.model import (
    INTEGER_RANGES,
    CIMInstance,
    CIMInstanceName,
    CIMScalar,
    CIMType,
    CIMValue,
    EmbeddedObject,
    PropertyType,
    check_scalar,
    is_identifier,
)
from pillion_cim.schema import CIMClass, Schema, nearest


def encode_instance(instance: CIMInstance, *, schema: Schema) -> dict[str, Any]:
    """Return an instance in its JSON form: dict, list, str, int, float, bool and None."""
    known = schema.get(instance.class_name)
    declared = known.types if known is not None else {}
    # Usually the same object, and then no type is compared.
    own = declared is instance.types
    properties: dict[str, Any] = {}
    for name, value in instance.values.items():
        plain = _encode_value(value, schema)
        if not own:
            actual = instance.types[name]
            if declared.get(name) != actual:
                plain = _state(plain, actual)
        properties[name] = plain
    return {"class": instance.class_name, "properties": properties}


def _state(plain: Any, property_type: PropertyType) -> dict[str, Any]:
    stated = {"type": str(property_type.embedded or property_type.cim_type), "value": plain}
    if property_type.is_array:
        stated["array"] = True
    return stated


def _encode_value(value: CIMValue, schema: Schema) -> Any:
    if isinstance(value, tuple):
        return [_encode_value(item, schema) for item in value]
    if isinstance(value, CIMInstance):
        return encode_instance(value, schema=schema)
    if isinstance(value, CIMInstanceName):
        return _encode_reference(value)
    return _plain(value)


def _encode_reference(path: CIMInstanceName) -> dict[str, Any]:
    keys = {
        name: _encode_reference(key) if isinstance(key, CIMInstanceName) else _plain(key)
        for name, key in path.keys.items()
    }
    encoded: dict[str, Any] = {"class": path.class_name, "keys": keys}
    if path.namespace is not None:
        encoded["namespace"] = path.namespace
    if path.host is not None:
        encoded["host"] = path.host
    return encoded


def _plain(value: CIMScalar | None) -> Any:
    if isinstance(value, CIMDateTime):
        return value.text
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "INF" if value > 0 else "-INF"
    return value


_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}")
_SPECIAL_REALS: Final = {"NaN": math.nan, "INF": math.inf, "-INF": -math.inf}
MAX_PROBLEMS: Final = 20
_MAX_TEXT: Final = 80
#: Maximum depth of embedded instances, and of references.
MAX_DEPTH: Final = 8
#: Remedies for an unknown class, by the member that names it.
_KNOW_IT: Final = {
    "class": "name its superclass, declare it in the service's classes, or state the type of each"
    " property",
    "superclass": "name one that is known, declare it in the service's classes, or state the type"
    " of each property",
}
#: The suggested CIM type, by the JSON value's type.
_LIKELY_TYPES: Final = {bool: "boolean", int: "uint32", float: "real64", str: "string"}
#: Maximum characters of a value in an example.
_MOST_REPEATED: Final = 40
#: Maximum known classes compared with an unknown one.
_MOST_COMPARED: Final = 20
_TYPES: Final = frozenset(CIMType) | frozenset(EmbeddedObject)


def convert_scalar(value: Any, property_type: PropertyType) -> CIMScalar:
    """Convert a JSON value that is no object, without checking its range. Raises ValueError with
    the problem."""
    cim_type = property_type.cim_type
    if property_type.embedded is not None:
        raise ValueError("not an embedded instance")
    if cim_type is CIMType.REFERENCE:
        raise ValueError("not a reference")
    if isinstance(value, dict | list | tuple):
        raise ValueError(f"expected a {cim_type}")  # noqa: TRY004 - one kind of error for bad data
    if cim_type is CIMType.DATETIME:
        return _datetime(value)
    if cim_type is CIMType.REAL32 or cim_type is CIMType.REAL64:
        return _real(value)
    if cim_type is CIMType.UINT64 or cim_type is CIMType.SINT64:
        return _long(value)
    scalar: CIMScalar = value
    return scalar


def describe_remedy(property_type: PropertyType) -> str:
    cim_type = property_type.cim_type
    if property_type.embedded is not None:
        return 'write {"class": "NAME", "properties": {…}}'
    if cim_type in INTEGER_RANGES:
        low, high = INTEGER_RANGES[cim_type]
        return f"write an integer from {low} to {high}"
    return {
        CIMType.BOOLEAN: "write true or false",
        CIMType.STRING: "write text, without control characters",
        CIMType.CHAR16: "write one character",
        CIMType.REAL32: 'write a number, or one of "NaN", "INF", "-INF"',
        CIMType.REAL64: 'write a number, or one of "NaN", "INF", "-INF"',
        CIMType.DATETIME: "write 25 characters, as 20261121133000.000000+000, or an RFC 3339 time",
    }.get(cim_type, 'write {"class": "NAME", "keys": {…}}')


def _datetime(value: Any) -> CIMDateTime:
    if not isinstance(value, str):
        raise ValueError("not a datetime")  # noqa: TRY004 - one kind of error for bad data
    if value[14:15] == ".":
        return CIMDateTime(value)
    try:
        return parse_rfc3339(value)
    except (ValueError, OverflowError):
        raise ValueError("not a datetime") from None


def _real(value: Any) -> float:
    if isinstance(value, str) and value in _SPECIAL_REALS:
        return _SPECIAL_REALS[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("not a number")  # noqa: TRY004 - one kind of error for bad data
    try:
        real = float(value)
    except OverflowError:
        raise ValueError("out of range of a real64") from None
    if not math.isfinite(real):
        raise ValueError("JSON has no such number")
    return real


def _long(value: Any) -> CIMScalar:
    if isinstance(value, str):
        if _DECIMAL.fullmatch(value) is None:
            raise ValueError("not an integer in decimal digits")
        return int(value)
    scalar: CIMScalar = value
    return scalar


@dataclass(frozen=True, slots=True)
class Problem:
    #: ``class``, ``properties.AlertType``, ``properties.MessageArguments[2]``.
    field: str
    #: Shortened; empty without a value.
    value: str
    message: str
    remedy: str

    def __str__(self) -> str:
        got = f" (got {self.value})" if self.value else ""
        return f"{self.field}: {self.message}{got}; {self.remedy}"


class InstanceError(CIMDataError, ValueError):
    """``problems`` gives the reasons."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(map(str, problems)))


class Problems:
    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[Problem] = []

    def add(self, field: str, value: object, message: str, remedy: str) -> None:
        """Beyond MAX_PROBLEMS a problem is dropped."""
        if len(self._found) < MAX_PROBLEMS:
            field = field if len(field) <= 2 * _MAX_TEXT else f"…{field[-2 * _MAX_TEXT :]}"
            self._found.append(Problem(field, shorten(value), message, remedy))

    def add_missing(self, field: str, message: str, remedy: str) -> None:
        """Report a missing value, unless the field or a part of it has a problem already."""
        parts = (f"{field}.", f"{field}[")
        told = any(one.field == field or one.field.startswith(parts) for one in self._found)
        if not told and not self.full:
            self._found.append(Problem(field, "", message, remedy))

    @property
    def full(self) -> bool:
        """Whether further problems would be dropped."""
        return len(self._found) >= MAX_PROBLEMS

    def check(self) -> None:
        if self._found:
            raise InstanceError(tuple(self._found))


def shorten(value: object) -> str:
    """Show a value in about 80 characters, without walking through a large one."""
    if value is None:
        return "null"
    if isinstance(value, str):
        cut = value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + "…"
        return ascii(cut) if not cut.isprintable() else repr(cut)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        return f"an object of {len(value)} members"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)} items"
    return f"a {type(value).__name__}"


def decode_instance(
    obj: Mapping[str, Any], *, schema: Schema, complete: bool = True
) -> CIMInstance:
    """Decode an instance, ignoring members other than ``class``, ``superclass`` and ``properties``.
    ``superclass`` counts only if the schema does not know the class.

    With ``complete``, for a published indication, the class must not be abstract, required
    properties must be given, and stated types must agree with the class. Without it, as for another
    CIM exporter's, the instance is taken as it is.

    Raises InstanceError with all problems.
    """
    given = obj.get("properties")
    class_name = obj.get("class")
    if type(given) is dict and type(class_name) is str:
        known = schema.get(class_name)
        if known is not None and not (complete and known.abstract):
            values = _plain_values(known, given)
            required = known.required if complete else ()
            if values is not None and all(values.get(name) is not None for name in required):
                return CIMInstance(known.name, values, known.types)
    decoder = _Decoder(schema=schema, complete=complete)
    instance = decoder.instance(obj, field="", depth=0)
    decoder.problems.check()
    return instance


def _plain_values(known: CIMClass, given: dict[str, Any]) -> dict[str, CIMValue] | None:
    """The fast path for most indications: the schema's spelling, plain values of the class's types,
    no problem. Otherwise None, without a reason."""
    quick = known.quick_checks
    values: dict[str, CIMValue] = given.copy()
    for name, value in given.items():
        check = quick.get(name)
        kind = type(value)
        if kind is str and check is str:
            if not value.isprintable():
                return None
        elif kind is int and type(check) is tuple:
            if not check[0] <= value <= check[1]:
                return None
        elif value is not None or check is None:
            converted = _plain_value(value, check)
            if converted is None:
                return None
            values[name] = converted
    return values


def _plain_value(value: Any, check: object) -> CIMValue:
    """Convert a datetime or an array of text; None for anything else."""
    if check is CIMDateTime and type(value) is str:
        try:
            return CIMDateTime(value)
        except ValueError:
            return None
    if check is not list or type(value) is not list:
        return None
    plain = all(type(item) is str and item.isprintable() for item in value)
    return tuple(value) if plain else None


def _meant_property(name: str, value: Any, known: CIMClass) -> str:
    """The remedy for an undeclared property."""
    near = known.closest(name)
    meant = f"did you mean {near}? Else " if near else ""
    short = type(value) in _LIKELY_TYPES and len(shorten(value)) <= _MOST_REPEATED
    example = json.dumps(value, ensure_ascii=False) if short else "…"
    kind = _LIKELY_TYPES.get(type(value), "string")
    return f'{meant}state its type, as {{"type": "{kind}", "value": {example}}}'


def _states_type(value: object) -> bool:
    return isinstance(value, Mapping) and "type" in value


class _Decoder:
    """Decodes one instance with its embedded ones, collecting problems."""

    __slots__ = ("complete", "problems", "schema")

    def __init__(self, *, schema: Schema, complete: bool) -> None:
        self.schema = schema
        self.complete = complete
        self.problems = Problems()

    def instance(self, obj: Mapping[str, Any], *, field: str, depth: int) -> CIMInstance:
        """Decode an instance without its invalid parts, which become problems."""
        class_name, given = obj.get("class"), obj.get("properties")
        prefix = f"{field}." if field else ""
        if not isinstance(class_name, str) or not is_identifier(class_name):
            message = "not the name of a class"
            self.problems.add(
                f"{prefix}class", class_name, message, "give the class of the instance"
            )
            class_name = ""
        if not isinstance(given, Mapping):
            remedy = 'give the properties as an object, {"NAME": VALUE}'
            self.problems.add(f"{prefix}properties", given, "not an object", remedy)
            given = {}
        superclass = self._superclass(obj, prefix)
        known = self.schema.get(class_name)
        above = known
        if known is None and superclass is not None:
            above = self.schema.get(superclass)
        if above is None and not all(map(_states_type, given.values())):
            if class_name:
                self._add_unknown(class_name, superclass, prefix)
            # The problem of the class covers the missing types of its properties.
            given = {name: value for name, value in given.items() if _states_type(value)}
        instance = self._properties(
            class_name, above, given, field=f"{prefix}properties", depth=depth
        )
        if known is None:
            instance = replace(instance, class_name=class_name, superclass=superclass)
        if above is not None and self.complete and not field:
            self._check_complete(above, instance, is_itself=above is known)
        return instance

    def _add_unknown(self, class_name: str, superclass: str | None, prefix: str) -> None:
        member, name = "superclass", superclass
        if name is None:
            member, name = "class", class_name
        near = nearest(name, self.schema.names(), compared=_MOST_COMPARED)
        meant = f"did you mean {near}? Else " if near else ""
        message = "no class of that name is known"
        self.problems.add(f"{prefix}{member}", name, message, f"{meant}{_KNOW_IT[member]}")

    def _superclass(self, obj: Mapping[str, Any], prefix: str) -> str | None:
        superclass = obj.get("superclass")
        if superclass is None and "superclass" not in obj:
            return None
        if isinstance(superclass, str) and is_identifier(superclass):
            return superclass
        remedy = "name a class that is known, such as CIM_AlertIndication, or leave it out"
        self.problems.add(f"{prefix}superclass", superclass, "not the name of a class", remedy)
        return None

    def _properties(
        self,
        class_name: str,
        known: CIMClass | None,
        given: Mapping[str, Any],
        *,
        field: str,
        depth: int,
    ) -> CIMInstance:
        """``known`` is the instance's class, or the superclass that its sender names."""
        values: dict[str, CIMValue] = {}
        stated: dict[str, PropertyType] = {}
        seen: dict[str, str] = {}
        for name, value in given.items():
            if self.problems.full:
                break
            where = f"{field}.{name}"
            spelled = self._spelled(name, known, seen, where)
            declared = known.types.get(spelled) if known is not None and spelled else None
            if spelled is None:
                continue
            property_type, value = self._type_of(name, value, declared, class_name, known, where)
            if property_type is not None:
                stated[spelled] = property_type
                values[spelled] = self._value(value, property_type, where, depth)
        if known is None:
            return CIMInstance(class_name, values, stated)
        # Types that only the line declares stay with the instance.
        own = all(known.types.get(name) == stated[name] for name in values)
        types = known.types if own else {**known.types, **stated}
        return CIMInstance(known.name, values, types)

    def _spelled(
        self, name: object, known: CIMClass | None, seen: dict[str, str], where: str
    ) -> str | None:
        """The spelling to keep; None, with a problem, for an invalid name."""
        if not isinstance(name, str) or not is_identifier(name):
            remedy = "use letters, digits and underscores, not beginning with a digit"
            self.problems.add(where, name, "not the name of a property", remedy)
            return None
        earlier = seen.setdefault(name.casefold(), name)
        if earlier != name:
            message = f"the same property as {earlier[:80]}: case makes no difference"
            self.problems.add(where, name, message, "give it once")
            return None
        return (known.spelling(name) if known is not None else None) or name

    def _type_of(
        self,
        name: str,
        value: Any,
        declared: PropertyType | None,
        class_name: str,
        known: CIMClass | None,
        where: str,
    ) -> tuple[PropertyType | None, Any]:
        """The type of a property and its bare value; None, with a problem, without a type."""
        if _states_type(value):
            stated = self._stated(value, where)
            if stated is not None and declared is not None and self.complete:
                self._check_agrees(stated, declared, value["type"], where)
            return stated, value.get("value")
        if declared is None and known is not None:
            if known.open or known.name.casefold() != class_name.casefold():
                message = f"its type is not known: {known.name} declares no such property"
            else:
                message = f"{class_name} has no such property"
            self.problems.add(where, value, message, _meant_property(name, value, known))
        return declared, value

    def _stated(self, value: Mapping[str, Any], where: str) -> PropertyType | None:
        text = value["type"]
        is_array = value.get("array", isinstance(value.get("value"), list | tuple))
        if not isinstance(text, str) or text not in _TYPES:
            remedy = f"use one of {', '.join(sorted(_TYPES))}"
            self.problems.add(f"{where}.type", text, "not a CIM type", remedy)
        elif not isinstance(is_array, bool):
            self.problems.add(f"{where}.array", is_array, "neither true nor false", "use true")
        elif "value" not in value:
            self.problems.add(where, value, "a type without a value", 'add "value", if only null')
        elif text in EmbeddedObject.__members__.values():
            return PropertyType(CIMType.STRING, is_array, EmbeddedObject(text))
        elif text == CIMType.REFERENCE and is_array:
            message = "a property cannot be an array of references"
            self.problems.add(where, value, message, "use several properties")
        else:
            return PropertyType(CIMType(text), is_array)
        return None

    def _check_agrees(
        self, stated: PropertyType, declared: PropertyType, text: str, where: str
    ) -> None:
        # The sender knows better than the class which kind of embedded object it is.
        if stated.cim_type is not declared.cim_type or stated.is_array != declared.is_array:
            array = " array" if declared.is_array else ""
            message = f"the class says {declared.cim_type}{array}"
            self.problems.add(f"{where}.type", text, message, "leave the type out")

    def _value(self, value: Any, property_type: PropertyType, where: str, depth: int) -> CIMValue:
        if not property_type.is_array:
            return self._scalar(value, property_type, where, depth)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            message = f"not an array, but the property is an array of {property_type.cim_type}"
            self.problems.add(where, value, message, "put the value in [ ]")
            return None
        items: list[CIMScalar | None] = []
        for index, item in enumerate(value):
            if self.problems.full:
                break
            items.append(self._scalar(item, property_type, f"{where}[{index}]", depth))
        return tuple(items)

    def _scalar(
        self, value: Any, property_type: PropertyType, where: str, depth: int
    ) -> CIMScalar | None:
        if value is None:
            return None
        if property_type.embedded is not None and isinstance(value, Mapping):
            if self._is_too_deep(value, where, depth):
                return None
            return self.instance(value, field=where, depth=depth + 1)
        if property_type.cim_type is CIMType.REFERENCE and isinstance(value, Mapping):
            return self._reference(value, where, 0)
        try:
            scalar = convert_scalar(value, property_type)
            check_scalar(scalar, property_type)
        except ValueError as error:
            self.problems.add(where, value, str(error), describe_remedy(property_type))
            return None
        return scalar

    def _is_too_deep(self, value: Mapping[str, Any], where: str, depth: int) -> bool:
        if depth < MAX_DEPTH:
            return False
        message = f"nested deeper than {MAX_DEPTH} levels"
        self.problems.add(where, value, message, "leave out the innermost")
        return True

    def _reference(
        self, value: Mapping[str, Any], where: str, depth: int
    ) -> CIMInstanceName | None:
        class_name, keys = value.get("class"), value.get("keys")
        parts = {name: value.get(name) for name in ("namespace", "host")}
        if self._is_too_deep(value, where, depth):
            return None
        if not isinstance(class_name, str) or not is_identifier(class_name):
            self.problems.add(f"{where}.class", class_name, "not the name of a class", "name it")
            return None
        if not isinstance(keys, Mapping):
            self.problems.add(f"{where}.keys", keys, "not an object", 'use {"NAME": VALUE}')
            return None
        for name, part in parts.items():
            self._check_path_part(part, f"{where}.{name}")
        if parts["host"] is not None and parts["namespace"] is None:
            self.problems.add(where, value, "a host without a namespace", "add the namespace")
        found = {
            name: self._key(name, key, f"{where}.keys.{name}", depth) for name, key in keys.items()
        }
        return CIMInstanceName(class_name, found, parts["namespace"], parts["host"])

    def _check_path_part(self, part: object, where: str) -> None:
        if part is None:
            return
        message = "not the text of a path"
        if isinstance(part, str) and part.strip("/"):
            try:
                return check_scalar(part, PropertyType(CIMType.STRING))
            except ValueError as error:
                message = str(error)
        self.problems.add(where, part, message, "use text, or leave it out")

    def _key(
        self, name: object, value: Any, where: str, depth: int
    ) -> str | bool | int | float | CIMInstanceName:
        if not isinstance(name, str) or not is_identifier(name):
            self.problems.add(where, name, "not the name of a key", "use letters and digits")
        if isinstance(value, Mapping):
            return self._reference(value, where, depth + 1) or ""
        try:
            if isinstance(value, bool | int):
                return value
            if isinstance(value, float) and math.isfinite(value):
                return value
            check_scalar(value, PropertyType(CIMType.STRING))
        except ValueError as error:
            self.problems.add(where, value, str(error), "use text, a number, true or false")
        return value if isinstance(value, str) else ""

    def _check_complete(self, known: CIMClass, instance: CIMInstance, *, is_itself: bool) -> None:
        if known.abstract and is_itself:
            remedy = "use a class that descends from it, such as CIM_AlertIndication"
            self.problems.add("class", known.name, "an abstract class has no instances", remedy)
        for name in known.types:
            if name in known.required and instance.values.get(name) is None:
                field, remedy = f"properties.{name}", f"give its {known.types[name].cim_type} value"
                # A refused value has its own problem already.
                self.problems.add_missing(field, f"{known.name} requires it", remedy)
