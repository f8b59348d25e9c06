"""The JSON patch (RFC 6902) that adds a deliverer to a pod. Pure. It changes no other container, so
other injectors may run before and after it, and overwrites only a ``terminationGracePeriodSeconds``
that is too short. A wrong annotation causes a warning."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pillion_operator.cluster.types import Object, annotations_of
from pillion_operator.injection.container import (
    INTAKE_PORT,
    TELEMETRY_PORT,
    configuration_volume,
    data_volume,
    deliverer_container,
    termination_grace_seconds,
    token_volume,
)
from pillion_operator.injection.decision import Inject, containers_of, has_deliverer
from pillion_operator.names import (
    CONFIGURATION_VOLUME,
    DELIVERER_LABEL,
    LIMITS_ANNOTATION,
    LOG_LEVEL_ANNOTATION,
    REQUESTS_ANNOTATION,
)
from pillion_operator.settings import DelivererDefaults
from pillion_sidecar.fields import LONGEST_QUANTITY, QUANTITY, amount

KUBERNETES_GRACE_SECONDS = 30
#: The deliverer's user in a pod whose security context says root.
UNPRIVILEGED_USER = 65_532
#: Where the API server mounts the token into every container without a mount there.
SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_ANNOTATIONS = {"requests": REQUESTS_ANNOTATION, "limits": LIMITS_ANNOTATION}
_QUANTITY = re.compile(QUANTITY)

Operation = dict[str, Any]


def injection_patch(
    pod: Object, *, namespace: str, decision: Inject, defaults: DelivererDefaults
) -> tuple[list[Operation], tuple[str, ...]]:
    """Return the operations for ``pod``, which is created in ``namespace``, and warnings for its
    user; neither if the pod has a deliverer."""
    if has_deliverer(pod):
        return [], ()
    spec = pod["spec"]
    sidecar, warnings = _sidecar(pod, namespace=namespace, decision=decision, defaults=defaults)
    volumes = (configuration_volume(decision.service), data_volume(decision.spec), token_volume())
    # A copy of a pod with a deliverer may have its volumes.
    names = {volume.get("name") for volume in spec.get("volumes") or ()}
    missing = [volume for volume in volumes if volume["name"] not in names]
    operations = [
        *_appended("/spec/initContainers", present=spec.get("initContainers"), items=[sidecar]),
        *_appended("/spec/volumes", present=spec.get("volumes"), items=missing),
    ]
    if defaults.pull_secrets and not spec.get("imagePullSecrets"):
        secrets = [{"name": name} for name in defaults.pull_secrets]
        operations.append(_add("/spec/imagePullSecrets", secrets))
    operations.append(_label(pod, decision.service))
    needed = termination_grace_seconds(decision.spec)
    grace = spec.get("terminationGracePeriodSeconds")
    if needed > (KUBERNETES_GRACE_SECONDS if grace is None else grace):
        operations.append(_add("/spec/terminationGracePeriodSeconds", needed))
    return operations, (*_port_clashes(pod), *warnings)


def _port_clashes(pod: Object) -> Iterator[str]:
    """Warn of containers that declare a port of the deliverer: they share the pod's address, so
    whichever starts second fails."""
    for container in containers_of(pod):
        for port in container.get("ports") or ():
            if port.get("containerPort") in (INTAKE_PORT, TELEMETRY_PORT):
                yield (
                    f"container {container.get('name')} declares port {port['containerPort']}, "
                    f"which the deliverer in the same pod listens at; give it another"
                )


def _sidecar(
    pod: Object, *, namespace: str, decision: Inject, defaults: DelivererDefaults
) -> tuple[Object, list[str]]:
    """Return a native sidecar and warnings of ignored annotations. It stands last, so it starts
    after a mesh's proxy and ends before it (KEP-753)."""
    container = deliverer_container(
        decision.service, namespace=namespace, spec=decision.spec, defaults=defaults
    )
    annotations = annotations_of(pod)
    warnings = []
    for override in (_override_resources, _override_log_level):
        try:
            override(container, annotations)
        except ValueError as error:
            warnings.append(str(error))
    container["restartPolicy"] = "Always"
    # A deliverer needs no API server, and the author of an IndicationService chooses its image,
    # which could read the token of every selected pod. So another mount takes the token's place:
    # the configuration, which saves another volume.
    container["volumeMounts"].append(
        {"name": CONFIGURATION_VOLUME, "mountPath": SERVICE_ACCOUNT_PATH, "readOnly": True}
    )
    if (pod["spec"].get("securityContext") or {}).get("runAsUser") == 0:
        # The pod's user overrides the image's, and the kubelet starts no root as non-root.
        container["securityContext"]["runAsUser"] = UNPRIVILEGED_USER
    return container, warnings


def _override_resources(container: dict[str, Any], annotations: Mapping[str, str]) -> None:
    """Raises ValueError with a warning."""
    given = {
        section: annotations[annotation]
        for section, annotation in _ANNOTATIONS.items()
        if annotation in annotations
    }
    if not given:
        return
    wanted: dict[str, Any] = {
        name: dict(value or {}) for name, value in container["resources"].items()
    }
    for section, text in given.items():
        try:
            wanted[section] = {**wanted.get(section, {}), **_quantities(text)}
        except ValueError as error:
            message = f"{error}. Write it as cpu=100m,memory=256Mi"
            raise ValueError(f"{_ANNOTATIONS[section]} is ignored: {message}") from error
    for name, limit in wanted.get("limits", {}).items():
        request = wanted.get("requests", {}).get(name)
        if _exceeds(request, limit):
            raise ValueError(
                f"{REQUESTS_ANNOTATION} and {LIMITS_ANNOTATION} are ignored: the sidecar would "
                f"request {request} of {name}, more than its limit of {limit}"
            )
    container["resources"] = wanted


def _exceeds(request: Any, limit: Any) -> bool:
    """Whether the API server would refuse the pod for a request above its limit."""
    both = (request, limit)
    return all(_QUANTITY.fullmatch(str(one)) for one in both) and amount(request) > amount(limit)


def _quantities(text: str) -> dict[str, str]:
    """Parse ``cpu=100m,memory=256Mi``; raises ValueError."""
    quantities: dict[str, str] = {}
    for part in text.split(","):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if name not in _RESOURCES:
            raise ValueError(f"{name[:40]!r} is none of {', '.join(_RESOURCES)}")
        if name in quantities:
            raise ValueError(f"it names {name} twice")
        if len(value) > LONGEST_QUANTITY or not _QUANTITY.fullmatch(value):
            raise ValueError(f"{value[:40]!r} is not a quantity more than 0")
        quantities[name] = value
    return quantities


def _override_log_level(container: dict[str, Any], annotations: Mapping[str, str]) -> None:
    """Raises ValueError with a warning."""
    level = annotations.get(LOG_LEVEL_ANNOTATION)
    if level is None:
        return
    if level not in LOG_LEVELS:
        raise ValueError(
            f"{LOG_LEVEL_ANNOTATION} is ignored: {level[:40]!r} is none of {', '.join(LOG_LEVELS)}"
        )
    container["args"] = [*container["args"], "--log-level", level]


def _label(pod: Object, service: str) -> Operation:
    if not pod["metadata"].get("labels"):
        return _add("/metadata/labels", {DELIVERER_LABEL: service})
    return _add(
        f"/metadata/labels/{DELIVERER_LABEL.replace('~', '~0').replace('/', '~1')}", service
    )


def _appended(path: str, *, present: object, items: Sequence[Object]) -> list[Operation]:
    return [_add(f"{path}/-", item) for item in items] if present else [_add(path, items)]


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}
