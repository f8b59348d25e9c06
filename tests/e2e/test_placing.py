"""A gateway in a real cluster: an image from a registry that asks for a password, a node with a
taint, a priority class; and what its status says while it cannot run."""

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.story import Installation
from cluster.story_fixtures import in_namespace, restricted_namespace
from cluster.witnesses import Witness, publisher_pod, publishing
from pillion_testbed import images
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.node_files import PROBE_IMAGE, PROVISIONER
from pillion_testbed.nodes import Node
from pillion_testbed.registry import Registry, registry
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription, together

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

JSON = dict[str, Any]
WITHIN = 120.0
PRIORITY = 4711
#: A registry refuses a pull, and then the kubelet waits until it asks again.
REFUSED = ("ErrImagePull", "ImagePullBackOff")


@pytest.fixture(scope="module")
def guarded(own_nodes: NodeCluster, node_kubectl: Kubectl, report: Report) -> Iterator[Node]:
    """A node without the deliverer's image, that lets only pods in that tolerate its taint."""
    with report.step("add a node with a taint"):
        node = own_nodes.add_node("guarded", images=(PROBE_IMAGE,))
        node_kubectl.run("taint", "node", node.name, "dedicated=alerts:NoSchedule")
    yield node
    with report.step("remove it"):
        node.remove()


@pytest.fixture(scope="module")
def private(own_nodes: NodeCluster, guarded: Node, pillion: Installation) -> Iterator[Registry]:
    """A registry from which alone services may name images."""
    with registry(images.deliverer(), host=own_nodes.host) as made:
        guarded.machine.pull_plainly(made.address)
        pillion.install(
            "deliverer.image.pullPolicy=IfNotPresent",
            f'deliverer.allowedImages=["{made.address}/*"]',
        )
        yield made
        pillion.install()


@pytest.fixture
def kubectl(pillion: Installation) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own."""
    name = f"placed-{uuid.uuid4().hex[:6]}"
    made = in_namespace(pillion.kubectl, name)
    made.apply(json.dumps(restricted_namespace(name)))
    yield made
    made.run("delete", "namespace", name, "--wait=false")


def template(*, secret: str | None = None) -> JSON:
    """Where the gateway's pods may run, and with which Secret their image is pulled."""
    placed: JSON = {
        "nodeSelector": {"kubernetes.io/hostname": "guarded"},
        "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "alerting",
    }
    return placed if secret is None else {**placed, "imagePullSecrets": [{"name": secret}]}


def ready(kubectl: Kubectl, name: str) -> JSON:
    """The condition Ready of a service."""
    status = kubectl.json("get", "indicationservice", name).get("status", {})
    found = [one for one in status.get("conditions", []) if one["type"] == "Ready"]
    return found[0] if found else {"reason": "", "message": "", "status": ""}


def until_not_running(kubectl: Kubectl, name: str, *words: str) -> JSON:
    """Wait until a service is not Ready because its gateway does not run, for a reason with one of
    these words."""

    def told() -> bool:
        found = ready(kubectl, name)
        known = found["status"] == "False" and found["reason"] == "GatewayNotRunning"
        return known and any(word in found["message"] for word in words)

    wait_until(told, within=WITHIN, what=f"{name} is GatewayNotRunning for one of {words}")
    return ready(kubectl, name)


def column(kubectl: Kubectl, name: str, number: int) -> str:
    """A column of what ``kubectl get`` prints of a service."""
    printed = kubectl.run("get", "indicationservice", name, "--no-headers")
    return printed.split()[number]


def test_a_gateway_from_a_private_registry_on_a_tainted_node(
    private: Registry,
    guarded: Node,
    pillion: Installation,
    kubectl: Kubectl,
    deliverer_image: str,
    report: Report,
) -> None:
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "alerting"},
        "value": PRIORITY,
    }
    pillion.kubectl.apply(json.dumps(priority))
    board = Witness(kubectl=kubectl, name="board")
    board.deploy(deliverer_image)
    hub: JSON = {"mode": "Gateway", "image": private.image}
    with report.step("a gateway without the registry's Secret: its status says why not"):
        kubectl.apply(
            json.dumps(
                together(
                    private.secret("registry"),
                    service("hub", deliverer={**hub, "template": template()}),
                    filter_(),
                    destination(f"http://board.{kubectl.namespace}.svc:8080/taken", name="board"),
                    subscription("all", to="board", by="hub"),
                )
            )
        )
        told = until_not_running(kubectl, "hub", *REFUSED)
    assert private.refused
    assert not private.pulled
    assert "pillion-hub-0" in told["message"]
    assert column(kubectl, "hub", 1) == "0/1"
    with pytest.raises(KubectlFailed, match="timed out"):
        kubectl.wait("indicationservice/hub", "--for=condition=Ready", within=1)

    with report.step("and with it: it runs there, and delivers"):
        patch = {"spec": {"deliverer": {"template": template(secret="registry")}}}
        kubectl.run("patch", "indicationservice", "hub", "--type=merge", "-p", json.dumps(patch))
        kubectl.wait("indicationservice/hub", "--for=condition=Ready", within=int(WITHIN))
        straight = publisher_pod("straight", image=deliverer_image, gateway="hub")
        (publisher,) = publishing(kubectl, straight)
        publisher.until_told_more("delivered", count=5)
    assert private.pulled
    assert column(kubectl, "hub", 1) == "1/1"
    assert len(board.taken("/taken")) >= 5
    spec = kubectl.json("get", "pod", "pillion-hub-0")["spec"]
    assert (spec["nodeName"], spec["priority"]) == (guarded.name, PRIORITY)
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


def test_an_image_of_another_registry_is_not_run(private: Registry, kubectl: Kubectl) -> None:
    other = {"mode": "Gateway", "image": "registry.example.com/other:1"}
    with pytest.raises(KubectlFailed, match=rf"Name one of {re.escape(private.address)}/\*"):
        kubectl.apply(json.dumps(service("other", deliverer=other)))


def test_a_gateway_waits_for_its_storage_class(
    pillion: Installation, kubectl: Kubectl, report: Report
) -> None:
    storage = {"sizeLimit": "1Gi", "storageClassName": "later"}
    with report.step("a gateway whose StorageClass is missing: its status says so"):
        kubectl.apply(json.dumps(service("hub", deliverer={"mode": "Gateway", "storage": storage})))
        told = until_not_running(kubectl, "hub", "later")
    assert column(kubectl, "hub", 1) == "0/1"
    assert "pillion-hub-0" in told["message"]
    with report.step("once it is there, the gateway runs"):
        later = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "later"},
            "provisioner": PROVISIONER,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        pillion.kubectl.apply(json.dumps(later))
        kubectl.wait("indicationservice/hub", "--for=condition=Ready", within=int(WITHIN))
    assert column(kubectl, "hub", 1) == "1/1"
