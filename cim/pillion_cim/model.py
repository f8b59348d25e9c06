"""CIM instances and instance names.

An instance is two columns, values and types, both keyed by property name. Nearly always the types
are those of the class, so all instances of a class share one mapping of types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, Union

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.types import PropertyType

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

    ``values`` and ``types`` are keyed by the property's name as the class spells it (as the sender
    spelled it where the class is not known). A property that is absent from ``values`` is not part
    of the instance; one that is present with None is NULL. Each name in ``values`` is in ``types``.
    """

    class_name: str
    values: Mapping[str, CIMValue] = field(default_factory=dict)
    types: Mapping[str, PropertyType] = field(default_factory=dict)
    #: The superclass of a class that is not known, where its sender names it. It says how filters
    #: see the instance, and is no part of its value.
    superclass: str | None = field(default=None, compare=False)

    def get(self, name: str) -> CIMValue:
        """Return the value of a property; names are compared without regard to case (DSP0004).

        Returns None where the property is NULL or absent.
        """
        value = self.values.get(name)
        if value is not None or name in self.values:
            return value
        wanted = name.casefold()
        for candidate, found in self.values.items():
            if candidate.casefold() == wanted:
                return found
        return None
