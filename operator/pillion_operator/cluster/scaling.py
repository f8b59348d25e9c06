"""How many deliverers a gateway is to have: as its service says, or as an autoscaler does. Pure."""

from collections.abc import Mapping
from typing import Any

from pillion_operator.cluster.types import Object

#: Where Kubernetes keeps that somebody has set replicas through a scale.
SCALE = "scale"
#: Whoever scales by hand has no say: the service is where it is written.
_BY_HAND = "kubectl"


def scaler(stateful_set: Object | None) -> str:
    """The field manager that sets a StatefulSet's replicas through its scale, as autoscalers do;
    empty: none does."""
    for entry in ((stateful_set or {}).get("metadata") or {}).get("managedFields") or ():
        manager = str(entry.get("manager", ""))
        if _sets_replicas(entry) and not manager.startswith(_BY_HAND):
            return manager
    return ""


def replicas_of(gateway: Object, stateful_set: Object | None = None) -> int:
    """How many deliverers a service in mode Gateway is to have, of which ``stateful_set`` is
    there."""
    written = int(((gateway.get("spec") or {}).get("deliverer") or {}).get("replicas", 1))
    if stateful_set is None or not scaler(stateful_set):
        return written
    return int((stateful_set.get("spec") or {}).get("replicas", written))


def scale_entries(metadata: Mapping[str, Any]) -> list[Any]:
    """The entries of ``managedFields`` by which ``scaler`` goes, and no others."""
    return [entry for entry in metadata.get("managedFields") or () if _sets_replicas(entry)]


def _sets_replicas(entry: Mapping[str, Any]) -> bool:
    spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
    return entry.get("subresource") == SCALE and "f:replicas" in spec
