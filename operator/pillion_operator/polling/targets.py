"""Which pods are asked. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pillion_operator.cluster.types import Object

FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class Target:
    """A pod that can be asked; whatever differs in it is worth asking at once."""

    name: str
    uid: str
    address: str
    #: Whether the kubelet has it Ready.
    ready: bool


def target_of(pod: Object, *, ending: bool = False) -> Target | None:
    """The pod as one to be asked; None where it does not run, is ending (unless that is asked for),
    or has no address yet."""
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
    """Those of the pods that can be asked, by uid."""
    found = (target_of(pod, ending=ending) for pod in pods)
    return {target.uid: target for target in found if target is not None}


def has_ended(pod: Object | None) -> bool:
    """Whether nothing of the pod runs any more; None stands for one that is gone."""
    return pod is None or (pod.get("status") or {}).get("phase") in FINISHED
