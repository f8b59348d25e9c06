"""All objects of an IndicationService. Pure. A gateway's objects do not depend on the rendered
configuration: its change reaches the pods through their volume, without a restart."""

from collections.abc import Iterator, Mapping
from typing import Any

from pillion_operator.certificates.gateways import NOTHING, Trust, trust_objects
from pillion_operator.cluster.ownership import managed, service_labels
from pillion_operator.cluster.scaling import replicas_of
from pillion_operator.cluster.types import (
    NETWORK_POLICY,
    POD_DISRUPTION_BUDGET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Object,
    ResourceType,
)
from pillion_operator.desired.configuration import configuration_secrets
from pillion_operator.desired.template import placement, pod_metadata, template_of, without_empty
from pillion_operator.injection.container import (
    INTAKE_PORT,
    INTAKE_PORT_NAME,
    TELEMETRY_PORT,
    TELEMETRY_PORT_NAME,
    configuration_volume,
    data_volume,
    deliverer_container,
    plugin_container,
    plugins_of,
    plugins_volume,
    termination_grace_seconds,
    tls_volume,
    token_volume,
)
from pillion_operator.injection.decision import SPARK_ROLE_LABEL, is_sidecar_service
from pillion_operator.names import DATA_VOLUME, DELIVERER_LABEL, gateway, headless, sidecars
from pillion_operator.settings import DelivererDefaults, NetworkSettings, SidecarPolicy
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.rendered import Rendered


def sidecar_policy(service: Object, *, settings: NetworkSettings) -> tuple[Object, ...]:
    """The NetworkPolicy that opens telemetry of pods with a sidecar; none by default.

    The first policy that selects a pod closes everything that it does not name. So this one selects
    only pods that other policies close already, as Spark's executors since 4.2.
    """
    if settings.sidecars is SidecarPolicy.NONE:
        return ()
    name = service["metadata"]["name"]
    labels = {DELIVERER_LABEL: name}
    if settings.sidecars is SidecarPolicy.SPARK_EXECUTORS:
        labels[SPARK_ROLE_LABEL] = "executor"
    return (_ingress_policy(sidecars(name), labels, telemetry_rule(settings), service=service),)


def telemetry_rule(settings: NetworkSettings) -> dict[str, Any]:
    """The ingress rule for Prometheus and the operator."""
    peers = [dict(peer) for peer in settings.telemetry_from] or [{"namespaceSelector": {}}]
    return {"from": peers, "ports": [port(TELEMETRY_PORT)]}


def port(number: int) -> dict[str, Any]:
    return {"port": number, "protocol": "TCP"}


#: The default size of a claim: the journal's maximum of 1 GiB, and a fifth that stays free.
CLAIM_SIZE = "1280Mi"
#: Kubernetes labels every namespace with its name.
NAMESPACE_LABEL = "kubernetes.io/metadata.name"
#: The group of a claim's files: the container's user is not root, and a new volume is root's.
VOLUME_GROUP = 65532


def gateway_objects(
    service: Object, *, defaults: DelivererDefaults, scaled: bool = False, adopts: bool = False
) -> tuple[Object, ...]:
    """In the order of their creation. ``scaled``: an autoscaler sets the number of pods.
    ``adopts``: the pods reach the stores of dead sidecars."""
    return (
        _service_account(service),
        *_network_policy(service, defaults.network),
        _budget(service),
        _headless_service(service),
        _service(service),
        _stateful_set(service, defaults, scaled=scaled, adopts=adopts),
    )


def _name(service: Object) -> str:
    return str(service["metadata"]["name"])


def _with_spec(kind: ResourceType, name: str, spec: Object, *, service: Object) -> Object:
    return {**managed(kind, name, service=service), "spec": spec}


def _ingress_policy(
    name: str, labels: Mapping[str, str], *rules: Object, service: Object
) -> Object:
    spec = {
        "podSelector": {"matchLabels": dict(labels)},
        # Listeners may be anywhere; the namespace's own policies control egress.
        "policyTypes": ["Ingress"],
        "ingress": list(rules),
    }
    return _with_spec(NETWORK_POLICY, name, spec, service=service)


def _pod_labels(service: Object) -> Mapping[str, str]:
    """The labels that select the pods; those of a StatefulSet never change."""
    return {DELIVERER_LABEL: _name(service), **service_labels(_name(service))}


def _service_account(service: Object) -> Object:
    # No role is bound to it and no token mounted: a deliverer needs no API server.
    account = managed(SERVICE_ACCOUNT, gateway(_name(service)), service=service)
    return {**account, "automountServiceAccountToken": False}


def _network_policy(service: Object, settings: NetworkSettings) -> Iterator[Object]:
    if not settings.gateways:
        return
    # The server also requires a token, because not every network enforces policies.
    intake = {"from": _publishers(service), "ports": [port(INTAKE_PORT)]}
    telemetry = telemetry_rule(settings)
    name, labels = gateway(_name(service)), _pod_labels(service)
    yield _ingress_policy(name, labels, intake, telemetry, service=service)


def _publishers(service: Object) -> list[Object]:
    """The pods of the namespaces in ``publishers``; default: of its own."""
    own = service["metadata"]["namespace"]
    named = (service.get("spec") or {}).get("publishers") or [{"namespace": own}]
    return [
        {"podSelector": {}}
        if namespace == own
        else {"namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: namespace}}}
        for namespace in sorted({publisher["namespace"] for publisher in named})
    ]


def _budget(service: Object) -> Object:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_pod_labels(service))}}
    return _with_spec(POD_DISRUPTION_BUDGET, gateway(_name(service)), spec, service=service)


def _service(service: Object) -> Object:
    spec = {"type": "ClusterIP", **_served(service)}
    return _with_spec(SERVICE, gateway(_name(service)), spec, service=service)


def _headless_service(service: Object) -> Object:
    """The Service that gives each pod a name of its own."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, **_served(service)}
    return _with_spec(SERVICE, headless(_name(service)), spec, service=service)


def _served(service: Object) -> dict[str, Any]:
    ports = [
        {"name": name, "targetPort": target, **port(number)}
        for name, number, target in (
            ("intake", INTAKE_PORT, INTAKE_PORT_NAME),
            ("metrics", TELEMETRY_PORT, TELEMETRY_PORT_NAME),
        )
    ]
    return {"selector": dict(_pod_labels(service)), "ports": ports}


def _stateful_set(
    service: Object, defaults: DelivererDefaults, *, scaled: bool, adopts: bool
) -> Object:
    name, spec = _name(service), service.get("spec") or {}
    labels = dict(_pod_labels(service))
    rendered: dict[str, Any] = {
        "serviceName": headless(name),
        "selector": {"matchLabels": labels},
        # The pods do not wait for each other: each has its own queues.
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "template": {
            "metadata": pod_metadata(template_of(spec), labels=labels),
            "spec": _pod(service, spec, defaults, adopts=adopts),
        },
    }
    if not scaled:
        rendered["replicas"] = replicas_of(service)
    claim = _claim(spec)
    if claim is not None:
        rendered["volumeClaimTemplates"] = [claim]
        # Undelivered indications outlive the gateway.
        rendered["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": "Retain",
            "whenScaled": "Retain",
        }
    return _with_spec(STATEFUL_SET, gateway(name), rendered, service=service)


def _pod(service: Object, spec: Object, defaults: DelivererDefaults, *, adopts: bool) -> Object:
    name = _name(service)
    context: dict[str, Any] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    volumes: list[Object] = [configuration_volume(name)]
    if _claim(spec) is None:
        volumes.append(data_volume(spec))
    else:
        context |= {"fsGroup": VOLUME_GROUP, "fsGroupChangePolicy": "OnRootMismatch"}
    volumes.append(tls_volume(name))
    if adopts:
        volumes.append(token_volume())
    plugins = plugins_of(spec)
    if plugins:
        volumes.append(plugins_volume())
    template = template_of(spec)
    volumes += map(without_empty, template.get("volumes") or ())
    container = deliverer_container(
        name,
        namespace=service["metadata"]["namespace"],
        spec=spec,
        defaults=defaults,
        gateway=True,
        adopts=adopts,
    )
    container["volumeMounts"] += map(without_empty, template.get("volumeMounts") or ())
    pod: dict[str, Any] = {
        "serviceAccountName": gateway(name),
        "automountServiceAccountToken": False,
        # Nothing reads these variables, and a namespace may have very many Services.
        "enableServiceLinks": False,
        "securityContext": context,
        "terminationGracePeriodSeconds": termination_grace_seconds(spec),
        "containers": [container],
        "volumes": volumes,
        **placement(template, labels=_pod_labels(service), pull_secrets=defaults.pull_secrets),
    }
    if plugins:
        pod["initContainers"] = [plugin_container(one) for one in plugins]
    return pod


def _claim(spec: Object) -> Object | None:
    storage = (spec.get("deliverer") or {}).get("storage")
    if not storage:
        return None
    claim: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.get("sizeLimit", CLAIM_SIZE)}},
    }
    if "storageClassName" in storage:
        claim["storageClassName"] = storage["storageClassName"]
    return {"metadata": {"name": DATA_VOLUME}, "spec": claim}


def desired_objects(
    service: Object,
    rendered: Rendered,
    *,
    token: str,
    defaults: DelivererDefaults,
    trust: Trust = NOTHING,
    level: int = LEVEL,
    scaled: bool = False,
    adopts: bool = False,
) -> tuple[Object, ...]:
    """In the order of their creation: a gateway's configuration and certificate come before its
    pods. ``scaled``, ``adopts``: see ``gateway_objects``."""
    secrets = configuration_secrets(service, rendered, token=token, trust=trust, level=level)
    if is_sidecar_service(service):
        return (*secrets, *sidecar_policy(service, settings=defaults.network))
    gateway = gateway_objects(service, defaults=defaults, scaled=scaled, adopts=adopts)
    return (*secrets, *trust_objects(service, trust), *gateway)
