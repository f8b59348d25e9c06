"""The deliverer's container and its volumes, the same for an injected sidecar and a gateway."""

from typing import Any

from pillion_operator.certificates.authority import CERTIFICATE, KEY
from pillion_operator.cluster.types import Object
from pillion_operator.names import (
    CONFIGURATION_PARTS,
    CONFIGURATION_PATH,
    CONFIGURATION_VOLUME,
    CONTAINER,
    DATA_VOLUME,
    GATEWAY_CA,
    OPERATOR_TOKEN,
    TLS_PATH,
    TLS_VOLUME,
    TOKEN,
    TOKEN_AUDIENCE,
    TOKEN_KEYS,
    TOKEN_PATH,
    TOKEN_VOLUME,
    configuration_secret,
    tls_secret,
)
from pillion_operator.names import (
    gateway as gateway_name,
)
from pillion_operator.settings import DelivererDefaults

#: Where publishers find a deliverer, Prometheus and the kubelet its telemetry, and ``pillion``
#: commands in the pod the administration of a gateway.
INTAKE_PORT = 8288
TELEMETRY_PORT = 8289
ADMINISTRATION_PORT = 8290
#: What a PodMonitor names.
TELEMETRY_PORT_NAME = "pillion-metrics"
INTAKE_PORT_NAME = "pillion-intake"

#: Where the container finds the volume for its journal.
DATA_PATH = "/var/lib/pillion"

#: Seconds for which a sidecar's token for gateways is valid. The kubelet writes another one at four
#: fifths of them.
TOKEN_SECONDS = 3600

#: Seconds that a deliverer has to start before it is killed and started again.
START_SECONDS = 60
#: Seconds for which the preStop hook hastens delivery. SIGTERM waits for it.
DRAIN_SECONDS = 5
#: Seconds for which delivery goes on after SIGTERM where the service does not say.
SHUTDOWN_GRACE_SECONDS = 20
#: Seconds for what comes after delivery: the last log lines, and the kubelet's own pace.
STOP_MARGIN_SECONDS = 5


def deliverer_container(
    service: str,
    *,
    namespace: str,
    spec: Object,
    defaults: DelivererDefaults,
    gateway: bool = False,
) -> dict[str, Any]:
    """The container that delivers for the IndicationService ``service`` of ``namespace``.

    ``spec`` is the whole spec of that service; empty for one that is not there yet. The field
    ``restartPolicy`` that makes an init container a sidecar is not in it.
    """
    deliverer = _deliverer(spec)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": deliverer.get("image") or defaults.image,
        "args": _arguments(service, namespace=namespace, defaults=defaults, gateway=gateway),
        "ports": _ports(gateway=gateway),
        # One or the other as a whole: a request from here over a limit from there makes no pod.
        "resources": deliverer.get("resources") or dict(defaults.resources),
        "securityContext": _security_context(),
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "lifecycle": _lifecycle(gateway=gateway),
        "volumeMounts": [
            {"name": CONFIGURATION_VOLUME, "mountPath": CONFIGURATION_PATH, "readOnly": True},
            {"name": DATA_VOLUME, "mountPath": DATA_PATH},
            _identity_mount(gateway=gateway),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if defaults.image_pull_policy is not None:
        container["imagePullPolicy"] = defaults.image_pull_policy
    if gateway:
        container["startupProbe"] = _probe("/startupz", period=1, failures=START_SECONDS)
        # Nobody is to send to a gateway that would answer 503. A sidecar has no such probe: its
        # readiness counts into that of the pod, and a configuration that is late must not keep an
        # application out of its Service.
        container["readinessProbe"] = _probe("/readyz", period=5, failures=3)
    return container


def configuration_volume(service: str) -> dict[str, Any]:
    """The volume with the rendered configuration. A pod's volumes are fixed when it is made, so it
    names every Secret that there can be."""
    return {
        "name": CONFIGURATION_VOLUME,
        "projected": {
            "sources": [
                {"secret": {"name": configuration_secret(service, part), "optional": True}}
                for part in range(CONFIGURATION_PARTS)
            ]
        },
    }


def token_volume() -> dict[str, Any]:
    """The volume with a sidecar's token for gateways: of the pod's own service account, and good
    for nothing but that.

    Every sidecar has it, whatever its service says now: a gateway may be named later. It is asked
    for by name, so ``automountServiceAccountToken: false`` does not concern it.
    """
    token = {"audience": TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": TOKEN}
    return {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}


def tls_volume(service: str) -> dict[str, Any]:
    """The volume with a gateway's certificate. One that is late keeps no gateway from delivering
    what it has."""
    return {"name": TLS_VOLUME, "secret": {"secretName": tls_secret(service), "optional": True}}


def data_volume(spec: Object) -> dict[str, Any]:
    """The volume for the journal of a deliverer that has no claim, by the ``spec`` of its service.

    It is there whatever the service's durability: that may change, and a pod's volumes may not.
    """
    limit = (_deliverer(spec).get("storage") or {}).get("sizeLimit")
    return {"name": DATA_VOLUME, "emptyDir": {} if limit is None else {"sizeLimit": limit}}


def termination_grace_seconds(spec: Object) -> int:
    """Seconds that a pod needs from its deletion on, for its deliverer to end in peace."""
    grace = spec.get("shutdownGracePeriodSeconds")
    delivering = SHUTDOWN_GRACE_SECONDS if grace is None else int(grace)
    return DRAIN_SECONDS + delivering + STOP_MARGIN_SECONDS


def _deliverer(spec: Object) -> Object:
    return spec.get("deliverer") or {}


def _identity_mount(*, gateway: bool) -> dict[str, Any]:
    name, path = (TLS_VOLUME, TLS_PATH) if gateway else (TOKEN_VOLUME, TOKEN_PATH)
    return {"name": name, "mountPath": path, "readOnly": True}


def _arguments(
    service: str, *, namespace: str, defaults: DelivererDefaults, gateway: bool
) -> list[str]:
    arguments = ["sidecar", "--resources", CONFIGURATION_PATH, "--service", service]
    arguments += ["--journal", DATA_PATH, "--wait-for-configuration"]
    arguments += ["--operator-token-file", f"{CONFIGURATION_PATH}/{OPERATOR_TOKEN}"]
    if gateway:
        arguments += ["--intake", f"0.0.0.0:{INTAKE_PORT}"]
        arguments += ["--intake-tls-certificate", f"{TLS_PATH}/{CERTIFICATE}"]
        arguments += ["--intake-tls-key", f"{TLS_PATH}/{KEY}"]
        arguments += ["--token-keys", f"{CONFIGURATION_PATH}/{TOKEN_KEYS}"]
        arguments += ["--administration", f"127.0.0.1:{ADMINISTRATION_PORT}"]
    else:
        arguments += ["--intake", f"127.0.0.1:{INTAKE_PORT}"]
        # The deliverer puts in the name of the gateway that a destination or its service names.
        named = gateway_name("{service}")
        arguments += ["--gateway", f"https://{named}.{namespace}.svc:{INTAKE_PORT}"]
        arguments += ["--gateway-ca", f"{CONFIGURATION_PATH}/{GATEWAY_CA}"]
        arguments += ["--gateway-token", f"{TOKEN_PATH}/{TOKEN}"]
    arguments += ["--telemetry", f"0.0.0.0:{TELEMETRY_PORT}"]
    if not defaults.addresses.allow_loopback:
        arguments.append("--refuse-loopback")
    if defaults.addresses.allow_link_local:
        arguments.append("--allow-link-local")
    return arguments


def _lifecycle(*, gateway: bool) -> dict[str, Any]:
    port = ADMINISTRATION_PORT if gateway else INTAKE_PORT
    drain = ["pillion", "drain", "--best-effort", "--to", f"http://127.0.0.1:{port}"]
    # Intake stays open until SIGTERM, when the application has ended: this only hastens.
    hooks: dict[str, Any] = {
        "preStop": {"exec": {"command": [*drain, "--timeout", str(DRAIN_SECONDS)]}}
    }
    if not gateway:
        # A native sidecar holds the application back until it has started, so this depends on
        # nothing remote, not even on a configuration. A startup probe would take a second longer:
        # the kubelet looks at containers and probes once a second each, out of step.
        wait = ["pillion", "wait", "--to", f"http://127.0.0.1:{TELEMETRY_PORT}"]
        hooks["postStart"] = {"exec": {"command": [*wait, "--timeout", str(START_SECONDS)]}}
    return hooks


def _ports(*, gateway: bool) -> list[dict[str, Any]]:
    ports = [{"name": TELEMETRY_PORT_NAME, "containerPort": TELEMETRY_PORT, "protocol": "TCP"}]
    if gateway:
        ports.append({"name": INTAKE_PORT_NAME, "containerPort": INTAKE_PORT, "protocol": "TCP"})
    return ports


def _security_context() -> dict[str, Any]:
    """What the Pod Security Standards' restricted profile asks for, and a read-only root."""
    return {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _probe(path: str, *, period: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": TELEMETRY_PORT},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }
