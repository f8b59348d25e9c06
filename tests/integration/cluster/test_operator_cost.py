"""What a change costs: requests that write, by the API server's own audit log."""

from typing import Any

import pytest

from cluster.convergence import World
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import Identities, becomes, deliverer_pod, in_force, nudge, reconciles
from pillion_operator.watching import WATCHED
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support.cluster_resources import credentials, destination, filter_, service, subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

#: Writes that one change of a user's may cost, besides the Lease, Events and pokes of pods.
BUDGET = 4

RESOURCES = (
    credentials(),
    service(),
    filter_(),
    destination(
        "https://listener.example.com/", credentials={"bearer": {"secretRef": {"name": "token"}}}
    ),
    subscription(),
)
#: Of each kind, a change that the configuration shows.
CHANGES: dict[tuple[str, str], dict[str, Any]] = {
    ("IndicationService", "default"): {"spec": {"deliveryRetryAttempts": 7}},
    ("IndicationFilter", "alerts"): {"spec": {"query": "SELECT * FROM CIM_ProcessIndication"}},
    ("ListenerDestination", "operations"): {"spec": {"timeoutSeconds": 12}},
    ("IndicationSubscription", "alerts-to-operations"): {"spec": {"onFatalErrorPolicy": "Remove"}},
    ("Secret", "token"): {"data": {"token": "b3RoZXI="}},
}


def test_a_change_costs_four_writes_at_most_and_nothing_is_written_for_its_own_sake(
    world: World, operators: Operators, identities: Identities
) -> None:
    account = identities.make("operator")
    operator = operators.start("--no-webhook", kubeconfig=account.kubeconfig)
    world.apply(*RESOURCES)
    world.converges()
    nudge(world, operator)
    for (kind, name), change in CHANGES.items():
        before = len(account.written())
        world.patch(kind, name, change)
        world.converges()
        for _ in range(2):
            nudge(world, operator)
        cost = account.written()[before:]
        assert 2 <= len(cost) <= BUDGET, (kind, cost)


def test_a_restart_and_a_resync_write_nothing(
    world: World, operators: Operators, identities: Identities, kubectl: Kubectl
) -> None:
    first = operators.start("--no-webhook")
    world.apply(*RESOURCES, service("gateway", deliverer={"mode": "Gateway"}))
    world.converges()
    kubectl.wait("pod/pillion-gateway-0", "--for=create")
    assert first.stop() == 0
    # Whoever has just written a status waits with mere counts; whoever has not does not.
    second = operators.start("--no-webhook")
    becomes(world, "IndicationService", "gateway", deliverers=1)
    nudge(world, second)
    assert second.stop() == 0
    account = identities.make("third")
    operator = operators.start(
        "--no-webhook", "--resync-interval", "1", kubeconfig=account.kubeconfig
    )
    wait_until(
        lambda: reconciles(operator).get("IndicationService/status", 0) >= 2,
        within=30,
        what="a look at everything",
    )
    nudge(world, operator)
    last, _selector = WATCHED[-1]
    # kopf's own, the operator's at its start, and that of a resync.
    wait_until(lambda: len(account.listed(last.plural)) >= 3, within=60, what="a whole resync")
    nudge(world, operator)
    assert account.written() == []


def test_a_change_writes_one_secret_and_pokes_each_pod_once(
    world: World, operators: Operators, identities: Identities, kubelet: Kubelet
) -> None:
    account = identities.make("operator")
    operator = operators.start("--no-webhook", kubeconfig=account.kubeconfig)
    pods = ("one", "two")
    world.apply(*RESOURCES, *(deliverer_pod(name) for name in pods))
    for name in pods:
        kubelet.ready(name)
    # Counts in status may wait for half a minute; this is known at once.
    answered = 'pillion_operator_deliverers_asked_total{result="answered"}'
    wait_until(lambda: operator.metrics()[answered] >= 4, within=30, what="answers of both")
    written, poked = len(account.written()), len(account.pokes())
    world.patch("ListenerDestination", "operations", {"spec": {"timeoutSeconds": 12}})
    in_force(world, "ListenerDestination", "operations")
    world.converges()
    names = [one.name for one in account.written()[written:] if one.resource == "secrets"]
    assert names == ["pillion-default-0"]
    assert sorted(poke.name for poke in account.pokes()[poked:]) == sorted(pods)
