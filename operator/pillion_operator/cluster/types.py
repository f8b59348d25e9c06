"""The kinds of object that the operator uses, and their API paths."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pillion_sidecar.config.schema import GROUP, KINDS, VERSION

Object = Mapping[str, Any]

_FINISHED = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class ResourceType:
    api_version: str
    kind: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        root = "/api/" if "/" not in self.api_version else "/apis/"
        path = root + self.api_version
        if namespace is not None and self.namespaced:
            path += f"/namespaces/{namespace}"
        path += f"/{self.plural}"
        return path if name is None else f"{path}/{name}"


OURS = tuple(ResourceType(f"{GROUP}/{VERSION}", kind.name, kind.plural) for kind in KINDS)

NAMESPACE = ResourceType("v1", "Namespace", "namespaces")
POD = ResourceType("v1", "Pod", "pods")
SECRET = ResourceType("v1", "Secret", "secrets")
CONFIG_MAP = ResourceType("v1", "ConfigMap", "configmaps")
SERVICE = ResourceType("v1", "Service", "services")
SERVICE_ACCOUNT = ResourceType("v1", "ServiceAccount", "serviceaccounts")
STATEFUL_SET = ResourceType("apps/v1", "StatefulSet", "statefulsets")
POD_DISRUPTION_BUDGET = ResourceType("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
NETWORK_POLICY = ResourceType("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies")
LEASE = ResourceType("coordination.k8s.io/v1", "Lease", "leases")
EVENT = ResourceType("events.k8s.io/v1", "Event", "events")
MUTATING_WEBHOOK = ResourceType(
    "admissionregistration.k8s.io/v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING_WEBHOOK = ResourceType(
    "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    namespaced=False,
)

_KNOWN = (
    *OURS,
    POD,
    SECRET,
    CONFIG_MAP,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    POD_DISRUPTION_BUDGET,
    NETWORK_POLICY,
    LEASE,
    EVENT,
    MUTATING_WEBHOOK,
    VALIDATING_WEBHOOK,
)


def type_of(body: Object) -> ResourceType:
    """Raises KeyError for a kind that the operator does not use."""
    named = (body["apiVersion"], body["kind"])
    for known in _KNOWN:
        if (known.api_version, known.kind) == named:
            return known
    raise KeyError(f"{named[1]} of {named[0]}")


def our_type(kind: str) -> ResourceType:
    return next(known for known in OURS if known.kind == kind)


def labels_of(body: Object | None) -> Object:
    return ((body or {}).get("metadata") or {}).get("labels") or {}


def annotations_of(body: Object | None) -> Object:
    return ((body or {}).get("metadata") or {}).get("annotations") or {}


def deliverer_of(service: Object | None) -> Object:
    """The field ``spec.deliverer``."""
    return ((service or {}).get("spec") or {}).get("deliverer") or {}


def container_state(pod: Object, name: str) -> Object:
    """The state that the kubelet reports of a container; empty before."""
    status = pod.get("status") or {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            if container.get("name") == name:
                return container.get("state") or {}
    return {}


def being_deleted(body: Object) -> bool:
    return body["metadata"].get("deletionTimestamp") is not None


def has_ended(pod: Object | None) -> bool:
    """Whether no container runs; None is a pod that is gone."""
    return pod is None or (pod.get("status") or {}).get("phase") in _FINISHED
