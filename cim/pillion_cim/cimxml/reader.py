"""Reading an INSTANCE element. Types come from the message, not from the schema: what an exporter
says of its own classes is so. Names of known classes are spelled as the schema spells them."""

from typing import Final

from pillion_cim.cimxml.parser import Element, XMLRefusedError, parse_xml
from pillion_cim.cimxml.references import read_reference
from pillion_cim.cimxml.scalars import read_scalar
from pillion_cim.cimxml.structure import StructureError, attribute, children, only_child, text_of
from pillion_cim.model import CIMInstance, CIMScalar, CIMValue
from pillion_cim.schema import CIMClass, Schema
from pillion_cim.types import CIMType, EmbeddedObject, PropertyType
from pillion_cim.values import is_identifier

#: How deep instances may be embedded in one another.
MAX_DEPTH: Final = 8

_SINGLE: Final = {str(one): PropertyType(one) for one in CIMType if one != CIMType.REFERENCE}
_ARRAYS: Final = {name: PropertyType(one.cim_type, True) for name, one in _SINGLE.items()}
_KINDS: Final = {str(member): member for member in EmbeddedObject}
_REFERENCE: Final = PropertyType(CIMType.REFERENCE)


def read_instance(element: Element, *, schema: Schema, depth: int = 0) -> CIMInstance:
    """Read an instance.

    Raises StructureError, which says where, for whatever DSP0201 or the type of a value forbids.
    """
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
    """Read a property of any kind. Raises ValueError (a StructureError is one)."""
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
    """The element that holds a property's value; None where the property is NULL."""
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
        return read_scalar(text, property_type)
    if depth >= MAX_DEPTH:
        raise StructureError(f"instances are embedded deeper than {MAX_DEPTH} levels")
    try:
        root = parse_xml(text.strip().encode())
    except XMLRefusedError as error:
        raise StructureError(f"the embedded instance is not XML: {error}") from None
    if root.tag != "INSTANCE":
        raise StructureError(f"an embedded {str(root.tag)[:80]} is not taken, only an INSTANCE")
    return read_instance(root, schema=schema, depth=depth + 1)
