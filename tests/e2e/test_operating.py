"""What people see who operate Pillion: health by kubectl, Events that tell the story, and changes
that are in force in every deliverer at once."""

import functools
import json
import os
import re
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from cluster.story import Installation
from cluster.story_fixtures import in_namespace, restricted_namespace
from cluster.witnesses import ToldPublisher, Witness, ask, publisher_pod, publishing
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.report import Report
from pillion_testbed.rest import Refused, wait_until
from support.cluster_resources import (
    credentials,
    destination,
    filter_,
    service,
    subscription,
    together,
)

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

JSON = dict[str, Any]
KINDS = (
    "indicationservices",
    "indicationfilters",
    "listenerdestinations",
    "indicationsubscriptions",
)
GROUP = "pillion.dev"
PATIENT: JSON = {"deliveryRetryAttempts": 10000}
WITHIN = 90.0


def resources(namespace: str) -> JSON:
    """A destination of each sort of health. ``good`` is delivered to by sidecars and by the gateway
    alike, so that a change of it concerns every deliverer."""
    board = f"http://board.{namespace}.svc:8080"
    refusing = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "dead"},
        "spec": {"selector": {"app": "dead"}, "ports": [{"port": 8080}]},
    }
    token = {"bearer": {"secretRef": {"name": "token", "key": "token"}}}
    return together(
        refusing,
        credentials(),
        service(gatewayRef={"name": "hub"}, **PATIENT),
        service("hub", deliverer={"mode": "Gateway"}, **PATIENT),
        filter_(),
        destination(f"{board}/good", name="good"),
        destination(f"http://dead.{namespace}.svc:8080/", name="dead"),
        destination(f"{board}/held", name="held", suspended=True),
        destination(f"{board}/relayed", name="relayed", deliverThrough="Gateway"),
        destination(f"https://dead.{namespace}.svc:8080/", name="guarded", credentials=token),
        *(subscription(name, to=name) for name in ("good", "dead", "held", "relayed", "guarded")),
        subscription("good-by-hub", to="good", by="hub"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operated:
    """The namespace that is operated."""

    kubectl: Kubectl
    board: Witness
    #: Two with a sidecar, one that publishes straight to the gateway.
    publishers: Sequence[ToldPublisher]

    def patch(self, kind: str, name: str, spec: JSON) -> None:
        patch = json.dumps({"spec": spec})
        self.kubectl.run("patch", kind, name, "--type=merge", "-p", patch)

    def deliverers(self) -> dict[str, str]:
        """The addresses of all deliverers' pods, by their names."""
        found = self.kubectl.json("get", "pods", "--selector=pillion.dev/deliverer")
        return {one["metadata"]["name"]: one["status"]["podIP"] for one in found["items"]}

    def events(self, reason: str, about: str) -> list[str]:
        """What Events of a reason say about an object, ``KIND/NAME``."""
        selected = f"--field-selector=reason={reason}"
        found = self.kubectl.json("get", "events.events.k8s.io", selected)["items"]
        return [
            event["note"]
            for event in found
            if f"{event['regarding']['kind']}/{event['regarding']['name']}" == about
        ]

    def until_told(self, reason: str, about: str, *words: str) -> None:
        """Wait for an Event about an object that has all these words."""

        def told() -> bool:
            return any(all(word in note for word in words) for note in self.events(reason, about))

        wait_until(told, within=WITHIN, what=f"an Event {reason} about {about} with {words}")


@pytest.fixture(scope="module")
def operated(pillion: Installation, deliverer_image: str, report: Report) -> Iterator[Operated]:
    """Publishers with sidecars, one that publishes to the gateway, and listeners of all sorts."""
    name = f"operated-{uuid.uuid4().hex[:6]}"
    kubectl = in_namespace(pillion.kubectl, name)
    kubectl.apply(json.dumps(restricted_namespace(name)))
    board = Witness(kubectl=kubectl, name="board")
    with report.step("destinations of each sort of health, a gateway, and publishers"):
        board.deploy(deliverer_image)
        kubectl.apply(json.dumps(resources(name)))
        kubectl.wait("indicationservices", "--all", "--for=condition=Ready", within=90)
        make_missed(kubectl, deliverer_image)
        publishers = publishing(
            kubectl,
            publisher_pod("first", image=deliverer_image),
            publisher_pod("second", image=deliverer_image),
            publisher_pod("straight", image=deliverer_image, gateway="hub"),
        )
    yield Operated(kubectl=kubectl, board=board, publishers=publishers)
    kubectl.run("delete", "namespace", name, "--wait=false")


def make_missed(kubectl: Kubectl, image: str) -> None:
    """A pod that should have a sidecar and has none: a label that comes too late is what a webhook
    that was away looks like afterwards."""
    pod = publisher_pod("missed", image=image)
    pod["metadata"]["labels"] = {"app": "missed"}
    kubectl.apply(json.dumps(pod))
    kubectl.run("label", "pod", "missed", "pillion.dev/inject=default")


def read(printed: str) -> dict[str, dict[str, str]]:
    """What ``kubectl get`` prints, tables of several kinds among it: rows by their name."""
    rows: dict[str, dict[str, str]] = {}
    for block in printed.strip().split("\n\n"):
        head, *lines = block.splitlines()
        columns = [(found[0], found.start()) for found in re.finditer(r"\S+(?: \S+)*", head)]
        ends = [start for _, start in columns[1:]] + [None]
        for line in lines:
            cells = {
                name: line[start:end].strip()
                for (name, start), end in zip(columns, ends, strict=True)
            }
            rows[cells["NAME"].replace(f".{GROUP}", "")] = cells
    return rows


def test_kubectl_waits_for_each_kind(operated: Operated, report: Report) -> None:
    with report.step("kubectl wait --for=condition=Ready, for each kind"):
        for kind in KINDS:
            met = operated.kubectl.wait(kind, "--all", "--for=condition=Ready", within=90)
            assert met.count("condition met") >= 1
    for name, condition in (
        ("ldest/good", "Delivering"),
        ("ldest/relayed", "Delivering"),
        ("ldest/relayed", "RelayFailing=false"),
        ("ldest/dead", "ListenerUnreachable"),
        ("ldest/held", "Delivering=false"),
        ("indsvc/default", "GatewayReady"),
        ("indsvc/default", "InjectionComplete=false"),
    ):
        operated.kubectl.wait(name, f"--for=condition={condition}", within=90)


def test_kubectl_get_pillion_shows_health(operated: Operated) -> None:
    # kubectl asks anew which kinds there are: it may have asked before they were installed.
    operated.kubectl.run("api-resources", f"--api-group={GROUP}")

    def rows() -> dict[str, dict[str, str]]:
        return read(operated.kubectl.run("get", "pillion", "--output=wide"))

    def counted() -> bool:
        found = rows()
        waiting = (found[f"listenerdestination/{name}"]["OLDEST"] for name in ("dead", "held"))
        # A service is Ready as soon as one sidecar is, and counts the others later.
        return all(waiting) and found["indicationservice/default"]["READY"] == "2/2"

    wait_until(counted, within=WITHIN, what="what waits, and every sidecar, is in the status")
    found = rows()
    for name, result in (("dead", "Error"), ("held", "")):
        row = found[f"listenerdestination/{name}"]
        assert (row["READY"], row["DELIVERING"], row["LAST RESULT"]) == ("True", "False", result)
        assert int(row["DEPTH"]) > 0
    for name in ("good", "relayed"):
        row = found[f"listenerdestination/{name}"]
        assert (row["READY"], row["DELIVERING"], row["LAST RESULT"]) == ("True", "True", "Success")
    assert found["listenerdestination/relayed"]["RELAYFAILING"] == "False"
    own, hub = (found[f"indicationservice/{name}"] for name in ("default", "hub"))
    assert (own["MODE"], own["READY"], own["MISSING"]) == ("Sidecar", "2/2", "1")
    assert (own["GATEWAY"], own["GATEWAYREADY"], own["INJECTED"]) == ("hub", "True", "2")
    assert (hub["MODE"], hub["READY"]) == ("Gateway", "1/1")


def commanded(operated: Operated, pod: str, *command: str) -> tuple[int, str]:
    """Exit code and output of ``pillion COMMAND --pod POD``, which asks through a real kubectl."""
    kubectl = operated.kubectl
    program = str(Path(sys.executable).with_name("pillion"))
    ran = subprocess.run(
        [program, *command, f"--pod={pod}", f"--namespace={kubectl.namespace}"],
        env={
            **os.environ,
            "PATH": f"{kubectl.program.parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(kubectl.kubeconfig),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_commands_ask_a_deliverer_by_its_pod(operated: Operated, report: Report) -> None:
    sidecar = operated.publishers[0].name
    (gateway,) = (name for name in operated.deliverers() if "hub" in name)
    with report.step("commands on call, by --pod: a sidecar, a gateway, and no pod"):
        code, printed = commanded(operated, sidecar, "queues")
        assert code == 0
        assert re.search(r"^dead +failing", printed, re.MULTILINE)
        assert re.search(r"^held +suspended", printed, re.MULTILINE)
        code, printed = commanded(operated, gateway, "queues", "relayed")
        assert code == 0
        assert "ok" in printed
        # At `good` other tests look at all that comes.
        code, printed = commanded(operated, gateway, "test", "relayed")
        assert (code, "success" in printed) == (0, True)
        code, printed = commanded(operated, sidecar, "test", "dead")
        assert code != 0
        # The address of a service without endpoints refuses, or is silent while rules are written.
        assert re.search(r"refused|timed out", printed)
        code, printed = commanded(operated, sidecar, "doctor")
        assert "queue of dead" in printed
        code, printed = commanded(operated, "nobody", "queues")
        assert code != 0
        assert "nobody" in printed


def test_events_tell_of_a_gateway_that_is_not_there(operated: Operated) -> None:
    operated.patch("indsvc", "default", {"gatewayRef": {"name": "absent"}})
    operated.until_told("NotGatewayReady", "IndicationService/default", "GatewayNotFound", "absent")
    operated.until_told("NotAccepted", "IndicationSubscription/relayed", "absent")
    operated.patch("indsvc", "default", {"gatewayRef": {"name": "hub"}})
    operated.until_told("GatewayReady", "IndicationService/default")
    operated.until_told("Accepted", "IndicationSubscription/relayed")
    operated.kubectl.wait("ldest/relayed", "--for=condition=Delivering", within=90)


def test_events_tell_of_a_pod_that_was_missed(operated: Operated) -> None:
    operated.until_told("InjectionMissed", "Pod/missed", "default")
    operated.until_told("NotInjectionComplete", "IndicationService/default", "missed")
    # That it is gone is seen by the search for such pods, twice a minute: the last test here.
    operated.kubectl.run("delete", "pod", "missed", "--now")


def test_events_tell_of_a_configuration_that_is_refused(operated: Operated) -> None:
    """What the API server sees is refused at once; what depends on other objects becomes an
    Event."""
    with pytest.raises(KubectlFailed, match=r"spec\.destination: .*begin with http"):
        operated.patch("ldest", "guarded", {"destination": "ftp://listener.example/"})
    label = "pillion.dev/credentials"
    operated.kubectl.run("label", "secret", "token", f"{label}-")
    operated.until_told("NotAccepted", "ListenerDestination/guarded", "CredentialsNot", "'token'")
    operated.kubectl.wait("ldest/guarded", "--for=condition=Accepted=false", within=90)
    operated.kubectl.run("label", "secret", "token", f"{label}=true")
    operated.until_told("Accepted", "ListenerDestination/guarded")
    operated.kubectl.wait("ldest/guarded", "--for=condition=Ready", within=90)


# --- how soon a change is in force


def metrics(address: str) -> dict[str, float]:
    """What a deliverer measures, as it is at its port."""
    lines = ask(f"http://{address}:8289/metrics").decode().splitlines()
    pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in pairs}


def revision(of: dict[str, float]) -> str | None:
    """The series that names the revision in force."""
    return next((name for name in of if name.startswith("pillion_configuration_info{")), None)


def changed(
    operated: Operated, nodes: NodeCluster, change: Callable[[JSON], None]
) -> tuple[float, dict[str, dict[str, float]]]:
    """Change the destination ``good``; returns the seconds from the API server's answer until the
    last deliverer had it in force, by its own clock, and what each measures then."""
    addresses = operated.deliverers()
    before = {name: revision(metrics(address)) for name, address in addresses.items()}
    path = (
        f"/apis/{GROUP}/v1alpha1/namespaces/{operated.kubectl.namespace}/listenerdestinations/good"
    )

    def accepted() -> bool:
        wanted = nodes.rest.request("GET", path)
        change(wanted["spec"])
        try:
            nodes.rest.request("PUT", path, wanted)
        except Refused as error:
            # The operator has written its status meanwhile.
            if error.status == HTTPStatus.CONFLICT:
                return False
            raise
        return True

    wait_until(accepted, within=WITHIN, what="the change is accepted")
    since = time.time()

    def in_force() -> bool:
        return all(
            revision(metrics(address)) != before[name] for name, address in addresses.items()
        )

    wait_until(in_force, within=WITHIN, what="the change is in force in every deliverer")
    now = {name: metrics(address) for name, address in addresses.items()}
    loaded = "pillion_configuration_last_reload_success_timestamp_seconds"
    return max(one[loaded] for one in now.values()) - since, now


def test_a_changed_url_is_in_force_in_every_deliverer(
    operated: Operated, own_nodes: NodeCluster, report: Report
) -> None:
    names = {one.name for one in operated.publishers}
    assert operated.deliverers().keys() == {"first", "second", "pillion-hub-0"}
    namespace = operated.kubectl.namespace

    def move(spec: JSON, *, to: str) -> None:
        spec["destination"] = f"http://board.{namespace}.svc:8080{to}"

    def came(path: str) -> set[str]:
        return {one.identifier.split(".")[0] for one in operated.board.taken(path)}

    wait_until(lambda: came("/good") == names, within=WITHIN, what="all deliver to it")
    took = [
        changed(operated, own_nodes, functools.partial(move, to=path))[0]
        for path in (*(f"/on-the-way-{number}" for number in range(4)), "/moved")
    ]
    report.figure(
        "a changed URL is in force in two sidecars and a gateway, after it was accepted",
        f"{statistics.median(took):.2f} s, {min(took):.2f} to {max(took):.2f} s of {len(took)}",
    )
    wait_until(lambda: came("/moved") == names, within=WITHIN, what="all deliver to the new URL")
    # Each delivers one after the other, so none is on its way to the old one any more.
    before = len(operated.board.taken("/good"))
    for publisher in operated.publishers:
        publisher.until_told_more("durable")
    operated.board.until_it_has("/moved", {told(one)[-1] for one in operated.publishers})
    assert len(operated.board.taken("/good")) == before


def test_a_suspension_is_in_force_in_every_deliverer(
    operated: Operated, own_nodes: NodeCluster, report: Report
) -> None:
    def suspended(spec: JSON, *, value: bool) -> None:
        spec["suspended"] = value

    seconds, now = changed(operated, own_nodes, lambda spec: suspended(spec, value=True))
    report.figure(
        "a suspension is in force in two sidecars and a gateway, after it was accepted",
        f"{seconds:.2f} s",
    )
    series = 'pillion_destination_{}{{destination="good"}}'
    assert {name: one[series.format("suspended")] for name, one in now.items()} == dict.fromkeys(
        operated.deliverers(), 1
    )

    def at_rest() -> bool:
        return not any(
            metrics(address)[series.format("in_flight")]
            for address in operated.deliverers().values()
        )

    wait_until(at_rest, within=WITHIN, what="what was under way has ended")
    before = len(operated.board.taken("/moved"))
    for publisher in operated.publishers:
        publisher.until_told_more("durable")
    assert len(operated.board.taken("/moved")) == before

    changed(operated, own_nodes, lambda spec: suspended(spec, value=False))
    for publisher in operated.publishers:
        operated.board.until_it_has("/moved", {told(publisher)[-1]})


def test_events_tell_of_a_listener_that_fails_and_comes_back(operated: Operated) -> None:
    about = "ListenerDestination/dead"
    operated.until_told("ListenerUnreachable", about, "connection refused", "port 8080")
    operated.until_told("Backlogged", about, "OldIndications")
    board = f"http://board.{operated.kubectl.namespace}.svc:8080"
    operated.patch("ldest", "dead", {"destination": f"{board}/mended"})
    operated.kubectl.wait("ldest/dead", "--for=condition=Delivering", within=90)
    operated.until_told("NotListenerUnreachable", about)
    operated.until_told("NotBacklogged", about)
    described = operated.kubectl.run("describe", "ldest", "dead")
    for reason in ("ListenerUnreachable", "NotListenerUnreachable"):
        assert re.search(rf"^  \w+ +{reason} ", described, re.MULTILINE)


def told(publisher: ToldPublisher) -> list[str]:
    """The identifiers that are durable, in order."""
    return publisher.told()["durable"]


def test_events_tell_that_no_pod_is_missed_any_more(operated: Operated) -> None:
    operated.until_told("InjectionComplete", "IndicationService/default")
    operated.kubectl.wait("indsvc/default", "--for=condition=InjectionComplete", within=60)
