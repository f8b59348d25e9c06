"""Pods that vanish with their volumes while their listener is down. Three gateways keep copies of
their journals, and one adopts what was stable: it arrives once the listener is back, and status and
Events tell it."""

import json
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cluster.breakable import (
    ALERTS,
    DARK,
    DELIVERER,
    PATIENT,
    STEADY,
    TELEMETRY_PORT,
    kill_container,
    measured,
)
from cluster.story import Installation
from cluster.story_fixtures import in_namespace, restricted_namespace
from cluster.witnesses import WITHIN, ToldPublisher, Witness, publisher_pod, publishing
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription, together

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

JSON = dict[str, Any]
STORES = ("a", "b", "c")
BURST = 200
UNSTABLE = "pillion_store_unstable_bytes"
SESSIONS = "pillion_journal_copy_sessions{"


def resources(namespace: str) -> JSON:
    storage = {"mode": "Gateway", "storage": {"sizeLimit": "1Gi"}}
    members = [{"gatewayRef": {"name": name}} for name in STORES]
    url = f"http://dark.{namespace}.svc:8080/"
    return together(
        *(
            service(name, deliverer=storage, journalCopies={"maximumBytes": "256Mi"}, **PATIENT)
            for name in STORES
        ),
        service(
            handOverTo={"name": "a"},
            stores={"groups": [{"name": "all", "members": members}]},
            **PATIENT,
        ),
        filter_(DARK, f"{ALERTS} WHERE EventID <> '{STEADY}'"),
        destination(url, name="dark", timeoutSeconds=5),
        subscription("dark", to="dark", of=DARK),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """The namespace with gateways, a listener and publishers."""

    nodes: NodeCluster
    kubectl: Kubectl
    image: str
    dark: Witness

    def publisher(self, name: str) -> ToldPublisher:
        (made,) = publishing(self.kubectl, publisher_pod(name, image=self.image))
        return made

    def pod(self, name: str) -> JSON:
        found: JSON = self.kubectl.json("get", "pod", name)
        return found

    def measured(self, pod: str, begin: str) -> list[float]:
        return measured(self.pod(pod), TELEMETRY_PORT, begin)

    def until_stable(self, pod: str) -> None:
        """Wait until enough stores have what the pod's sidecar has on its disk."""
        wait_until(
            lambda: self.measured(pod, UNSTABLE) == [0.0], within=WITHIN, what=f"{pod} is stable"
        )

    def sessions(self, store: str) -> float:
        return sum(self.measured(f"pillion-{store}-0", SESSIONS))

    def vanish(self, pod: str) -> None:
        """Delete a pod by force whose sidecar has no time to say or to send anything."""
        kill_container(self.nodes, self.pod(pod), DELIVERER, number_of_signal=signal.SIGSTOP)
        self.kubectl.run("delete", "pod", pod, "--grace-period=0", "--force", "--request-timeout=0")

    def condition(self) -> tuple[str, str, str]:
        status = self.kubectl.json("get", "indicationservice", "default")["status"]
        found = (one for one in status["conditions"] if one["type"] == "SessionsPending")
        one = next(found, {"status": "", "reason": "", "message": ""})
        return one["status"], one["reason"], one["message"]

    def until(self, status: str, reason: str) -> str:
        """Wait until the service says this of its sessions, and return the message."""
        wait_until(
            lambda: self.condition()[:2] == (status, reason),
            within=WITHIN,
            what=f"SessionsPending is {status}, {reason}",
        )
        return self.condition()[2]

    def events(self, reason: str) -> list[str]:
        selector = f"--field-selector=reason={reason}"
        found = self.kubectl.json("get", "events.events.k8s.io", selector)["items"]
        return [event["note"] for event in found]

    def until_event(self, reason: str, count: int) -> list[str]:
        wait_until(
            lambda: len(self.events(reason)) >= count, within=WITHIN, what=f"{count} {reason}"
        )
        return self.events(reason)

    def column(self) -> str:
        """What ``kubectl get pillion`` shows of the service, under SESSIONS."""
        lines = self.kubectl.run("get", "indicationservices").splitlines()
        at = lines[0].index("SESSIONS")
        (line,) = (line for line in lines if line.startswith("default "))
        return line[at:].split()[0]


@pytest.fixture(scope="module")
def shop(
    own_nodes: NodeCluster, pillion: Installation, deliverer_image: str, report: Report
) -> Iterator[Shop]:
    name = f"adoption-{uuid.uuid4().hex[:6]}"
    kubectl = in_namespace(pillion.kubectl, name)
    dark = Witness(kubectl=kubectl, name="dark")
    with report.step("adoption: three gateways with copies, until all is Ready"):
        kubectl.apply(json.dumps(restricted_namespace(name)))
        dark.deploy(deliverer_image)
        kubectl.apply(json.dumps(resources(name)))
        kubectl.wait("indicationservices", "--all", "--for=condition=Ready", within=120)
        kubectl.wait(
            "indicationservice/default", "--for=condition=GatewayReady=True", within=WITHIN
        )
    yield Shop(nodes=own_nodes, kubectl=kubectl, image=deliverer_image, dark=dark)
    kubectl.run("delete", "namespace", name, "--wait=false")


def test_what_was_stable_arrives_after_its_pod_has_vanished(shop: Shop, report: Report) -> None:
    shop.until("False", "NoneLeft")
    shop.dark.go_down()
    leaver = shop.publisher("leaver")
    waits = leaver.burst(BURST, event=DARK)
    shop.until_stable("leaver")
    assert not shop.dark.taken("/")
    with report.step(f"adoption: a pod vanishes with {BURST} alerts, until they are adopted"):
        shop.vanish("leaver")
        (note,) = shop.until_event("SessionAdopted", 1)
        assert "The gateway a has adopted 1 journal(s) of pods that are gone" in note
        shop.until("False", "NoneLeft")
    wait_until(
        lambda: all(shop.sessions(store) == 0 for store in STORES),
        within=WITHIN,
        what="the stores forget the session",
    )
    assert shop.column() == "0"
    assert not shop.events("DelivererLost")
    assert not shop.dark.taken("/")
    shop.dark.come_back()
    shop.dark.until_it_has("/", waits)


def test_one_without_anybody_to_adopt_it_waits_and_says_so(shop: Shop, report: Report) -> None:
    shop.dark.go_down()
    lonely = shop.publisher("lonely")
    waits = lonely.burst(BURST, event=DARK)
    shop.until_stable("lonely")
    adopted = len(shop.events("SessionAdopted"))
    patch = {"spec": {"handOverTo": None}}
    shop.kubectl.run(
        "patch", "indicationservice", "default", "--type=merge", "-p", json.dumps(patch)
    )
    shop.until("False", "HandOverMissing")
    with report.step("adoption: a pod vanishes and no gateway may adopt, until that is told"):
        shop.vanish("lonely")
        message = shop.until("True", "HandOverMissing")
        assert "Set it to a service in mode Gateway." in message
        assert any("HandOverMissing" in note for note in shop.until_event("AdoptionWaits", 1))
        wait_until(lambda: shop.column() == "1", within=WITHIN, what="kubectl get shows it")
    patch = {"spec": {"handOverTo": {"name": "a"}}}
    with report.step("adoption: until it is adopted once a gateway is named"):
        shop.kubectl.run(
            "patch", "indicationservice", "default", "--type=merge", "-p", json.dumps(patch)
        )
        shop.until_event("SessionAdopted", adopted + 1)
        shop.until("False", "NoneLeft")
    shop.dark.come_back()
    shop.dark.until_it_has("/", waits)


def test_a_store_that_has_lost_its_volume_gets_its_copies_again(shop: Shop, report: Report) -> None:
    shop.dark.go_down()
    writer = shop.publisher("writer")
    waits = writer.burst(BURST, event=DARK)
    shop.until_stable("writer")
    uid = shop.pod("pillion-b-0")["metadata"]["uid"]
    with report.step("adoption: a gateway and its claim are deleted, until it has copies again"):
        claim = "pillion-data-pillion-b-0"
        shop.kubectl.run("delete", "pvc", claim, "--wait=false")
        shop.kubectl.run("delete", "pod", "pillion-b-0", "--request-timeout=0")
        wait_until(
            lambda: shop.pod("pillion-b-0")["metadata"]["uid"] != uid,
            within=WITHIN,
            what="another pod",
        )
        shop.kubectl.wait("pod/pillion-b-0", "--for=condition=Ready", within=WITHIN)
        more = writer.burst(BURST, event=DARK)
        wait_until(lambda: shop.sessions("b") == 1, within=WITHIN, what="b has the session")
        behind = 'pillion_store_behind_bytes{store="b"} '
        wait_until(
            lambda: shop.measured("writer", behind) == [0.0], within=WITHIN, what="b has all"
        )
    adopted = len(shop.events("SessionAdopted"))
    with report.step("adoption: its writer vanishes then"):
        shop.vanish("writer")
        shop.until_event("SessionAdopted", adopted + 1)
    shop.dark.come_back()
    shop.dark.until_it_has("/", waits | more)
