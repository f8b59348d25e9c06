"""Which pods should have a deliverer and have none. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pillion_operator.cluster.types import Object
from pillion_operator.injection.decision import (
    SPARK_ROLE_LABEL,
    Inject,
    decide,
    is_sidecar_service,
    labels_of,
)
from pillion_operator.injection.selectors import rendered
from pillion_operator.names import DELIVERER_LABEL, INJECT_LABEL

WITHOUT_DELIVERER = f"!{DELIVERER_LABEL}"
#: Pods that ask for a deliverer by their own label, and have none.
ASKING = f"{INJECT_LABEL},{INJECT_LABEL}!=false,{WITHOUT_DELIVERER}"
#: Characters of a selector that still go into a request's address.
LONGEST_SELECTOR = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedPod:
    """A pod that should have a deliverer for ``service`` and has none."""

    namespace: str
    name: str
    uid: str
    service: str
    #: When it was made, in seconds since the epoch.
    made: float
    #: The uid of the controller that makes another when it is evicted; None where none would, or
    #: where Spark would count the loss as a failure.
    owner: str | None
    #: Whether the service has such pods evicted.
    evict: bool


def missed_pods(
    pods: Iterable[Object],
    *,
    services: Mapping[str, Iterable[Object]],
    operator_namespace: str,
) -> list[MissedPod]:
    """Those of a listing that were missed. ``services`` are the IndicationServices by namespace.

    A pod that is ending or has ended is not among them, and neither is one that the webhook would
    leave as it is.
    """
    missed = []
    for pod in pods:
        metadata = pod["metadata"]
        if metadata.get("deletionTimestamp") or _phase(pod) in ("Succeeded", "Failed"):
            continue
        namespace = metadata["namespace"]
        decision = decide(
            pod,
            namespace=namespace,
            services=services.get(namespace, ()),
            operator_namespace=operator_namespace,
        )
        if isinstance(decision, Inject):
            missed.append(_missed(pod, decision=decision))
    return missed


def listing_selectors(services: Iterable[Object]) -> set[str]:
    """The label selectors that find all pods of one namespace that its services select and that
    have no deliverer. One that is too long for a request is replaced by a broader one."""
    found = set()
    for service in services:
        deliverer = (service.get("spec") or {}).get("deliverer") or {}
        selector = rendered(deliverer.get("podSelector"))
        if selector is None or not is_sidecar_service(service):
            continue
        whole = f"{selector},{WITHOUT_DELIVERER}"
        found.add(whole if len(whole) <= LONGEST_SELECTOR else WITHOUT_DELIVERER)
    return found


def _missed(pod: Object, *, decision: Inject) -> MissedPod:
    metadata = pod["metadata"]
    policy = (decision.spec.get("deliverer") or {}).get("onMissedInjection")
    return MissedPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        service=decision.service,
        made=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
        owner=_owner(pod),
        evict=policy == "Evict",
    )


def _owner(pod: Object) -> str | None:
    if labels_of(pod).get(SPARK_ROLE_LABEL) in ("driver", "executor"):
        return None
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return None


def _phase(pod: Object) -> object:
    return (pod.get("status") or {}).get("phase")
