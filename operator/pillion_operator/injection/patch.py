"""What is added to a pod that gets a deliverer: a JSON patch (RFC 6902) that only adds. Pure.

Nobody's containers are touched or moved, so other injectors may come before and after. The one
field that is written over is a ``terminationGracePeriodSeconds`` that would be too short.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pillion_operator.cluster.types import Object
from pillion_operator.injection.container import (
    INTAKE_PORT,
    TELEMETRY_PORT,
    configuration_volume,
    data_volume,
    deliverer_container,
    termination_grace_seconds,
    token_volume,
)
from pillion_operator.injection.decision import Inject, has_deliverer
from pillion_operator.injection.overrides import with_overrides
from pillion_operator.names import CONFIGURATION_VOLUME, DELIVERER_LABEL
from pillion_operator.settings import DelivererDefaults

#: What Kubernetes takes where a pod does not say.
KUBERNETES_GRACE_SECONDS = 30
#: The user of the deliverer in a pod that would have it run as root.
UNPRIVILEGED_USER = 65_532
#: Where the API server mounts a token of the pod's service account into every container that has
#: nothing there yet.
SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"

Operation = dict[str, Any]


def injection_patch(
    pod: Object, *, namespace: str, decision: Inject, defaults: DelivererDefaults
) -> list[Operation]:
    """The operations that give ``pod``, which is made in ``namespace``, its deliverer; none where
    it has one already."""
    if has_deliverer(pod):
        return []
    spec = pod["spec"]
    operations = list(
        _appended(
            "/spec/initContainers",
            present=spec.get("initContainers"),
            items=[_sidecar(pod, namespace=namespace, decision=decision, defaults=defaults)],
        )
    )
    operations += _appended(
        "/spec/volumes", present=spec.get("volumes"), items=_volumes(spec, decision=decision)
    )
    if defaults.pull_secrets and not spec.get("imagePullSecrets"):
        secrets = [{"name": name} for name in defaults.pull_secrets]
        operations.append(_add("/spec/imagePullSecrets", secrets))
    operations.append(_label(pod, decision.service))
    needed = termination_grace_seconds(decision.spec)
    grace = spec.get("terminationGracePeriodSeconds")
    if needed > (KUBERNETES_GRACE_SECONDS if grace is None else grace):
        operations.append(_add("/spec/terminationGracePeriodSeconds", needed))
    return operations


def port_clashes(pod: Object) -> tuple[str, ...]:
    """Warnings of containers that want a port of the deliverer's: all of a pod share one address,
    so whichever starts second fails."""
    spec = pod["spec"]
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return tuple(
        f"container {container.get('name')} declares port {port['containerPort']}, which the "
        f"deliverer in the same pod listens at; give it another"
        for container in containers
        for port in container.get("ports") or ()
        if port.get("containerPort") in (INTAKE_PORT, TELEMETRY_PORT)
    )


def ignored_annotations(
    pod: Object, *, decision: Inject, defaults: DelivererDefaults
) -> tuple[str, ...]:
    """Warnings of annotations about the sidecar that are wrong and have no effect."""
    container = deliverer_container(
        decision.service, namespace="", spec=decision.spec, defaults=defaults
    )
    return with_overrides(container, pod)[1]


def _sidecar(
    pod: Object, *, namespace: str, decision: Inject, defaults: DelivererDefaults
) -> Object:
    """A native sidecar, last: it starts after a mesh's proxy, and ends before it (KEP-753)."""
    container, _ = with_overrides(
        deliverer_container(
            decision.service, namespace=namespace, spec=decision.spec, defaults=defaults
        ),
        pod,
    )
    container["restartPolicy"] = "Always"
    # A deliverer needs no API server, and whoever may make an IndicationService names its image: he
    # would have the token of every pod that he selects. The token's place is taken by what the
    # container sees anyway; a volume of its own would be one more in every pod.
    container["volumeMounts"].append(
        {"name": CONFIGURATION_VOLUME, "mountPath": SERVICE_ACCOUNT_PATH, "readOnly": True}
    )
    if (pod["spec"].get("securityContext") or {}).get("runAsUser") == 0:
        # The pod's user goes before the image's, and the kubelet starts no root as non-root.
        container["securityContext"]["runAsUser"] = UNPRIVILEGED_USER
    return container


def _volumes(spec: Object, *, decision: Inject) -> list[Object]:
    wanted = (
        configuration_volume(decision.service),
        data_volume(decision.spec),
        token_volume(),
    )
    # A pod that was copied from one with a deliverer may have kept the volumes.
    names = {volume.get("name") for volume in spec.get("volumes") or ()}
    return [volume for volume in wanted if volume["name"] not in names]


def _label(pod: Object, service: str) -> Operation:
    if not pod["metadata"].get("labels"):
        return _add("/metadata/labels", {DELIVERER_LABEL: service})
    return _add(
        f"/metadata/labels/{DELIVERER_LABEL.replace('~', '~0').replace('/', '~1')}", service
    )


def _appended(path: str, *, present: object, items: Iterable[Object]) -> Iterator[Operation]:
    if not present:
        missing = list(items)
        if missing:
            yield _add(path, missing)
        return
    for item in items:
        yield _add(f"{path}/-", item)


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}
