"""``helm upgrade``, ``rollback``, ``uninstall`` and install again, while publishers publish:
nothing acknowledged is lost, and no pod of a user's is restarted."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from cluster.story import SYSTEM, Installation
from cluster.story_fixtures import in_namespace, restricted_namespace
from cluster.witnesses import (
    ToldPublisher,
    Witness,
    in_order,
    once_each,
    publisher_pod,
    publishing,
)
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.machine import ctr
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription, together

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

JSON = dict[str, Any]
PATIENT: JSON = {"deliveryRetryAttempts": 10000}
WITHIN = 90.0
LEVELS = ("durable", "delivered")
#: What the operator makes for a gateway, and what it makes for any service.
OF_GATEWAYS = (
    "statefulset/pillion-hub",
    "service/pillion-hub",
    "configmap/pillion-hub",
    "serviceaccount/pillion-hub",
    "poddisruptionbudget/pillion-hub",
    "networkpolicy/pillion-hub",
    "secret/pillion-hub-tls",
    "persistentvolumeclaim/pillion-data-pillion-hub-0",
)
RENDERED = ("secret/pillion-hub-0", "secret/pillion-default-0")
KINDS = (
    "indicationservices",
    "listenerdestinations",
    "indicationfilters",
    "indicationsubscriptions",
)
#: What the operator keeps in its own namespace.
KEPT = ("secret/pillion-operator", "secret/pillion-webhook", "secret/pillion-gateways")


def resources(namespace: str) -> JSON:
    """Sidecars that deliver and relay; a gateway on a volume, to which others publish as well."""
    board = f"http://board.{namespace}.svc:8080"
    return together(
        service(gatewayRef={"name": "hub"}, **PATIENT),
        service("hub", deliverer={"mode": "Gateway", "storage": {"sizeLimit": "1Gi"}}, **PATIENT),
        filter_(),
        destination(f"{board}/direct", name="direct"),
        destination(f"{board}/relayed", name="relayed", deliverThrough="Gateway"),
        destination(f"{board}/straight", name="straight"),
        subscription("direct", to="direct"),
        subscription("relayed", to="relayed"),
        subscription("straight", to="straight", by="hub"),
    )


@dataclass(slots=True, kw_only=True)
class Load:
    """The namespace under load."""

    pillion: Installation
    kubectl: Kubectl
    board: Witness
    #: The name by which the image is known a second time, as a newer version of it.
    newer: str
    publishers: list[ToldPublisher] = field(default_factory=list)

    def publisher(self, name: str, *, gateway: str | None = None) -> ToldPublisher:
        """A new publisher's pod."""
        pod = publisher_pod(name, image=self.pillion.image, gateway=gateway)
        (made,) = publishing(self.kubectl, pod)
        self.publishers.append(made)
        return made

    def goes_on(self) -> None:
        """Every publisher is told more, of each level."""
        for publisher in self.publishers:
            publisher.until_told_more(*LEVELS, count=5)

    def pod(self, name: str, kubectl: Kubectl | None = None) -> JSON:
        found: JSON = (kubectl or self.kubectl).json("get", "pod", name)
        return found

    def deliverer(self, name: str) -> tuple[str, str, int]:
        """The uid of a deliverer's pod, its image, and how often it was started again."""
        pod = self.pod(name)
        every = pod["spec"].get("initContainers", []) + pod["spec"]["containers"]
        status = pod["status"].get("initContainerStatuses", []) + pod["status"]["containerStatuses"]
        (image,) = (one["image"] for one in every if one["name"] == "pillion-deliverer")
        (restarts,) = (one["restartCount"] for one in status if one["name"] == "pillion-deliverer")
        return pod["metadata"]["uid"], image, restarts

    def operator(self) -> str:
        """The uid of the operator's pod, the newest where one is just going."""
        pods = self.kubectl.json(
            "get",
            "pods",
            f"--namespace={SYSTEM}",
            "--selector=app.kubernetes.io/component=operator",
        )["items"]
        newest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        return str(newest["metadata"]["uid"])

    def gateway_runs(self, image: str) -> None:
        """Wait until the gateway has been rolled to an image."""

        def wanted() -> bool:
            found = self.kubectl.json("get", "statefulset", "pillion-hub")
            (container,) = found["spec"]["template"]["spec"]["containers"]
            return bool(container["image"] == image)

        wait_until(wanted, within=WITHIN, what=f"the gateway is to run {image}")
        self.kubectl.run(
            *("rollout", "status", "statefulset/pillion-hub"),
            *("--timeout=90s", "--request-timeout=0"),
        )
        assert self.deliverer("pillion-hub-0")[1] == image

    def there(self, *names: str, namespace: str | None = None) -> None:
        """All of these objects are there, and none is about to go."""
        place = [f"--namespace={namespace}"] if namespace else []
        for found in self.kubectl.json("get", *names, *place)["items"]:
            assert "deletionTimestamp" not in found["metadata"]


@pytest.fixture(scope="module")
def load(
    pillion: Installation, own_nodes: NodeCluster, deliverer_image: str, report: Report
) -> Iterator[Load]:
    """Publishers publish, before and while everything happens."""
    name = f"upgraded-{uuid.uuid4().hex[:6]}"
    newer = f"{deliverer_image}-newer"
    for node in own_nodes.nodes.values():
        ctr(node.machine.socket, "images", "tag", deliverer_image, newer)
    kubectl = in_namespace(pillion.kubectl, name)
    kubectl.apply(json.dumps(restricted_namespace(name)))
    board = Witness(kubectl=kubectl, name="board")
    made = Load(pillion=pillion, kubectl=kubectl, board=board, newer=newer)
    with report.step("a gateway on a volume, and publishers that publish all the time"):
        board.deploy(deliverer_image)
        kubectl.apply(json.dumps(resources(name)))
        kubectl.wait("indicationservices", "--all", "--for=condition=Ready", within=90)
        made.publisher("sidecar")
        made.publisher("straight", gateway="hub")
        made.goes_on()
    yield made
    kubectl.run("delete", "namespace", name, "--wait=false")
    pillion.install()


def test_an_upgrade_of_the_operator_alone_touches_no_deliverer(load: Load, report: Report) -> None:
    before = [load.deliverer(name) for name in ("sidecar", "pillion-hub-0")]
    operator = load.operator()
    with report.step("helm upgrade with a value that rolls the operator alone"):
        load.pillion.install('podAnnotations={"example.com/note":"upgraded"}')
    assert load.operator() != operator
    load.goes_on()
    assert [load.deliverer(name) for name in ("sidecar", "pillion-hub-0")] == before


def test_an_upgrade_of_the_image_rolls_gateways_and_leaves_pods_alone(
    load: Load, report: Report
) -> None:
    image = load.pillion.image
    before, gateway = load.deliverer("sidecar"), load.deliverer("pillion-hub-0")
    with report.step("helm upgrade to a newer image: operator and gateway are rolled"):
        load.pillion.install(f"image.tag={load.newer.rpartition(':')[2]}")
        load.gateway_runs(load.newer)
    assert load.deliverer("pillion-hub-0")[0] != gateway[0]
    load.goes_on()
    # The user's pod is not restarted: it keeps the deliverer that it has, and its restart is its
    # owner's to choose. A new one gets the new deliverer.
    assert load.deliverer("sidecar") == before
    assert before[1] == image
    load.publisher("later")
    assert load.deliverer("later")[1] == load.newer


def test_a_rollback_is_as_harmless(load: Load, report: Report) -> None:
    before = [load.deliverer(name) for name in ("sidecar", "later")]
    with report.step("helm rollback: operator and gateway are rolled back"):
        load.pillion.helm.run(
            *("rollback", "pillion", f"--namespace={SYSTEM}", "--wait", "--timeout=120s")
        )
        load.gateway_runs(load.pillion.image)
    load.goes_on()
    assert [load.deliverer(name) for name in ("sidecar", "later")] == before


def test_deliverers_outlive_an_uninstallation(load: Load, report: Report) -> None:
    names = ("sidecar", "later", "pillion-hub-0")
    before = [load.deliverer(name) for name in names]
    with report.step("helm uninstall, with publishers publishing on"):
        load.pillion.uninstall()
        load.goes_on()
    load.there(*(f"crd/{kind}.pillion.dev" for kind in KINDS))
    counts = [len(load.kubectl.json("get", kind)["items"]) for kind in KINDS]
    assert counts == [2, 3, 1, 3]
    # What the operator has made belongs to the services, and so is still there as they are.
    load.there(*OF_GATEWAYS, *RENDERED)
    load.there(*KEPT, namespace=SYSTEM)
    assert [load.deliverer(name) for name in names] == before


def test_an_installation_takes_over_what_it_finds(load: Load, report: Report) -> None:
    names = ("sidecar", "later", "pillion-hub-0")
    before = [load.deliverer(name) for name in names]
    stateful = load.kubectl.json("get", "statefulset", "pillion-hub")["metadata"]["generation"]
    with report.step("helm install again, until a change is in force"):
        load.pillion.install()
        patch = json.dumps({"spec": {"timeoutSeconds": 20}})
        for name in ("direct", "relayed"):
            load.kubectl.run("patch", "ldest", name, "--type=merge", "-p", patch)
            load.kubectl.wait(
                f"ldest/{name}",
                "--for=jsonpath={.status.observedGeneration}=2",
                within=60,
            )
            load.kubectl.wait(f"ldest/{name}", "--for=condition=Ready", within=60)
    load.goes_on()
    # The same objects, untouched, and their pods with them.
    found = load.kubectl.json("get", "statefulset", "pillion-hub")["metadata"]
    assert found["generation"] == stateful
    assert [load.deliverer(name) for name in names] == before
    load.publisher("last")


def test_nothing_was_lost_and_order_was_kept(load: Load, report: Report) -> None:
    for publisher in load.publishers:
        publisher.hold()
    known = {one.name: one.known() for one in load.publishers}
    told = sum(map(len, known.values()))
    with report.step("all that was acknowledged has arrived"):
        for name, identifiers in known.items():
            paths = ("/straight",) if name == "straight" else ("/direct", "/relayed")
            for path in paths:
                load.board.until_it_has(path, identifiers)
    report.figure("acknowledged during upgrade, rollback, uninstallation: lost", f"0 of {told:,}")
    in_order(load.board.taken("/direct"))
    for path in ("/relayed", "/straight"):
        in_order(load.board.taken(path))
        once_each(load.board.taken(path))
