"""Conditions of gateways and of relaying to them. Pure. A failing relay has its own condition: only
the gateway knows about the listener."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pillion_operator.cluster.types import Object, container_state
from pillion_operator.names import ABANDON_RELAY_ANNOTATION, CONTAINER
from pillion_operator.polling.aggregate import DestinationDelivery
from pillion_operator.polling.reports import DelivererReport, Unreachable
from pillion_operator.status.conditions import Condition, find_condition, some_of
from pillion_operator.status.deliverers import DelivererCounts

#: Maximum failures listed in a message.
_MOST_DETAILS = 3
#: Maximum characters of an annotation that a message repeats.
_LONGEST_NAME = 253


def relay_condition(delivery: DestinationDelivery) -> Condition | None:
    """RelayFailing; None if nobody relays for the destination."""
    kind = "RelayFailing"
    if not delivery.relays:
        return None
    if delivery.relays_failing:
        how_many = "some sidecars" if delivery.relays_delivering else "every sidecar"
        gateways = [
            (f"to the gateway {gateway}: {detail or 'cause unknown'}", number)
            for (gateway, detail), number in delivery.relay_details
        ]
        how = ways(gateways, "sidecar")
        return Condition(
            kind,
            "True",
            "GatewayFailing",
            f"The last attempts of {how_many} to relay failed: {how}. The indications wait "
            "in the sidecars, and no delivery attempt is counted.",
        )
    if delivery.relays_delivering:
        message = "The gateway has accepted the last relayed indications."
        return Condition(kind, "False", "GatewayAnswers", message)
    return Condition(kind, "Unknown", "NothingRelayed", "No sidecar has relayed anything yet.")


def ways(details: Sequence[tuple[str, int]], who: str = "deliverer") -> str:
    """How attempts failed, each with how many failed so."""
    listed = [
        f"{detail} ({number} {who}{'' if number == 1 else 's'})"
        for detail, number in details[:_MOST_DETAILS]
    ]
    if len(details) > _MOST_DETAILS:
        listed.append("and other causes")
    return ", ".join(listed) or "cause unknown"


def shared_condition(services: Sequence[str]) -> Condition:
    """SequenceIdentifiersShared; ``services`` deliver to the destination's URL with several
    deliverers."""
    kind = "SequenceIdentifiersShared"
    if not services:
        message = "Only one deliverer sends identifiers to this URL."
        return Condition(kind, "False", "OneDeliverer", message)
    return Condition(
        kind,
        "True",
        "SeveralDeliverers",
        f"Several deliverers, or destinations, of {some_of(services)} lead to this URL, each with "
        "its own sequence numbers. A listener that compares numbers by sender and URL may discard "
        "indications as late, and answer with success. Set sequenceIdentifiers to Auto or Omit, "
        "or deliver through one gateway with one replica.",
    )


def same_place_condition(others: Sequence[str]) -> Condition:
    """SharedPortAndPath; ``others`` are destinations at the same port and path with other hosts,
    with their URLs."""
    return Condition(
        "SharedPortAndPath",
        "True",
        "OtherHostName",
        f"{some_of(others)} has the same port and path under another host name. If both names lead "
        "to one listener, it may discard indications as late: give these destinations the same "
        "URL, or set sequenceIdentifiers to Omit.",
    )


def gateway_condition(
    wrong: Sequence[tuple[str, str]],
    counts: Mapping[str, DelivererCounts],
    *,
    stores: Collection[str] = (),
) -> Condition:
    """GatewayReady. ``wrong`` are reason and message of the invalid gateways, ``counts`` the
    deliverers of all by name, ``stores`` those that only keep copies."""
    kind = "GatewayReady"
    if wrong:
        told = " ".join(message for _, message in wrong)
        return Condition(kind, "False", wrong[0][0], told)
    for name, known in sorted(counts.items()):
        if known.ready or known.behind:
            continue
        if known.unreachable:
            message = f"The operator cannot reach the gateway {name}."
            return Condition(kind, "Unknown", "Unreachable", message)
        meanwhile = "Sidecars keep its indications until one is."
        if name in stores:
            meanwhile = "Until one is, it takes no copies of journals."
        return Condition(
            kind,
            "False",
            "GatewayNotRunning",
            f"No deliverer of the gateway {name} is ready. {meanwhile} Look at StatefulSet "
            f"pillion-{name} and its pods.",
        )
    return Condition(kind, "True", "GatewayServes", "Every gateway that it names is ready.")


def publishers_lacking(gateway: str, accounts: Sequence[str]) -> str:
    """The message about a store that refuses the journals of pods with these accounts."""
    return (
        f"IndicationService {gateway}, which is in stores, refuses the service accounts of some "
        f"pods: {some_of(accounts)}. Add them to its publishers."
    )


def retained_condition(service: str, retained: Mapping[str, Collection[str]]) -> Condition:
    """RelayRetained. ``retained``: the subscriptions that former gateways keep, by gateway."""
    kept = ", ".join(f"{name} ({len(kept)} subscription(s))" for name, kept in retained.items())
    return Condition(
        "RelayRetained",
        "True",
        "GatewayMayHold",
        f"Former gateways keep subscriptions of this service until they have delivered their "
        f"indications: {kept}. To make a gateway discard these instead, run kubectl annotate "
        f"indsvc {service} {ABANDON_RELAY_ANNOTATION}=GATEWAY.",
    )


def abandoned_gateway(service: Object | None) -> str:
    """The gateway whose relay is abandoned, by the service's status; empty: none."""
    live = _abandoned(service)
    return str(live["message"]).partition(": ")[0] if live.get("status") == "True" else ""


def _abandoned(service: Object | None) -> Mapping[str, Any]:
    status = (service or {}).get("status") or {}
    return find_condition(status.get("conditions"), "RelayAbandoned") or {}


def abandoned_condition(
    service: Object,
    asked: str,
    *,
    named: Collection[str],
    retained: Mapping[str, Collection[str]],
    pending: int | None,
) -> Condition:
    """RelayAbandoned, of a service whose annotation has the value ``asked``.

    ``named``: the gateways that the service names; ``retained``: see ``retained_condition``;
    ``pending``: indications that ``asked`` last reported for these.
    """
    # The condition is also the memory, since an older definition drops new fields of a status: a
    # gateway that was used again since the annotation was set is not abandoned a second time.
    kind, live = "RelayAbandoned", _abandoned(service)
    before = live if str(live.get("message")).startswith(f"{asked}: ") else {}
    if asked in named or before.get("reason") == "GatewayInUse":
        return Condition(
            kind,
            "False",
            "GatewayInUse",
            f"{asked}: {ABANDON_RELAY_ANNOTATION} has no effect, because gatewayRef or handOverTo "
            "names this gateway, or has named it since. Remove the annotation; set it again when "
            "they name another gateway.",
        )
    if before.get("status") == "True":
        return Condition(kind, "True", "Abandoned", str(before["message"]))
    if before.get("reason") == "SetBefore" or not (service.get("status") or {}).get("conditions"):
        return Condition(
            kind,
            "False",
            "SetBefore",
            f"{asked[:_LONGEST_NAME]}: {ABANDON_RELAY_ANNOTATION} has no effect, because it was "
            "set before the service had a status, as after a restore. Remove the annotation, and "
            "set it again if you still want this.",
        )
    if asked not in retained:
        known = ", ".join(retained) or "none"
        return Condition(
            kind,
            "False",
            "NotRetained",
            f"{ABANDON_RELAY_ANNOTATION} has no effect, because {asked[:_LONGEST_NAME]!r} is not "
            "the name of a former gateway that keeps subscriptions of this service. Name one, or "
            f"remove the annotation. Former gateways: {known}.",
        )
    held = "their number is unknown, because it has not answered the operator"
    if pending is not None:
        held = f"{pending}, as it last reported for their destinations"
    return Condition(
        kind,
        "True",
        "Abandoned",
        f"{asked}: this gateway stops keeping {len(retained[asked])} subscription(s) of this "
        f"service, and discards the indications that it holds for them: {held}. Its list of "
        "discards names each.",
    )


def serving(pods: Iterable[Object], answers: Iterable[DelivererReport | Unreachable]) -> set[str]:
    """The pods that serve: by their kubelet or, before it reports, by their own answer."""
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
    """Ready of a gateway with too few serving pods; None if there are enough. ``storage_class`` is
    that of its claims, if the service names one."""
    if len(serving) >= replicas:
        return None
    stopped = [pod for pod in pods if pod["metadata"]["name"] not in serving]
    named = [f"{pod['metadata']['name']}: {_cause(pod)}" for pod in stopped]
    why = some_of(named, "; ") or "there is no pod"
    # The scheduler names neither the claim nor its class.
    if storage_class is not None and "persistentvolumeclaim" in why.lower():
        why += f". Claims request StorageClass {storage_class}; check that it exists"
    return Condition(
        "Ready",
        "False",
        "GatewayNotRunning",
        f"{len(serving)}/{replicas} pods serve. {why}. Look at StatefulSet pillion-{service} and "
        "its pods.",
    )


def _cause(pod: Object) -> str:
    """What a pod waits for, by the kubelet or the scheduler."""
    status = pod.get("status") or {}
    if waiting := container_state(pod, CONTAINER).get("waiting"):
        return _told(waiting.get("reason") or "Waiting", waiting.get("message"))
    scheduled = find_condition(status.get("conditions"), "PodScheduled")
    if scheduled is not None and scheduled["status"] == "False":
        return _told(scheduled.get("reason") or "Unschedulable", scheduled.get("message"))
    return f"{status.get('phase') or 'Pending'}, not ready"


def _told(reason: str, message: str | None) -> str:
    return f"{reason} ({message.rstrip('. ')})" if message else reason
