"""The operator with no other rights than the chart's roles: nothing that it asks for is refused."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from pillion_operator.names import DELIVERER_LABEL, DRAIN_FINALIZER, REVISION_ANNOTATION
from pillion_testbed.audit import requests
from pillion_testbed.binaries import find_binaries
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.helm import Helm, find_helm
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until

# The first one may have to build helm.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

OPERATOR = "pillion-operator"
HOME, SERVED = "pillion-system", "served"
AUTHORITY, SPOILT = "pillion-gateways", "bm9uZQ=="
#: What a gateway is made of.
PARTS = (
    *("services", "serviceaccounts", "configmaps", "statefulsets"),
    *("poddisruptionbudgets", "networkpolicies"),
)
#: Server-side apply is told as a patch, and takes this right too where there is no object yet.
MAKING = {(part, "create") for part in PARTS}
#: What is no longer wanted is deleted, which nothing here comes to.
PRUNING = {("networkpolicies", "delete"), ("secrets", "delete")}
#: Seconds for the operator to come round to something: its own intervals are 30 s.
WITHIN = 90

RESOURCES = """
apiVersion: pillion.dev/v1alpha1
kind: IndicationService
metadata: {name: default}
spec:
  deliverer: {podSelector: {matchLabels: {app: a}}, onMissedInjection: Evict}
---
apiVersion: pillion.dev/v1alpha1
kind: IndicationService
metadata: {name: shared}
spec: {deliverer: {mode: Gateway}}
---
apiVersion: v1
kind: Secret
metadata: {name: account, labels: {pillion.dev/credentials: "true"}}
stringData: {username: u, password: p}
---
apiVersion: pillion.dev/v1alpha1
kind: ListenerDestination
metadata: {name: operations}
spec:
  destination: https://listener.example.com/cim
  protocol: CIM-XML
  removalPolicy: Drain
---
apiVersion: pillion.dev/v1alpha1
kind: IndicationFilter
metadata: {name: alerts}
spec: {query: SELECT * FROM CIM_AlertIndication}
---
apiVersion: pillion.dev/v1alpha1
kind: IndicationSubscription
metadata: {name: to-operations}
spec: {filterRef: {name: alerts}, destinationRef: {name: operations}}
---
apiVersion: pillion.dev/v1alpha1
kind: IndicationSubscription
metadata: {name: shared-to-operations}
spec: {serviceRef: {name: shared}, filterRef: {name: alerts}, destinationRef: {name: operations}}
---
apiVersion: pillion.dev/v1alpha1
kind: IndicationReplay
metadata: {name: afternoon}
spec:
  destinationRef: {name: operations}
  from: "2020-01-01T00:00:00Z"
  ttlSecondsAfterFinished: 0
"""


POD_SPEC = {"containers": [{"name": "main", "image": "localhost/application:1"}]}
#: A pod that says it has a deliverer, so the operator tells it of its configuration.
DELIVERING = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "delivering", "labels": {DELIVERER_LABEL: "default"}},
    "spec": POD_SPEC,
}
#: Its pod has none, since the webhook cannot be reached; and it is made again when it is evicted.
MISSED = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "missed"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": POD_SPEC},
    },
}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster of its own, whose audit log is of one operator alone."""
    if os.environ.get("PILLION_SKIP_CLUSTER"):
        pytest.skip("PILLION_SKIP_CLUSTER is set")
    folder = tmp_path / "plane"
    folder.mkdir()
    plane = ControlPlane(folder, find_binaries(os.environ), audit=True)
    plane.start()
    try:
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def kubectl(plane: ControlPlane) -> Kubectl:
    program = find_binaries(os.environ).kubectl()
    admin = Kubectl(program=program, kubeconfig=plane.kubeconfig())
    for namespace in (HOME, SERVED):
        admin.run("create", "namespace", namespace)
        admin.wait("serviceaccount/default", "--for=create", f"--namespace={namespace}")
    return Kubectl(program=program, kubeconfig=plane.kubeconfig(), namespace=SERVED)


@contextmanager
def operator(
    plane: ControlPlane, arguments: list[str], log: Path
) -> Iterator[subprocess.Popen[str]]:
    """The operator as the pod of the chart would start it, but for the addresses."""
    told = {"$(POD_NAMESPACE)": HOME, "$(POD_NAME)": "operator-0"}
    given = [told.get(argument, argument) for argument in arguments]
    for option in ("--telemetry", "--webhook"):
        given[given.index(option) + 1] = "127.0.0.1:0"
    kubeconfig = plane.service_account_kubeconfig(HOME, OPERATOR)
    command = [sys.executable, "-m", "pillion_cli.main", *given, "--kubeconfig", str(kubeconfig)]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline(), log.read_text()
        try:
            yield process
        finally:
            process.terminate()


def there(kubectl: Kubectl, *what: str) -> bool:
    return bool(kubectl.run("get", *what, "--ignore-not-found", "-oname"))


def until_there(kubectl: Kubectl, *what: str) -> None:
    wait_until(lambda: there(kubectl, *what), within=WITHIN, what=f"{' '.join(what)} is there")


def until_gone(kubectl: Kubectl, *what: str) -> None:
    wait_until(lambda: not there(kubectl, *what), within=WITHIN, what=f"{' '.join(what)} is gone")


def trusts(kubectl: Kubectl) -> bool:
    (configuration,) = kubectl.json("get", "mutatingwebhookconfiguration")["items"]
    return all("caBundle" in webhook["clientConfig"] for webhook in configuration["webhooks"])


def spoil(kubectl: Kubectl) -> None:
    """Spoil the authority of gateways, which is then written again."""
    patch = json.dumps({"data": {"ca.key": SPOILT}})
    kubectl.run("patch", "secret", AUTHORITY, f"--namespace={HOME}", "--type=merge", "-p", patch)


def authority_key(kubectl: Kubectl) -> Any:
    return kubectl.json("get", "secret", AUTHORITY, f"--namespace={HOME}")["data"]["ca.key"]


def annotation(kubectl: Kubectl, name: str) -> Any:
    return (kubectl.json("get", "pod", name)["metadata"].get("annotations") or {}).get(
        REVISION_ANNOTATION
    )


@pytest.mark.parametrize("values", [(), (f'scope.namespaces=["{SERVED}"]',)], ids=["all", "one"])
def test_the_operator_needs_no_other_right(
    plane: ControlPlane, kubectl: Kubectl, tmp_path: Path, values: tuple[str, ...]
) -> None:
    helm = find_helm(tmp_path / "helm", kubeconfig=plane.kubeconfig())
    helm.upgrade(HOME, *values)
    kubectl.wait("crd", "--all", "--for=condition=Established")
    arguments = arguments_of(helm, *values)
    kubectl.apply(json.dumps(DELIVERING))
    kubectl.apply(json.dumps(MISSED))
    until_there(kubectl, "pod", "-lapp=a")
    missed = kubectl.run("get", "pod", "-lapp=a", "-oname").strip()

    with operator(plane, arguments, tmp_path / "operator.log") as process:
        kubectl.apply(RESOURCES)
        for kind in ("indicationservice", "listenerdestination", "indicationsubscription"):
            kubectl.wait(kind, "--all", "--for=condition=Accepted", within=WITHIN)
        until_there(kubectl, "secret", "pillion-default-0")
        until_there(kubectl, "secret", "pillion-shared-tls")
        spoil(kubectl)
        for kind in (
            *("configmap", "statefulset", "service", "serviceaccount", "pdb", "networkpolicy"),
        ):
            until_there(kubectl, kind, "pillion-shared")
        wait_until(
            lambda: annotation(kubectl, "delivering") is not None, within=WITHIN, what="the poke"
        )
        until_gone(kubectl, missed)
        wait_until(lambda: trusts(kubectl), within=WITHIN, what="the CA of the webhook")
        wait_until(lambda: authority_key(kubectl) != SPOILT, within=WITHIN, what="an authority")
        kubectl.wait("indicationreplay", "--all", "--for=condition=Accepted", within=WITHIN)
        kubectl.run("delete", "pod", "delivering", "--force", "--grace-period=0")
        # Its only deliverer is gone, so the replay is complete, and then over.
        until_gone(kubectl, "indicationreplay", "afternoon")
        # A destination that drains goes once nobody holds any of its queue.
        assert (
            DRAIN_FINALIZER in kubectl.json("get", "ldest", "operations")["metadata"]["finalizers"]
        )
        kubectl.run("delete", "listenerdestination", "operations", "--wait=false")
        kubectl.run("delete", "indicationservice", "shared")
        until_gone(kubectl, "statefulset", "pillion-shared")
        process.terminate()
        assert process.wait(timeout=WITHIN) == 0

    user = f"system:serviceaccount:{HOME}:{OPERATOR}"
    asked = [request for request in requests(plane.audit_log) if request.user == user]
    assert len(asked) > 50
    assert [request for request in asked if request.status in (401, 403)] == []
    # It has done what it asks strong rights for, so a refusal would have been seen.
    assert {
        *(("pods", "patch"), ("pods/eviction", "create"), ("secrets", "patch")),
        *(("statefulsets", "patch"), ("listenerdestinations", "patch"), ("leases", "update")),
        *(("mutatingwebhookconfigurations", "patch"), ("configmaps", "patch")),
        *(("validatingwebhookconfigurations", "patch"), ("indicationreplays", "delete")),
    } <= {(request.resource, request.verb) for request in asked}
    # And it has no right that it does not use.
    used = {(request.resource, request.verb) for request in asked}
    assert granted(helm) - used == MAKING | PRUNING


def granted(helm: Helm) -> set[tuple[str, str]]:
    """The rights of the release's operator: resource and verb."""
    roles = [found for found in objects_of(helm) if found["kind"] in ("Role", "ClusterRole")]
    return {
        (resource, verb)
        for role in roles
        if not role["metadata"]["name"].endswith(("-view", "-edit"))
        for rule in role["rules"]
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


def objects_of(helm: Helm) -> list[Any]:
    """What the release is made of, as the API server has it."""
    printed = helm.run("get", "manifest", "pillion", f"--namespace={HOME}")
    return [found for found in yaml.safe_load_all(printed) if found]


def arguments_of(helm: Helm, *values: str) -> list[str]:
    """The command line in the pod of the release, as the API server has it."""
    for found in objects_of(helm):
        if found["kind"] == "Deployment":
            (container,) = found["spec"]["template"]["spec"]["containers"]
            arguments: list[str] = container["args"]
            return arguments
    raise AssertionError("the release has no Deployment")
