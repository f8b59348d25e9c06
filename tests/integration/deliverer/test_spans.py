"""A collector that hangs or is away costs spans, and nobody anything else."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from support.relayhouse import Listener
from support.resources import alert_filter, destination, service, subscription, write
from support.running import alerts
from support.sidecar import sidecar


class Silent:
    """A collector that takes requests and never answers one."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.url = ""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        self.asked.set()
        # Until the deliverer has ended.
        await reader.read()
        writer.close()


@pytest_asyncio.fixture
async def silent() -> AsyncIterator[Silent]:
    collector = Silent()
    async with await asyncio.start_server(collector.take, "127.0.0.1", 0) as server:
        collector.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield collector


@pytest_asyncio.fixture
async def listener() -> AsyncIterator[Listener]:
    listener = Listener()
    app = web.Application()
    app.router.add_post("/{name}", listener.take)
    async with TestServer(app) as server:
        listener.url = str(server.make_url("/"))
        yield listener


async def deliver(folder: Path, listener: Listener, silent: Silent | None = None) -> list[str]:
    """Publish, and end the deliverer; return why it has lost spans."""
    made = destination("siem", destination=f"{listener.url}siem", protocol="CloudEvents")
    documents = (service("default"), alert_filter(), made, subscription("all", "siem"))
    write(folder, *documents)
    async with sidecar(folder) as run:
        assert run.intake, run.said
        answer = await run.publish(*alerts(0, 3), query="ack=delivered&timeout=60")
        assert answer.status == 200
        if silent is not None:
            await silent.asked.wait()
            again = await run.publish(*alerts(3, 1), query="ack=delivered&timeout=60")
            assert again.status == 200
        assert 'pillion_spans_total{result="exported"} 0\n' in await run.metrics()
        run.process.send_signal(signal.SIGTERM)
        assert await run.ended() == 0
    assert listener.at("siem")[:3] == ["0", "1", "2"]
    return [str(record["reason"]) for record in run.events("spans-dropped")]


async def test_a_collector_that_hangs(
    tmp_path: Path, listener: Listener, silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", silent.url)
    reasons = await deliver(tmp_path, listener, silent)
    assert reasons == ["the collector did not take the last in 2 s"]


async def test_a_collector_that_is_away(
    tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"http://127.0.0.1:{port}/v1/traces")
    assert len(await deliver(tmp_path, listener)) == 1


async def test_an_environment_that_asks_for_the_impossible_costs_spans_alone(
    tmp_path: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No URL.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "sometimes")
    assert len(await deliver(tmp_path, listener)) == 1
