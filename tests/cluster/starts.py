"""Pods of one command with or without a sidecar, in a namespace with a listener."""

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from cluster.story import RESTRICTED_CONTAINER, RESTRICTED_POD, CloudEventsListener
from cluster.story_fixtures import in_namespace, restricted_namespace
from pillion_operator.names import CONTAINER
from pillion_testbed.kubectl import Kubectl
from support.cluster_resources import destination, filter_, service, subscription, together

JSON = dict[str, Any]
BOARD = "board"


@contextmanager
def listening_namespace(administrator: Kubectl, image: str) -> Iterator[Kubectl]:
    """A namespace with a listener of the deliverer's image, and no resource of Pillion."""
    name = f"starts-{uuid.uuid4().hex[:6]}"
    kubectl = in_namespace(administrator, name)
    kubectl.apply(json.dumps(restricted_namespace(name)))
    try:
        board(kubectl).deploy(image, "--keep", "1")
        yield kubectl
    finally:
        kubectl.run("delete", "namespace", name, "--wait=false")


def board(kubectl: Kubectl) -> CloudEventsListener:
    return CloudEventsListener(kubectl=kubectl, name=BOARD)


def resources(kubectl: Kubectl, **spec: Any) -> str:
    """A service for pods that ask for it and for executors, and one destination of it."""
    storage = {"storage": {"sizeLimit": "2Gi"}}
    executors = {"podSelector": {"matchLabels": {"spark-role": "executor"}}}
    return json.dumps(
        together(
            service(deliverer={**storage, **executors}, **spec),
            filter_(),
            destination(f"http://{BOARD}.{kubectl.namespace}.svc:8080/"),
            subscription(),
        )
    )


def pod(name: str, *, image: str, command: Sequence[str], inject: bool) -> JSON:
    """A pod that runs one command of the deliverer's image, beside a deliverer if it is to."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": list(command),
        "securityContext": RESTRICTED_CONTAINER,
    }
    labels = {"pillion.dev/inject": "default"} if inject else {"app": "without"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "securityContext": RESTRICTED_POD,
            "restartPolicy": "Never",
            "containers": [container],
        },
    }


def ran_at(kubectl: Kubectl, name: str, *, image: str, inject: bool) -> float:
    """Run a pod; return the first moment of its own container's program, in seconds since the
    epoch."""
    tell = ("python", "-S", "-c", "import time; print(time.time())")
    kubectl.apply(json.dumps(pod(name, image=image, command=tell, inject=inject)))
    kubectl.wait(f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", within=60)
    return float(kubectl.run("logs", name, "--container=main"))


def intake_open(kubectl: Kubectl, name: str) -> float:
    """The moment at which a pod's sidecar said that its intake listens."""
    lines = kubectl.run("logs", name, f"--container={CONTAINER}").splitlines()
    records = [json.loads(line) for line in lines if '"time"' in line]
    (opened,) = (one["time"] for one in records if one["event"] == "deliverer-started")
    return datetime.fromisoformat(opened).timestamp()
