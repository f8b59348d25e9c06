"""What becomes of queued indications when a destination is removed, by its removalPolicy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.convergence import World
from cluster.deliverer_pod import DelivererPod
from cluster.kubelet import Kubelet
from cluster.operators import OperatorProcess, Operators
from cluster.scenes import deliverer_pod, publish, queue, serving
from pillion_operator.names import DRAIN_FINALIZER
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription
from support.processes import ListenerProcess, listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

DESTINATION = ("ListenerDestination", "operations")


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[ListenerProcess]:
    with listener_process(tmp_path, "--status", "503") as running:
        yield running


def backlog(world: World, kubelet: Kubelet, listener: ListenerProcess, policy: str) -> DelivererPod:
    """Have a deliverer hold three indications for a destination; return its pod."""
    world.apply(
        service(deliveryRetryAttempts=1000),
        filter_(),
        destination(listener.url, removalPolicy=policy),
        subscription(),
        deliverer_pod(),
    )
    pod = kubelet.ready("publisher")
    publish(serving(world, pod), count=3, ack="accepted")
    return pod


def discarded(pod: DelivererPod) -> int:
    """The indications that a deliverer has given up because their destination was removed."""
    return sum("destination-removed" in line for line in pod.log.read_text().splitlines())


def looked(operator: OperatorProcess) -> None:
    """Wait until the operator knows how much is left now."""
    answered = 'pillion_operator_deliverers_asked_total{result="answered"}'
    before = operator.metrics()[answered]
    wait_until(lambda: operator.metrics()[answered] >= before + 2, within=30, what="two looks")


def finalizers(world: World) -> list[str] | None:
    """The destination's finalizers; None where it is gone."""
    body = world.get(*DESTINATION)
    return None if body is None else list(body["metadata"].get("finalizers") or ())


def left(world: World) -> str:
    """What the condition Draining says."""
    for one in world.status(*DESTINATION).get("conditions") or ():
        if one["type"] == "Draining":
            return str(one["message"])
    return ""


def test_a_destination_that_drains_stays_until_everything_is_delivered(
    world: World, operators: Operators, kubelet: Kubelet, listener: ListenerProcess
) -> None:
    first = operators.start("--no-webhook")
    pod = backlog(world, kubelet, listener, "Drain")
    world.until(lambda: finalizers(world) == [DRAIN_FINALIZER], "the finalizer is on")
    looked(first)

    world.delete(*DESTINATION)
    world.becomes(*DESTINATION, "Draining", "True", "Draining")
    assert left(world).startswith("3 indication(s) are left at 1 deliverer(s)")
    world.until(lambda: "Draining" in world.reasons(), "an Event")

    # Another operator takes the drain up as it stands.
    assert first.stop() == 0
    operator = operators.start("--no-webhook")
    looked(operator)
    assert finalizers(world) == [DRAIN_FINALIZER]
    # The deliverer may have been told a moment ago.
    world.until(lambda: queue(pod.url(8288), "operations")["draining"] is True, "it drains")

    listener.behave()
    world.until(lambda: finalizers(world) is None, "the destination is gone")
    delivered = [one for one in listener.record() if one["verdict"] == "delivered"]
    assert len(delivered) == 3


def test_a_destination_that_discards_is_gone_at_once(
    world: World, operators: Operators, kubelet: Kubelet, listener: ListenerProcess
) -> None:
    operators.start("--no-webhook")
    pod = backlog(world, kubelet, listener, "Discard")
    assert finalizers(world) == []
    world.delete(*DESTINATION)
    assert finalizers(world) is None
    wait_until(lambda: discarded(pod) == 3, within=30, what="the end of what was queued")


def test_a_policy_that_no_longer_drains_frees_the_destination(
    world: World, operators: Operators, kubelet: Kubelet, listener: ListenerProcess
) -> None:
    operators.start("--no-webhook")
    backlog(world, kubelet, listener, "Drain")
    world.until(lambda: finalizers(world) == [DRAIN_FINALIZER], "the finalizer is on")
    # On and off with the policy, as long as nobody deletes it.
    world.patch(*DESTINATION, {"spec": {"removalPolicy": "Discard"}})
    world.until(lambda: finalizers(world) == [], "the finalizer is off")
    world.patch(*DESTINATION, {"spec": {"removalPolicy": "Drain"}})
    world.until(lambda: finalizers(world) == [DRAIN_FINALIZER], "the finalizer is on again")
    world.delete(*DESTINATION)
    world.becomes(*DESTINATION, "Draining", "True")
    world.patch(*DESTINATION, {"spec": {"removalPolicy": "Discard"}})
    world.until(lambda: finalizers(world) is None, "the destination is gone")
