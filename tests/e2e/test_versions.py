"""A pod with the deliverer of the first release stays when ``helm upgrade`` brings this version:
beside those of today it delivers, and gets a credential that changes."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from cluster.security import applied, secret
from cluster.story import Installation, listener_objects
from cluster.story_fixtures import in_namespace, restricted_namespace
from cluster.witnesses import ToldPublisher, ask, publisher_pod, publishing
from pillion_testbed import images
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support import guarded_listener
from support.cluster_resources import (
    credentials,
    destination,
    filter_,
    service,
    subscription,
    together,
)
from support.first_release import first_release

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

JSON = dict[str, Any]
PATIENT: JSON = {"deliveryRetryIntervalSeconds": 1, "deliveryRetryAttempts": 10000}
WITHIN = 90.0
LEVELS = ("durable", "delivered")
#: What the first release does not know.
NEWER = {"classes": [{"name": "HP_AlertIndication", "superclass": "CIM_AlertIndication"}]}


@dataclass(slots=True, kw_only=True)
class Guard:
    """A ``support.guarded_listener`` in a pod."""

    kubectl: Kubectl
    image: str
    _address: str = ""

    @property
    def host(self) -> str:
        return f"guard.{self.kubectl.namespace}.svc"

    def deploy(self, token: str) -> None:
        """Run it, behind a Service, and wait until it listens; Secret ``listener-ca`` has its
        authority."""
        authority = trustme.CA()
        shown = authority.issue_cert(self.host).private_key_and_cert_chain_pem.bytes().decode()
        program = Path(guarded_listener.__file__).read_text()
        objects = listener_objects(
            "guard",
            image=self.image,
            command=(),
            ports={port: port for port in (guarded_listener.PORT, guarded_listener.CONTROL_PORT)},
            probe={"httpGet": {"path": "/-/taken", "port": guarded_listener.CONTROL_PORT}},
        )
        spec = objects[0]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        del container["args"]
        container["command"] = ["python", "-c", program, "/certificates/tls.pem", token]
        container["volumeMounts"].append({"name": "certificates", "mountPath": "/certificates"})
        spec["volumes"].append({"name": "certificates", "secret": {"secretName": "guard-tls"}})
        applied(
            self.kubectl,
            secret("guard-tls", {"tls.pem": shown}, permitted=False),
            secret("listener-ca", {"ca.crt": authority.cert_pem.bytes().decode()}),
            *objects,
        )
        (pod,) = self.kubectl.json("get", "pods", "--selector=app=guard")["items"]
        self._address = f"http://{pod['status']['podIP']}:{guarded_listener.CONTROL_PORT}"

    def demand(self, token: str) -> None:
        """Take nothing but this token from now on."""
        ask(f"{self._address}/-/token", body=token.encode())

    def taken(self) -> list[tuple[str, str, str]]:
        """Address, token and identifier of each event that was taken, in order."""
        found: list[tuple[str, str, str]] = json.loads(ask(f"{self._address}/-/taken"))
        return found


@pytest.fixture(scope="module")
def first(
    pillion: Installation,
    own_nodes: NodeCluster,
    tmp_path_factory: pytest.TempPathFactory,
    report: Report,
) -> Iterator[Installation]:
    """The first release, installed by its own chart."""
    tree = first_release(tmp_path_factory.mktemp("first-release"))
    with report.step("build the image of the first release"):
        image = images.first_release(tree)
        own_nodes.import_image(image.archive)
    pillion.uninstall()
    chart = tree / "charts" / "pillion"
    made = replace(pillion, helm=replace(pillion.helm, chart=chart), image=image.name)
    with report.step("install the first release"):
        made.install()
    yield made
    pillion.install()


@pytest.fixture
def kubectl(pillion: Installation) -> Iterator[Kubectl]:
    """kubectl in a namespace of the test's own."""
    name = f"versions-{uuid.uuid4().hex[:6]}"
    made = in_namespace(pillion.kubectl, name)
    made.apply(json.dumps(restricted_namespace(name)))
    yield made
    made.run("delete", "namespace", name, "--wait=false")


def deliverer(kubectl: Kubectl, name: str) -> tuple[str, str]:
    """The uid of a pod, and the image of its deliverer."""
    pod = kubectl.json("get", "pod", name)
    every = pod["spec"].get("initContainers", []) + pod["spec"]["containers"]
    (image,) = (one["image"] for one in every if one["name"] == "pillion-deliverer")
    return pod["metadata"]["uid"], image


def older(kubectl: Kubectl) -> str:
    """What the service says of deliverers of an older version."""
    status = kubectl.json("get", "indicationservice", "default").get("status", {})
    found = [one for one in status.get("conditions", []) if one["type"] == "OlderDeliverers"]
    return str(found[0]["message"]) if found and found[0]["status"] == "True" else ""


def all_taken(guard: Guard, *publishers: ToldPublisher) -> None:
    """Wait until the listener has taken all that a publisher was told to be safe."""
    told = {name for one in publishers for names in one.told().values() for name in names}

    def lacking() -> set[str]:
        return told - {name for _, _, name in guard.taken()}

    wait_until(lambda: not lacking(), within=WITHIN, what="all that was told is taken")


def test_a_credential_reaches_the_first_release_beside_deliverers_of_today(
    first: Installation, pillion: Installation, kubectl: Kubectl, report: Report
) -> None:
    guard = Guard(kubectl=kubectl, image=pillion.image)
    guard.deploy("one")
    lead = destination(
        f"https://{guard.host}:{guarded_listener.PORT}/",
        tls={"caSecretRef": {"name": "listener-ca"}},
        credentials={"bearer": {"secretRef": {"name": "token"}}},
    )
    ours = (service(**PATIENT), filter_(), lead, subscription(), credentials(token="one"))
    kubectl.apply(json.dumps(together(*ours)))
    (old,) = publishing(kubectl, publisher_pod("old", image=first.image))
    old.until_told_more(*LEVELS)
    before = deliverer(kubectl, "old")
    assert before[1] == first.image

    with report.step("helm upgrade from the first release"):
        pillion.install()
    (new,) = publishing(kubectl, publisher_pod("new", image=pillion.image))
    assert deliverer(kubectl, "new")[1] == pillion.image
    # What the first release cannot read is left out for both, and said.
    kubectl.run("patch", "indsvc", "default", "--type=merge", "-p", json.dumps({"spec": NEWER}))
    wait_until(
        lambda: "classes" in older(kubectl) and "old" in older(kubectl),
        within=WITHIN,
        what="the service names the older pod and what is left out",
    )

    with report.step("change the credential"):
        guard.demand("two")
        kubectl.apply(json.dumps(credentials(token="two")))
        for publisher in (old, new):
            publisher.until_told_more(*LEVELS)
    taken = [(address, token) for address, token, _ in guard.taken()]
    assert {(old.address, "two"), (new.address, "two")} <= set(taken)
    assert deliverer(kubectl, "old") == before
    kubectl.wait("indsvc/default", "--for=condition=Ready", within=60)
    for publisher in (old, new):
        publisher.hold()
    all_taken(guard, old, new)

    kubectl.run("delete", "pod", "old")
    wait_until(lambda: not older(kubectl), within=WITHIN, what="none is older any more")
    kubectl.wait("indsvc/default", "--for=condition=Ready", within=60)
