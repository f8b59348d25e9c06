"""One trace from a Spark job by its tasks, a sidecar and a gateway to a listener, in a real
OpenTelemetry collector."""

import asyncio
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from support.house import ROOT
from support.relayhouse import House, Listener
from support.traces import COLLECTOR, WITHOUT_COLLECTOR, collector

pytestmark = [
    pytest.mark.skipif(COLLECTOR is None, reason=WITHOUT_COLLECTOR),
    pytest.mark.spark,
]
ROWS = 4
PROTOCOL = "messaging.pillion.destination.protocol"

Span = dict[str, str]


async def run_job(url: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "support.traced_job", url),
        cwd=ROOT / "tests",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert f"accepted={ROWS}" in said.decode()


async def traced(folder: Path, listener: Listener, environment: pytest.MonkeyPatch) -> list[Span]:
    """Run the job, a sidecar and a gateway; return all spans."""
    app = web.Application()
    app.router.add_post("/{name}", listener.take)
    async with (
        collector(folder / "collector") as collecting,
        TestServer(app) as server,
        AsyncExitStack() as stack,
    ):
        listener.url = str(server.make_url("/"))
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collecting.url)
        house = House(folder, listener, stack)
        house.configure("siem")
        environment.setenv("OTEL_SERVICE_NAME", "pillion-gateway")
        await house.start_gateway()
        environment.setenv("OTEL_SERVICE_NAME", "pillion-sidecar")
        await house.start_sidecar()
        environment.setenv("OTEL_SERVICE_NAME", "weather-job")
        await run_job(house.sidecar.intake)
        await listener.until(lambda: len(listener.at("siem")) == ROWS)
        assert await house.terminate(house.sidecar) == 0
        assert await house.terminate(house.gateway) == 0
        return collecting.spans()


def of(spans: list[Span], service: str, name: str) -> list[Span]:
    return [one for one in spans if (one["service.name"], one["Name"]) == (service, name)]


def identifiers(spans: list[Span]) -> set[str]:
    return {one["ID"] for one in spans}


def parents(spans: list[Span]) -> set[str]:
    return {one["Parent ID"] for one in spans}


async def test_a_listener_is_in_the_trace_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("OTEL_", "TRACE"))]:
        monkeypatch.delenv(name)
    listener = Listener()
    spans = await traced(tmp_path, listener, monkeypatch)
    (job,) = of(spans, "weather-job", "nightly")
    assert {one["Trace ID"] for one in spans} == {job["Trace ID"]}
    assert job["Parent ID"] == ""
    # A span for each task attempt, and the requests are below it.
    tasks = of(spans, "weather-job", "send")
    assert (len(tasks), parents(tasks)) == (2, {job["ID"]})
    assert {one["Kind"] for one in tasks} == {"Producer"}
    assert sum(int(one["messaging.batch.message_count"]) for one in tasks) == ROWS
    accepted = of(spans, "pillion-sidecar", "accept")
    assert parents(accepted) == identifiers(tasks)
    assert parents(of(spans, "pillion-sidecar", "commit")) <= identifiers(accepted)
    # The sidecar's attempts lead to the gateway, whose own lead to the listener.
    relayed = [one for one in spans if one.get(PROTOCOL) == "Relay"]
    assert {one["service.name"] for one in relayed} == {"pillion-sidecar"}
    assert parents(relayed) <= identifiers(tasks)
    attempts = of(spans, "pillion-gateway", "send siem")
    assert (len(attempts), parents(attempts)) == (ROWS, identifiers(tasks))
    # The listener's own spans become children of the attempts.
    headers = [one["traceparent"] for one in listener.headers["/siem"]]
    assert {(one[3:35], one[36:52]) for one in headers} == {
        (job["Trace ID"], one) for one in identifiers(attempts)
    }
    events = [one["traceparent"] for one in listener.events["/siem"]]
    assert {(one[3:35], one[36:52]) for one in events} == {
        (job["Trace ID"], one) for one in identifiers(tasks)
    }
