"""Three real nats-servers on loopback, with JetStream, that form one cluster."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
from nats.errors import Error
from nats.js.api import StreamConfig

from support.broker_programs import NATS_SERVER, free_port

STREAM, SUBJECT = "journals", "pillion.journals"
#: Seconds between looks at what the servers are about.
LOOK = 0.05

_CONFIGURATION = """
server_name: n{at}
listen: 127.0.0.1:{port}
jetstream {{store_dir: "{folder}", sync_interval: always}}
cluster {{name: test, listen: 127.0.0.1:{route}, routes: [{routes}]}}
"""


@dataclass(slots=True)
class NATSCluster:
    folder: Path
    ports: list[int] = field(default_factory=list)
    processes: dict[int, Process] = field(default_factory=dict)

    def url(self, at: int) -> str:
        return f"nats://127.0.0.1:{self.ports[at]}"

    async def start(self, at: int) -> None:
        folder = self.folder / f"n{at}"
        assert NATS_SERVER is not None
        log = await asyncio.to_thread(open, folder / "log", "ab")
        with log:
            self.processes[at] = await asyncio.create_subprocess_exec(
                NATS_SERVER, "-c", str(folder / "server.conf"), stdout=log, stderr=log
            )

    async def kill(self, at: int) -> None:
        process = self.processes.pop(at)
        process.kill()
        await process.wait()

    async def create_stream(self, **given: Any) -> None:
        """Wait until the servers take it."""
        values = {"num_replicas": 3, "discard": "new", "allow_direct": True, **given}
        wanted = StreamConfig(name=STREAM, subjects=[f"{SUBJECT}.>"], **values)
        while True:
            try:
                async with self.client() as client:
                    await client.jetstream().add_stream(wanted)
                return
            except (Error, OSError):
                await asyncio.sleep(LOOK)

    async def delete_stream(self) -> None:
        async with self.client() as client:
            await client.jetstream().delete_stream(STREAM)

    async def leader(self) -> int:
        """Return which server leads the stream."""
        while True:
            async with self.client() as client:
                info = await client.jetstream().stream_info(STREAM)
            cluster = info.cluster
            if cluster is not None and cluster.leader:
                return int(cluster.leader.removeprefix("n"))
            await asyncio.sleep(LOOK)

    async def messages(self) -> int:
        async with self.client() as client:
            count: int = (await client.jetstream().stream_info(STREAM)).state.messages
            return count

    async def publish(self, session: str, data: bytes) -> None:
        async with self.client() as client:
            await client.jetstream().publish(f"{SUBJECT}.{session}", data)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Any]:
        client = await nats.connect(
            self.url(min(self.processes)), allow_reconnect=False, error_cb=_ignore
        )
        try:
            yield client
        finally:
            await client.close()


async def _ignore(_: Exception) -> None:
    """The caller is told as well."""


@asynccontextmanager
async def clustered(folder: Path, **stream: Any) -> AsyncIterator[NATSCluster]:
    """Run them with a stream while the context lasts."""
    cluster = NATSCluster(folder, [free_port() for _ in range(3)])
    routes = [free_port() for _ in range(3)]
    for at in range(3):
        place = folder / f"n{at}"
        place.mkdir()
        text = _CONFIGURATION.format(
            at=at,
            port=cluster.ports[at],
            folder=place / "js",
            route=routes[at],
            routes=", ".join(f"nats://127.0.0.1:{one}" for one in routes),
        )
        place.joinpath("server.conf").write_text(text)
    try:
        for at in range(3):
            await cluster.start(at)
        await cluster.create_stream(**stream)
        yield cluster
    finally:
        for at in list(cluster.processes):
            await cluster.kill(at)
