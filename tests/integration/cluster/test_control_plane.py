"""The test bed itself: what the tests of the operator rely on is there and works."""

import asyncio
from typing import Any

import pytest

from pillion_operator.cluster.api import Api
from pillion_operator.cluster.types import POD, SECRET
from pillion_testbed.audit import writes
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl, KubectlFailed
from pillion_testbed.rest import Refused

pytestmark = pytest.mark.cluster


def config_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


def secret(namespace: str) -> dict[str, Any]:
    metadata = {"name": "s", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}


def gone(control_plane: ControlPlane, path: str) -> bool:
    try:
        control_plane.rest.request("GET", path)
    except Refused as error:
        return error.status == 404
    return False


def test_the_api_server_says_which_version_it_is(control_plane: ControlPlane) -> None:
    assert control_plane.rest.request("GET", "/version")["gitVersion"] == "v1.34.4"


def test_our_kinds_are_served(crds: list[str], kubectl: Kubectl) -> None:
    assert crds == [
        "indicationfilters.pillion.dev",
        "indicationreplays.pillion.dev",
        "indicationservices.pillion.dev",
        "indicationsubscriptions.pillion.dev",
        "listenerdestinations.pillion.dev",
    ]
    assert kubectl.json("get", "indicationservices")["items"] == []


# The collector rests for some 30 s whenever it learns of new kinds.
@pytest.mark.timeout(180)
def test_what_an_object_owns_is_collected_with_it(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    owner = control_plane.rest.request("POST", path, config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    reference["uid"] = owner["metadata"]["uid"]
    control_plane.rest.request("POST", path, config_map("owned", ownerReferences=[reference]))
    kubectl.run("delete", "configmap", "owner")
    kubectl.wait("configmap/owned", "--for=delete", within=150)
    assert gone(control_plane, f"{path}/owned")


def test_a_deleted_namespace_goes_with_all_that_is_in_it(
    control_plane: ControlPlane, admin_kubectl: Kubectl
) -> None:
    admin_kubectl.run("create", "namespace", "to-be-deleted")
    path = "/api/v1/namespaces/to-be-deleted"
    control_plane.rest.request("POST", f"{path}/configmaps", config_map("inside"))
    admin_kubectl.run("delete", "namespace", "to-be-deleted", "--timeout=30s")
    assert gone(control_plane, path)


def test_a_restart_of_the_api_server_keeps_the_data(
    control_plane: ControlPlane, kubectl: Kubectl
) -> None:
    kubectl.run("create", "configmap", "kept", "--from-literal=a=b")
    control_plane.restart_api_server()
    assert kubectl.json("get", "configmap", "kept")["data"] == {"a": "b"}


def test_a_pod_may_be_made_in_a_new_namespace_at_once(kubectl: Kubectl) -> None:
    kubectl.run("run", "pod", "--image=none")
    assert kubectl.json("get", "pod", "pod")["spec"]["serviceAccountName"] == "default"


def test_a_user_without_a_role_may_do_nothing(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    alice = Kubectl(
        program=kubectl.program,
        kubeconfig=control_plane.kubeconfig("alice"),
        namespace=namespace,
    )
    with pytest.raises(KubectlFailed, match='User "alice" cannot list resource "secrets"'):
        alice.run("get", "secrets")


def test_a_service_account_has_the_rights_of_its_role(
    control_plane: ControlPlane, kubectl: Kubectl, namespace: str
) -> None:
    path = control_plane.service_account_kubeconfig(namespace, "default")
    account = Kubectl(program=kubectl.program, kubeconfig=path, namespace=namespace)
    with pytest.raises(KubectlFailed, match=f"system:serviceaccount:{namespace}:default"):
        account.run("get", "pods")
    kubectl.run("create", "role", "reader", "--verb=list", "--resource=pods")
    kubectl.run(
        "create", "rolebinding", "r", "--role=reader", f"--serviceaccount={namespace}:default"
    )
    assert account.json("get", "pods")["items"] == []


async def test_the_client_of_the_operator_reaches_it(api: Api, namespace: str) -> None:
    await api.apply({**secret(namespace), "stringData": {"a": "b"}})
    assert [one["metadata"]["name"] for one in await api.list(SECRET, namespace)] == ["s"]
    assert await api.get(POD, namespace, "none") is None


async def test_the_audit_log_says_who_wrote_what(
    api: Api, control_plane: ControlPlane, namespace: str
) -> None:
    await api.create(secret(namespace))
    await api.patch(SECRET, namespace, "s", {"metadata": {"labels": {"a": "b"}}})
    await api.get(SECRET, namespace, "s")
    found = await asyncio.to_thread(
        lambda: list(writes(control_plane.audit_log, "admin", namespace=namespace))
    )
    assert [(one.verb, one.resource, one.name, one.status) for one in found] == [
        ("create", "secrets", "s", 201),
        ("patch", "secrets", "s", 200),
    ]
