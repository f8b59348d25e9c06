"""Which pods are asked. Pure."""

from dataclasses import dataclass
from typing import Any

from pillion_operator.cluster.types import Object


@dataclass(frozen=True, slots=True)
class Target:
    """A pod that can be asked; whatever differs in it is worth asking at once."""

    name: str
    uid: str
    address: str
    #: Whether the kubelet has it Ready.
    ready: bool


def target_of(pod: Object) -> Target | None:
    """The pod as one to be asked; None where it does not run, is ending, or has no address yet."""
    metadata = pod["metadata"]
    status: dict[str, Any] = pod.get("status") or {}
    address = status.get("podIP")
    if metadata.get("deletionTimestamp") or status.get("phase") != "Running" or not address:
        return None
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    return Target(metadata["name"], metadata.get("uid") or "", address, ready)
