"""From instances to the JSON form. A type is stated only where the class does not give it."""

import math
from typing import Any

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.model import CIMInstance, CIMInstanceName, CIMScalar, CIMValue
from pillion_cim.schema import Schema
from pillion_cim.types import PropertyType


def encode_instance(instance: CIMInstance, *, schema: Schema) -> dict[str, Any]:
    """Return an instance in its JSON form, made of dict, list, str, int, float, bool and None."""
    known = schema.get(instance.class_name)
    declared = known.types if known is not None else {}
    # Nearly always the very same mapping: then no type needs to be looked at.
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
        return [_encode_scalar(item, schema) for item in value]
    return _encode_scalar(value, schema)


def _encode_scalar(value: CIMScalar | None, schema: Schema) -> Any:
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
