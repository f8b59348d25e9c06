"""A writer ships its log to three gateways over real HTTP (S3.3, S3.15)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from pillion_sidecar.handlers.gateway import Gateways
from pillion_sidecar.handlers.journals import StoreLinks
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.handlers.transport.sender import SharedParts
from pillion_sidecar.journal.segments import segment_name
from pillion_sidecar.settings import GatewayEndpoint
from pillion_sidecar.stores.claiming import claim_folder
from pillion_sidecar.stores.copies import FencedError
from pillion_sidecar.stores.messages import ClaimRequest, Request
from pillion_sidecar.stores.namespaces import SystemNamespaceFolders
from pillion_sidecar.stores.ports import Answer
from pillion_sidecar.stores.quorum import Membership, StoreGroup
from pillion_sidecar.stores.shipping import RETRY_SECONDS, Shipper, ShippingLimits
from pillion_sidecar.testing import FakeTime
from support.crashing_files import RecordingFiles
from support.journal_gateway import JournalGateway, opened
from support.stores import FIRST, SESSION, ShippedLog, WaitingReader


class Watched:
    """A ``Transport`` that tells when an answer has come."""

    def __init__(self, stores: StoreLinks) -> None:
        self._stores = stores
        self.came = asyncio.Event()

    def send(
        self,
        store: str,
        request: Request,
        answered: Callable[[Answer], None],
    ) -> None:
        def done(answer: Answer) -> None:
            answered(answer)
            self.came.set()

        self._stores.send(store, request, done)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.came.clear()
            await self.came.wait()


class Writer:
    def __init__(self, stores: StoreLinks, names: tuple[str, ...], time: FakeTime) -> None:
        self.log = ShippedLog()
        self.transport = Watched(stores)
        self.fenced: list[FencedError] = []
        self.shipper = Shipper(
            epoch=FIRST,
            membership=Membership(groups=(StoreGroup(name="g", members=names),)),
            log=(),
            answers={},
            transport=self.transport,
            reader=WaitingReader(self.log),
            timers=time,
            fenced=self.fenced.append,
            limits=ShippingLimits(gather_seconds=0.0),
        )

    def write(self, *sizes: int) -> None:
        number = max(self.log.segments, default=0) + 1
        self.log.begin(number, created=1.0)
        self.shipper.begin(number, 1.0, self.log.segments[number])
        for size in sizes:
            before = len(self.log.segments[number])
            self.log.write(size)
            self.shipper.append(self.log.segments[number][before:])

    async def stable(self) -> None:
        await self.transport.until(lambda: self.shipper.stable == self.shipper.end)

    async def shipped(self) -> None:
        """Wait until every store has all."""
        await self.transport.until(lambda: not self.shipper.behind)


class World:
    def __init__(self, folder: Path, token: Path) -> None:
        self.folder = folder
        self.token = token
        self.time = FakeTime()
        self.gateways: list[JournalGateway] = []
        self.names: tuple[str, ...] = ()
        self.writer: Writer

    def content(self, at: int, namespace: str = "_") -> list[bytes]:
        folder = self.folder / str(at) / namespace / SESSION
        return [path.read_bytes() for path in sorted(folder.glob("*.segment"))]

    async def open(self, stack: AsyncExitStack, *, tokens: bool = False) -> None:
        for at in range(3):
            folder = self.folder / str(at)
            folder.mkdir()
            gateway = JournalGateway(SystemNamespaceFolders(folder), tokens=tokens)
            self.gateways.append(await stack.enter_async_context(opened(gateway)))
        self.names = tuple(str(gateway.door.port) for gateway in self.gateways)
        resolver = Resolver(nameservers=())
        stack.push_async_callback(resolver.close)
        parts = SharedParts(clock=self.time, timers=self.time, resolver=resolver)
        endpoint = GatewayEndpoint(
            url="http://127.0.0.1:{service}", token=self.token if tokens else None
        )
        gateways = Gateways(endpoint, parts=parts)
        stores = StoreLinks(gateways.stores(self.names, session=SESSION, timeout=10.0))
        stack.callback(stores.close)
        self.writer = Writer(stores, self.names, self.time)
        stack.callback(self.writer.shipper.close)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(tmp_path / "stores", tmp_path / "token")
    world.folder.mkdir()
    async with AsyncExitStack() as stack:
        await world.open(stack)
        yield world


async def test_each_gateway_gets_the_log(world: World) -> None:
    writer = world.writer
    writer.write(100, 200_000, 5, 70)
    writer.write(30)
    await writer.stable()
    await writer.shipped()
    for at in range(3):
        assert world.content(at) == list(writer.log.segments.values())


async def test_one_gateway_away_delays_nobody_and_two_are_missed(world: World) -> None:
    writer, shipper = world.writer, world.writer.shipper
    writer.write(100)
    await writer.shipped()
    world.gateways[0].shut("it ends")
    writer.write(100)
    await writer.stable()
    await writer.transport.until(lambda: world.names[0] in shipper.problems)
    assert "HTTP 503: it ends" in shipper.problems[world.names[0]]
    assert shipper.missed == ()
    world.gateways[1].shut("it ends, too")
    writer.write(100)
    await writer.transport.until(lambda: shipper.missed == world.names[:2])
    assert shipper.stable < shipper.end
    for gateway in world.gateways:
        gateway.open()
    world.time.advance(RETRY_SECONDS)
    await writer.stable()
    await writer.shipped()
    assert shipper.problems == {}
    assert world.content(0) == world.content(1) == list(writer.log.segments.values())


async def test_a_writer_that_another_has_fenced_is_told(world: World) -> None:
    writer = world.writer
    writer.write(100)
    await writer.shipped()
    for gateway in world.gateways:
        await gateway.copy(ClaimRequest(number=2, claimant="other"))
    writer.write(100)
    await writer.transport.until(lambda: bool(writer.fenced))
    assert "other has claimed the session under epoch 2" in str(writer.fenced[0])
    assert all((world.folder / str(at) / "_" / SESSION / segment_name(1)).exists() for at in (0, 1))


async def test_a_start_restores_its_folder_from_the_gateways(world: World) -> None:
    writer = world.writer
    writer.write(100, 200_000, 5, 70)
    await writer.shipped()
    writer.shipper.close()
    # One gateway knows of a claim that the start has not heard of.
    await world.gateways[1].copy(ClaimRequest(number=6, claimant="other"))
    files = RecordingFiles()
    claimed = await claim_folder(
        files,
        session=SESSION,
        claimant="new",
        membership=Membership(groups=(StoreGroup(name="g", members=world.names),)),
        transport=writer.transport,
        timers=world.time,
        waiting=lambda *_: None,
    )
    assert claimed.lacked
    assert claimed.epoch.number in (2, 7)
    restored = files.image()
    assert [restored[name] for name in sorted(restored) if name.endswith(".segment")] == list(
        writer.log.segments.values()
    )


async def test_a_token_finds_the_copies_of_its_namespace(tmp_path: Path) -> None:
    world = World(tmp_path / "stores", tmp_path / "token")
    world.folder.mkdir()
    async with AsyncExitStack() as stack:
        await world.open(stack, tokens=True)
        # Each gateway has an issuer of its own here; the first accepts this token.
        world.token.write_text(world.gateways[0].issuer.token(namespace="other"))
        writer = world.writer
        writer.write(100)
        await writer.transport.until(lambda: len(writer.shipper.problems) == 2)
        first = world.names[0]
        await writer.transport.until(lambda: first not in writer.shipper.behind)
        assert all("HTTP 401" in problem for problem in writer.shipper.problems.values())
        assert world.content(0, "other") == list(writer.log.segments.values())
