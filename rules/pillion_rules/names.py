"""The names that CIM gives to severities, types and causes: the value maps of
CIM_AlertIndication."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from pillion_cim.schema import load_schema

#: The severity of an indication that says that an alert is over.
CLEARED_SEVERITY = 2
#: The least PerceivedSeverity of an alert: Degraded/Warning.
_LEAST = 3


@cache
def value_map(property_name: str) -> Mapping[str, int]:
    """Number by name."""
    found = load_schema().get("CIM_AlertIndication")
    assert found is not None
    names = found.value_names[property_name]
    return MappingProxyType({name: int(value) for value, name in names.items() if value.isdigit()})


@cache
def levels() -> Mapping[str, int]:
    """The severities that a rule may raise, the least first."""
    found = value_map("PerceivedSeverity").items()
    return MappingProxyType({name: value for name, value in found if value >= _LEAST})


@cache
def level_names() -> Mapping[int, str]:
    """The names of :func:`levels` by their numbers."""
    return MappingProxyType({value: name for name, value in levels().items()})
