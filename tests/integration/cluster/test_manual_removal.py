"""What the manual says becomes of queued indications when a subscription or a Secret goes."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.convergence import World
from cluster.deliverer_pod import DelivererPod
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import deliverer_pod, publish, queue
from pillion_testbed.rest import wait_until
from support.cluster_resources import credentials, destination, filter_, service, subscription
from support.processes import ListenerProcess, listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

FIRST, SECOND = "first", "second"
HELD = 3


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[ListenerProcess]:
    with listener_process(tmp_path, "--status", "503") as running:
        yield running


def backlog(
    world: World,
    kubelet: Kubelet,
    listener: ListenerProcess,
    *subscriptions: str,
    policy: str,
    secured: bool = False,
) -> DelivererPod:
    """Have a deliverer hold indications, ``HELD`` for each subscription to one destination."""
    # What is discarded leaves gaps, for which a listener that minds numbers would wait.
    more: dict[str, Any] = {"sequenceIdentifiers": "Omit"}
    if secured:
        more["credentials"] = {"bearer": {"secretRef": {"name": "token"}}}
    world.apply(
        service(deliveryRetryAttempts=1000),
        filter_(),
        credentials(),
        destination(listener.url, removalPolicy=policy, **more),
        *(subscription(name) for name in subscriptions),
        deliverer_pod(),
    )
    pod = kubelet.ready("publisher")
    for name in subscriptions:
        world.becomes("IndicationSubscription", name, "Ready", "True", "InForce")
    publish(pod.url(8288), count=HELD, ack="accepted")
    return pod


def discards(pod: DelivererPod) -> Counter[str]:
    """What the deliverer has discarded, by reason: told one by one, or counted."""
    told: Counter[str] = Counter()
    for line in pod.log.read_text().splitlines():
        if '"event": "indication-discarded"' in line or '"event": "discards-counted"' in line:
            record = json.loads(line)
            told[record["reason"]] += record.get("count", 1)
    return told


def delivered(listener: ListenerProcess) -> int:
    return sum(one["verdict"] == "delivered" for one in listener.record())


def test_a_subscription_that_goes_takes_what_waits_for_it_while_another_uses_the_destination(
    world: World, operators: Operators, kubelet: Kubelet, listener: ListenerProcess
) -> None:
    operators.start("--no-webhook")
    pod = backlog(world, kubelet, listener, FIRST, SECOND, policy="Drain")
    world.delete("IndicationSubscription", FIRST)
    expected = Counter({"subscription-not-active": HELD})
    wait_until(lambda: discards(pod) == expected, within=30, what="what waited for it is gone")
    listener.behave()
    wait_until(lambda: delivered(listener) == HELD, within=30, what="the other's is delivered")


@pytest.mark.parametrize("policy", ["Drain", "Discard"])
def test_the_last_subscription_takes_the_destination_with_it_by_its_policy(
    world: World, operators: Operators, kubelet: Kubelet, listener: ListenerProcess, policy: str
) -> None:
    operators.start("--no-webhook")
    pod = backlog(world, kubelet, listener, FIRST, policy=policy)
    world.delete("IndicationSubscription", FIRST)
    world.becomes("ListenerDestination", "operations", "Ready", "True", "NotUsed")
    if policy == "Discard":
        expected = Counter({"destination-removed": HELD})
        wait_until(lambda: discards(pod) == expected, within=30, what="the queue is gone")
        return
    listener.behave()
    wait_until(lambda: delivered(listener) == HELD, within=30, what="all of it is delivered")
    assert discards(pod) == Counter()


def test_a_destination_waits_for_a_secret_that_is_deleted_and_made_anew(
    world: World, operators: Operators, kubelet: Kubelet, listener: ListenerProcess
) -> None:
    operators.start("--no-webhook")
    pod = backlog(world, kubelet, listener, FIRST, policy="Discard", secured=True)
    world.delete("Secret", "token")
    world.becomes(
        "ListenerDestination", "operations", "Accepted", "False", "CredentialsNotPermitted"
    )
    wait_until(
        lambda: bool(queue(pod.url(8288), "operations")["suspended"]),
        within=30,
        what="the destination is suspended",
    )
    listener.behave()
    world.apply(credentials(token="another"))
    wait_until(lambda: delivered(listener) == HELD, within=30, what="all of it is delivered")
    assert discards(pod) == Counter()
