"""The deliverer's container and volumes, for a sidecar and a gateway."""

from collections.abc import Iterator, Sequence
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
    OPERATOR_CONSOLE,
    OPERATOR_TOKEN,
    PLUGIN_SOCKET,
    PLUGINS_PATH,
    PLUGINS_VOLUME,
    POD_NAME,
    POD_UID,
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
from pillion_operator.names import gateway as gateway_name
from pillion_operator.settings import DelivererDefaults

#: Ports of intake, of telemetry (for Prometheus and the kubelet), and of a gateway's administration
#: (for ``pillion`` commands in the pod).
INTAKE_PORT = 8288
TELEMETRY_PORT = 8289
ADMINISTRATION_PORT = 8290
#: For a PodMonitor.
TELEMETRY_PORT_NAME = "pillion-metrics"
INTAKE_PORT_NAME = "pillion-intake"

DATA_PATH = "/var/lib/pillion"

#: Lifetime of a sidecar's token in seconds; the kubelet renews it after four fifths.
TOKEN_SECONDS = 3600

#: Seconds in which a deliverer must start before it is restarted.
START_SECONDS = 60
#: Timeout in seconds of the preStop hook, before SIGTERM.
DRAIN_SECONDS = 5
#: Default seconds of delivery after SIGTERM.
SHUTDOWN_GRACE_SECONDS = 20
#: Seconds after delivery, for the last log lines and the kubelet's delay.
STOP_MARGIN_SECONDS = 5


def deliverer_container(
    service: str,
    *,
    namespace: str,
    spec: Object,
    defaults: DelivererDefaults,
    gateway: bool = False,
    adopts: bool = False,
) -> dict[str, Any]:
    """``spec`` is that of the IndicationService; empty if it does not exist yet. ``adopts``: a
    gateway that reaches others, as a sidecar does. The container has no ``restartPolicy``, which
    makes an init container a sidecar."""
    deliverer = _deliverer(spec)
    plugins = plugins_of(spec) if gateway else ()
    identity, identity_path = (TLS_VOLUME, TLS_PATH) if gateway else (TOKEN_VOLUME, TOKEN_PATH)
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": deliverer.get("image") or defaults.image,
        "args": [
            *_arguments(
                service, namespace=namespace, defaults=defaults, gateway=gateway, adopts=adopts
            ),
            *(f"--plugin={one['name']}=unix:{_socket(one)}" for one in plugins),
        ],
        "ports": _ports(gateway=gateway),
        # Not merged: a request of one above a limit of the other would be refused.
        "resources": deliverer.get("resources") or dict(defaults.resources),
        "securityContext": _security_context(),
        "livenessProbe": _probe("/livez", period=10, failures=6),
        "lifecycle": _lifecycle(gateway=gateway),
        "volumeMounts": [
            {"name": CONFIGURATION_VOLUME, "mountPath": CONFIGURATION_PATH, "readOnly": True},
            {"name": DATA_VOLUME, "mountPath": DATA_PATH},
            _identity_mount(identity, identity_path),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if defaults.image_pull_policy is not None:
        container["imagePullPolicy"] = defaults.image_pull_policy
    # Also without stores: they may be set later, and a pod's environment cannot change.
    variables = [] if gateway else [_of_pod(POD_UID, "metadata.uid")]
    if defaults.console:
        # No option: images of earlier versions would refuse it.
        variables.append({"name": OPERATOR_CONSOLE, "value": "true"})
    if tracing := deliverer.get("tracing"):
        variables += tracing_variables(
            tracing, service=service, namespace=namespace, gateway=gateway
        )
    if variables:
        container["env"] = variables
    if adopts:
        container["volumeMounts"].append(_identity_mount(TOKEN_VOLUME, TOKEN_PATH))
    if plugins:
        container["volumeMounts"].append(_plugins_mount())
    if gateway:
        container["startupProbe"] = _probe("/startupz", period=1, failures=START_SECONDS)
        # A gateway without a configuration answers 503, so it must get no traffic. A sidecar has no
        # such probe: a late configuration must not take the application's pod out of its Service.
        container["readinessProbe"] = _probe("/readyz", period=5, failures=3)
    return container


def tracing_variables(
    tracing: Object, *, service: str, namespace: str, gateway: bool
) -> Iterator[dict[str, Any]]:
    """The environment by which a deliverer records spans. Gateway and sidecar have different names,
    so that a trace shows both."""
    yield _of_pod(POD_NAME, "metadata.name")
    resource = {
        "k8s.namespace.name": namespace,
        # The kubelet replaces a variable that stands before this one.
        "k8s.pod.name": f"$({POD_NAME})",
        "pillion.service": service,
    }
    ratio = tracing.get("samplingRatio")
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": tracing["endpoint"],
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": "pillion-gateway" if gateway else "pillion-sidecar",
        "OTEL_RESOURCE_ATTRIBUTES": ",".join(f"{key}={value}" for key, value in resource.items()),
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": str(1.0 if ratio is None else float(ratio)),
    }
    for variable, value in variables.items():
        yield {"name": variable, "value": value}


def _of_pod(variable: str, field: str) -> dict[str, Any]:
    # The form in which the API server stores it: anything else would be a permanent difference.
    return {
        "name": variable,
        "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}},
    }


def plugins_of(spec: Object) -> Sequence[Object]:
    return _deliverer(spec).get("plugins") or ()


def plugin_container(plugin: Object) -> dict[str, Any]:
    """A native sidecar: it starts before the deliverer and ends after it."""
    container: dict[str, Any] = {
        "name": f"plugin-{plugin['name']}",
        "image": plugin["image"],
        "restartPolicy": "Always",
        "env": [{"name": PLUGIN_SOCKET, "value": _socket(plugin)}],
        "securityContext": _security_context(),
        "volumeMounts": [_plugins_mount()],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    for name in ("command", "args", "resources"):
        if plugin.get(name):
            container[name] = plugin[name]
    secret = plugin.get("environmentSecretRef")
    if secret:
        container["envFrom"] = [{"secretRef": {"name": secret["name"]}}]
    return container


def plugins_volume() -> dict[str, Any]:
    # Only for sockets: no plug-in can fill the node's disk with it.
    return {"name": PLUGINS_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}


def _identity_mount(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "mountPath": path, "readOnly": True}


def _plugins_mount() -> dict[str, Any]:
    return {"name": PLUGINS_VOLUME, "mountPath": PLUGINS_PATH}


def _socket(plugin: Object) -> str:
    return f"{PLUGINS_PATH}/{plugin['name']}.sock"


def configuration_volume(service: str) -> dict[str, Any]:
    """It names every possible Secret, because a pod's volumes cannot change."""
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
    """The sidecar's token for gateways, of the pod's own service account and with no other
    audience.

    Every sidecar has it, because its service may name a gateway later. The volume is explicit, so
    ``automountServiceAccountToken: false`` does not affect it.
    """
    token = {"audience": TOKEN_AUDIENCE, "expirationSeconds": TOKEN_SECONDS, "path": TOKEN}
    return {"name": TOKEN_VOLUME, "projected": {"sources": [{"serviceAccountToken": token}]}}


def tls_volume(service: str) -> dict[str, Any]:
    """Optional: without the certificate the gateway can still deliver."""
    return {"name": TLS_VOLUME, "secret": {"secretName": tls_secret(service), "optional": True}}


def data_volume(spec: Object) -> dict[str, Any]:
    """The journal's volume of a deliverer without a claim. Every deliverer has it: the durability
    may change, and a pod's volumes cannot."""
    limit = (_deliverer(spec).get("storage") or {}).get("sizeLimit")
    return {"name": DATA_VOLUME, "emptyDir": {} if limit is None else {"sizeLimit": limit}}


def termination_grace_seconds(spec: Object) -> int:
    """Seconds from a pod's deletion that its deliverer needs to end."""
    grace = spec.get("shutdownGracePeriodSeconds")
    delivering = SHUTDOWN_GRACE_SECONDS if grace is None else int(grace)
    return DRAIN_SECONDS + delivering + STOP_MARGIN_SECONDS


def _deliverer(spec: Object) -> Object:
    return spec.get("deliverer") or {}


def _arguments(
    service: str, *, namespace: str, defaults: DelivererDefaults, gateway: bool, adopts: bool
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
    if adopts or not gateway:
        # The deliverer replaces {service} by the gateway's name.
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
    # Only hastens delivery: intake stays open until SIGTERM, after the end of the application.
    hooks: dict[str, Any] = {
        "preStop": {"exec": {"command": [*drain, "--timeout", str(DRAIN_SECONDS)]}}
    }
    if not gateway:
        # A native sidecar delays the application until it has started, so this hook depends on
        # nothing remote, not even a configuration. A startup probe would take a second longer,
        # because the kubelet runs probes and checks containers in separate intervals of a second.
        wait = ["pillion", "wait", "--to", f"http://127.0.0.1:{TELEMETRY_PORT}"]
        hooks["postStart"] = {"exec": {"command": [*wait, "--timeout", str(START_SECONDS)]}}
    return hooks


def _ports(*, gateway: bool) -> list[dict[str, Any]]:
    ports = [{"name": TELEMETRY_PORT_NAME, "containerPort": TELEMETRY_PORT, "protocol": "TCP"}]
    if gateway:
        ports.append({"name": INTAKE_PORT_NAME, "containerPort": INTAKE_PORT, "protocol": "TCP"})
    return ports


def _security_context() -> dict[str, Any]:
    """The restricted profile of the Pod Security Standards, and a read-only root."""
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
