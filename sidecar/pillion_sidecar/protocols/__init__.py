"""The protocols of listeners: each module declares one as ``PROTOCOL``. Schema, address check,
metric labels, handler registry and manual use the declarations, so a protocol is one file here and
its handler's module."""

import importlib
import pkgutil
from collections.abc import Collection, Mapping

from pillion_sidecar.protocols.declaration import BatchOptions, Protocol, Scheme, URLForm

__all__ = [
    "FALLBACK",
    "PROTOCOLS",
    "BatchOptions",
    "Protocol",
    "Scheme",
    "URLForm",
    "load_protocols",
    "schemes_of",
]

_DECLARATION = "declaration"


def load_protocols() -> Mapping[str, Protocol]:
    """By name, in the order of their modules."""
    names = sorted(one.name for one in pkgutil.iter_modules(__path__) if one.name != _DECLARATION)
    declared = [importlib.import_module(f"{__name__}.{name}").PROTOCOL for name in names]
    return {protocol.name: protocol for protocol in declared}


def schemes_of(protocols: Collection[Protocol]) -> tuple[Scheme, ...]:
    """The URL schemes of ``protocols``, each name once."""
    return tuple({one.name: one for protocol in protocols for one in protocol.schemes}.values())


PROTOCOLS = load_protocols()
#: Replaces an unknown protocol; the destination is held.
FALLBACK = "CIM-XML"
