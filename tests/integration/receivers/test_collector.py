"""A real OpenTelemetry collector has the spans of a publish, from its request to each attempt."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from support.relayhouse import Listener
from support.resources import alert_filter, destination, service, subscription, write
from support.running import alerts
from support.sidecar import Sidecar, sidecar
from support.traces import COLLECTOR, WITHOUT_COLLECTOR, Collector, collector

pytestmark = pytest.mark.skipif(COLLECTOR is None, reason=WITHOUT_COLLECTOR)
TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACE = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01", "tracestate": "congo=t61"}


class FailingOnce(Listener):
    """Answers the first request for this path with 503."""

    failing = "/pager"

    async def take(self, request: web.Request) -> web.Response:
        if request.path == self.failing:
            self.failing = ""
            return web.Response(status=503)
        return await super().take(request)


@dataclass
class World:
    collector: Collector
    listener: Listener
    sidecar: Sidecar = field(init=False)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    return monkeypatch


@asynccontextmanager
async def world(folder: Path, environment: pytest.MonkeyPatch) -> AsyncIterator[World]:
    environment.setenv("OTEL_SERVICE_NAME", "plant")
    listener = FailingOnce()
    app = web.Application()
    app.router.add_post("/{name}", listener.take)
    async with TestServer(app) as server, collector(folder / "collector") as collecting:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collecting.url)
        listener.url = str(server.make_url("/"))
        resources = folder / "resources"
        resources.mkdir()
        documents = [service("default", durability="Disk"), alert_filter()]
        retry = {"attempts": 10, "intervalSeconds": 1}
        for name in ("siem", "pager"):
            given = {"protocol": "CloudEvents", "retry": retry}
            made = destination(name, destination=f"{listener.url}{name}", **given)
            documents += [made, subscription(f"alerts-to-{name}", name)]
        write(resources, *documents)
        made_world = World(collecting, listener)
        options = ("--journal", str(folder / "journal"))
        async with sidecar(resources, *options) as made_world.sidecar:
            assert made_world.sidecar.intake, made_world.sidecar.said
            yield made_world


async def publish(world: World, **headers: str) -> None:
    """Three lines, which both listeners have in the end; then the deliverer is gone."""
    answer = await world.sidecar.publish(
        *alerts(0, 3), query="ack=delivered&timeout=60", headers=headers
    )
    assert (answer.status, answer.document["accepted"]) == (200, 3), answer.document
    assert [world.listener.at(name) for name in ("siem", "pager")] == [["0", "1", "2"]] * 2
    world.sidecar.process.send_signal(signal.SIGTERM)
    assert await world.sidecar.ended() == 0


async def test_it_has_the_tree_of_a_publish(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, environment) as made:
        await publish(made, **TRACE)
        spans = made.collector.spans()
        assert {span["service.name"] for span in spans} == {"plant"}
    assert {span["Trace ID"] for span in spans} == {TRACE_ID}
    (accept,) = [span for span in spans if span["Name"] == "accept"]
    (commit,) = [span for span in spans if span["Name"] == "commit"]
    attempts = [span for span in spans if span["messaging.operation.name"] == "send"]
    assert len(spans) == 2 + len(attempts)
    assert (accept["Parent ID"], commit["Parent ID"]) == (PARENT_ID, accept["ID"])
    assert {span["Parent ID"] for span in attempts} == {PARENT_ID}
    assert (accept["Kind"], commit["Kind"], attempts[0]["Kind"]) == (
        *("Consumer", "Internal", "Client"),
    )
    assert accept["messaging.batch.message_count"] == "3"
    (failed,) = [span for span in attempts if span["Status code"] == "Error"]
    assert (failed["Name"], failed["error.type"]) == ("send pager", "status")
    for name in ("siem", "pager"):
        delivered = [
            span for span in attempts if span["Name"] == f"send {name}" and span is not failed
        ]
        assert sorted(span["messaging.message.id"] for span in delivered) == ["0", "1", "2"]
        # The request names the attempt, the event what its publisher has sent.
        headers = made.listener.headers[f"/{name}"]
        told = [(one["traceparent"], one["tracestate"]) for one in headers]
        expected = {f"00-{TRACE_ID}-{span['ID']}-01" for span in delivered}
        assert {parent for parent, _ in told} == expected
        assert {state for _, state in told} == {TRACE["tracestate"]}
        events = made.listener.events[f"/{name}"]
        assert {event["traceparent"] for event in events} == {TRACE["traceparent"]}


async def test_a_deliverer_begins_the_trace_that_its_publisher_has_not(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path, environment) as made:
        await publish(made)
        spans = made.collector.spans()
    (accept,) = [span for span in spans if span["Name"] == "accept"]
    others = [span for span in spans if span is not accept]
    assert accept["Parent ID"] == ""
    assert {span["Parent ID"] for span in others} == {accept["ID"]}
    assert {span["Trace ID"] for span in spans} == {accept["Trace ID"]}
    (parent,) = {event["traceparent"] for event in made.listener.events["/siem"]}
    assert parent.startswith(f"00-{accept['Trace ID']}-{accept['ID']}-")
