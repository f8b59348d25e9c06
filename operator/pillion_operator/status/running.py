"""Whether the pods of a gateway serve, and what keeps those that do not. Pure."""

from collections.abc import Iterable, Sequence

from pillion_operator.cluster.types import Object
from pillion_operator.gathering.reports import DelivererReport, Unreachable
from pillion_operator.names import CONTAINER
from pillion_operator.status.conditions import Condition, find_condition

#: Pods that a message names.
_MOST_NAMES = 5


def serving(pods: Iterable[Object], answers: Iterable[DelivererReport | Unreachable]) -> set[str]:
    """The pods that serve: by their kubelet or, before it says anything, by their own answer."""
    answered = {one.pod for one in answers if isinstance(one, DelivererReport) and one.ready}
    found = set()
    for pod in pods:
        name = pod["metadata"]["name"]
        known = find_condition((pod.get("status") or {}).get("conditions"), "Ready")
        if known["status"] == "True" if known is not None else name in answered:
            found.add(name)
    return found


def gateway_not_running(
    service: str,
    pods: Sequence[Object],
    *,
    serving: set[str],
    replicas: int,
    storage_class: str | None = None,
) -> Condition | None:
    """Ready of a gateway of which fewer pods serve than it is to have; None where all do.

    ``storage_class`` is that of its claims, where the service names one.
    """
    if len(serving) >= replicas:
        return None
    stopped = [pod for pod in pods if pod["metadata"]["name"] not in serving]
    named = [f"{pod['metadata']['name']}: {_cause(pod)}" for pod in stopped[:_MOST_NAMES]]
    why = "; ".join(named) or "there is no pod"
    # The scheduler names neither the claim nor its class.
    if storage_class is not None and "persistentvolumeclaim" in why.lower():
        why += f". Claims ask for StorageClass {storage_class}; check that it exists"
    return Condition(
        "Ready",
        "False",
        "GatewayNotRunning",
        f"{len(serving)}/{replicas} pods serve. {why}. Look at StatefulSet pillion-{service} and "
        "its pods.",
    )


def _cause(pod: Object) -> str:
    """What a pod waits for, as the kubelet or the scheduler says."""
    status = pod.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            waiting = (container.get("state") or {}).get("waiting")
            if container.get("name") == CONTAINER and waiting:
                return _told(waiting.get("reason") or "Waiting", waiting.get("message"))
    scheduled = find_condition(status.get("conditions"), "PodScheduled")
    if scheduled is not None and scheduled["status"] == "False":
        return _told(scheduled.get("reason") or "Unschedulable", scheduled.get("message"))
    return f"{status.get('phase') or 'Pending'}, not ready"


def _told(reason: str, message: str | None) -> str:
    return f"{reason} ({message.rstrip('. ')})" if message else reason
