"""Kubernetes quantities: how they are written, and which of two is more."""

from decimal import Decimal

_NUMBER = r"(?:[0-9]*[1-9][0-9]*(?:\.[0-9]*)?|[0-9]*\.[0-9]*[1-9][0-9]*)"
_UNIT = "(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})"

#: The whole of a quantity more than 0, for RE2 and for Python alike.
QUANTITY = f"{_NUMBER}{_UNIT}?"
#: The most characters of one.
LONGEST_QUANTITY = 32

_LETTERS = "inumkKMGTPE"
_BINARY = "KMGTPE"
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def amount(quantity: str | int) -> Decimal:
    """The number that a quantity stands for, which :data:`QUANTITY` matches."""
    text = str(quantity)
    number = text.rstrip(_LETTERS)
    unit = text[len(number) :]
    if unit.endswith("i"):
        return Decimal(number) * Decimal(1024) ** (1 + _BINARY.index(unit[0]))
    return Decimal(number).scaleb(_DECIMAL[unit])
