"""A change of one destination reaches running deliverers, and disturbs none of them."""

from pathlib import Path
from typing import Any

import pytest

from cluster.convergence import World
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import deliverer_pod, in_force, publish, queue, serving
from pillion_operator.names import REVISION_ANNOTATION
from pillion_testbed.rest import wait_until
from support.cluster_resources import destination, filter_, service, subscription
from support.processes import listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

#: What says of a queue that it is the same one, with the same indications in it.
LASTING = (
    "uid",
    "depth",
    "creationTime",
    "oldestIndicationTime",
    "failingSince",
    "sequenceContext",
    "nextSequenceNumber",
)


def lasting(url: str, name: str) -> dict[str, Any]:
    found = queue(url, name)
    return {field: found[field] for field in LASTING}


def test_a_changed_destination_is_in_force_at_once_and_disturbs_no_other(
    world: World, operators: Operators, kubelet: Kubelet, tmp_path: Path
) -> None:
    operators.start("--no-webhook")
    folders = [tmp_path / name for name in ("failing", "before", "after")]
    for folder in folders:
        folder.mkdir()
    with (
        listener_process(folders[0], "--status", "503") as failing,
        listener_process(folders[1]) as before,
        listener_process(folders[2]) as after,
    ):
        world.apply(
            service(deliveryRetryAttempts=1000),
            filter_(),
            destination(failing.url, name="audit", protocol="CIM-XML", sequenceIdentifiers="Send"),
            subscription("alerts-to-audit", to="audit"),
            destination(before.url),
            subscription(),
            deliverer_pod(),
        )
        pod = kubelet.ready("publisher")
        url = serving(world, pod)
        publish(url, count=3, ack="accepted")
        before.arrived(3)
        wait_until(
            lambda: queue(url, "audit")["attemptsByResult"].get("error", 0) >= 2,
            within=30,
            what="two attempts",
        )
        process, known = pod.pid, lasting(url, "audit")
        attempts = queue(url, "audit")["attempts"]

        world.patch("ListenerDestination", "operations", {"spec": {"destination": after.url}})
        in_force(world, "ListenerDestination", "operations")
        publish(url, ack="accepted")
        after.arrived(1)
        assert len(before.record()) == 3

        grown = {name: known[name] + 1 for name in ("depth", "nextSequenceNumber")}
        assert lasting(url, "audit") == {**known, **grown}
        assert queue(url, "audit")["attempts"][-len(attempts) :] == attempts
        live = world.get("Pod", "publisher")
        assert live is not None
        assert set(live["metadata"]["annotations"]) == {REVISION_ANNOTATION}
        assert (live["metadata"]["uid"], pod.pid, pod.restarts) == (pod.uid, process, 0)

        failing.behave()
        wait_until(lambda: queue(url, "audit")["depth"] == 0, within=30, what="an empty queue")
        delivered = [one for one in failing.record() if one["verdict"] == "delivered"]
        assert [one["number"] for one in delivered] == [0, 1, 2, 3]
