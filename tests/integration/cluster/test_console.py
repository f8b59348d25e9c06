"""The console of the cluster: a real API server says whose a token is and what its owner may."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from cluster.convergence import World
from cluster.operators import Operators
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support.cluster_resources import service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

RBAC = "rbac.authorization.k8s.io"


def asked(url: str, token: str | None) -> tuple[int, Any]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = urllib.request.Request(f"{url}/v1/cluster", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def account(kubectl: Kubectl, namespace: str, name: str, *subresources: str) -> str:
    """Make a service account that may get subresources of services; return a token of it."""
    kubectl.run("create", "serviceaccount", name, f"--namespace={namespace}")
    metadata = {"name": name, "namespace": namespace}
    resources = [f"indicationservices/{one}" for one in subresources]
    rule = {"apiGroups": ["pillion.dev"], "resources": resources, "verbs": ["get"]}
    role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [rule]}
    if subresources:
        kubectl.run("apply", "-f", "-", input=json.dumps(role))
        who = f"--serviceaccount={namespace}:{name}"
        kubectl.run("create", "rolebinding", name, f"--role={name}", who, "-n", namespace)
    return kubectl.run("create", "token", name, f"--namespace={namespace}").strip()


def test_it_is_shown_to_whom_the_api_server_gives_the_right(
    world: World, operators: Operators, admin_kubectl: Kubectl
) -> None:
    operator = operators.start("--no-webhook", "--console", "127.0.0.1:0")
    namespace = world.namespace
    reader = account(admin_kubectl, namespace, "reader", "queues")
    other = account(admin_kubectl, namespace, "other")
    world.apply(service())
    wait_until(
        lambda: asked(operator.console, reader)[0] == 200, within=60, what="the reader sees it"
    )
    assert asked(operator.console, reader)[1] == {"count": 0, "deliverers": 0, "queues": []}
    status, document = asked(operator.console, other)
    assert (status, f"system:serviceaccount:{namespace}:other may not" in document["reason"]) == (
        403,
        True,
    )
    assert [asked(operator.console, token)[0] for token in ("guessed", None)] == [401, 401]
