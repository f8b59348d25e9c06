"""From resources to deliveries: the operator, a pod that it injects, a real listener."""

import asyncio
import json
from pathlib import Path

import pytest

from cluster.operators import Operators
from cluster.pods import PodRunner
from cluster.scenes import injecting, publish
from pillion_testbed.kubectl import Kubectl
from support.cluster_resources import destination, filter_, pod, service, subscription, together
from support.processes import listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


async def test_a_pod_that_is_made_delivers_and_status_tells_the_truth(
    operators: Operators,
    admin_kubectl: Kubectl,
    kubectl: Kubectl,
    namespace: str,
    pod_runner: PodRunner,
    tmp_path: Path,
) -> None:
    operator = await asyncio.to_thread(operators.start)
    await asyncio.to_thread(injecting, operator, admin_kubectl, namespace=namespace)
    with listener_process(tmp_path) as listener:
        resources = together(
            service(deliveryRetryAttempts=100),
            filter_(),
            destination(listener.url),
            subscription(),
            pod(),
        )
        await asyncio.to_thread(kubectl.apply, json.dumps(resources))
        running = await pod_runner.ready("publisher")
        await asyncio.to_thread(publish, running.url(8288), count=3)
        assert len(listener.record()) == 3
        await asyncio.to_thread(
            kubectl.wait, "listenerdestination/operations", "--for=condition=Delivering"
        )
        status = (await asyncio.to_thread(kubectl.json, "get", "ldest", "operations"))["status"]
        # Its depth was maybe read in the middle of the three, and is written anew but now and then.
        assert (status["deliverers"], status["lastResult"]) == (1, "Success")
        counts = (await asyncio.to_thread(kubectl.json, "get", "indsvc", "default"))["status"]
        assert (counts["deliverers"], counts["readyDeliverers"], counts["injected"]) == (1, 1, 1)

        listener.behave(status=503)
        await asyncio.to_thread(publish, running.url(8288), count=2, ack="accepted")
        await asyncio.to_thread(
            kubectl.wait, "listenerdestination/operations", "--for=condition=ListenerUnreachable"
        )
        events = await asyncio.to_thread(kubectl.json, "get", "events.events.k8s.io")
        assert "ListenerUnreachable" in {event["reason"] for event in events["items"]}

        listener.behave()
        await asyncio.to_thread(
            kubectl.wait, "listenerdestination/operations", "--for=condition=Delivering"
        )
        assert len(listener.record()) >= 5

        listener.behave(status=401)
        await asyncio.to_thread(publish, running.url(8288), count=1, ack="accepted")
        path = '{.status.conditions[?(@.type=="Delivering")].reason}'
        await asyncio.to_thread(
            kubectl.wait, "listenerdestination/operations", f"--for=jsonpath={path}=Paused"
        )
        status = (await asyncio.to_thread(kubectl.json, "get", "ldest", "operations"))["status"]
        (delivering,) = [one for one in status["conditions"] if one["type"] == "Delivering"]
        assert "refused-credentials: HTTP 401" in delivering["message"]
