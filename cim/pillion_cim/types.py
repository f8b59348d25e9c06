"""The types of CIM (DSP0004) and the Python values that stand for them.

====================  =========================================
CIM type              Python value
====================  =========================================
boolean               bool
string, char16        str (char16: one UTF-16 code unit)
uint8 … sint64        int, inside the type's range
real32, real64        float
datetime              :class:`pillion_cim.datetimes.CIMDateTime`
reference             :class:`pillion_cim.model.CIMInstanceName`
embedded instance     :class:`pillion_cim.model.CIMInstance`
an array of any       tuple of those, with None for a null item
NULL                  None
====================  =========================================
"""

from dataclasses import dataclass
from enum import StrEnum


class CIMType(StrEnum):
    """The intrinsic types, spelled as DSP0201 spells them in a TYPE attribute."""

    BOOLEAN = "boolean"
    STRING = "string"
    CHAR16 = "char16"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    SINT8 = "sint8"
    SINT16 = "sint16"
    SINT32 = "sint32"
    SINT64 = "sint64"
    REAL32 = "real32"
    REAL64 = "real64"
    DATETIME = "datetime"
    REFERENCE = "reference"


class EmbeddedObject(StrEnum):
    """What an embedded object may be (the EmbeddedObject attribute of DSP0201)."""

    INSTANCE = "instance"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class PropertyType:
    """The declared type of a property: its CIM type, whether an array, whether embedded.

    An embedded object has ``cim_type`` STRING, as on the wire.
    """

    cim_type: CIMType
    is_array: bool = False
    embedded: EmbeddedObject | None = None
