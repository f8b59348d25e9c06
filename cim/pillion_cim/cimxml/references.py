"""Reading a VALUE.REFERENCE element: instance paths, with or without namespace and host."""

from typing import Final

from pillion_cim.cimxml.parser import Element
from pillion_cim.cimxml.scalars import read_boolean, read_number
from pillion_cim.cimxml.structure import StructureError, attribute, children, only_child, text_of
from pillion_cim.model import CIMInstanceName
from pillion_cim.values import is_identifier

_MAX_DEPTH: Final = 8


def read_reference(holder: Element, depth: int = 0) -> CIMInstanceName:
    """Read a VALUE.REFERENCE. Raises StructureError, also for a path that names a class."""
    if depth >= _MAX_DEPTH:
        raise StructureError(f"references are nested deeper than {_MAX_DEPTH} levels")
    found = children(holder)
    if len(found) != 1:
        raise StructureError("VALUE.REFERENCE must hold one path")
    path = found[0]
    if path.tag == "INSTANCENAME":
        return _instance_name(path, None, None, depth)
    if path.tag == "LOCALINSTANCEPATH":
        local, name = _two(path, "LOCALNAMESPACEPATH", "INSTANCENAME")
        return _instance_name(name, _namespace(local), None, depth)
    if path.tag == "INSTANCEPATH":
        full, name = _two(path, "NAMESPACEPATH", "INSTANCENAME")
        host, local = _two(full, "HOST", "LOCALNAMESPACEPATH")
        host_name = text_of(host).strip()
        if not host_name:
            raise StructureError("HOST is empty")
        return _instance_name(name, _namespace(local), host_name, depth)
    raise StructureError(f"a reference to {str(path.tag)[:80]} is not taken, only to an instance")


def _two(element: Element, first: str, second: str) -> list[Element]:
    found = children(element)
    if [child.tag for child in found] != [first, second]:
        raise StructureError(f"{element.tag} must hold {first} and {second}")
    return found


def _namespace(element: Element) -> str:
    steps = children(element)
    if not steps or any(step.tag != "NAMESPACE" for step in steps):
        raise StructureError("LOCALNAMESPACEPATH must hold NAMESPACE elements")
    namespace = "/".join(attribute(step, "NAME") for step in steps)
    if not namespace.strip("/"):
        raise StructureError("the namespace is empty")
    return namespace


def _instance_name(
    element: Element, namespace: str | None, host: str | None, depth: int
) -> CIMInstanceName:
    class_name = attribute(element, "CLASSNAME")
    if not is_identifier(class_name):
        raise StructureError(f"CLASSNAME {class_name[:80]!r} is not the name of a class")
    keys: dict[str, str | bool | int | float | CIMInstanceName] = {}
    for binding in children(element):
        if binding.tag != "KEYBINDING":
            raise StructureError(f"a key as {str(binding.tag)[:80]}, without a name, is not taken")
        name = attribute(binding, "NAME")
        if not is_identifier(name) or name in keys:
            raise StructureError(f"KEYBINDING {name[:80]!r} is not a new name")
        keys[name] = _key(binding, depth)
    return CIMInstanceName(class_name, keys, namespace, host)


def _key(binding: Element, depth: int) -> str | bool | int | float | CIMInstanceName:
    found = children(binding)
    if len(found) == 1 and found[0].tag == "VALUE.REFERENCE":
        return read_reference(found[0], depth + 1)
    value = only_child(binding, "KEYVALUE", among=found)
    text, value_type = text_of(value), value.get("VALUETYPE", "string")
    if value_type == "string":
        return text
    try:
        if value_type == "boolean":
            return read_boolean(text)
        if value_type == "numeric":
            return read_number(text)
    except ValueError as error:
        raise StructureError(f"KEYVALUE: {error}") from None
    raise StructureError(f"VALUETYPE {value_type[:80]!r} is none of string, boolean, numeric")
