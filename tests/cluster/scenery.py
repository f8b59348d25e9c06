"""What the pictures of the manual show: a namespace in which some listeners are not well."""

import json
from pathlib import Path
from typing import Any

from cluster.story import RESTRICTED_CONTAINER, RESTRICTED_POD, CloudEventsListener, Installation
from cluster.story_fixtures import in_namespace, restricted_namespace
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support import steady_publisher
from support.cluster_resources import destination, filter_, service, subscription, together

JSON = dict[str, Any]

NAMESPACE = "weather"
PUBLISHERS = ("checkout", "stock", "returns")
#: Seconds for each answer of the slow listener: fewer a second than what is published.
SLOW = 0.3
ALERTS = "SELECT * FROM CIM_AlertIndication"
MAJOR = f"{ALERTS} WHERE PerceivedSeverity >= 5"


def publisher(name: str, image: str) -> JSON:
    """A pod that asks for a sidecar and publishes to it for as long as it lives."""
    container = {
        "name": "publisher",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", Path(steady_publisher.__file__).read_text()],
        "args": ["http://127.0.0.1:8288"],
        "securityContext": RESTRICTED_CONTAINER,
    }
    spec = {
        "securityContext": RESTRICTED_POD,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    metadata = {"name": name, "labels": {"app": name, "pillion.dev/inject": "true"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def resources(namespace: str) -> JSON:
    """One destination of each sort: well, slow, dead, suspended, and reached by a gateway."""
    board = f"http://board.{namespace}.svc:8080"
    # A Service without a pod behind it refuses connections.
    ports = [{"port": 8080}]
    metadata = {"name": "on-call"}
    spec = {"selector": {"app": "on-call"}, "ports": ports}
    dead = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return together(
        dead,
        service(gatewayRef={"name": "shared"}, deliveryRetryAttempts=10000),
        service("shared", deliverer={"mode": "Gateway", "storage": {"sizeLimit": "1Gi"}}),
        filter_("all-alerts", ALERTS),
        filter_("major-alerts", MAJOR),
        destination(f"{board}/operations", name="operations"),
        destination(f"http://archive.{namespace}.svc:8080/", name="archive"),
        destination(f"http://on-call.{namespace}.svc:8080/", name="on-call", queueSize=2000),
        destination(f"{board}/maintenance", name="maintenance", suspended=True),
        destination(f"{board}/flights", name="flight-board", deliverThrough="Gateway"),
        subscription("all-to-operations", to="operations", of="all-alerts"),
        subscription("all-to-archive", to="archive", of="all-alerts"),
        subscription("major-to-on-call", to="on-call", of="major-alerts"),
        subscription("major-to-maintenance", to="maintenance", of="major-alerts"),
        subscription("all-to-flight-board", to="flight-board", of="all-alerts"),
    )


def set_up(pillion: Installation, image: str) -> Kubectl:
    """Make all of it, until publishers publish; returns kubectl for the namespace."""
    kubectl = in_namespace(pillion.kubectl, NAMESPACE)
    kubectl.apply(json.dumps(restricted_namespace(NAMESPACE)))
    for name in ("board", "archive"):
        CloudEventsListener(kubectl=kubectl, name=name).deploy(image)
    CloudEventsListener(kubectl=kubectl, name="archive").behave(delay=SLOW)
    kubectl.apply(json.dumps(resources(NAMESPACE)))
    kubectl.wait("indicationservices", "--all", "--for=condition=Ready", within=90)
    pods = [publisher(name, image) for name in PUBLISHERS]
    kubectl.apply(json.dumps(together(*pods)))
    kubectl.wait(*(f"pod/{name}" for name in PUBLISHERS), "--for=condition=Ready", within=90)
    # The operator has heard of the dead listener, and has told it.
    kubectl.wait("ldest/on-call", "--for=condition=ListenerUnreachable", within=90)
    wait_until(lambda: _told(kubectl), within=60, what="the Event ListenerUnreachable")
    return kubectl


def _told(kubectl: Kubectl) -> bool:
    return "ListenerUnreachable" in kubectl.run("get", "events")
