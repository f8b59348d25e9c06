"""Decides whether a pod gets a deliverer, and of which IndicationService. Pure. The webhook, the
search for missed pods and ``pillion why-not`` share it."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from pillion_operator.cluster.types import Object, annotations_of, deliverer_of, labels_of
from pillion_operator.injection.selectors import selects
from pillion_operator.names import CONTAINER, INJECT_LABEL
from pillion_sidecar.config.schema.common import DNS_SUBDOMAIN, SERVICE_NAME_LENGTH

#: Never injected: a cluster must start without the operator.
SYSTEM_NAMESPACES = frozenset({"kube-system", "kube-public", "kube-node-lease"})
#: Named by ``pillion.dev/inject: "true"``.
DEFAULT_SERVICE = "default"
#: ``driver`` or ``executor``.
SPARK_ROLE_LABEL = "spark-role"
#: On static pods, which the kubelet runs from a file.
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


class Services(Protocol):
    """Has the known IndicationServices, read without waiting; as ``Store``."""

    def namespaces(self, kind: str) -> Iterable[str]: ...

    def all(self, kind: str, namespace: str) -> Mapping[str, Object]: ...


class Reason(StrEnum):
    EXCLUDED_NAMESPACE = "its namespace is the operator's own or one of the system"
    HAS_ONE = "it has one already"
    OPTED_OUT = f'its label {INJECT_LABEL} is "false"'
    BAD_NAME = f"its label {INJECT_LABEL} is no name of an IndicationService"
    GATEWAY = "the service that it names has mode Gateway, which injects nothing"
    NOT_SELECTED = "no IndicationService selects it"
    SPARK_DRIVER = "it is a Spark driver, and those get one only where they are meant"
    HOST_NETWORK = "it uses the node's network, where every process reaches the deliverer's ports"
    WINDOWS = "it runs on Windows"
    MIRROR = "it is a static pod, which only the kubelet can change"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inject:
    service: str
    #: Empty if the service does not exist yet.
    spec: Object
    #: For the user who creates the pod.
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    reason: Reason
    warnings: tuple[str, ...] = ()


Decision: TypeAlias = Inject | Leave


def decide(
    pod: Object, *, namespace: str, services: Iterable[Object], operator_namespace: str
) -> Decision:
    """``services`` are the IndicationServices of the pod's namespace."""
    if namespace == operator_namespace or namespace in SYSTEM_NAMESPACES:
        return Leave(reason=Reason.EXCLUDED_NAMESPACE)
    if has_deliverer(pod):
        return Leave(reason=Reason.HAS_ONE)
    asked = labels_of(pod).get(INJECT_LABEL)
    if asked == "false":
        return Leave(reason=Reason.OPTED_OUT)
    known = {service["metadata"]["name"]: service for service in services}
    decision = _selected(pod, services=known.values()) if asked is None else _asked(asked, known)
    if isinstance(decision, Leave):
        return decision
    obstacle = _obstacle(pod)
    if obstacle is None:
        return decision
    if asked is None:
        return Leave(reason=obstacle)
    return Leave(reason=obstacle, warnings=(f"{INJECT_LABEL} is ignored: {obstacle}",))


def has_deliverer(pod: Object) -> bool:
    """Injected or a gateway's."""
    return any(container.get("name") == CONTAINER for container in containers_of(pod))


def containers_of(pod: Object) -> tuple[Object, ...]:
    spec = pod["spec"]
    return (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))


def is_sidecar_service(service: Object) -> bool:
    return bool(deliverer_of(service).get("mode", "Sidecar") == "Sidecar")


def _asked(value: str, known: dict[str, Object]) -> Decision:
    """Decide on a pod that names its service, which may not exist yet: the order of creation must
    not matter."""
    name = DEFAULT_SERVICE if value == "true" else value
    service = known.get(name)
    if service is not None:
        if is_sidecar_service(service):
            return Inject(service=name, spec=service.get("spec") or {})
        warning = (
            f"{INJECT_LABEL}: IndicationService {name} has mode Gateway, so nothing is injected; "
            f"publish to its Service, or name a service with mode Sidecar"
        )
        return Leave(reason=Reason.GATEWAY, warnings=(warning,))
    if len(name) > SERVICE_NAME_LENGTH or not re.fullmatch(DNS_SUBDOMAIN, name):
        warning = (
            f"{INJECT_LABEL}: {value!r} is not the name of an IndicationService, so nothing is "
            f'injected; write "true", "false" or a name of at most {SERVICE_NAME_LENGTH} characters'
        )
        return Leave(reason=Reason.BAD_NAME, warnings=(warning,))
    warning = (
        f"{INJECT_LABEL}: there is no IndicationService {name} in this namespace yet; "
        f"the deliverer takes indications once there is"
    )
    return Inject(service=name, spec={}, warnings=(warning,))


def _selected(pod: Object, *, services: Collection[Object]) -> Decision:
    labels = labels_of(pod)
    selecting = sorted(
        (
            service
            for service in services
            if is_sidecar_service(service)
            and selects(deliverer_of(service).get("podSelector"), labels)
        ),
        key=_age,
    )
    if not selecting:
        return Leave(reason=Reason.NOT_SELECTED)
    if labels.get(SPARK_ROLE_LABEL) == "driver":
        selecting = [one for one in selecting if deliverer_of(one).get("injectSparkDriver")]
        if not selecting:
            return Leave(reason=Reason.SPARK_DRIVER)
    first, *others = selecting
    warnings: tuple[str, ...] = ()
    if others:
        names = ", ".join(other["metadata"]["name"] for other in others)
        warnings = (
            f"the pod is selected by IndicationService {first['metadata']['name']} and also by "
            f"{names}; the oldest is taken. The label {INJECT_LABEL} names one",
        )
    return Inject(service=first["metadata"]["name"], spec=first["spec"], warnings=warnings)


def _age(service: Object) -> tuple[str, str]:
    # RFC 3339 in UTC sorts as text. A service that is not stored has no time and comes last.
    metadata = service["metadata"]
    return metadata.get("creationTimestamp") or "~", metadata["name"]


def _obstacle(pod: Object) -> Reason | None:
    spec = pod["spec"]
    if MIRROR_ANNOTATION in annotations_of(pod):
        return Reason.MIRROR
    if spec.get("hostNetwork"):
        return Reason.HOST_NETWORK
    system = (spec.get("nodeSelector") or {}).get("kubernetes.io/os")
    if "windows" in (system, (spec.get("os") or {}).get("name")):
        return Reason.WINDOWS
    return None
