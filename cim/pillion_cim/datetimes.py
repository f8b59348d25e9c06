"""CIM datetimes: points in time and intervals (DSP0004 5.2.4). (Being built; see the contract.)"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CIMDateTime:
    """A CIM datetime, kept as its 25 characters."""

    text: str
