"""From resources to deliveries: the operator, a pod that it injects, a real listener."""

import asyncio
import json
import urllib.request
from pathlib import Path

import pytest

from cluster.kubectl import Kubectl
from cluster.operators import OperatorProcess, Operators, webhook_configuration
from cluster.pods import PodRunner
from support.cluster_resources import destination, filter_, pod, service, subscription, together
from support.processes import listener_process

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

ALERT = {
    "class": "CIM_AlertIndication",
    "properties": {"AlertType": 5, "PerceivedSeverity": 6, "ProbableCause": 94},
}


def publish(url: str, *, count: int = 1, ack: str = "delivered") -> None:
    """Publish so many alerts at a deliverer's door."""
    body = "".join(json.dumps(ALERT) + "\n" for _ in range(count)).encode()
    request = urllib.request.Request(
        f"{url}/v1/indications?ack={ack}&timeout=20",
        data=body,
        headers={"Content-Type": "application/x-ndjson"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


async def injecting(operator: OperatorProcess, admin: Kubectl, *, namespace: str) -> None:
    """Have the API server ask the operator about this namespace's pods."""
    configuration = webhook_configuration(operator, namespace=namespace)
    await asyncio.to_thread(admin.apply, json.dumps(configuration))
    await asyncio.to_thread(
        admin.wait,
        f"mutatingwebhookconfiguration/pillion-{operator.namespace}",
        "--for=jsonpath={.webhooks[0].clientConfig.caBundle}",
    )


async def test_a_pod_that_is_made_delivers_and_status_tells_the_truth(
    operators: Operators,
    admin_kubectl: Kubectl,
    kubectl: Kubectl,
    namespace: str,
    pod_runner: PodRunner,
    tmp_path: Path,
) -> None:
    operator = await asyncio.to_thread(operators.start)
    await injecting(operator, admin_kubectl, namespace=namespace)
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
        assert (status["deliverers"], status["lastResult"], status["depth"]) == (1, "Success", 0)
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
