"""A namespace in which things break: publishers, listeners, a gateway, and how it went for them."""

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cluster.story import EXAMPLE, SYSTEM, Installation, PywbemListener
from cluster.story_fixtures import in_namespace, restricted_namespace
from cluster.witnesses import (
    WITHIN,
    ToldPublisher,
    Witness,
    ask,
    publisher_pod,
    publishing,
    wait_for_all,
)
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.machine import ctr
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription, together

JSON = dict[str, Any]
DELIVERER = "pillion-deliverer"
TELEMETRY_PORT = 8289
STEADY, DARK = "steady", "dark"
#: Paths at the listener ``board``.
DIRECT, RELAYED, STRAIGHT = "/direct", "/relayed", "/straight"
ALERTS = "SELECT * FROM CIM_AlertIndication"
#: The interval between two attempts is a second here, where it is usually half a minute: what these
#: tests wait for in half a minute takes a quarter of an hour elsewhere.
PATIENT: JSON = {"deliveryRetryAttempts": 10000, "indicationLifetimeSeconds": 86400}


def resources(namespace: str) -> JSON:
    """Sidecars with a gateway behind them, sidecars without one, and whom they deliver to.

    ``direct``, ``wbem`` and ``dark`` are the deliverers' own; ``relayed`` goes through the gateway,
    and may be tried only twice: an absence of the gateway must not count as a try.
    """
    board = f"http://board.{namespace}.svc:8080"
    executors = {"podSelector": {"matchLabels": {"spark-role": "executor"}}}
    behind: JSON = {"gatewayRef": {"name": "hub"}, "handOverTo": {"name": "hub"}}
    through = {"deliverThrough": "Gateway"}
    return together(
        service(deliverer=executors, shutdownGracePeriodSeconds=20, **behind, **PATIENT),
        service("hub", deliverer={"mode": "Gateway"}, **PATIENT),
        service("lonely", shutdownGracePeriodSeconds=6, **PATIENT),
        filter_("all", ALERTS),
        filter_(STEADY, f"{ALERTS} WHERE EventID = '{STEADY}'"),
        filter_(DARK, f"{ALERTS} WHERE EventID <> '{STEADY}'"),
        destination(f"{board}{DIRECT}", name="direct"),
        destination(f"{board}{RELAYED}", name="relayed", retry={"attempts": 1}, **through),
        destination(f"{board}{STRAIGHT}", name="straight"),
        destination(f"http://dark.{namespace}.svc:8080/", name="dark", timeoutSeconds=5),
        destination(f"http://wbem.{namespace}.svc:5990/", name="wbem", protocol="CIM-XML"),
        subscription("direct", to="direct", of=STEADY),
        subscription("wbem", to="wbem", of=STEADY),
        subscription("relayed", to="relayed", of="all"),
        subscription("dark", to="dark", of=DARK),
        subscription("straight", to="straight", of="all", by="hub"),
        subscription("lonely", to="dark", of=DARK, by="lonely"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakable:
    """The namespace, and all that can be asked there."""

    nodes: NodeCluster
    pillion: Installation
    kubectl: Kubectl
    image: str
    board: Witness
    dark: Witness
    wbem: PywbemListener

    def make(self, pywbem_image: str) -> None:
        """Make everything but publishers, until it is ready."""
        name = str(self.kubectl.namespace)
        self.kubectl.apply(json.dumps(restricted_namespace(name)))
        self.board.deploy(self.image)
        self.dark.deploy(self.image)
        self.wbem.deploy(pywbem_image)
        self.kubectl.apply(json.dumps(resources(name)))
        self.kubectl.apply(EXAMPLE / "resources" / "spark.yaml")
        kinds = "indicationservices,listenerdestinations,indicationsubscriptions"
        self.kubectl.wait(kinds, "--all", "--for=condition=Ready", within=90)

    def publisher(self, name: str, **options: Any) -> ToldPublisher:
        """A new publisher's pod, once it is ready; options as of ``publisher_pod``."""
        (made,) = publishing(self.kubectl, publisher_pod(name, image=self.image, **options))
        assert made.straight or self.container(name, DELIVERER)
        return made

    def nothing_lost(self, *publishers: ToldPublisher) -> None:
        """Everything that these were told comes, or has come, to wherever it was routed."""
        for publisher in publishers:
            publisher.told()
            everything = publisher.known()
            if publisher.straight:
                self.board.until_it_has(STRAIGHT, everything)
                continue
            self.board.until_it_has(RELAYED, everything)
            steady = {one for one in everything if ".burst" not in one}
            self.board.until_it_has(DIRECT, steady)
            self._until_wbem_has(steady)

    def _until_wbem_has(self, wanted: set[str]) -> None:
        wait_for_all(lambda: wanted - set(self.wbem.identifiers()), what="pywbem's listener")

    def pod(self, name: str) -> JSON:
        found: JSON = self.kubectl.json("get", "pod", name)
        return found

    def container(self, pod: str, name: str) -> JSON:
        """A container's status."""
        return container_of(self.pod(pod), name)

    def ended(self, pod: str) -> dict[str, JSON]:
        """The containers of a pod that were started again, and how they had ended."""
        status = self.pod(pod)["status"]
        every = status["containerStatuses"] + status.get("initContainerStatuses", [])
        return {one["name"]: one["lastState"] for one in every if one["restartCount"]}

    def kill(self, pod: str, container: str) -> None:
        """``kill -9`` of a container's first process."""
        kill_container(self.nodes, self.pod(pod), container)

    def delete(self, pod: str, *options: str) -> None:
        """Delete a pod, until it is gone."""
        self.kubectl.run("delete", "pod", pod, "--request-timeout=0", *options)

    def depth(self, name: str) -> int:
        """What waits for a destination, as its status says."""
        status = self.kubectl.json("get", "listenerdestination", name).get("status", {})
        return int(status.get("depth", 0))

    def until_depth(self, name: str, depth: int) -> None:
        """Wait until a destination's status says that so many wait: the operator has seen them."""
        wait_until(lambda: self.depth(name) == depth, within=WITHIN, what=f"{name} has {depth}")

    def events(self, reason: str) -> list[str]:
        """The notes of this namespace's Events of a reason."""
        found = self.kubectl.json(
            "get", "events.events.k8s.io", f"--field-selector=reason={reason}"
        )
        return [event["note"] for event in found["items"]]

    def until_event(self, reason: str, *words: str) -> str:
        """Wait for an Event whose note has all these words, and return the note."""

        def found() -> list[str]:
            return [note for note in self.events(reason) if all(word in note for word in words)]

        wait_until(lambda: bool(found()), within=WITHIN, what=f"an Event {reason} about {words}")
        return found()[0]

    def told_by_operator(self, metric: str, service: str) -> float:
        """A metric of the operator about a service of this namespace; 0 where there is none."""
        (pod,) = self.kubectl.json(
            "get",
            "pods",
            f"--namespace={SYSTEM}",
            "--selector=app.kubernetes.io/component=operator",
        )["items"]
        ports = pod["spec"]["containers"][0]["ports"]
        (port,) = (one["containerPort"] for one in ports if one["name"] == "telemetry")
        labels = f'{{namespace="{self.kubectl.namespace}",service="{service}"}}'
        return sum(measured(pod, port, f"{metric}{labels} "))

    def discarded(self, pod: str, name: str) -> float:
        """How many indications for a destination a pod's deliverer has discarded."""
        return sum(self.metric(pod, f'pillion_indications_discarded_total{{destination="{name}",'))

    def metric(self, pod: str, begin: str) -> list[float]:
        """The values of a pod's deliverer's metrics whose lines begin so."""
        return measured(self.pod(pod), TELEMETRY_PORT, begin)


def measured(pod: JSON, port: int, begin: str) -> list[float]:
    """The values of a pod's metrics whose lines begin so."""
    lines = ask(f"http://{pod['status']['podIP']}:{port}/metrics").decode().splitlines()
    return values(lines, begin)


def values(lines: Sequence[str], begin: str) -> list[float]:
    """The values of the metrics whose lines begin so."""
    return [float(line.rpartition(" ")[2]) for line in lines if line.startswith(begin)]


def breakable(
    nodes: NodeCluster, pillion: Installation, *, namespace: str, image: str, pywbem_image: str
) -> Breakable:
    """A new namespace with all of it."""
    kubectl = in_namespace(pillion.kubectl, namespace)
    made = Breakable(
        nodes=nodes,
        pillion=pillion,
        kubectl=kubectl,
        image=image,
        board=Witness(kubectl=kubectl, name="board"),
        dark=Witness(kubectl=kubectl, name="dark"),
        wbem=PywbemListener(kubectl=kubectl, name="wbem"),
    )
    made.make(pywbem_image)
    return made


def container_of(pod: JSON, name: str) -> JSON:
    """A container's status."""
    status = pod["status"]
    every = status["containerStatuses"] + status.get("initContainerStatuses", [])
    found: JSON = next(one for one in every if one["name"] == name)
    return found


def kill_container(
    nodes: NodeCluster, pod: JSON, container: str, *, number_of_signal: int = signal.SIGKILL
) -> None:
    """``kill -9``, or another signal, of a container's first process."""
    number = container_of(pod, container)["containerID"].rpartition("/")[2]
    node = nodes.nodes[pod["spec"]["nodeName"]]
    tasks = ctr(node.machine.socket, "tasks", "list").splitlines()
    (task,) = (line.split() for line in tasks if line.startswith(number))
    os.kill(int(task[1]), number_of_signal)
