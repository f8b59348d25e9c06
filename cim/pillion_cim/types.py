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

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


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


#: The first and the last value of each integer type.
INTEGER_RANGES: Final[Mapping[CIMType, tuple[int, int]]] = MappingProxyType(
    {
        CIMType.UINT8: (0, 2**8 - 1),
        CIMType.UINT16: (0, 2**16 - 1),
        CIMType.UINT32: (0, 2**32 - 1),
        CIMType.UINT64: (0, 2**64 - 1),
        CIMType.SINT8: (-(2**7), 2**7 - 1),
        CIMType.SINT16: (-(2**15), 2**15 - 1),
        CIMType.SINT32: (-(2**31), 2**31 - 1),
        CIMType.SINT64: (-(2**63), 2**63 - 1),
    }
)

#: The largest finite real32 (IEEE 754 binary32).
REAL32_MAX: Final = 3.4028234663852886e38
