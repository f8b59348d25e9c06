"""Resources as users write them, for tests on a cluster."""

from typing import Any

Resource = dict[str, Any]


def _ours(kind: str, name: str, spec: Resource) -> Resource:
    return {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def service(name: str = "default", **spec: Any) -> Resource:
    """An IndicationService; retries soon unless told otherwise."""
    return _ours("IndicationService", name, {"deliveryRetryIntervalSeconds": 1, **spec})


def destination(
    url: str, *, name: str = "operations", protocol: str = "CloudEvents", **spec: Any
) -> Resource:
    """A ListenerDestination."""
    return _ours("ListenerDestination", name, {"destination": url, "protocol": protocol, **spec})


def filter_(
    name: str = "alerts", query: str = "SELECT * FROM CIM_AlertIndication", **spec: Any
) -> Resource:
    """An IndicationFilter."""
    return _ours("IndicationFilter", name, {"query": query, **spec})


def subscription(
    name: str = "alerts-to-operations",
    *,
    to: str = "operations",
    of: str = "alerts",
    by: str = "default",
    **spec: Any,
) -> Resource:
    """An IndicationSubscription."""
    references = {
        "serviceRef": {"name": by},
        "filterRef": {"name": of},
        "destinationRef": {"name": to},
    }
    return _ours("IndicationSubscription", name, {**references, **spec})


def replay(name: str = "afternoon", *, to: str = "archive", **spec: Any) -> Resource:
    """An IndicationReplay of everything."""
    whole = {"destinationRef": {"name": to}, "from": "2020-01-01T00:00:00Z"}
    return _ours("IndicationReplay", name, {**whole, **spec})


def classes(mof: str, name: str = "vendors") -> Resource:
    """A ConfigMap with MOF that services may use."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"pillion.dev/classes": "true"}},
        "data": {"classes.mof": mof},
    }


def credentials(name: str = "token", *, permitted: bool = True, **data: str) -> Resource:
    """A Secret that destinations may use, if it is ``permitted``."""
    labels = {"pillion.dev/credentials": "true"} if permitted else {}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels},
        "stringData": data or {"token": "planted-secret"},
    }


def pod(name: str = "publisher", *, labels: dict[str, str] | None = None) -> Resource:
    """An application's pod that asks for the default service's deliverer unless told otherwise."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {"pillion.dev/inject": "default"}},
        "spec": {"containers": [{"name": "application", "image": "registry.example/app:1"}]},
    }


def together(*resources: Resource) -> Resource:
    """A List, for one ``kubectl apply``."""
    return {"apiVersion": "v1", "kind": "List", "items": list(resources)}
