"""The kubelet's part: pods with a deliverer run, see their Secrets, are ready, and end."""

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from cluster.deliverer_pod import DelivererPod
from cluster.pods import PodRunner, running_pods
from pillion_operator.cluster.api import Api
from pillion_operator.cluster.types import POD, SECRET
from pillion_operator.injection.container import (
    configuration_volume,
    data_volume,
    deliverer_container,
    token_volume,
)
from pillion_operator.names import DATA_VOLUME, REVISION_ANNOTATION
from pillion_operator.settings import DelivererDefaults
from pillion_sidecar.config.rendered import Rendered, pack, render
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import LOOK_INTERVAL
from pillion_testbed.users import KUBELET
from support.resources import alert_filter, destination, service, subscription
from support.running import alert

pytestmark = pytest.mark.cluster

#: A deliverer as far as a kubelet can tell: it answers probes, and shows its configuration.
STAND_IN = """
import json, pathlib, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

arguments = dict(zip(sys.argv[2:], sys.argv[3:]))
folder = pathlib.Path(arguments["--resources"])
host, port = arguments["--telemetry"].split(":")

class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        files = {path.name: path.read_text() for path in folder.iterdir() if path.name[0] != "."}
        body = json.dumps({"arguments": sys.argv[1:], "files": files}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

HTTPServer((host, int(port)), Answer).serve_forever()
"""


@pytest_asyncio.fixture
async def runner(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> AsyncIterator[PodRunner]:
    """Pods whose deliverer is the stand-in."""
    async with running_pods(
        namespace,
        folder=tmp_path / "pods",
        server=control_plane.url,
        ca=control_plane.ca,
        token=control_plane.token(KUBELET.name),
        command=(sys.executable, "-I", "-S", "-c", STAND_IN),
    ) as runner:
        yield runner


def pod_of(namespace: str, name: str = "pod") -> dict[str, Any]:
    defaults = DelivererDefaults(image="pillion")
    container = deliverer_container("alerts", namespace=namespace, spec={}, defaults=defaults)
    metadata = {"name": name, "namespace": namespace, "labels": {"pillion.dev/deliverer": "alerts"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "initContainers": [{**container, "restartPolicy": "Always"}],
            "containers": [{"name": "application", "image": "application"}],
            "volumes": [configuration_volume("alerts"), data_volume({}), token_volume()],
            "terminationGracePeriodSeconds": 10,
        },
    }


def data_of(files: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    return {name: base64.b64encode(content).decode() for name, content in files}


def secret_of(namespace: str, part: int, **files: str) -> dict[str, Any]:
    metadata = {"name": f"pillion-alerts-{part}", "namespace": namespace}
    data = data_of((name, text.encode()) for name, text in files.items())
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


async def shown(pod: DelivererPod) -> Any:
    async with aiohttp.ClientSession() as session, session.get(pod.url(8289)) as answer:
        return json.loads(await answer.read())


async def test_a_pod_with_a_deliverer_runs_and_is_ready(
    api: Api, namespace: str, runner: PodRunner
) -> None:
    await api.create(secret_of(namespace, 0, first="1"))
    await api.create(secret_of(namespace, 3, second="2"))
    await api.create(pod_of(namespace))
    pod = await runner.ready("pod")
    found = await shown(pod)
    assert found["files"] == {"first": "1", "second": "2"}
    assert "--refuse-loopback" not in found["arguments"]
    assert f"{pod.address}:8288" in found["arguments"]
    live = await api.get(POD, namespace, "pod")
    assert live is not None
    assert live["status"]["phase"] == "Running"
    assert live["status"]["podIP"] == pod.address
    assert {one["type"]: one["status"] for one in live["status"]["conditions"]} == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }


async def test_a_changed_secret_comes_with_the_annotation(
    api: Api, namespace: str, runner: PodRunner
) -> None:
    await api.create(secret_of(namespace, 0, old="1"))
    await api.create(pod_of(namespace))
    pod = await runner.ready("pod")
    await api.apply(secret_of(namespace, 0, new="2"))
    await api.patch(SECRET, namespace, "pillion-alerts-0", {"data": {"old": None}})
    assert (await shown(pod))["files"] == {"old": "1"}
    annotations = {REVISION_ANNOTATION: "another"}
    async with pod.refreshed:
        await api.patch(POD, namespace, "pod", {"metadata": {"annotations": annotations}})
        await pod.refreshed.wait()
    assert (await shown(pod))["files"] == {"new": "2"}


async def test_a_deliverer_that_crashes_is_started_again(
    api: Api, namespace: str, runner: PodRunner
) -> None:
    await api.create(pod_of(namespace))
    pod = await runner.ready("pod")
    await pod.crash()
    await runner.ready("pod")
    live = await api.get(POD, namespace, "pod")
    assert live is not None
    assert live["status"]["initContainerStatuses"][0]["restartCount"] == 1


async def test_a_deleted_pod_goes_when_its_deliverer_has_ended(
    api: Api, namespace: str, runner: PodRunner
) -> None:
    await api.create(pod_of(namespace))
    await runner.ready("pod")
    await api.delete(POD, namespace, "pod")
    await runner.ended("pod")
    assert await api.get(POD, namespace, "pod") is None


async def test_a_pod_keeps_its_data_over_its_containers_and_shares_them_with_no_other(
    api: Api, namespace: str, runner: PodRunner
) -> None:
    await api.create(pod_of(namespace))
    await api.create(pod_of(namespace, "other"))
    pod, other = await runner.ready("pod"), await runner.ready("other")
    data = pod.volume(DATA_VOLUME)
    arguments = (await shown(pod))["arguments"]
    assert arguments[arguments.index("--journal") + 1] == str(data)
    (data / "kept").touch()
    assert list(other.volume(DATA_VOLUME).iterdir()) == []

    await pod.crash()
    await runner.ready("pod")
    assert (data / "kept").exists()

    # One of the same name that comes later is another pod.
    await api.delete(POD, namespace, "pod")
    await runner.ended("pod")
    assert not data.exists()
    await api.create(pod_of(namespace))
    again = await runner.ready("pod")
    assert list(again.volume(DATA_VOLUME).iterdir()) == []


async def test_pods_live_through_a_restart_of_the_api_server(
    api: Api, control_plane: ControlPlane, namespace: str, runner: PodRunner
) -> None:
    await api.create(pod_of(namespace))
    await runner.ready("pod")
    await asyncio.to_thread(control_plane.restart_api_server)
    await api.create(pod_of(namespace, "later"))
    await runner.ready("later")
    assert sorted(runner.pods) == ["later", "pod"]


async def test_what_a_stateful_set_wants_becomes_ready(
    api: Api, kubectl: Kubectl, namespace: str, runner: PodRunner
) -> None:
    pod = pod_of(namespace)
    template = {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}
    await api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "gateway", "namespace": namespace},
            "spec": {
                "replicas": 2,
                "serviceName": "gateway",
                "selector": {"matchLabels": template["metadata"]["labels"]},
                "template": template,
            },
        }
    )
    await runner.ready("gateway-1")
    await asyncio.to_thread(
        kubectl.wait, "statefulset/gateway", "--for=jsonpath={.status.readyReplicas}=2"
    )


async def queues_of(pod: DelivererPod) -> Any:
    headers = {"Authorization": "Bearer token"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(pod.url(8289) + "/v1/queues") as answer,
    ):
        assert answer.status == 200
        return json.loads(await answer.read())


def rendered_to(url: str) -> Rendered:
    """The configuration of the service ``alerts`` with one destination."""
    of_it = subscription(serviceRef={"name": "alerts"})
    listens = destination(destination=url, sequenceIdentifiers="Send")
    return pack(render([service("alerts"), alert_filter(), listens, of_it]))


async def test_a_real_deliverer_loads_what_the_poke_brings(
    api: Api, namespace: str, pod_runner: PodRunner
) -> None:
    await api.create(secret_of(namespace, 0, **{"operator-token": "token"}))
    await api.create(pod_of(namespace))
    pod = await pod_runner.ready("pod")
    assert (await queues_of(pod))["revision"] is None
    rendered = rendered_to("https://listener.example/alerts")
    data = data_of(rendered.files)
    await api.patch(SECRET, namespace, "pillion-alerts-0", {"data": data})
    annotations = {REVISION_ANNOTATION: rendered.revision}
    await api.patch(POD, namespace, "pod", {"metadata": {"annotations": annotations}})
    for _look in range(400):
        if (await queues_of(pod))["revision"] == rendered.revision:
            return
        await asyncio.sleep(LOOK_INTERVAL)
    pytest.fail(f"revision {rendered.revision} is not loaded: {pod.log.read_text()}")


async def waiting_in(pod: DelivererPod) -> dict[str, Any]:
    """What lasts of the one queue."""
    (queue,) = (await queues_of(pod))["queues"]
    return {
        name: queue[name] for name in ("name", "depth", "sequenceContext", "nextSequenceNumber")
    }


async def test_what_a_real_deliverer_accepted_outlives_its_container(
    api: Api, namespace: str, pod_runner: PodRunner
) -> None:
    # Nobody listens there.
    secret = secret_of(namespace, 0, **{"operator-token": "token"})
    secret["data"] |= data_of(rendered_to("http://127.0.0.1:9/").files)
    await api.create(secret)
    await api.create(pod_of(namespace))
    pod = await pod_runner.ready("pod")
    headers = {"Content-Type": "application/x-ndjson"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(
            f"{pod.url(8288)}/v1/indications?source=test&ack=durable", data=json.dumps(alert("one"))
        ) as answer,
    ):
        assert await answer.json() == {
            "accepted": 1,
            "duplicate": 0,
            "refused": [],
            "durable": True,
        }
    before = await waiting_in(pod)
    assert (before["name"], before["depth"]) == ("ops", 1)
    assert before["sequenceContext"]
    await pod.crash()
    await pod_runner.ready("pod")
    assert await waiting_in(pod) == before
