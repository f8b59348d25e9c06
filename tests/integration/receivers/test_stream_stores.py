"""A sidecar whose journal a stream of three real nats-servers keeps, alone and beside gateways
(S3.2, S3.11)."""

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError

from pillion_sidecar.stores.namespaces import SystemNamespaceFolders
from pillion_sidecar.stores.store import StoreLimits
from support.broker_programs import NATS_SERVER, WITHOUT_NATS_SERVER
from support.journal_gateway import JournalGateway, opened
from support.listening import Listening, listening
from support.nats_cluster import STREAM, SUBJECT, NATSCluster, clustered
from support.resources import JSON, write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar

pytestmark = pytest.mark.skipif(NATS_SERVER is None, reason=WITHOUT_NATS_SERVER)
LIMITS = StoreLimits(maximum_bytes=256 << 20, maximum_sessions=4)
SESSION = ("--session", "one")


class World:
    def __init__(self, folder: Path, listener: Listening, cluster: NATSCluster) -> None:
        self.folder = folder
        self.listener = listener
        self.cluster = cluster
        self.gateways: list[JournalGateway] = []

    def write(self, *servers: str, grace: int = 0) -> Path:
        """The resources; ``servers``: those of the stream, by default all."""
        urls = servers or [self.cluster.url(at) for at in range(3)]
        stream: JSON = {"name": "nats", "stream": STREAM, "syncInterval": "Always"}
        members: list[JSON] = [{"nats": {**stream, "subject": SUBJECT, "servers": [*urls]}}]
        members += [{"gatewayRef": {"name": str(one.door.port)}} for one in self.gateways]
        given = {"groups": [{"name": "all", "members": members}]}
        folder = self.folder / "resources"
        folder.mkdir(exist_ok=True)
        service = {"stores": given, "shutdownGracePeriodSeconds": grace}
        return write(folder, *resources(listener("there", self.listener.url), **service))

    @asynccontextmanager
    async def sidecar(
        self, *options: str, servers: Sequence[str] = (), grace: int = 0
    ) -> AsyncIterator[Sidecar]:
        reach = ("--gateway", "http://127.0.0.1:{service}") if self.gateways else ()
        journal = ("--journal", str(self.folder / "journal"))
        async with sidecar(self.write(*servers, grace=grace), *journal, *reach, *options) as made:
            yield made

    async def problem(self, made: Sidecar) -> str:
        """What is said of the stream, once anything is."""
        await made.logged("stores-awaited")
        status = (await made.get("/v1/status")).document["stores"]
        (told,) = (one for one in status["members"] if one["name"] == "nats")
        assert told["isMissed"]
        return str(told["problem"])


@asynccontextmanager
async def worlds(folder: Path, *, gateways: int = 0, **stream: Any) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(clustered(folder, **stream))
        world = World(folder, await stack.enter_async_context(listening()), cluster)
        for at in range(gateways):
            kept = folder / f"store-{at}"
            kept.mkdir()
            gateway = JournalGateway(SystemNamespaceFolders(kept), limits=LIMITS)
            world.gateways.append(await stack.enter_async_context(opened(gateway)))
        yield world


@pytest.mark.parametrize("gateways", [0, 2])
async def test_what_was_stable_arrives_although_the_folder_is_gone(
    tmp_path: Path, gateways: int
) -> None:
    async with worlds(tmp_path, gateways=gateways) as world:
        world.listener.behave(status=503)
        for one in world.gateways[1:]:
            # The stream and the other gateway are a quorum.
            one.shut("it is away")
        async with world.sidecar(*SESSION) as made:
            answer = await made.publish(*alerts(0, 200), query="ack=stable&timeout=60")
            assert (answer.status, answer.document["stable"]) == (200, True)
            assert 'pillion_store_up{store="nats"} 1' in await made.metrics()
        shutil.rmtree(tmp_path / "journal")
        world.listener.behave()
        async with world.sidecar(*SESSION) as made:
            await world.listener.delivered(200)
            (claimed,) = made.events("session-claimed")
            assert claimed["restored"]
        assert sorted(map(int, world.listener.identifiers)) == list(range(200))


async def test_a_second_deliverer_of_the_session_ends_the_first_by_name(tmp_path: Path) -> None:
    async with worlds(tmp_path) as world, world.sidecar(*SESSION) as first:
        await first.publish(*alerts(0, 10), query="ack=stable&timeout=60")
        second = tmp_path / "other"
        folder = world.write()
        async with sidecar(folder, "--journal", str(second), *SESSION) as other:
            await other.logged("session-claimed")
            # It may have ended by its last settlements.
            with suppress(ClientError):
                await first.publish(*alerts(10, 1), query="ack=durable")
            assert await first.ended() == 1
            # Of one number the greater claimant is the later.
            assert "has claimed the session under epoch" in "".join(first.said)


async def test_a_stop_that_leaves_nothing_pending_ends_the_session(tmp_path: Path) -> None:
    async with worlds(tmp_path) as world:
        async with world.sidecar(grace=10) as made:
            await made.publish(*alerts(0, 50), query="ack=stable&timeout=60")
            await world.listener.delivered(50)
            made.process.terminate()
            assert await made.ended() == 0
            assert made.events("session-released")
        assert await world.cluster.messages() == 1


@pytest.mark.parametrize(
    ("stream", "says"),
    [
        ({"num_replicas": 1}, "is no store: one lost server takes it away; set replicas to 3"),
        ({"storage": "memory"}, "is no store: it is in memory; create it with storage: file"),
    ],
)
async def test_a_start_names_what_is_wrong_with_the_stream(
    tmp_path: Path, stream: dict[str, Any], says: str
) -> None:
    async with worlds(tmp_path, **stream) as world, world.sidecar() as made:
        assert says in await world.problem(made)
        answer = await made.publish(*alerts(0, 1))
        assert answer.status == 503
        await world.cluster.delete_stream()
        await world.cluster.create_stream()
        await made.logged("session-claimed")


async def test_a_start_takes_servers_that_are_corrected_while_it_waits(tmp_path: Path) -> None:
    async with worlds(tmp_path) as world, world.sidecar(servers=["nats://127.0.0.1:1"]) as made:
        assert "127.0.0.1" in await world.problem(made)
        world.write()
        await made.logged("session-claimed")
        answer = await made.publish(*alerts(0, 1), query="ack=stable&timeout=60")
        while answer.status == 503:
            answer = await made.publish(*alerts(0, 1), query="ack=stable&timeout=60")
        assert answer.document["stable"] is True
