"""Whether a Python value may stand for a value of a CIM type.

Everything that gets past these checks can be written as XML 1.0: strings hold no character that
XML cannot carry, since a listener could never be sent one.
"""

import math
import re
from typing import Final

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.model import CIMInstance, CIMInstanceName, CIMScalar, CIMValue
from pillion_cim.types import INTEGER_RANGES, REAL32_MAX, CIMType, PropertyType

#: What XML 1.0 cannot carry: most control characters, lone surrogates, U+FFFE and U+FFFF.
ILLEGAL_IN_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

#: The names of classes, properties and keys (DSP0004: IDENTIFIER).
_IDENTIFIER: Final = re.compile(
    "[A-Za-z_\x80-\ud7ff\ue000-\uffef][0-9A-Za-z_\x80-\ud7ff\ue000-\uffef]*"
)
_LANGUAGE_TAG: Final = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*")


def is_identifier(name: str) -> bool:
    """Whether a name is one that DSP0004 allows."""
    return (name.isascii() and name.isidentifier()) or _IDENTIFIER.fullmatch(name) is not None


def is_language_tag(text: str) -> bool:
    """Whether a text is a language tag, as Content-Language lists them (S0.21, RFC 9110 8.5.1)."""
    return _LANGUAGE_TAG.fullmatch(text) is not None


def check_value(value: CIMValue, property_type: PropertyType) -> None:
    """Check that a value may be the value of a property of this type.

    Raises ValueError that says what is wrong with it. NULL is a value of every type.
    """
    if not property_type.is_array:
        if isinstance(value, tuple):
            raise ValueError("the property is not an array")
        check_scalar(value, property_type)
        return
    if property_type.cim_type is CIMType.REFERENCE:
        raise ValueError("a property cannot be an array of references")
    if value is None:
        return
    if not isinstance(value, tuple):
        what = f"the property is an array of {property_type.cim_type}"
        raise ValueError(what)  # noqa: TRY004 - one kind of error for bad data
    for item in value:
        check_scalar(item, property_type)


def check_scalar(value: CIMScalar | None, property_type: PropertyType) -> None:
    """Check one value, or one item of an array. Raises ValueError that says what is wrong."""
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
    """Check an integer against the range of its type. Raises ValueError."""
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
