"""Reading single values from the text of a VALUE or KEYVALUE element (DSP0201)."""

import math
import re
from typing import Final

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.types import CIMType, PropertyType
from pillion_cim.values import check_scalar

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,40}")
_HEXADECIMAL: Final = re.compile(r"[+-]?0[xX][0-9a-fA-F]{1,32}")
_REAL: Final = re.compile(r"[+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,6})?", re.ASCII)
_MAX_REAL: Final = 400
_SPECIAL_REALS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_BOOLEANS: Final = {"true": True, "false": False}


def read_scalar(text: str, property_type: PropertyType) -> str | bool | int | float | CIMDateTime:
    """Read a value that is neither an instance nor a reference. Raises ValueError."""
    scalar = _convert(text, property_type.cim_type)
    check_scalar(scalar, property_type)
    return scalar


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
