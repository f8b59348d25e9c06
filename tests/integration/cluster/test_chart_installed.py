"""The chart on a real API server: installed, upgraded, removed, and what its roles allow."""

import base64
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from pillion_operator.names import REVISION_ANNOTATION
from pillion_testbed.binaries import find_binaries
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.helm import CHART, MATRIX, Helm, HelmFailed, Object, find_helm, only
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.rest import wait_until

# The first one may have to build helm.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

OPERATOR = "pillion-operator"
#: Where the release is, what it serves in namespaced scope, and a namespace that it has no part in.
HOME, SERVED, OTHER = "pillion-system", "served", "other"
RESTRICTED = "restricted"
#: Kinds that other operators bring; their API is not on this server.
FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")
OURS = (
    "indicationfilters",
    "indicationreplays",
    "indicationservices",
    "indicationsubscriptions",
    "listenerdestinations",
)

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
MADE = ("list", "watch", "create", "patch")
#: What the operator may do in a namespace that it serves, by group and resource.
IN_SERVED: dict[tuple[str, str], tuple[str, ...]] = {
    **{("pillion.dev", kind): ("list", "watch") for kind in OURS},
    **{("pillion.dev", f"{kind}/status"): ("patch",) for kind in OURS},
    ("pillion.dev", "listenerdestinations"): ("list", "watch", "patch"),
    ("pillion.dev", "indicationreplays"): ("list", "watch", "delete"),
    ("", "secrets"): (*MADE, "delete"),
    ("", "pods"): ("list", "watch", "patch"),
    ("", "pods/eviction"): ("create",),
    ("", "configmaps"): MADE,
    ("", "services"): MADE,
    ("", "serviceaccounts"): MADE,
    ("apps", "statefulsets"): MADE,
    ("policy", "poddisruptionbudgets"): MADE,
    ("networking.k8s.io", "networkpolicies"): (*MADE, "delete"),
    ("events.k8s.io", "events"): ("create",),
}
#: What it may do in its own namespace, where it does not serve that.
IN_HOME: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "secrets"): ("create",),
    ("coordination.k8s.io", "leases"): ("create",),
}
#: What it never has: asked for all the same, so that a right too many is seen.
NEVER: tuple[tuple[str, str], ...] = (
    *(("", name) for name in ("namespaces", "nodes", "events", "pods/exec")),
    *(("", name) for name in ("pods/status", "pods/ephemeralcontainers", "serviceaccounts/token")),
    ("apps", "deployments"),
    ("batch", "jobs"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    *(("pillion.dev", f"{kind}/finalizers") for kind in OURS),
)
ASKED = sorted({*IN_SERVED, *IN_HOME, *NEVER})


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A cluster that has never heard of Pillion."""
    if os.environ.get("PILLION_SKIP_CLUSTER"):
        pytest.skip("PILLION_SKIP_CLUSTER is set")
    plane = ControlPlane(tmp_path_factory.mktemp("plane"), find_binaries(os.environ))
    plane.start()
    try:
        admin = kubectl_of(plane)
        for namespace in (HOME, SERVED, OTHER, RESTRICTED):
            admin.run("create", "namespace", namespace)
            admin.wait("serviceaccount/default", "--for=create", f"--namespace={namespace}")
        admin.run("label", "namespace", RESTRICTED, "pod-security.kubernetes.io/enforce=restricted")
        yield plane
    finally:
        plane.stop()


def kubectl_of(plane: ControlPlane) -> Kubectl:
    return Kubectl(program=find_binaries(os.environ).kubectl(), kubeconfig=plane.kubeconfig())


@pytest.fixture(scope="module")
def admin(plane: ControlPlane) -> Kubectl:
    return kubectl_of(plane)


@pytest.fixture(scope="module")
def program(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return find_helm(tmp_path_factory.mktemp("helm"), kubeconfig=plane.kubeconfig())


@pytest.fixture
def helm(program: Helm) -> Iterator[Helm]:
    """helm, with no release at the beginning and none at the end of a test."""
    yield program
    if "pillion" in program.run("list", f"--namespace={HOME}", "--short", "--all"):
        program.uninstall(HOME)


def allowed(
    plane: ControlPlane, account: str, namespace: str | None, named: str = ""
) -> dict[tuple[str, str], tuple[str, ...]]:
    """What a service account may do in a namespace (None: in all), of all that is asked."""
    found: dict[tuple[str, str], list[str]] = {}
    for (group, resource), verb in product(ASKED, VERBS):
        name, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": name, "verb": verb, "name": named}
        attributes |= {"subresource": subresource, "namespace": namespace or ""}
        groups = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{HOME}",
            "system:authenticated",
        ]
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": f"system:serviceaccount:{HOME}:{account}",
                "groups": groups,
                "resourceAttributes": attributes,
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        if plane.rest.request("POST", path, review)["status"]["allowed"]:
            found.setdefault((group, resource), []).append(verb)
    return {key: tuple(verbs) for key, verbs in found.items()}


@pytest.mark.parametrize("case", MATRIX)
def test_the_api_server_takes_every_rendering(program: Helm, admin: Kubectl, case: str) -> None:
    objects = program.template(*MATRIX[case], namespace=HOME)
    taken = [found for found in objects if not found["apiVersion"].startswith(FOREIGN)]
    assert len(taken) > 5
    said = admin.apply(
        yaml.safe_dump_all(taken),
        *("--server-side", "--dry-run=server", "--validate=strict", "--force-conflicts"),
    )
    assert len(said.splitlines()) == len(taken)


def test_strict_validation_would_see_a_field_that_there_is_not(
    program: Helm, admin: Kubectl
) -> None:
    objects = program.template(namespace=HOME)
    for found in objects:
        if found["kind"] == "Deployment":
            found["spec"]["replica"] = 1
    with pytest.raises(KubectlFailed, match="replica"):
        admin.apply(yaml.safe_dump_all(objects), "--server-side", "--dry-run=server")


@pytest.mark.parametrize("case", ["default", "cert-manager"])
def test_a_namespace_of_the_restricted_profile_takes_the_operators_pod(
    program: Helm, admin: Kubectl, case: str
) -> None:
    template = only(program.template(*MATRIX[case]), "Deployment")["spec"]["template"]
    # The account is not there yet, and would be asked for first.
    body = {**template, "spec": {**template["spec"], "serviceAccountName": "default"}}
    pod = {**body, "apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] = {**body["metadata"], "name": "operator", "namespace": RESTRICTED}
    trial = ("--server-side", "--dry-run=server")
    assert "operator" in admin.apply(json.dumps(pod), *trial)

    (container,) = pod["spec"]["containers"]
    pod["spec"]["containers"] = [{**container, "securityContext": {}}]
    with pytest.raises(KubectlFailed, match="violates PodSecurity"):
        admin.apply(json.dumps(pod), *trial)


def resources_of(notes: str) -> str:
    (block,) = re.findall(r"<<'END'\n(.*?)\n  END", notes, re.DOTALL)
    return re.sub(r"^  ", "", block, flags=re.MULTILINE)


def uids(admin: Kubectl) -> dict[str, str]:
    found = admin.json("get", "pillion", f"--namespace={SERVED}")["items"]
    return {f"{one['kind']}/{one['metadata']['name']}": one["metadata"]["uid"] for one in found}


def test_resources_live_through_install_upgrade_removal_and_installation_again(
    helm: Helm, admin: Kubectl
) -> None:
    # The notes lead to a first subscription that the API server takes.
    notes = helm.upgrade(HOME)
    admin.wait("crd", "--all", "--for=condition=Established")
    admin.apply(resources_of(notes), f"--namespace={SERVED}", "--validate=strict")
    before = uids(admin)
    assert {name.partition("/")[0] for name in before} == {
        *("IndicationService", "ListenerDestination", "IndicationFilter"),
        "IndicationSubscription",
    }

    helm.upgrade(HOME, "replicas=2", "poke.enabled=false")
    deployment = admin.json("get", "deployment", OPERATOR, f"--namespace={HOME}")
    assert deployment["spec"]["replicas"] == 2
    assert "--no-poke" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    (policy,) = admin.json("get", "validatingadmissionpolicies")["items"]
    assert policy["metadata"]["name"] == "pillion-operator-writes"
    assert uids(admin) == before

    helm.run("rollback", "pillion", "1", f"--namespace={HOME}")
    assert admin.json("get", "deployment", OPERATOR, f"--namespace={HOME}")["spec"]["replicas"] == 1

    said = helm.uninstall(HOME)
    assert "[CustomResourceDefinition] listenerdestinations.pillion.dev" in said
    assert uids(admin) == before
    left = admin.run(
        "get", "deploy,sa,svc,role,rolebinding,netpol", f"--namespace={HOME}", "-oname"
    )
    assert "pillion" not in left
    everywhere = "clusterrole,clusterrolebinding,mutatingwebhookconfiguration"
    assert "pillion" not in admin.run("get", everywhere, "-oname")

    helm.upgrade(HOME)
    assert uids(admin) == before


def test_definitions_are_upgraded_with_the_release(
    helm: Helm, admin: Kubectl, tmp_path: Path
) -> None:
    older = tmp_path / "pillion"
    shutil.copytree(CHART, older)
    path = older / "files" / "crds" / "pillion.dev_listenerdestinations.yaml"
    columns = "    additionalPrinterColumns:\n"
    assert columns in path.read_text()
    extra = f"{columns}    - name: Old\n      type: string\n      jsonPath: .spec.protocol\n"
    path.write_text(path.read_text().replace(columns, extra))

    def shown() -> set[str]:
        found = admin.json("get", "crd", "listenerdestinations.pillion.dev")
        version = found["spec"]["versions"][0]
        return {column["name"] for column in version["additionalPrinterColumns"]}

    replace(helm, chart=older).upgrade(HOME, options=("--take-ownership",))
    assert "Old" in shown()
    helm.upgrade(HOME)
    assert "Old" not in shown()
    assert "Age" in shown()


def test_another_release_may_take_the_kept_definitions_over_only_when_told(
    helm: Helm, admin: Kubectl
) -> None:
    helm.upgrade(HOME, options=("--take-ownership",))
    helm.uninstall(HOME)
    with pytest.raises(HelmFailed, match="invalid ownership metadata"):
        helm.upgrade(OTHER)
    try:
        helm.upgrade(OTHER, options=("--take-ownership",))
        found = admin.json("get", "crd", "listenerdestinations.pillion.dev")
        assert found["metadata"]["annotations"]["meta.helm.sh/release-namespace"] == OTHER
    finally:
        helm.uninstall(OTHER)
        helm.upgrade(HOME, options=("--take-ownership",))


def test_an_upgrade_leaves_the_ca_of_the_webhook_as_it_is(
    plane: ControlPlane, helm: Helm, admin: Kubectl
) -> None:
    helm.upgrade(HOME)
    bundle = base64.b64encode(plane.ca.read_bytes()).decode()
    patch = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle}]
    configuration = ("mutatingwebhookconfiguration", "pillion-injector")
    admin.run("patch", *configuration, "--type=json", "-p", json.dumps(patch))

    helm.upgrade(HOME, "injection.timeoutSeconds=7", "injection.failurePolicy=Fail")

    (webhook,) = admin.json("get", *configuration)["webhooks"]
    assert (webhook["timeoutSeconds"], webhook["failurePolicy"]) == (7, "Fail")
    assert webhook["clientConfig"]["caBundle"] == bundle

    helm.run("rollback", "pillion", f"--namespace={HOME}")
    (webhook,) = admin.json("get", *configuration)["webhooks"]
    assert (webhook["timeoutSeconds"], webhook["failurePolicy"]) == (5, "Ignore")
    assert webhook["clientConfig"]["caBundle"] == bundle

    # As the manual says: then it is the operator who writes it again.
    helm.upgrade(HOME, options=("--force",))
    (webhook,) = admin.json("get", *configuration)["webhooks"]
    assert "caBundle" not in webhook["clientConfig"]


def test_the_rights_of_an_operator_of_all_namespaces(plane: ControlPlane, helm: Helm) -> None:
    helm.upgrade(HOME)
    assert allowed(plane, OPERATOR, OTHER) == IN_SERVED
    assert allowed(plane, OPERATOR, None) == IN_SERVED
    assert allowed(plane, OPERATOR, HOME) == {**IN_HOME, **IN_SERVED}


def test_the_rights_of_an_operator_of_one_namespace(plane: ControlPlane, helm: Helm) -> None:
    helm.upgrade(HOME, f'scope.namespaces=["{SERVED}"]')
    assert allowed(plane, OPERATOR, SERVED) == IN_SERVED
    assert allowed(plane, OPERATOR, OTHER) == {}
    assert allowed(plane, OPERATOR, None) == {}
    assert allowed(plane, OPERATOR, HOME) == IN_HOME


def test_what_the_operator_keeps_for_itself_is_named(plane: ControlPlane, helm: Helm) -> None:
    helm.upgrade(HOME, f'scope.namespaces=["{SERVED}"]')
    secrets, leases = ("", "secrets"), ("coordination.k8s.io", "leases")
    group = "admissionregistration.k8s.io"
    webhooks = (group, "mutatingwebhookconfigurations")
    validating = (group, "validatingwebhookconfigurations")
    own = allowed(plane, OPERATOR, HOME, OPERATOR)
    assert own == {secrets: ("get", "create", "patch"), leases: ("get", "create", "update")}
    for kept in ("pillion-webhook", "pillion-gateways"):
        own = allowed(plane, OPERATOR, HOME, kept)
        assert own == {secrets: ("get", "create", "update"), leases: ("create",)}
    injector = f"pillion-{HOME}-injector"
    assert allowed(plane, OPERATOR, None, injector) == {
        webhooks: ("get", "patch"),
        validating: ("get", "patch"),
    }


def test_rights_that_a_value_takes_away_are_gone(plane: ControlPlane, helm: Helm) -> None:
    helm.upgrade(HOME, "poke.enabled=false", "injection.evict=false")
    rights = {**IN_SERVED, ("", "pods"): ("list", "watch")}
    del rights["", "pods/eviction"]
    assert allowed(plane, OPERATOR, OTHER) == rights


def test_users_get_rights_for_the_resources_by_the_roles_that_aggregate(
    plane: ControlPlane, helm: Helm, admin: Kubectl
) -> None:
    helm.upgrade(HOME)
    labels = {
        role["metadata"]["name"]: {
            label.rpartition("/")[2]
            for label in role["metadata"]["labels"]
            if label.startswith("rbac.authorization.k8s.io/")
        }
        for role in admin.json("get", "clusterrole", "pillion-view", "pillion-edit")["items"]
    }
    assert labels == {
        "pillion-view": {"aggregate-to-view", "aggregate-to-edit", "aggregate-to-admin"},
        "pillion-edit": {"aggregate-to-edit", "aggregate-to-admin"},
    }
    for role in labels:
        account = f"has-{role}"
        subject = f"--serviceaccount={HOME}:{account}"
        admin.run("create", "rolebinding", account, f"--clusterrole={role}", subject, "-n", SERVED)
    view = allowed(plane, "has-pillion-view", SERVED)
    edit = allowed(plane, "has-pillion-edit", SERVED)
    writes = ("create", "update", "patch", "delete", "deletecollection")
    assert view == {("pillion.dev", kind): ("get", "list", "watch") for kind in OURS}
    assert edit == {("pillion.dev", kind): writes for kind in OURS}


POD: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "application",
        "namespace": SERVED,
        "labels": {"app": "a"},
        "annotations": {"note": "n"},
        "finalizers": ["example.com/held"],
    },
    "spec": {"containers": [{"name": "main", "image": "localhost/application:1"}]},
}


@pytest.fixture(scope="module")
def held(program: Helm, admin: Kubectl) -> Iterator[Kubectl]:
    """A pod, and kubectl as the operator, once the policy is in force."""
    program.upgrade(HOME, options=("--take-ownership",))
    admin.apply(json.dumps(POD), "--server-side")
    # kubectl reads what it patches, which the operator does not.
    admin.run("create", "role", "reader", "--verb=get", "--resource=pods", "-n", SERVED)
    subject = f"--serviceaccount={HOME}:{OPERATOR}"
    admin.run("create", "rolebinding", "reader", "--role=reader", subject, "-n", SERVED)
    trial = (*AS_OPERATOR, "--dry-run=server")
    wait_until(
        lambda: "may change only" in refusal(admin, {"annotations": {"other": "x"}}, trial),
        within=60,
        what="the policy is in force",
    )
    yield admin
    release = json.dumps({"metadata": {"finalizers": None}})
    admin.run("patch", "pod", "application", "-n", SERVED, "--type=merge", "-p", release)
    admin.run("delete", "pod", "application", "-n", SERVED, "--force", "--grace-period=0")
    admin.run("delete", "role,rolebinding", "reader", "-n", SERVED)
    program.uninstall(HOME)


AS_OPERATOR = (f"--as=system:serviceaccount:{HOME}:{OPERATOR}",)
AS_ADMINISTRATOR: tuple[str, ...] = ()


def refusal(
    kubectl: Kubectl, metadata: Any, user: Sequence[str] = AS_OPERATOR, spec: Any = None
) -> str:
    """What the API server says against a patch of the pod; empty when it takes it."""
    patch: dict[str, Any] = {"metadata": metadata}
    if spec is not None:
        patch["spec"] = spec
    patching = ("patch", "pod", "application", "-n", SERVED, "--type=strategic", *user)
    try:
        kubectl.run(*patching, "-p", json.dumps(patch))
    except KubectlFailed as error:
        return error.printed
    return ""


def test_the_operator_may_write_its_one_annotation(held: Kubectl) -> None:
    for revision in ("0123456789abcdef", "fedcba9876543210"):
        assert refusal(held, {"annotations": {REVISION_ANNOTATION: revision}}) == ""
    found = held.json("get", "pod", "application", "-n", SERVED)["metadata"]["annotations"]
    assert found == {"note": "n", REVISION_ANNOTATION: "fedcba9876543210"}


@pytest.mark.parametrize(
    ("metadata", "spec", "said"),
    [
        ({"annotations": {"other": "x"}}, None, "may change only the annotation"),
        ({"annotations": {"note": "changed"}}, None, "may change only the annotation"),
        ({"annotations": {"note": None}}, None, "may change only the annotation"),
        ({"annotations": {REVISION_ANNOTATION: "1", "other": "x"}}, None, "may change only"),
        ({"labels": {"app": "b"}}, None, "labels, finalizers or owners"),
        ({"labels": {"app": None}}, None, "labels, finalizers or owners"),
        ({"$deleteFromPrimitiveList/finalizers": ["example.com/held"]}, None, "finalizers"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-1"}]},
            None,
            "labels, finalizers or owners",
        ),
        ({}, {"containers": [{"name": "main", "image": "evil"}]}, "may not change a pod's spec"),
        ({}, {"activeDeadlineSeconds": 1}, "may not change a pod's spec"),
    ],
)
def test_the_operator_may_change_nothing_else_of_a_pod(
    held: Kubectl, metadata: Any, spec: Any, said: str
) -> None:
    refused = refusal(held, metadata, spec=spec)
    assert "ValidatingAdmissionPolicy" in refused
    assert said in refused


def test_the_policy_holds_nobody_else(held: Kubectl) -> None:
    assert refusal(held, {"labels": {"by": "somebody"}}, AS_ADMINISTRATOR) == ""
