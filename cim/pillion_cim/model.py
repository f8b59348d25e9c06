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

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias, Union

from pillion_cim.datetimes import CIMDateTime


class CIMType(StrEnum):
    """Spelled as in a TYPE attribute (DSP0201)."""

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
    """The values of the EmbeddedObject attribute (DSP0201)."""

    INSTANCE = "instance"
    OBJECT = "object"


@dataclass(frozen=True, slots=True)
class PropertyType:
    """An embedded object has ``cim_type`` STRING, as on the wire."""

    cim_type: CIMType
    is_array: bool = False
    embedded: EmbeddedObject | None = None


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


CIMScalar: TypeAlias = Union[bool, int, float, str, CIMDateTime, "CIMInstance", "CIMInstanceName"]
CIMValue: TypeAlias = CIMScalar | tuple[CIMScalar | None, ...] | None


@dataclass(frozen=True, slots=True)
class CIMInstanceName:
    """An instance path (DSP0004): the value of a reference.

    ``keys`` maps key names to str, bool, int, float or a nested CIMInstanceName.
    """

    class_name: str
    keys: Mapping[str, "str | bool | int | float | CIMInstanceName"]
    namespace: str | None = None
    host: str | None = None


@dataclass(frozen=True, slots=True)
class CIMInstance:
    """One instance of a class.

    ``values`` and ``types`` are keyed by the class's spelling of a property (the sender's, for an
    unknown class). A property without an entry in ``values`` is absent; None is NULL. Each name in
    ``values`` is in ``types``.
    """

    class_name: str
    values: Mapping[str, CIMValue] = field(default_factory=dict)
    types: Mapping[str, PropertyType] = field(default_factory=dict)
    #: The superclass of an unknown class, if its sender names it. It affects filters, and is no
    #: part of the instance's value.
    superclass: str | None = field(default=None, compare=False)

    def get(self, name: str) -> CIMValue:
        """Return a property's value, without regard to case (DSP0004); None if it is NULL or
        absent."""
        value = self.values.get(name)
        if value is not None or name in self.values:
            return value
        wanted = name.casefold()
        for candidate, found in self.values.items():
            if candidate.casefold() == wanted:
                return found
        return None


#: Most control characters, lone surrogates, U+FFFE and U+FFFF.
ILLEGAL_IN_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

#: Of classes, properties and keys (DSP0004: IDENTIFIER).
_IDENTIFIER: Final = re.compile(
    "[A-Za-z_\x80-\ud7ff\ue000-\uffef][0-9A-Za-z_\x80-\ud7ff\ue000-\uffef]*"
)
_LANGUAGE_TAG: Final = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")


def is_identifier(name: str) -> bool:
    """Whether DSP0004 allows the name."""
    return (name.isascii() and name.isidentifier()) or _IDENTIFIER.fullmatch(name) is not None


def is_language_tag(text: str) -> bool:
    """Whether Content-Language may list the text (S0.21, RFC 9110 8.5.1)."""
    return _LANGUAGE_TAG.fullmatch(text) is not None


def check_scalar(value: CIMScalar | None, property_type: PropertyType) -> None:
    """Check one value, or one item of an array. Raises ValueError with the problem."""
    if value is None:
        return
    cim_type = property_type.cim_type
    if property_type.embedded is not None:
        _expect(value, CIMInstance, "an embedded instance")
    elif cim_type in INTEGER_RANGES:
        check_integer(value, cim_type)
    elif cim_type is CIMType.STRING or cim_type is CIMType.CHAR16:
        _check_text(value, cim_type)
    elif cim_type is CIMType.REAL32 or cim_type is CIMType.REAL64:
        _check_real(value, cim_type)
    elif cim_type is CIMType.BOOLEAN:
        _expect(value, bool, "true or false")
    elif cim_type is CIMType.DATETIME:
        _expect(value, CIMDateTime, "a datetime")
    else:
        _expect(value, CIMInstanceName, "a reference")


def check_integer(value: object, cim_type: CIMType) -> None:
    """Raises ValueError outside the type's range."""
    if type(value) is not int:
        raise ValueError(f"expected an integer ({cim_type})")
    low, high = INTEGER_RANGES[cim_type]
    if not low <= value <= high:
        raise ValueError(f"out of range: {cim_type} goes from {low} to {high}")


def _expect(value: object, python_type: type, what: str) -> None:
    if not isinstance(value, python_type):
        raise ValueError(f"expected {what}")  # noqa: TRY004 - one kind of error for bad data


def _check_text(value: object, cim_type: CIMType) -> None:
    if not isinstance(value, str):
        raise ValueError(f"expected text ({cim_type})")  # noqa: TRY004 - one kind of error
    if cim_type is CIMType.CHAR16 and (len(value) != 1 or value > "\uffff"):
        raise ValueError("expected one character, at most U+FFFF (char16)")
    if not value.isprintable():
        illegal = ILLEGAL_IN_XML.search(value)
        if illegal is not None:
            code = f"U+{ord(illegal.group()):04X}"
            raise ValueError(f"the character {code} at {illegal.start()} cannot be sent in XML")


def _check_real(value: object, cim_type: CIMType) -> None:
    if type(value) is not float:
        raise ValueError(f"expected a number ({cim_type})")
    if cim_type is CIMType.REAL32 and math.isfinite(value) and abs(value) > REAL32_MAX:
        raise ValueError(f"out of range: real32 goes up to {REAL32_MAX}")
