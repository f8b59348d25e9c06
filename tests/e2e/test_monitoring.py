"""Prometheus on a node, by the chart's own scrape configuration: labels, panels and alerts."""

import json
import math
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.story import (
    RESTRICTED_CONTAINER,
    RESTRICTED_POD,
    SYSTEM,
    CloudEventsListener,
    Installation,
)
from cluster.story_fixtures import in_namespace, restricted_namespace
from pillion_testbed.helm import CHART
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.monitoring import Prometheus, running_prometheus
from pillion_testbed.node_cluster import NodeCluster
from pillion_testbed.report import Report
from pillion_testbed.rest import wait_until
from support import steady_publisher
from support.cluster_resources import destination, filter_, service, subscription, together
from support.dashboard import Query, load, queries, variables

pytestmark = [pytest.mark.node, pytest.mark.timeout(600)]

VALUES = ("monitoring.scrapeConfig.enabled=true", "monitoring.rules.enabled=true")
DASHBOARD = load(CHART / "files" / "dashboard.json")
ALL = dict.fromkeys(variables(DASHBOARD), ".*")
INTERVAL = "1m"
WITHIN = 120.0
#: The rules' own times, and what they are here, so that a test need not wait for minutes.
SHORTER = {"[5m]": "[20s]", "for: 2m": "for: 2s", "offset 5m": "offset 20s"}


def publisher(image: str) -> Any:
    """A pod that asks for a sidecar, and publishes to it for as long as it lives."""
    container = {
        "name": "publisher",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python", "-c", Path(steady_publisher.__file__).read_text()],
        "args": ["http://127.0.0.1:8288"],
        "securityContext": RESTRICTED_CONTAINER,
    }
    return pod("publisher", container, labels={"pillion.dev/inject": "true"})


def pod(name: str, container: Any, *, labels: dict[str, str]) -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "securityContext": RESTRICTED_POD,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }


def resources(namespace: str) -> Any:
    """A sidecar's service and a gateway; a listener that takes, one that is dead, and one that is
    reached through the gateway."""
    board = f"http://board.{namespace}.svc:8080"
    return together(
        service(gatewayRef={"name": "hub"}, deliveryRetryAttempts=1000),
        service("hub", deliverer={"mode": "Gateway"}),
        filter_(),
        destination(f"{board}/direct", name="good"),
        destination(f"http://nowhere.{namespace}.svc:8080/dead", name="dead"),
        destination(f"{board}/relayed", name="relayed", deliverThrough="Gateway"),
        subscription("to-good", to="good"),
        subscription("to-dead", to="dead"),
        subscription("to-relayed", to="relayed"),
    )


@pytest.fixture(scope="module")
def watched(pillion: Installation, deliverer_image: str, report: Report) -> Iterator[Kubectl]:
    """A namespace with a publisher, its sidecar, a gateway and a listener."""
    name = f"watched-{uuid.uuid4().hex[:6]}"
    kubectl = in_namespace(pillion.kubectl, name)
    pillion.install(*VALUES)
    kubectl.apply(json.dumps(restricted_namespace(name)))
    with report.step("a publisher with its sidecar, a gateway and a listener"):
        CloudEventsListener(kubectl=kubectl, name="board").deploy(deliverer_image)
        kubectl.apply(json.dumps(resources(name)))
        kubectl.wait("indicationservices", "--all", "--for=condition=Accepted", within=60)
        kubectl.apply(json.dumps(publisher(deliverer_image)))
        kubectl.wait("pod/publisher", "--for=condition=Ready", within=60)
    yield kubectl
    kubectl.run("delete", "namespace", name, "--wait=false")
    pillion.install()


def configuration(kubectl: Kubectl, folder: Path) -> dict[str, Any]:
    """What the chart has put into its ConfigMaps, for a Prometheus outside of the cluster."""

    def data(name: str, file: str) -> str:
        return str(kubectl.json("get", "configmap", name, f"--namespace={SYSTEM}")["data"][file])

    scrape = yaml.safe_load(data("pillion-scrape", "scrape.yaml"))
    for job in scrape["scrape_configs"]:
        job |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
        for discovery in job["kubernetes_sd_configs"]:
            discovery["kubeconfig_file"] = str(kubectl.kubeconfig)
    rules = data("pillion-rules", "rules.yaml")
    for usual, shorter in SHORTER.items():
        assert usual in rules
        rules = rules.replace(usual, shorter)
    (folder / "rules.yaml").write_text(rules)
    return {
        **scrape,
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules.yaml")],
    }


@pytest.fixture(scope="module")
def prometheus(
    watched: Kubectl, own_nodes: NodeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Prometheus on this machine, which reaches pods: only of nodes of our own."""
    assert own_nodes.nodes
    folder = tmp_path_factory.mktemp("prometheus")
    with running_prometheus(configuration(watched, folder), folder) as running:
        yield running


def test_everything_is_found_and_labelled_as_by_the_monitors(
    prometheus: Prometheus, watched: Kubectl
) -> None:
    def found() -> dict[tuple[str, str], dict[str, str]]:
        return {
            (target["labels"]["namespace"], target["labels"]["pod"]): target["labels"]
            for target in prometheus.targets()
            if target["health"] == "up"
        }

    namespace = str(watched.namespace)
    ours = {(namespace, "publisher"), (namespace, "pillion-hub-0")}
    up: dict[tuple[str, str], dict[str, str]] = {}

    def all_are_up() -> bool:
        # One that is slow once is down until it is asked again.
        up.update(found())
        return ours <= up.keys() and SYSTEM in {place for place, _ in up}

    wait_until(all_are_up, within=WITHIN, what="the operator and both deliverers are up")
    sidecar = dict(up[namespace, "publisher"])
    assert sidecar.pop("instance").endswith(":8289")
    assert sidecar == {
        "namespace": namespace,
        "pod": "publisher",
        "container": "pillion-deliverer",
        "service": "default",
        "endpoint": "pillion-metrics",
        "job": f"{SYSTEM}/pillion-deliverers",
    }
    assert up[namespace, "pillion-hub-0"]["service"] == "hub"
    (operator,) = [labels for (place, _), labels in up.items() if place == SYSTEM]
    assert operator["container"] == "operator"
    assert operator["service"] == operator["job"] == "pillion-operator"
    # Each pod once: its other ports are no targets.
    names = [target["labels"]["pod"] for target in prometheus.targets()]
    assert len(names) == len(set(names))


def test_every_panel_has_data(
    prometheus: Prometheus, watched: Kubectl, deliverer_image: str
) -> None:
    missing = list(queries(DASHBOARD))

    def has_data(query: Query) -> bool:
        found = prometheus.query(query.filled(ALL, interval=INTERVAL))
        return any(not math.isnan(float(one["value"][1])) for one in found)

    def all_have() -> bool:
        # Nobody else makes pods here, and how long the webhook takes is told of new ones alone.
        trial = publisher(deliverer_image) | {"metadata": {"generateName": "trial-"}}
        watched.run("create", "--dry-run=server", "-f", "-", input=json.dumps(trial))
        missing[:] = [query for query in missing if not has_data(query)]
        return not missing

    try:
        wait_until(all_have, within=WITHIN, what="every panel has data")
    except TimeoutError:
        raise AssertionError([(one.panel, one.filled(ALL)) for one in missing]) from None


def firing(prometheus: Prometheus, alert: str, **labels: str) -> bool:
    return any(
        found["state"] == "firing"
        and found["labels"].items() >= {"alertname": alert, **labels}.items()
        for found in prometheus.alerts()
    )


def test_the_alert_for_a_listener_that_is_down_fires_and_resolves(
    prometheus: Prometheus, watched: Kubectl, report: Report
) -> None:
    alert, namespace = "PillionListenerUnreachable", str(watched.namespace)

    def fires(name: str) -> bool:
        return firing(prometheus, alert, namespace=namespace, destination=name)

    with report.step("the alert for a listener that is down fires"):
        wait_until(lambda: fires("dead"), within=WITHIN, what=f"{alert} fires")
    assert not fires("good")
    assert not fires("relayed")
    mended = {"spec": {"destination": f"http://board.{namespace}.svc:8080/mended"}}
    watched.run("patch", "listenerdestination", "dead", "--type=merge", "-p", json.dumps(mended))
    with report.step("the listener is mended, and it resolves"):
        wait_until(lambda: not fires("dead"), within=WITHIN, what=f"{alert} resolves")


def test_the_alert_for_a_missed_injection_fires_and_resolves(
    prometheus: Prometheus, watched: Kubectl, deliverer_image: str, report: Report
) -> None:
    container = {
        "name": "missed",
        "image": deliverer_image,
        "imagePullPolicy": "Never",
        "args": ["listen"],
        "securityContext": RESTRICTED_CONTAINER,
    }
    watched.apply(json.dumps(pod("missed", container, labels={"app": "missed"})))
    # A label that comes too late is what a webhook that was away looks like afterwards.
    watched.run("label", "pod", "missed", "pillion.dev/inject=true")
    alert, labels = "PillionInjectionsMissed", {"namespace": str(watched.namespace)}
    with report.step("the alert for a missed injection fires"):
        wait_until(
            lambda: firing(prometheus, alert, **labels), within=WITHIN, what=f"{alert} fires"
        )
    watched.run("delete", "pod", "missed")
    with report.step("the pod is gone, and it resolves"):
        wait_until(
            lambda: not firing(prometheus, alert, **labels), within=WITHIN, what="it resolves"
        )
