"""The number of a gateway's deliverers: by its service or an autoscaler. Pure."""

from collections.abc import Mapping
from typing import Any

from pillion_operator.cluster.types import Object, deliverer_of

#: The subresource in ``managedFields`` after a change of scale.
SCALE = "scale"
#: Manual scaling has no effect: the service sets the number.
_BY_HAND = "kubectl"


def scaler(stateful_set: Object | None) -> str:
    """The field manager that sets replicas through the scale subresource, as autoscalers do; or
    empty."""
    for entry in ((stateful_set or {}).get("metadata") or {}).get("managedFields") or ():
        manager = str(entry.get("manager", ""))
        if _sets_replicas(entry) and not manager.startswith(_BY_HAND):
            return manager
    return ""


def replicas_of(gateway: Object, stateful_set: Object | None = None) -> int:
    written = int(deliverer_of(gateway).get("replicas", 1))
    if stateful_set is None or not scaler(stateful_set):
        return written
    return int((stateful_set.get("spec") or {}).get("replicas", written))


def scale_entries(metadata: Mapping[str, Any]) -> list[Any]:
    return [entry for entry in metadata.get("managedFields") or () if _sets_replicas(entry)]


def _sets_replicas(entry: Mapping[str, Any]) -> bool:
    spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
    return entry.get("subresource") == SCALE and "f:replicas" in spec
