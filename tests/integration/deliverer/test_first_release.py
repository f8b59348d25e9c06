"""The deliverer of the first release beside a newer operator: it reads what is written for it."""

import asyncio
import base64
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from pillion_operator.names import CONFIGURATION_TYPE
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.levels import FIRST_LEVEL, LEVEL
from support.chaos import free_ports
from support.first_release import first_release
from support.operator_fakes import run_virtually
from support.operator_world import World, settled
from support.resources import JSON
from support.running import alerts
from support.sidecar import sidecar

PACKAGES = ("cim", "sidecar", "cli", "spark", "operator")
#: What the first release does not know, and what it does.
NEWER = {
    "classes": [{"name": "HP_AlertIndication", "superclass": "CIM_AlertIndication"}],
    "deliveryRetryIntervalSeconds": 1,
}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the first release."""
    return first_release(tmp_path_factory.mktemp("first-release"))


class Guarded:
    """A listener that notes with which token it was asked."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self._asked = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        self.tokens.append(request.headers.get("Authorization", ""))
        self._asked.set()
        return web.Response()

    async def asked(self, count: int) -> None:
        """Wait until it was asked so often."""
        while len(self.tokens) < count:
            self._asked.clear()
            await self._asked.wait()


@asynccontextmanager
async def guarded(port: int) -> AsyncIterator[Guarded]:
    made, app = Guarded(), web.Application()
    app.router.add_post("/", made.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield made
    await runner.cleanup()


@pytest.fixture(scope="module")
def port() -> int:
    """Where the listener will be."""
    (found,) = free_ports(1)
    return found


@pytest.fixture(scope="module")
def written(port: int) -> list[Mapping[str, bytes]]:
    """What the operator writes for that listener, before and after a credential changes."""
    return rendered(f"http://127.0.0.1:{port}/")


@pytest.fixture(scope="module")
def of_today(port: int) -> Mapping[str, bytes]:
    """What the operator writes for deliverers of today."""
    return rendered(f"http://127.0.0.1:{port}/", level=LEVEL)[0]


@pytest.fixture(scope="module")
def environment(first: Path) -> Mapping[str, str]:
    """That of a process that runs the first release."""
    path = os.pathsep.join(str(first / package) for package in PACKAGES)
    return {**os.environ, "PYTHONPATH": path}


def rendered(url: str, *, level: int = FIRST_LEVEL) -> list[Mapping[str, bytes]]:
    """What the operator writes for a deliverer of a level: the files of a pod's volume,
    at first and with another credential."""
    found: list[Mapping[str, bytes]] = []

    def files(world: World) -> Mapping[str, bytes]:
        return {
            name: base64.b64decode(value)
            for body in world.api.objects.values()
            if body.get("type") == CONFIGURATION_TYPE
            for name, value in body["data"].items()
            if ".part-" in name
        }

    async def work() -> None:
        world = World(random.Random(1), addresses=AddressPolicy(allow_loopback=True))
        world.calm()
        world.resource("IndicationService", "default", NEWER)
        world.resource("IndicationFilter", "alerts", {"query": "SELECT * FROM CIM_AlertIndication"})
        world.secret("token", "one")
        token = {"bearer": {"secretRef": {"name": "token", "key": "token"}}}
        listener: JSON = {
            "destination": url,
            "protocol": "CloudEvents",
            "credentials": token,
        }
        other: JSON = {
            "destination": "https://127.0.0.1:9/",
            "protocol": "CloudEvents",
            "tls": {"allowCommonName": True},
        }
        for name, spec in (("one", listener), ("other", other)):
            world.resource("ListenerDestination", name, spec)
            references: JSON = {
                "filterRef": {"name": "alerts"},
                "destinationRef": {"name": name},
                "failureTriggerTimeIntervalSeconds": 60,
            }
            world.resource("IndicationSubscription", f"to-{name}", references)
        world.pod("old", service="default")
        world.pods["old"].schema_level = level
        async with world.leader():
            await settled(world)
            found.append(files(world))
            world.secret("token", "two")
            await settled(world)
            found.append(files(world))

    run_virtually(work())
    return found


def put(folder: Path, files: Mapping[str, bytes]) -> None:
    """Have just these files in a folder, as a kubelet would."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    for path in folder.iterdir():
        if path.name not in files:
            path.unlink()


async def test_a_deliverer_of_the_first_release_takes_new_fields_and_credentials(
    environment: Mapping[str, str],
    port: int,
    written: list[Mapping[str, bytes]],
    tmp_path: Path,
) -> None:
    before, after = written
    async with guarded(port) as listener:
        put(tmp_path, before)
        async with sidecar(tmp_path, environment=environment) as old:
            assert old.intake, old.said
            answer = await old.get("/v1/queues")
            assert "schemaLevel" not in answer.document
            assert [queue["name"] for queue in answer.document["queues"]] == ["one", "other"]
            assert (await old.publish(*alerts(0, 1))).status == 200
            await listener.asked(1)
            put(tmp_path, after)
            await old.logged("configuration-loaded", times=2)
            assert (await old.publish(*alerts(1, 1))).status == 200
            await listener.asked(2)
            assert old.events("configuration-refused") == []
    assert listener.tokens == ["Bearer one", "Bearer two"]


async def test_what_is_written_for_deliverers_of_today_it_refuses(
    environment: Mapping[str, str], of_today: Mapping[str, bytes], tmp_path: Path
) -> None:
    put(tmp_path, of_today)
    async with sidecar(tmp_path, environment=environment) as old:
        assert await old.ended() == 1
    assert "spec.classes" in "".join(old.said)
