"""Plug-ins in containers of a gateway."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.breakable import STEADY, container_of, kill_container
from cluster.story import Installation
from cluster.story_fixtures import in_namespace, restricted_namespace
from cluster.witnesses import Witness, in_order, publisher_pod, publishing
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support import forwarding_plugin
from support.cluster_resources import destination, filter_, service, subscription, together

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

JSON = dict[str, Any]
WITHIN = 120.0
GATEWAY = "pillion-hub-0"
PROGRAM = Path(forwarding_plugin.__file__).read_text()
#: By the name of the plug-in.
COMMANDS = {
    "python": ["python", "-c", PROGRAM],
    "script": ["pillion", "plugin", "exec", "--", "python", "-c", PROGRAM, "--script"],
}


@pytest.fixture
def kubectl(pillion: Installation) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own."""
    name = f"plugins-{uuid.uuid4().hex[:6]}"
    made = in_namespace(pillion.kubectl, name)
    made.apply(json.dumps(restricted_namespace(name)))
    yield made
    made.run("delete", "namespace", name, "--wait=false")


def hub(image: str) -> JSON:
    """A gateway with a plug-in of each kind, each with a Secret of its own. It retries for longer
    than the restart of a plug-in may take."""
    plugins = [
        {
            "name": name,
            "image": image,
            "command": command,
            "environmentSecretRef": {"name": f"plugin-{name}"},
        }
        for name, command in COMMANDS.items()
    ]
    deliverer = {"mode": "Gateway", "plugins": plugins}
    return service("hub", deliveryRetryAttempts=600, deliverer=deliverer)


def secrets(board: Witness) -> list[JSON]:
    base = f"http://{board.name}.{board.kubectl.namespace}.svc:8080"
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": f"plugin-{name}"},
            "stringData": {"FORWARD_TO": f"{base}/{name}"},
        }
        for name in COMMANDS
    ]


def wanted() -> list[JSON]:
    made = [filter_()]
    for name in COMMANDS:
        url = f"plugin://{name}/board"
        made.append(destination(url, name=name, protocol="Plugin"))
        made.append(subscription(f"all-{name}", to=name, by="hub"))
    return made


def waits_for(kubectl: Kubectl, *words: str) -> bool:
    """Whether the service's Ready says that its gateway does not run, with these words."""
    status = kubectl.json("get", "indicationservice", "hub").get("status", {})
    return any(
        one["type"] == "Ready"
        and one["reason"] == "GatewayNotRunning"
        and all(word in one["message"] for word in words)
        for one in status.get("conditions", [])
    )


def restarts(kubectl: Kubectl, container: str) -> int:
    count: int = container_of(kubectl.json("get", "pod", GATEWAY), container)["restartCount"]
    return count


def test_plugins_in_containers_deliver_and_may_die(
    own_nodes: NodeCluster, kubectl: Kubectl, deliverer_image: str, report: Report
) -> None:
    board = Witness(kubectl=kubectl, name="board")
    board.deploy(deliverer_image)
    with report.step("a gateway whose plug-ins lack their Secrets: its status says so"):
        kubectl.apply(json.dumps(together(hub(deliverer_image), *wanted())))
        wait_until(
            lambda: waits_for(kubectl, "plugin-python"),
            within=WITHIN,
            what="the service names the container that waits",
        )
    with report.step("and with them: both deliver"):
        kubectl.apply(json.dumps(together(*secrets(board))))
        kubectl.wait("indicationservice/hub", "--for=condition=Ready", within=int(WITHIN))
        straight = publisher_pod("straight", image=deliverer_image, gateway="hub")
        (publisher,) = publishing(kubectl, straight)
        publisher.until_told_more("delivered", count=5)
    with report.step("a plug-in is killed: the next one goes on"):
        kill_container(own_nodes, kubectl.json("get", "pod", GATEWAY), "plugin-python")
        wait_until(
            lambda: restarts(kubectl, "plugin-python") == 1,
            within=WITHIN,
            what="the plug-in's restart",
        )
        publisher.until_told_more("delivered", count=5)
    with report.step("all that was accepted has come by both, in order"):
        burst = publisher.burst(50, event=STEADY)
        publisher.hold()
        for name in COMMANDS:
            board.until_it_has(f"/{name}", burst | set(publisher.told()["delivered"]))
            in_order(board.taken(f"/{name}"))
