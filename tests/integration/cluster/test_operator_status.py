"""Status tells the truth: of a listener that is down, of deliverers that are silent or missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.convergence import World
from cluster.kubelet import Kubelet
from cluster.operators import OperatorProcess, Operators
from cluster.scenes import deliverer_pod, held, in_force, publish, serving
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription
from support.processes import ListenerProcess, listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

DESTINATION = ("ListenerDestination", "operations")
SERVICE = ("IndicationService", "default")


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[ListenerProcess]:
    with listener_process(tmp_path) as running:
        yield running


def ready(world: World, kind: str, name: str) -> tuple[str, str, str]:
    """Status, reason and message of the condition Ready."""
    for one in world.status(kind, name).get("conditions") or ():
        if one["type"] == "Ready":
            return one["status"], one["reason"], one["message"]
    return "", "", ""


def unreachable(operator: OperatorProcess) -> float:
    """What the operator's metric says."""
    return operator.metrics()["pillion_operator_unreachable_deliverers"]


def test_a_listener_that_is_down_shows_in_its_destination(
    world: World, operators: Operators, kubelet: Kubelet, listener: ListenerProcess
) -> None:
    operators.start("--no-webhook")
    listener.behave(status=503)
    world.apply(
        service(deliveryRetryAttempts=1000),
        filter_(),
        destination(listener.url, queueSize=10),
        subscription(),
        deliverer_pod(),
    )
    url = serving(world, kubelet.ready("publisher"))
    publish(url, count=9, ack="accepted")
    world.becomes(*DESTINATION, "ListenerUnreachable", "True")
    world.becomes(*DESTINATION, "Delivering", "False", "ListenerFailing")
    world.becomes(*DESTINATION, "Backlogged", "True", "QueueNearlyFull")
    status = world.status(*DESTINATION)
    assert (status["depth"], status["highWater"], status["deliverers"]) == (9, 9, 1)
    assert (status["lastResult"], status["failureCause"]) == ("Error", "status")
    assert status["oldestIndicationTime"] <= status["failingSince"] < status["nextAttemptTime"]
    assert status["oldestIndicationTime"] < status["nextAttemptTime"]

    listener.behave()
    world.becomes(*DESTINATION, "Backlogged", "False")
    world.becomes(*DESTINATION, "Delivering", "True")
    status = world.status(*DESTINATION)
    assert not status.keys() & {"failureCause", "failingSince"}
    world.until(
        lambda: {"Backlogged", "NotBacklogged", "NotListenerUnreachable"} <= world.reasons(),
        "Events of both transitions",
    )


def test_a_silent_deliverer_is_counted_and_keeps_nothing_from_being_ready(
    world: World, operators: Operators, kubelet: Kubelet, listener: ListenerProcess
) -> None:
    operator = operators.start("--no-webhook")
    pods = [deliverer_pod(name) for name in ("one", "two")]
    world.apply(service(), filter_(), destination(listener.url), subscription(), *pods)
    silent, _other = kubelet.ready("one"), kubelet.ready("two")
    in_force(world, *DESTINATION)
    assert unreachable(operator) == 0
    with held(silent.pid):
        wait_until(lambda: unreachable(operator) == 1, within=30, what="the metric")
        world.patch(*DESTINATION, {"spec": {"timeoutSeconds": 12}})
        in_force(world, *DESTINATION)
        for resource in (DESTINATION, SERVICE):
            status, reason, message = ready(world, *resource)
            assert (status, reason) == ("True", "InForce")
            assert "Others do not answer the operator" in message
        counts = world.status(*SERVICE)
        assert (counts["readyDeliverers"], counts["unreachableDeliverers"]) == (1, 1)
    wait_until(lambda: unreachable(operator) == 0, within=60, what="the end of silence")


def test_without_deliverers_resources_are_ready_and_nothing_is_said_of_delivery(
    world: World, operators: Operators
) -> None:
    operators.start("--no-webhook")
    world.apply(service(), filter_(), destination("https://listener.example.com"), subscription())
    for resource in (SERVICE, DESTINATION):
        world.becomes(*resource, "Ready", "True", "NoDeliverers")
    for condition in ("Delivering", "Backlogged", "ListenerUnreachable"):
        world.becomes(*DESTINATION, condition, "Unknown", "NoDeliverers")
    assert "depth" not in world.status(*DESTINATION)


def test_a_pod_that_has_no_configuration_yet_is_waited_for(
    world: World, operators: Operators, kubelet: Kubelet, listener: ListenerProcess
) -> None:
    world.apply(deliverer_pod())
    pod = kubelet.ready("publisher")
    # Without the poke its kubelet brings the configuration when it comes round to that.
    operators.start("--no-webhook", "--no-poke")
    world.apply(service(), filter_(), destination(listener.url), subscription())
    world.becomes(*SERVICE, "Ready", "False", "RollingOut")
    world.becomes(*DESTINATION, "Ready", "False", "RollingOut")
    # The kubelet comes round once, so all that was applied must be in the configuration.
    world.renders("default")
    kubelet.refresh("publisher")
    world.becomes(*SERVICE, "Ready", "True", "InForce")
    in_force(world, *DESTINATION)
    publish(pod.url(8288))
    assert len(listener.record()) == 1
