"""Conditions and counts of an IndicationService's deliverers. Pure. Ready covers only reachable
deliverers, because Spark's NetworkPolicy may hide executors for good; unreachable ones are counted
instead."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from pillion_operator.cluster.types import Object, being_deleted, has_ended, labels_of
from pillion_operator.names import DELIVERER_LABEL
from pillion_operator.polling.reports import NO_TOKEN, DelivererReport, Unreachable
from pillion_operator.status.conditions import Condition, some_of
from pillion_sidecar.config.schema.service import Durability


@dataclass(frozen=True, slots=True, kw_only=True)
class DelivererCounts:
    #: Neither terminating nor finished.
    deliverers: int = 0
    #: Reachable, with a wanted configuration.
    ready: int = 0
    #: Reachable, with another one.
    behind: int = 0
    #: Reachable, without a configuration or even the operator's token.
    starting: int = 0
    #: Without a usable answer. The others do not run yet.
    unreachable: int = 0

    def __add__(self, other: "DelivererCounts") -> "DelivererCounts":
        return DelivererCounts(
            **{
                field.name: getattr(self, field.name) + getattr(other, field.name)
                for field in fields(self)
            }
        )


def is_deliverer(pod: Object, service: str, *, terminating: bool = False) -> bool:
    """Labelled, and not finished; terminating only if these count too."""
    return (
        labels_of(pod).get(DELIVERER_LABEL) == service
        and (terminating or not being_deleted(pod))
        and not has_ended(pod)
    )


def count_deliverers(
    pods: Iterable[Object],
    reports: Iterable[DelivererReport | Unreachable],
    *,
    service: str,
    revisions: Collection[str | None],
) -> DelivererCounts:
    """``revisions`` are those that count as the wanted one."""
    names = {pod["metadata"]["name"] for pod in pods if is_deliverer(pod, service)}
    known = [report for report in reports if report.pod in names]
    asked = [report for report in known if isinstance(report, DelivererReport)]
    ready = sum(report.revision in revisions for report in asked)
    starting = sum(not report.ready for report in asked)
    without_token = sum(
        isinstance(report, Unreachable) and report.reason == NO_TOKEN for report in known
    )
    return DelivererCounts(
        deliverers=len(names),
        ready=ready,
        behind=len(asked) - ready - starting,
        starting=starting + without_token,
        unreachable=len(known) - len(asked) - without_token,
    )


def ready_condition(counts: DelivererCounts) -> Condition:
    """Ready: every reachable deliverer that serves runs the wanted configuration.

    A deliverer without a configuration is ignored while others run it, because each new executor
    begins like that. The message has no number of unreachable ones: many objects have this
    condition, and would be written with each pod that comes or goes.
    """
    unreachable = counts.unreachable
    others = " Others do not answer the operator (Unreported)." if unreachable else ""
    waiting = counts.behind + (0 if counts.ready else counts.starting)
    if waiting:
        message = f"{waiting} deliverer(s) do not use this configuration yet.{others}"
        return Condition("Ready", "False", "RollingOut", message)
    if counts.ready:
        message = f"Every reachable deliverer uses this configuration.{others}"
        return Condition("Ready", "True", "InForce", message)
    if not unreachable:
        message = "No deliverer runs. Each new deliverer will use this configuration."
        return Condition("Ready", "True", "NoDeliverers", message)
    message = (
        "No deliverer answers the operator, so their configuration is unknown. A NetworkPolicy may "
        "block it. Delivery is not affected."
    )
    return Condition("Ready", "True", "Unreported", message)


def older_condition(
    older: Sequence[str], unheard: Sequence[str], deliverers: int, left_out: Sequence[str]
) -> Condition:
    """OlderDeliverers: some deliverers are, or may be, of an older version.

    ``older`` names the pods that report it, ``unheard`` those that do not answer (one is not
    empty), and ``left_out`` what the configuration lacks for them.
    """
    said = [
        f"{len(names)} of {deliverers} deliverers {what} ({some_of(sorted(names))})"
        for names, what in (
            (older, "are of an older version"),
            (unheard, "do not answer and may be of an older version"),
        )
        if names
    ]
    pods = ", ".join(said)
    know = "may not know" if unheard else "do not know"
    if not left_out:
        message = f"{pods}. They know every field of the configuration."
        return Condition("OlderDeliverers", "True", "NothingLeftOut", message)
    return Condition(
        "OlderDeliverers",
        "True",
        "FieldsLeftOut",
        f"{pods}, and {know} {some_of(left_out, '; ')}. The configuration of all deliverers omits "
        "them until you recreate these pods.",
    )


def injection_condition(injected: int, missing: Sequence[str]) -> Condition:
    """Mode Sidecar only. ``missing`` names the pods that lack their deliverer."""
    kind = "InjectionComplete"
    if missing:
        message = (
            f"{some_of(sorted(missing))} should have a deliverer and have none: the API server did "
            "not ask the webhook. Recreate them, or set onMissedInjection to Evict."
        )
        return Condition(kind, "False", "PodsMissed", message)
    if not injected:
        return Condition(kind, "True", "NoPods", "No pod should have a deliverer of this service.")
    message = "Every pod that should have a deliverer has one."
    return Condition(kind, "True", "AllInjected", message)


def durability_condition(
    durability: Durability,
    *,
    hand_over_to: str,
    stores: Sequence[str] = (),
    streams: Sequence[str] = (),
    serve: bool = False,
) -> Condition:
    """NotDurableBeyondPod, for mode Sidecar. ``hand_over_to`` is the gateway that gets the rest
    when a sidecar ends; or empty. ``serve``: whether all ``stores``, which are gateways, are
    ready; ``streams``: further stores."""
    kind = "NotDurableBeyondPod"
    if durability is not Durability.DISK:
        message = f"Pending indications are not on disk: durability is {durability.value}."
        return Condition(kind, "False", "NothingDurable", message)
    if stores and serve and not streams:
        message = (
            f"The gateways {some_of(stores)} keep copies of the journals. What was acknowledged as "
            "stable is not lost with its pod."
        )
        return Condition(kind, "False", "CopiesKept", message)
    if hand_over_to:
        message = f"A pod that ends hands its indications over to the gateway {hand_over_to}."
        return Condition(kind, "False", "HandedOver", message)
    if streams:
        message = (
            f"The streams {some_of(streams)} keep copies of the journals, and gateways adopt from "
            "gateways alone. What is pending in a pod that is gone stays in its copy. Name only "
            "gateways in stores. For pods that end in order, set handOverTo."
        )
        return Condition(kind, "True", "NotAdopted", message)
    if stores:
        message = (
            "Not all stores of the journals are ready: see GatewayReady. What too few of them have "
            "is lost with its pod."
        )
        return Condition(kind, "True", "StoresNotReady", message)
    return Condition(
        kind,
        "True",
        "VolumeOfPod",
        "The journal of a sidecar is in an emptyDir, which is deleted with its pod, not with its "
        "container. If the pod is deleted, evicted or loses its node, its pending indications are "
        "lost, also those acknowledged as durable. For pods that end in order, set handOverTo to a "
        "service in mode Gateway. Against the loss of a node, publish to that gateway.",
    )


def count_fields(
    counts: DelivererCounts, *, ready: str, injected: int | None, missing: int | None
) -> Mapping[str, Any]:
    """``ready`` is as in ``12/12``; ``injected`` and ``missing`` are None in mode Gateway."""
    fields = {
        "deliverers": counts.deliverers,
        "readyDeliverers": counts.ready,
        "unreachableDeliverers": counts.unreachable,
        "ready": ready,
        "injected": injected,
        "missing": missing,
    }
    return {name: count for name, count in fields.items() if count is not None}


def another_installation(one: str, other: str) -> Condition:
    """AnotherInstallation, in the same words from both installations."""
    both = " and ".join(sorted((one, other)))
    return Condition(
        "AnotherInstallation",
        "True",
        "ObjectsOverwritten",
        f"The installations {both} (namespace and Lease of each) both write the objects of this "
        "service, and overwrite each other. Remove one, or let them serve different namespaces "
        "(--namespace; scope.namespaces of the chart).",
    )


def scaled_elsewhere(stateful_set: str, manager: str, replicas: int) -> Condition:
    """ReplicasScaledElsewhere: an autoscaler sets the number of a gateway's pods."""
    return Condition(
        "ReplicasScaledElsewhere",
        "True",
        "Scaled",
        f"{manager} has set replicas of StatefulSet {stateful_set} to {replicas} through its "
        "scale, and deliverer.replicas is not applied. Each pod has its own queues. Those of a "
        "removed pod stay in its claim, and are lost without a claim. To apply deliverer.replicas "
        f"again, remove the autoscaler, then run kubectl scale statefulset {stateful_set} "
        "--replicas with that number.",
    )
