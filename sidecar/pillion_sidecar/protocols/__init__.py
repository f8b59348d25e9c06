"""The protocols that listeners are spoken to in: each module here declares one as ``PROTOCOL``.

The schema, the address check, the metric labels, the handler registry and the manual read the
declarations, so a protocol is this one file and the module of its handler.
"""

import importlib
import pkgutil
from collections.abc import Collection, Mapping

from pillion_sidecar.protocols.declaration import Protocol, Scheme

__all__ = ["FALLBACK", "PROTOCOLS", "Protocol", "Scheme", "load_protocols", "schemes_of"]

_DECLARATION = "declaration"


def load_protocols() -> Mapping[str, Protocol]:
    """The protocols of this package by name, in the order of their modules."""
    names = sorted(one.name for one in pkgutil.iter_modules(__path__) if one.name != _DECLARATION)
    declared = [importlib.import_module(f"{__name__}.{name}").PROTOCOL for name in names]
    return {protocol.name: protocol for protocol in declared}


def schemes_of(protocols: Collection[Protocol]) -> tuple[Scheme, ...]:
    """The schemes of the URLs that any of ``protocols`` takes, each name once."""
    return tuple({one.name: one for protocol in protocols for one in protocol.schemes}.values())


PROTOCOLS = load_protocols()
#: Stands for one that is unknown, of a destination that is held for it.
FALLBACK = "CIM-XML"
