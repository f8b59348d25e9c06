"""Two operators: one writes, both answer the webhook, and one goes on where the other ended."""

import json

import pytest

from cluster.convergence import World
from cluster.operators import OperatorProcess, Operators
from cluster.scenes import Identities, Identity, in_force, injecting, nudge
from pillion_testbed.audit import NOISE, WRITES, requests
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, pod, service, subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

DESTINATION = ("ListenerDestination", "operations")
RESOURCES = (service(), filter_(), destination("https://listener.example.com/"), subscription())


def leads(operator: OperatorProcess) -> bool:
    return operator.metrics()["pillion_operator_leader"] == 1


def writers(control_plane: ControlPlane, *accounts: Identity) -> list[str]:
    """Whoever of them has written something, in order, each as often as another did between."""
    users = {account.user for account in accounts}
    found: list[str] = []
    for request in requests(control_plane.audit_log):
        counts = request.verb in WRITES and request.resource.partition("/")[0] not in NOISE
        if counts and request.user in users and found[-1:] != [request.user]:
            found.append(request.user)
    return found


def changed(world: World, seconds: int) -> None:
    """Change the destination, and wait until the change is in force."""
    world.patch(*DESTINATION, {"spec": {"timeoutSeconds": seconds}})
    in_force(world, *DESTINATION)
    world.converges()


@pytest.mark.parametrize("ending", ["SIGTERM", "SIGKILL"])
def test_one_leads_and_the_other_goes_on_where_it_ended(
    world: World,
    operators: Operators,
    identities: Identities,
    control_plane: ControlPlane,
    ending: str,
) -> None:
    accounts = [identities.make(name) for name in ("one", "two")]
    first, second = (
        operators.start("--no-webhook", "--identity", name, kubeconfig=account.kubeconfig)
        for name, account in zip(("one", "two"), accounts, strict=True)
    )
    world.apply(*RESOURCES)
    world.converges()
    changed(world, 12)
    assert (leads(first), leads(second)) == (True, False)
    # A standby is of use all the same.
    assert second.read("/readyz") == second.read("/livez") == "ok\n"
    assert writers(control_plane, *accounts) == [accounts[0].user]

    if ending == "SIGTERM":
        assert first.stop() == 0
    else:
        first.kill()
    wait_until(lambda: leads(second), within=40, what="the other leads")
    changed(world, 13)
    nudge(world, second)
    assert writers(control_plane, *accounts) == [one.user for one in accounts]


def test_every_replica_answers_the_webhook(
    world: World, operators: Operators, admin_kubectl: Kubectl, kubectl: Kubectl
) -> None:
    replicas = [operators.start("--identity", name) for name in ("one", "two")]
    world.apply(service())
    for number, replica in enumerate(replicas):
        injecting(replica, admin_kubectl, namespace=world.namespace)
        wait_until(
            lambda replica=replica: injects(replica, kubectl),  # type: ignore[misc]
            within=30,
            what=f"an injection by replica {number}",
        )
    assert [leads(replica) for replica in replicas] == [True, False]


def injects(replica: OperatorProcess, kubectl: Kubectl) -> bool:
    """Whether a pod that is made now gets its deliverer from this replica."""
    injected = 'pillion_operator_webhook_answers_total{outcome="injected"}'
    before = replica.metrics()[injected]
    body = pod()
    body["metadata"] = {"generateName": "publisher-", "labels": body["metadata"]["labels"]}
    made = json.loads(kubectl.run("create", "-f", "-", "-ojson", input=json.dumps(body)))
    names = [one["name"] for one in made["spec"].get("initContainers") or ()]
    return names == ["pillion-deliverer"] and replica.metrics()[injected] > before


def test_it_serves_the_whole_cluster_where_it_is_told_no_namespace(
    world: World, operators: Operators, identities: Identities
) -> None:
    account = identities.make("everywhere", everywhere=True)
    operator = operators.start("--no-webhook", kubeconfig=account.kubeconfig, everywhere=True)
    world.apply(*RESOURCES)
    world.converges()
    changed(world, 12)
    assert {one.namespace for one in account.listed("listenerdestinations")} == {""}
    assert operator.stop() == 0
