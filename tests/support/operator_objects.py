"""Objects as the API server has them, for tests of single parts of the operator."""

from collections.abc import Mapping
from typing import Any

from pillion_operator.cluster.types import Object
from pillion_operator.names import DELIVERER_LABEL
from pillion_operator.store import Key

NAMESPACE = "shop"
QUERY = "SELECT * FROM CIM_AlertIndication"

SERVICE = Key("IndicationService", NAMESPACE, "default")
FILTER = Key("IndicationFilter", NAMESPACE, "f")
DESTINATION = Key("ListenerDestination", NAMESPACE, "d")
SUBSCRIPTION = Key("IndicationSubscription", NAMESPACE, "s")
SECRET = Key("Secret", NAMESPACE, "token")
POD = Key("Pod", NAMESPACE, "p")

_VERSIONS = {"Secret": "v1", "ConfigMap": "v1", "Pod": "v1", "StatefulSet": "apps/v1"}


def made(key: Key, spec: Mapping[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    """An object; ``metadata`` beside name and namespace, or instead of what is here."""
    body: dict[str, Any] = {
        "apiVersion": _VERSIONS.get(key.kind, "pillion.dev/v1alpha1"),
        "kind": key.kind,
        "metadata": {
            "namespace": key.namespace,
            "name": key.name,
            "uid": f"uid-{key.kind.lower()}-{key.name}",
            "generation": 1,
            "resourceVersion": "1",
            **metadata,
        },
    }
    return body if spec is None else {**body, "spec": dict(spec)}


def subscription(
    name: str = "s", *, filter: str = "f", destination: str = "d", service: str | None = None
) -> dict[str, Any]:
    """A subscription of a filter to a destination; None: it names no service."""
    spec: dict[str, Any] = {"filterRef": {"name": filter}, "destinationRef": {"name": destination}}
    if service is not None:
        spec["serviceRef"] = {"name": service}
    return made(Key(SUBSCRIPTION.kind, NAMESPACE, name), spec)


def destination(name: str = "d", **spec: Any) -> dict[str, Any]:
    """A destination of CloudEvents, with whatever else ``spec`` says."""
    wanted = {"destination": "https://one.example.org/", "protocol": "CloudEvents", **spec}
    return made(Key(DESTINATION.kind, NAMESPACE, name), wanted)


def bearer(secret: str) -> dict[str, Any]:
    """A destination's credentials: a bearer token from a Secret."""
    return {"bearer": {"secretRef": {"name": secret}}}


def filter_of(name: str = "f", *, query: str = QUERY) -> dict[str, Any]:
    """A filter."""
    return made(Key(FILTER.kind, NAMESPACE, name), {"query": query})


def service(name: str = "default", **spec: Any) -> dict[str, Any]:
    """A service."""
    return made(Key(SERVICE.kind, NAMESPACE, name), spec)


def secret(name: str = "token", *, label: str | None = "true", **data: str) -> dict[str, Any]:
    """A Secret that destinations may use, unless ``label`` says otherwise; ``data`` in base64."""
    labels = {} if label is None else {"pillion.dev/credentials": label}
    body = made(Key("Secret", NAMESPACE, name), labels=labels)
    return {**body, "data": data or {"token": "b25l"}}


def mof_from(name: str = "classes", key: str | None = None) -> dict[str, Any]:
    """An entry of a service's mofFrom."""
    ref = {"name": name} if key is None else {"name": name, "key": key}
    return {"configMapRef": ref}


def config_map(
    mof: str, name: str = "classes", *, key: str = "classes.mof", label: str | None = "true"
) -> dict[str, Any]:
    """A ConfigMap with MOF that services may use, unless ``label`` says otherwise."""
    labels = {} if label is None else {"pillion.dev/classes": label}
    body = made(Key("ConfigMap", NAMESPACE, name), labels=labels)
    return {**body, "data": {key: mof}}


def pod(name: str = "p", *, deliverer: str | None = "default", **labels: str) -> dict[str, Any]:
    """A pod, with a deliverer of that service."""
    if deliverer is not None:
        labels[DELIVERER_LABEL] = deliverer
    return {**made(Key("Pod", NAMESPACE, name), labels=labels), "status": {"phase": "Running"}}


def with_status(body: Object, **status: Any) -> dict[str, Any]:
    """The object with another status."""
    return {**body, "status": status}


def changed(body: Object, **metadata: Any) -> dict[str, Any]:
    """The object with other metadata."""
    return {**body, "metadata": {**body["metadata"], **metadata}}
