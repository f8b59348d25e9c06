"""A gateway: what the operator makes runs, takes indications, and outlives changes."""

from pathlib import Path

import pytest

from cluster.convergence import World
from cluster.deliverer_pod import DelivererPod
from cluster.door import Door, token
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import in_force, queue, serving
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription
from support.processes import listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

ADMINISTRATION = 8290
SERVICE, DESTINATION = ("IndicationService", "default"), ("ListenerDestination", "operations")


def test_a_gateway_delivers_and_a_change_restarts_none_of_its_pods(
    world: World, operators: Operators, kubectl: Kubectl, kubelet: Kubelet, tmp_path: Path
) -> None:
    operators.start("--no-webhook")
    folders = [tmp_path / name for name in ("before", "after")]
    for folder in folders:
        folder.mkdir()
    with listener_process(folders[0]) as before, listener_process(folders[1]) as after:
        world.apply(
            service(deliverer={"mode": "Gateway", "replicas": 2}),
            filter_(),
            # Rendered as it stands: of two deliverers, none numbers what it sends by itself.
            destination(before.url, sequenceIdentifiers="Omit"),
            subscription(),
        )
        gateway = kubelet.ready("pillion-default-0"), kubelet.ready("pillion-default-1")
        for pod in gateway:
            serving(world, pod, port=ADMINISTRATION)
            assert Door(world, pod).publish() == 200
        assert len(before.record()) == 2
        known = state(kubectl, *gateway)

        world.patch(*DESTINATION, {"spec": {"destination": after.url}})
        in_force(world, *DESTINATION)
        world.patch(*SERVICE, {"spec": {"deliveryRetryAttempts": 7}})
        in_force(world, *SERVICE)
        for pod in gateway:
            serving(world, pod, port=ADMINISTRATION)
            assert Door(world, pod).publish() == 200
        assert (len(before.record()), len(after.record())) == (2, 2)
        assert state(kubectl, *gateway) == known

        # Whoever may publish there may do no more.
        door = Door(world, gateway[0])
        for path in ("/v1/queues", "/v1/queues/operations"):
            assert door.ask(path, bearer=token(world))[0] == 404
        # This test's pods have all of their ports at one address; in a cluster it is loopback.
        assert queue(gateway[0].url(ADMINISTRATION), "operations")["delivered"] == 2


def test_a_door_opens_to_the_tokens_of_its_publishers_alone(
    world: World, operators: Operators, kubelet: Kubelet
) -> None:
    operators.start("--no-webhook")
    world.apply(service(deliverer={"mode": "Gateway"}))
    door = Door(world, kubelet.ready("pillion-default-0"))
    own, strange = token(world), token(world, namespace="default")
    assert door.publish(bearer=own) == 200
    for bearer, status in ((None, 401), (token(world, audience="other"), 401), (strange, 403)):
        answer = door.ask("/v1/indications", bearer=bearer, body=b"{}")
        assert answer[0] == status
        assert ("WWW-Authenticate" in answer[1]) == (status == 401)

    # Whom the list names is let in instead, and nobody's pod is restarted for it.
    world.patch(*SERVICE, {"spec": {"publishers": [{"namespace": "default"}]}})
    world.converges()
    wait_until(lambda: door.publish(bearer=strange) == 200, within=30, what="the new publisher")
    assert door.publish(bearer=own) == 403


def state(kubectl: Kubectl, *pods: DelivererPod) -> object:
    """What is another once the StatefulSet is rolled out anew, or a pod made anew."""
    stateful_set = kubectl.json("get", "statefulset", "pillion-default")
    metadata = stateful_set["metadata"]
    return metadata["uid"], metadata["generation"], [(one.uid, one.pid) for one in pods]


def test_a_gateway_follows_its_service_in_size(
    world: World, operators: Operators, kubelet: Kubelet
) -> None:
    operators.start("--no-webhook")
    world.apply(service(deliverer={"mode": "Gateway"}))
    kubelet.ready("pillion-default-0")
    world.patch(*SERVICE, {"spec": {"deliverer": {"replicas": 2}}})
    kubelet.ready("pillion-default-1")
    world.patch(*SERVICE, {"spec": {"deliverer": {"replicas": 1}}})
    kubelet.ended("pillion-default-1")
