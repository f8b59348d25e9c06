"""Which pods are polled. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pillion_operator.cluster.types import Object

FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Target:
    """A pod that can be polled; it is polled at once when any field changes."""

    name: str
    uid: str
    address: str
    #: Whether the kubelet has it Ready.
    ready: bool


def target_of(pod: Object, *, ending: bool = False) -> Target | None:
    """The pod as a target; None where it does not run, has no address, or ``ending`` differs from
    whether it terminates."""
    metadata = pod["metadata"]
    status: dict[str, Any] = pod.get("status") or {}
    address = status.get("podIP")
    if bool(metadata.get("deletionTimestamp")) is not ending:
        return None
    if status.get("phase") != "Running" or not address:
        return None
    ready = any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
    return Target(metadata["name"], metadata.get("uid") or "", address, ready)


def targets_of(pods: Iterable[Object], *, ending: bool = False) -> dict[str, Target]:
    """The pods that can be polled, by uid."""
    found = (target_of(pod, ending=ending) for pod in pods)
    return {target.uid: target for target in found if target is not None}


def has_ended(pod: Object | None) -> bool:
    """Whether no container of the pod runs; None stands for a pod that is gone."""
    return pod is None or (pod.get("status") or {}).get("phase") in FINISHED
