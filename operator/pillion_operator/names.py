"""Names in a cluster: labels, annotations, files and objects."""

FIELD_MANAGER = "pillion-operator"

EVENT_CONTROLLER = "pillion.dev/operator"

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY = "pillion"
#: On a Secret with a configuration: the level of its schema; default: 1.
LEVEL_ANNOTATION = "pillion.dev/schema-level"
#: On every object of an IndicationService: the service's name.
SERVICE_LABEL = "pillion.dev/service"
#: On pods, by users: the name of a service, "true" for the one named default, or "false".
INJECT_LABEL = "pillion.dev/inject"
#: On pods, by users: resources of the sidecar (``cpu=100m,memory=256Mi``) and its log level.
REQUESTS_ANNOTATION = "pillion.dev/requests"
LIMITS_ANNOTATION = "pillion.dev/limits"
LOG_LEVEL_ANNOTATION = "pillion.dev/log-level"
#: On pods with a deliverer, injected or a gateway's: the name of its service.
DELIVERER_LABEL = "pillion.dev/deliverer"
#: On a pod: the configuration revision for its deliverer. Writing it makes the kubelet refresh the
#: pod's volumes at once.
REVISION_ANNOTATION = "pillion.dev/configuration-revision"
#: On a service, by users: the former gateway whose relay is abandoned.
ABANDON_RELAY_ANNOTATION = "pillion.dev/abandon-relay"
#: On every object of an IndicationService: a digest of its desired state.
APPLIED_ANNOTATION = "pillion.dev/applied"
#: On the same objects: the operator's installation, by its namespace and Lease.
INSTALLATION_ANNOTATION = "pillion.dev/installation"
#: In a rendered configuration, on an object that continues an earlier one: its actual uid.
UID_ANNOTATION = "pillion.dev/uid"
#: In a rendered configuration: on a destination that gets, or has got, dead letters.
DEAD_LETTERS_ANNOTATION = "pillion.dev/dead-letters"
#: Keeps a deleted destination until its queues are drained.
DRAIN_FINALIZER = "pillion.dev/drain"

#: The name of the deliverer's container, injected or a gateway's.
CONTAINER = "pillion-deliverer"
#: The volume with the rendered configuration, and its mount.
CONFIGURATION_VOLUME = "pillion-configuration"
CONFIGURATION_PATH = "/etc/pillion/configuration"
#: The file there with the operator's bearer token for /v1/queues.
OPERATOR_TOKEN = "operator-token"
#: The variable by which a deliverer lets the operator's console in.
OPERATOR_CONSOLE = "PILLION_OPERATOR_CONSOLE"

#: The files there with the authorities of gateways and, for a gateway, with the keys of publishers'
#: tokens.
GATEWAY_CA = "gateway-ca.crt"
TOKEN_KEYS = "token-keys.json"

#: The volume with a sidecar's own token for gateways, its mount, and the file.
TOKEN_VOLUME = "pillion-token"
TOKEN_PATH = "/var/run/secrets/pillion"
TOKEN = "token"
#: The audience of these tokens.
TOKEN_AUDIENCE = "pillion"

#: The volume with a gateway's certificate, and its mount.
TLS_VOLUME = "pillion-tls"
TLS_PATH = "/etc/pillion/tls"

DATA_VOLUME = "pillion-data"
#: The sockets of plug-ins.
PLUGINS_VOLUME = "pillion-plugins"
PLUGINS_PATH = "/etc/pillion/plugins"
#: The environment variable in which a plug-in finds its socket.
PLUGIN_SOCKET = "PILLION_PLUGIN_SOCKET"
#: The environment variable of a deliverer that records spans, for their resource.
POD_NAME = "PILLION_POD_NAME"
#: The environment variable by which a sidecar tells the stores of its journal which pod it is.
POD_UID = "PILLION_POD_UID"

#: The type of the Secrets with a rendered configuration, and what their credentials label says.
CONFIGURATION_TYPE = "pillion.dev/configuration"
RENDERED = "rendered"

CONFIGURATION_PARTS = 16


def configuration_secret(service: str, part: int) -> str:
    """Parts count from 0."""
    return f"pillion-{service}-{part}"


def gateway(service: str) -> str:
    """Also of the Service, ConfigMap and so on of a service in Gateway mode."""
    return f"pillion-{service}"


def tls_secret(service: str) -> str:
    return f"pillion-{service}-tls"


def sidecars(service: str) -> str:
    """The NetworkPolicy of pods with a sidecar. No service's name holds a dot, so it is not that of
    the gateway of a service named NAME-sidecars."""
    return f"pillion-{service}.sidecars"


def headless(service: str) -> str:
    """The Service that gives each pod of a gateway a name of its own."""
    return f"pillion-{service}-headless"
