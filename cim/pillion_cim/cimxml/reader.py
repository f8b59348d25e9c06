"""Reads INSTANCE elements. Types come from the message, not from the schema, because an exporter
knows its own classes; known names are spelled as in the schema."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from pillion_cim import CIMDataError
from pillion_cim.datetimes import CIMDateTime
from pillion_cim.model import (
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
from pillion_cim.schema import CIMClass, Schema

_ENCODING: Final = re.compile(rb"<\?xml[^>]{0,200}?\sencoding\s*=\s*[\"']([^\"'>]{0,40})[\"']")
_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}")
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX][0-9a-fA-F]{1,32}")
_REAL: Final = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,6})?", re.ASCII)
_MAX_REAL: Final = 400
_SPECIAL_REALS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_BOOLEANS: Final = {"true": True, "false": False}
#: Maximum depth of embedded instances, and of references in keys.
MAX_DEPTH: Final = 8
_SINGLE: Final = {str(one): PropertyType(one) for one in CIMType if one != CIMType.REFERENCE}
_ARRAYS: Final = {name: PropertyType(one.cim_type, True) for name, one in _SINGLE.items()}
_KINDS: Final = {str(member): member for member in EmbeddedObject}
_REFERENCE: Final = PropertyType(CIMType.REFERENCE)


if TYPE_CHECKING:
    from lxml import etree

    Element: TypeAlias = etree._Element
else:
    Element: TypeAlias = object


class XMLRefusedError(CIMDataError):
    """The document is not well-formed, or has a construct that is unsafe in untrusted input."""


class DoctypeRefusedError(XMLRefusedError): ...


def parse_xml(document: bytes) -> Element:
    """Return the root element without comments and processing instructions.

    For untrusted input: no entity is expanded, nothing is fetched, and a DOCTYPE, which every XML
    bomb needs and CIM-XML does not, is refused. The caller bounds the size; the parser bounds the
    depth at 256. Raises XMLRefusedError.
    """
    # Late, because it takes 4 MiB that a deliverer without CIM-XML need not hold.
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(document, parser)
    except (etree.LxmlError, ValueError, LookupError) as error:
        raise XMLRefusedError(str(error)[:200]) from None
    if root.getroottree().docinfo.internalDTD is not None:
        raise DoctypeRefusedError("a document type declaration is not taken")
    return root


def declared_encoding(document: bytes) -> bytes | None:
    """Return the encoding in the XML declaration in lower case; None without one."""
    found = _ENCODING.match(document)
    return found.group(1).lower() if found is not None else None


class StructureError(CIMDataError, ValueError):
    """Well-formed XML that violates DSP0203 or DSP0201."""


def children(element: Element) -> list[Element]:
    """Raises StructureError if there is text among the children."""
    found = list(element)
    # Most elements hold no text, not even white space, and a call for each would cost time.
    if element.text is not None:
        _refuse_text(element, element.text)
    for child in found:
        tail = child.tail
        if tail is not None:
            _refuse_text(element, tail)
    return found


def only_child(element: Element, tag: str, *, among: Sequence[Element] | None = None) -> Element:
    """Raises StructureError unless this is the only child."""
    found = children(element) if among is None else among
    if len(found) != 1 or found[0].tag != tag:
        tags = ", ".join(str(child.tag)[:40] for child in found[:3]) or "nothing"
        raise StructureError(f"{element.tag} must hold one {tag}, not {tags}")
    return found[0]


def attribute(element: Element, name: str) -> str:
    """Raises StructureError if it is missing."""
    value = element.get(name)
    if value is None:
        raise StructureError(f"{str(element.tag)[:80]} lacks the attribute {name}")
    return value


def text_of(element: Element) -> str:
    """Raises StructureError if there is anything but text."""
    if len(element):
        raise StructureError(f"{element.tag} may only hold text")
    return element.text or ""


def _refuse_text(element: Element, text: str) -> None:
    if text.strip(" \t\r\n"):
        raise StructureError(f"{str(element.tag)[:80]} may not hold text")


def read_number(text: str) -> int | float:
    """Read a numeric key value: an integer if it looks like one, and finite. Raises ValueError."""
    text = text.strip()
    if _DECIMAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
        return _integer(text)
    if text.casefold() in _SPECIAL_REALS:
        raise ValueError("not a number that can be a key")
    return _real(text)


def read_boolean(text: str) -> bool:
    """Read a boolean, in any case. Raises ValueError."""
    found = _BOOLEANS.get(text.strip().casefold())
    if found is None:
        raise ValueError("neither TRUE nor FALSE")
    return found


def _convert(text: str, cim_type: CIMType) -> str | bool | int | float | CIMDateTime:
    if cim_type is CIMType.STRING or cim_type is CIMType.CHAR16:
        return text
    if cim_type is CIMType.BOOLEAN:
        return read_boolean(text)
    if cim_type is CIMType.DATETIME:
        return CIMDateTime(text.strip())
    if cim_type is CIMType.REAL32 or cim_type is CIMType.REAL64:
        return _real(text.strip())
    return _integer(text.strip())


def _integer(text: str) -> int:
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    raise ValueError("not an integer")


def _real(text: str) -> float:
    special = _SPECIAL_REALS.get(text.casefold())
    if special is not None:
        return special
    if len(text) > _MAX_REAL or _REAL.fullmatch(text) is None:
        raise ValueError("not a real number")
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("out of range of a real64")
    return value


def read_reference(holder: Element, depth: int = 0) -> CIMInstanceName:
    """Read a VALUE.REFERENCE. Raises StructureError, also for a path that names a class."""
    if depth >= MAX_DEPTH:
        raise StructureError(f"references are nested deeper than {MAX_DEPTH} levels")
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


def read_instance(element: Element, *, schema: Schema, depth: int = 0) -> CIMInstance:
    """Raises StructureError, with the place, for a violation of DSP0201 or of a value's type."""
    class_name = attribute(element, "CLASSNAME")
    if not is_identifier(class_name):
        raise StructureError(f"CLASSNAME {class_name[:80]!r} is not the name of a class")
    known = schema.get(class_name)
    values: dict[str, CIMValue] = {}
    types: dict[str, PropertyType] = {}
    seen: set[str] = set()
    for child in children(element):
        if child.tag == "QUALIFIER":
            continue
        name = _name(child, known)
        if name.casefold() in seen:
            raise StructureError(f"the property {name[:80]} is given twice")
        seen.add(name.casefold())
        try:
            types[name], values[name] = _property(child, schema=schema, depth=depth)
        except ValueError as error:
            raise StructureError(f"property {name[:80]}: {error}") from None
    if known is None:
        return CIMInstance(class_name, values, types)
    own = all(known.types.get(name) == found for name, found in types.items())
    return CIMInstance(known.name, values, known.types if own else {**known.types, **types})


def _name(element: Element, known: CIMClass | None) -> str:
    name = attribute(element, "NAME")
    if not is_identifier(name):
        raise StructureError(f"NAME {name[:80]!r} is not the name of a property")
    return (known.spelling(name) if known is not None else None) or name


def _property(element: Element, *, schema: Schema, depth: int) -> tuple[PropertyType, CIMValue]:
    """Raises ValueError (a StructureError is one)."""
    if element.tag == "PROPERTY.REFERENCE":
        holder = _holder(element, "VALUE.REFERENCE")
        return _REFERENCE, None if holder is None else read_reference(holder)
    if element.tag == "PROPERTY":
        property_type = _type(element, is_array=False)
        holder = _holder(element, "VALUE")
        if holder is None:
            return property_type, None
        return property_type, _scalar(holder, property_type, schema=schema, depth=depth)
    if element.tag != "PROPERTY.ARRAY":
        raise StructureError(f"{str(element.tag)[:80]} cannot stand in an INSTANCE")
    property_type = _type(element, is_array=True)
    holder = _holder(element, "VALUE.ARRAY")
    if holder is None:
        return property_type, None
    return property_type, tuple(
        _item(item, property_type, schema=schema, depth=depth) for item in children(holder)
    )


def _holder(element: Element, tag: str) -> Element | None:
    """None if the property is NULL."""
    found = children(element)
    if len(found) == 1 and found[0].tag == tag:
        return found[0]
    found = [child for child in found if child.tag != "QUALIFIER"]
    if not found:
        return None
    return only_child(element, tag, among=found)


def _type(element: Element, *, is_array: bool) -> PropertyType:
    text = attribute(element, "TYPE")
    property_type = (_ARRAYS if is_array else _SINGLE).get(text)
    if property_type is None:
        raise StructureError(f"TYPE {text[:80]!r} is not a type of such a property")
    kind = element.get("EmbeddedObject", element.get("EMBEDDEDOBJECT"))
    if kind is None:
        return property_type
    embedded = _KINDS.get(kind.casefold())
    if embedded is None or property_type.cim_type is not CIMType.STRING:
        raise StructureError(f"EmbeddedObject {kind[:80]!r} cannot stand with TYPE {text}")
    return PropertyType(CIMType.STRING, is_array, embedded)


def _item(
    element: Element, property_type: PropertyType, *, schema: Schema, depth: int
) -> CIMScalar | None:
    if element.tag == "VALUE.NULL":
        return None
    if element.tag != "VALUE":
        raise StructureError(f"{str(element.tag)[:80]} cannot stand in a VALUE.ARRAY")
    return _scalar(element, property_type, schema=schema, depth=depth)


def _scalar(
    element: Element, property_type: PropertyType, *, schema: Schema, depth: int
) -> CIMScalar:
    text = text_of(element)
    if property_type.embedded is None:
        scalar = _convert(text, property_type.cim_type)
        check_scalar(scalar, property_type)
        return scalar
    if depth >= MAX_DEPTH:
        raise StructureError(f"instances are embedded deeper than {MAX_DEPTH} levels")
    try:
        root = parse_xml(text.strip().encode())
    except XMLRefusedError as error:
        raise StructureError(f"the embedded instance is not XML: {error}") from None
    if root.tag != "INSTANCE":
        raise StructureError(f"an embedded {str(root.tag)[:80]} is not taken, only an INSTANCE")
    return read_instance(root, schema=schema, depth=depth + 1)
