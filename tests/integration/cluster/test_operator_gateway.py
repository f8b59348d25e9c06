"""A gateway: what the operator makes runs, takes indications, and outlives changes."""

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from cluster.convergence import World
from cluster.deliverer_pod import DelivererPod
from cluster.kubectl import Kubectl
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import in_force, publish, queue, serving
from support.cluster_resources import destination, filter_, service, subscription
from support.processes import listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

INTAKE, TELEMETRY, ADMINISTRATION = 8288, 8289, 8290
SERVICE, DESTINATION = ("IndicationService", "default"), ("ListenerDestination", "operations")


def status_of(url: str) -> int:
    """The status that a request gets."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


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
            destination(before.url),
            subscription(),
        )
        gateway = kubelet.ready("pillion-default-0"), kubelet.ready("pillion-default-1")
        for pod in gateway:
            publish(serving(world, pod, port=ADMINISTRATION))
        assert len(before.record()) == 2
        known = state(kubectl, *gateway)

        world.patch(*DESTINATION, {"spec": {"destination": after.url}})
        in_force(world, *DESTINATION)
        world.patch(*SERVICE, {"spec": {"deliveryRetryAttempts": 7}})
        in_force(world, *SERVICE)
        for pod in gateway:
            publish(serving(world, pod, port=ADMINISTRATION))
        assert (len(before.record()), len(after.record())) == (2, 2)
        assert state(kubectl, *gateway) == known

        # Whoever reaches the pod may publish there, and no more.
        for path in ("/v1/queues", "/v1/queues/operations"):
            assert status_of(gateway[0].url(INTAKE) + path) == 404
        assert status_of(gateway[0].url(TELEMETRY) + "/v1/queues") == 401
        # This test's pods have all of their ports at one address; in a cluster it is loopback.
        assert queue(gateway[0].url(ADMINISTRATION), "operations")["delivered"] == 2


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
