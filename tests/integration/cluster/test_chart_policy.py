"""Whatever the operator's account may do by its roles, the chart's policies hold it to its work."""

import json
import os
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pillion_testbed.binaries import find_binaries
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.helm import Helm, HelmFailed, find_helm
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.rest import wait_until

# The first one may have to build helm.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

OPERATOR, HOME, SERVED = "pillion-operator", "pillion-system", "served"
Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    admin: Kubectl
    #: With the operator's own token, which has the rights of a cluster admin here: what is refused
    #: is refused by the policy alone.
    operator: Kubectl
    helm: Helm
    #: The owner reference of what is made.
    owner: Object


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    if os.environ.get("PILLION_SKIP_CLUSTER"):
        pytest.skip("PILLION_SKIP_CLUSTER is set")
    binaries = find_binaries(os.environ)
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), binaries)
    plane.start()
    try:
        yield made(plane, binaries.kubectl(), tmp_path_factory.mktemp("helm"))
    finally:
        plane.stop()


def made(plane: ControlPlane, program: Path, folder: Path) -> Bed:
    admin = Kubectl(program=program, kubeconfig=plane.kubeconfig())
    for namespace in (HOME, SERVED):
        admin.run("create", "namespace", namespace)
        admin.wait("serviceaccount/default", "--for=create", f"--namespace={namespace}")
    helm = find_helm(folder, kubeconfig=plane.kubeconfig())
    helm.upgrade(HOME, 'deliverer.allowedImages=["registry.example.com/pillion*"]')
    admin.wait("crd", "--all", "--for=condition=Established")
    admin.run(
        *("create", "clusterrolebinding", "everything", "--clusterrole=cluster-admin"),
        f"--serviceaccount={HOME}:{OPERATOR}",
    )
    kubeconfig = plane.service_account_kubeconfig(HOME, OPERATOR)
    operator = Kubectl(program=program, kubeconfig=kubeconfig)
    admin.apply(json.dumps(service("default")))
    uid = admin.json("get", "indsvc", "default", f"--namespace={SERVED}")["metadata"]["uid"]
    owner = {
        **{"apiVersion": "pillion.dev/v1alpha1", "kind": "IndicationService", "name": "default"},
        **{"uid": uid, "controller": True},
    }

    def in_force() -> bool:
        try:
            operator.run("create", "configmap", "probe", "--dry-run=server", "-ndefault")
        except KubectlFailed as refused:
            return "ValidatingAdmissionPolicy" in refused.printed
        return False

    wait_until(in_force, within=60, what="the policy is in force")
    admin.apply(json.dumps(OTHERS))
    admin.apply(json.dumps(OTHERS_POLICY))
    return Bed(admin=admin, operator=operator, helm=helm, owner=owner)


def service(name: str, **deliverer: Any) -> Object:
    return {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": "IndicationService",
        "metadata": {"name": name, "namespace": SERVED},
        "spec": {"deliverer": deliverer} if deliverer else {},
    }


def body(kind: str, api: str = "v1", *, namespace: str = SERVED, **fields: Any) -> Object:
    """What the operator could make, but for its owner."""
    labels = {"app.kubernetes.io/managed-by": "pillion", "pillion.dev/service": "default"}
    name = fields.pop("name", "pillion-default")
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}


OTHERS = body("Secret", name="others", type="Opaque")
OTHERS_POLICY = body("NetworkPolicy", "networking.k8s.io/v1", name="others", spec={})
MAIN = {"name": "main", "image": "registry.example.com/pillion:1"}


def gateway(**pod: Any) -> Object:
    labels = {"a": "b"}
    spec = {"serviceAccountName": "pillion-default", "containers": [MAIN], **pod}
    return body(
        "StatefulSet",
        "apps/v1",
        spec={
            "serviceName": "pillion-default",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    )


def deployment() -> Object:
    made = {**gateway(), "kind": "Deployment"}
    return {**made, "spec": {k: v for k, v in made["spec"].items() if k != "serviceName"}}


PRIVILEGED = {**MAIN, "securityContext": {"privileged": True}}
PORTS = [{"port": 80}]
RULE = {"apiGroup": "rbac.authorization.k8s.io"}
#: Each is made with an owner as if for an IndicationService.
OWNED: dict[str, Object] = {
    "a privileged gateway": gateway(containers=[PRIVILEGED]),
    "a privileged init container": gateway(initContainers=[{**PRIVILEGED, "name": "init"}]),
    "a gateway on the node's network": gateway(hostNetwork=True),
    "a gateway among the node's processes": gateway(hostPID=True),
    "a gateway with the node's memory": gateway(hostIPC=True),
    "a gateway on the node's disk": gateway(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "a gateway with another's account": gateway(serviceAccountName="default"),
    "a gateway without an account": gateway(serviceAccountName=""),
    "a token of an account": {
        **body("Secret", type="kubernetes.io/service-account-token"),
        "metadata": {
            **body("Secret")["metadata"],
            "annotations": {"kubernetes.io/service-account.name": "default"},
        },
    },
    "credentials of a registry": body(
        "Secret", type="kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": "{}"}
    ),
    "a Service that is reached from outside": body(
        "Service", spec={"type": "NodePort", "ports": PORTS}
    ),
    "a Service that takes another's address": body(
        "Service", spec={"externalIPs": ["192.0.2.1"], "ports": PORTS}
    ),
    "a ConfigMap of the system": body("ConfigMap", namespace="kube-system"),
    "a Secret of the system": body(
        "Secret", namespace="kube-system", type="pillion.dev/configuration"
    ),
    "a policy of the system": body(
        "NetworkPolicy", "networking.k8s.io/v1", namespace="kube-system", spec={}
    ),
    "a pod": body("Pod", spec={"containers": [MAIN]}),
    "a Deployment": deployment(),
    "a role": body("Role", RULE["apiGroup"] + "/v1", rules=[]),
}
#: Each is made without an owner.
FREE: dict[str, Object] = {
    "a Secret that nobody owns": body("Secret", type="pillion.dev/configuration"),
    "a ConfigMap that nobody owns": body("ConfigMap"),
    "a gateway that nobody owns": gateway(),
    "an account that nobody owns": body("ServiceAccount"),
    "a policy that nobody owns": body("NetworkPolicy", "networking.k8s.io/v1", spec={}),
    "a Secret of its own namespace by another name": body("Secret", namespace=HOME, name="more"),
    "a token in its own namespace": {
        **body("Secret", type="kubernetes.io/service-account-token"),
        "metadata": {
            "name": "pillion-webhook",
            "namespace": HOME,
            "annotations": {"kubernetes.io/service-account.name": OPERATOR},
        },
    },
    "a Lease by another name": body("Lease", "coordination.k8s.io/v1", namespace=HOME, spec={}),
    "the role of an admin": {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "mine"},
        "roleRef": {**RULE, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{**RULE, "kind": "User", "name": "me"}],
    },
    "a namespace": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}},
    "a service of ours": service("mine"),
}
MERGE = ("--type=merge", "-p")
COMMANDS: dict[str, tuple[str, ...]] = {
    "a Secret of somebody's is deleted": ("delete", "secret", "others"),
    "a policy of somebody's is deleted": ("delete", "networkpolicy", "others"),
    "a Secret of somebody's is changed": (
        *("patch", "secret", "others", *MERGE),
        '{"data":{"password":"eA=="}}',
    ),
    "an account is changed": (
        *("patch", "serviceaccount", "default", *MERGE),
        '{"imagePullSecrets":[{"name":"x"}]}',
    ),
    "a service of ours is changed": (
        *("patch", "indsvc", "default", *MERGE),
        '{"spec":{"deliverer":{"image":"registry.example.com/pillion:9"}}}',
    ),
    "a token is asked for": ("create", "token", "default"),
    "its own namespace is deleted": ("delete", "namespace", HOME),
}


def refused(kubectl: Kubectl, *arguments: str, input: str | None = None) -> str:
    with pytest.raises(KubectlFailed) as failed:
        kubectl.run(*arguments, input=input)
    return failed.value.printed


def test_thirty_harmful_writes_are_those_that_are_tried() -> None:
    assert len(OWNED) + len(FREE) + len(COMMANDS) >= 30


@pytest.mark.parametrize("what", [*OWNED, *FREE])
def test_nothing_is_made_but_what_is_the_operators_to_make(bed: Bed, what: str) -> None:
    harmful = deepcopy(OWNED.get(what) or FREE[what])
    if what in OWNED:
        harmful["metadata"]["ownerReferences"] = [bed.owner]
    said = refused(bed.operator, "create", "-f", "-", input=json.dumps(harmful))
    assert "pillion-operator-writes" in said
    assert "The Pillion operator" in said


@pytest.mark.parametrize("what", COMMANDS)
def test_nothing_of_anybody_else_is_changed(bed: Bed, what: str) -> None:
    said = refused(bed.operator, *COMMANDS[what], f"--namespace={SERVED}")
    assert "pillion-operator-writes" in said


@pytest.mark.parametrize(
    "good",
    [
        gateway(),
        body("Secret", type="pillion.dev/configuration"),
        body("ConfigMap"),
        body("Service", spec={"ports": PORTS}),
        body("ServiceAccount"),
        body("NetworkPolicy", "networking.k8s.io/v1", spec={}),
    ],
    ids=lambda good: good["kind"],
)
def test_what_it_makes_it_may_make(bed: Bed, good: Object) -> None:
    good = deepcopy(good)
    good["metadata"]["ownerReferences"] = [bed.owner]
    bed.operator.run("create", "--dry-run=server", "-f", "-", input=json.dumps(good))


def test_everybody_else_is_left_alone(bed: Bed) -> None:
    bed.admin.run("create", "configmap", "free", f"--namespace={SERVED}", "--dry-run=server")


@pytest.mark.parametrize(
    ("image", "taken"),
    [
        ("registry.example.com/pillion:2", True),
        ("registry.example.com/evil:1", False),
        (None, True),
    ],
)
def test_a_service_names_an_image_that_is_allowed(bed: Bed, image: str | None, taken: bool) -> None:
    named = service("imaged", **({"image": image} if image else {"mode": "Gateway"}))
    command = ("create", "--dry-run=server", "-f", "-")
    if taken:
        bed.admin.run(*command, input=json.dumps(named))
    else:
        said = refused(bed.admin, *command, input=json.dumps(named))
        assert "spec.deliverer.image: is none of the chart's deliverer.allowedImages" in said


def test_without_policies_the_whole_cluster_needs_consent(bed: Bed) -> None:
    with pytest.raises(HelmFailed, match=r"rbac\.admissionPolicy"):
        bed.helm.template(version="v1.29.0")
    for given in ("rbac.admissionPolicy=false", f'scope.namespaces=["{SERVED}"]'):
        assert "-writes" not in json.dumps(bed.helm.template(given, version="v1.29.0"))
