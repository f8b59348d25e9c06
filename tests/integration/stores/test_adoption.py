"""A sidecar is killed and its folder is gone. A gateway adopts its session from three stores, as
processes and over HTTP (S3.7)."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    UNSOUND,
    read_header,
    segment_numbers,
    walk,
)
from pillion_sidecar.stores.copies import common_end
from pillion_sidecar.stores.messages import AppendRequest, ClaimRequest
from pillion_sidecar.stores.namespaces import SystemNamespaceFolders
from pillion_sidecar.stores.store import StoreLimits
from support.journal_gateway import JournalGateway, opened
from support.relayhouse import House, Listener
from support.running import alerts
from support.stores import ShippedLog

LIMITS = StoreLimits(maximum_bytes=64 << 20, maximum_sessions=10)
TOKEN = "operator"


class World:
    def __init__(self, house: House, stores: list[JournalGateway], client: aiohttp.ClientSession):
        self.house = house
        self.stores = stores
        self._client = client
        self.session = ""

    @property
    def names(self) -> list[str]:
        """A gateway's name is its host here."""
        return [store.door.host for store in self.stores]

    async def start_gateway(self) -> None:
        await self.house.start_gateway()

    async def lose_sidecar(self) -> None:
        """Kill it with its folder; the stores have what was on its disk."""
        await self.house.kill(self.house.sidecar)
        folder = self.house.folder / "journal-default"
        log = log_of(folder)
        self.session = log.session
        for store in self.stores:
            await ship(store, log)
        shutil.rmtree(folder)

    async def order(self, **changes: Any) -> tuple[int, Any]:
        groups = [{"name": "g", "members": self.names}]
        order = {"session": self.session, "service": "default", "stores": {"groups": groups}}
        return await self.ask("post", json=order | changes)

    async def ask(
        self, method: str, path: str = "/v1/adoptions", *, token: str = TOKEN, **given: Any
    ) -> tuple[int, Any]:
        url = f"{self.house.gateway.telemetry}{path}"
        headers = {"Authorization": f"Bearer {token}"}
        async with self._client.request(method, url, headers=headers, **given) as response:
            text = await response.text()
            return response.status, json.loads(text) if response.status != 401 else text

    async def adopted(self) -> Any:
        """Order, and wait until it is done."""
        assert (await self.order())[0] == 202
        await self.house.gateway.logged("adoption-done")
        _, page = await self.ask("get")
        return page["adoptions"][-1]


def log_of(folder: Path) -> ShippedLog:
    """What is on a journal's disk."""
    segments = {}
    names = [path.name for path in folder.iterdir()]
    for number, path in zip(segment_numbers(names), sorted(folder.glob("*.segment")), strict=True):
        data = path.read_bytes()
        ends = [at for at, kind, *_ in walk(data, HEADER_SIZE, len(data)) if kind == UNSOUND]
        segments[number] = data[: min(ends, default=len(data))]
    header = read_header(next(iter(segments.values()))[:HEADER_SIZE])
    assert header is not None
    return ShippedLog(session=header.journal_id.hex(), segments=segments)


async def ship(store: JournalGateway, log: ShippedLog) -> None:
    epoch: dict[str, Any] = {"number": 1, "claimant": "pod"}
    copy = await store.copy(ClaimRequest(**epoch), session=log.session)
    while copy.end < log.end:
        piece, data = log.next(common_end(copy.extents, log.extents))
        request = AppendRequest(
            after=piece.after,
            position=piece.position,
            created=piece.created,
            base=0,
            data=data,
            **epoch,
        )
        copy = await store.copy(request, session=log.session)


@pytest_asyncio.fixture
async def listening() -> AsyncIterator[Listener]:
    listener = Listener()
    app = web.Application(client_max_size=4 << 20)
    app.router.add_post("/{name}", listener.take)
    async with TestServer(app) as server:
        listener.url = str(server.make_url("/"))
        yield listener
        listener.let_go()


@pytest_asyncio.fixture
async def world(tmp_path: Path, listening: Listener) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        stores: list[JournalGateway] = []
        for at in range(3):
            folder = tmp_path / f"store-{at}"
            folder.mkdir()
            store = JournalGateway(SystemNamespaceFolders(folder), limits=LIMITS)
            store.door.host = f"127.0.0.{at + 2}"
            store.door.port = stores[0].door.port if stores else 0
            stores.append(await stack.enter_async_context(opened(store)))
        house = House(tmp_path, listening, stack)
        token = tmp_path / "operator-token"
        token.write_text(TOKEN)
        house.gateway_options = (
            *("--gateway", f"http://{{service}}:{stores[0].door.port}"),
            *("--operator-token-file", str(token)),
        )
        client = await stack.enter_async_context(aiohttp.ClientSession())
        yield World(house, stores, client)


async def publish(world: World, count: int, *, through: str = "Deliverer") -> None:
    """Have the sidecar keep what its listener does not take."""
    world.house.configure("siem", through=through)
    world.house.listener.status = 503
    await world.house.start_sidecar()
    answer = await world.house.sidecar.publish(*alerts(0, count), query="ack=durable")
    assert answer.document["accepted"] == count


@pytest.mark.parametrize("through", ["Deliverer", "Gateway"])
async def test_all_that_its_stores_have_arrives_once_and_in_order(
    world: World, through: str
) -> None:
    await publish(world, 600, through=through)
    await world.lose_sidecar()
    world.house.listener.status = 204
    await world.start_gateway()
    status = await world.adopted()
    assert (status["state"], status["taken"], status["pending"]) == ("Done", 600, 0)
    await world.house.listener.until(lambda: len(world.house.listener.at("siem")) == 600)
    assert world.house.listener.at("siem") == [str(number) for number in range(600)]
    properties = world.house.listener.last["/siem"]["data"]["properties"]
    assert properties["CorrelatedIndications"] == ["599"]
    assert left(world) == [0, 0, 0]


def left(world: World) -> list[int]:
    """How many sessions each store has."""
    return [len(list((world.house.folder / f"store-{at}" / "_").glob("?" * 32))) for at in range(3)]


async def test_a_gateway_that_is_killed_in_the_middle_adopts_again(world: World) -> None:
    await publish(world, 600)
    await world.lose_sidecar()
    world.house.listener.hangs, world.house.listener.status = True, 204
    await world.start_gateway()
    assert (await world.order())[0] == 202
    await world.house.gateway.logged("adoption-begun")
    await world.house.kill(world.house.gateway)
    world.house.listener.hangs = False
    world.house.listener.let_go()
    await world.start_gateway()
    status = await world.adopted()
    assert (status["state"], status["pending"]) == ("Done", 0)
    assert status["taken"] + status["duplicate"] == 600
    listener = world.house.listener
    await listener.until(lambda: len(set(listener.at("siem"))) == 600)
    assert list(dict.fromkeys(listener.at("siem"))) == [str(number) for number in range(600)]
    assert left(world) == [0, 0, 0]


async def test_two_stores_are_enough_and_one_is_waited_for(world: World) -> None:
    await publish(world, 3)
    await world.lose_sidecar()
    world.house.listener.status = 204
    kept = [store.door.context.stores for store in world.stores]
    for store in world.stores[:2]:
        store.door.context.stores = None
    await world.start_gateway()
    assert (await world.order())[0] == 202
    waits: dict[str, Any] = {}
    while waits.get("missing") != world.names[:2]:
        _, page = await world.ask("get")
        waits = page["adoptions"][0]
    assert waits["state"] == "Claiming"
    assert "HTTP 404: this deliverer keeps no copies of journals" in waits["problem"]
    world.stores[0].door.context.stores = kept[0]
    await world.house.listener.until(lambda: len(world.house.listener.at("siem")) == 3)
    assert world.house.listener.at("siem") == ["0", "1", "2"]


async def test_orders_of_others_and_wrong_ones_are_refused(world: World) -> None:
    world.house.configure("siem", through="Deliverer")
    world.session = "0" * 32
    await world.start_gateway()
    assert await world.ask("post", token="other", json={}) == (401, "unauthorized\n")
    assert (await world.ask("post", json={}))[0] == 400
    status, answer = await world.order(service="No")
    assert (status, "$.service" in answer["reason"]) == (400, True)
    groups = [{"name": "g", "members": ["a", "a"]}]
    status, answer = await world.order(stores={"groups": groups})
    assert (status, answer["reason"]) == (
        409,
        "stores: a store is named twice: a; name each once",
    )
    assert await world.ask("get") == (200, {"adoptions": []})
    big = b" " * (65 << 10)
    assert (await world.ask("post", data=big))[0] == 413


async def test_a_gateway_that_reaches_no_store_says_so(world: World) -> None:
    world.house.configure("siem", through="Deliverer")
    world.session = "0" * 32
    world.house.gateway_options = world.house.gateway_options[2:]
    await world.start_gateway()
    await world.order()
    await world.house.gateway.logged("adoption-failed")
    (record,) = world.house.gateway.events("adoption-failed")
    assert "was started without --gateway" in record["reason"]


async def test_the_operator_sees_the_copies_of_a_gateway_that_keeps_any(world: World) -> None:
    world.house.configure("siem", through="Deliverer")
    await world.start_gateway()
    assert await world.ask("get", "/v1/journals", token="other") == (401, "unauthorized\n")
    status, answer = await world.ask("get", "/v1/journals")
    assert (status, "set journalCopies" in answer["reason"]) == (404, True)
