"""Three real nats-servers are one store of a journal (S3.11)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.stores import StreamMember
from pillion_sidecar.handlers.journals import StoreLinks
from pillion_sidecar.handlers.nats.link import StreamLink
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.handlers.transport.sender import SharedParts
from pillion_sidecar.stores.copies import Copy, Epoch, FencedError
from pillion_sidecar.stores.messages import (
    ClaimRequest,
    KeepRequest,
    ReleaseRequest,
    RemoveRequest,
)
from pillion_sidecar.stores.ports import Unanswered
from pillion_sidecar.stores.quorum import Membership, StoreGroup
from pillion_sidecar.stores.shipping import Shipper, ShippingLimits
from pillion_sidecar.testing import FakeTime
from support.broker_programs import NATS_SERVER, WITHOUT_NATS_SERVER
from support.nats_cluster import LOOK, STREAM, SUBJECT, NATSCluster, clustered
from support.stores import SESSION, ShippedLog, WaitingReader
from support.streams import asked, content, copied, identities

pytestmark = pytest.mark.skipif(NATS_SERVER is None, reason=WITHOUT_NATS_SERVER)
MEMBERSHIP = Membership(groups=(StoreGroup(name="g", members=("nats",)),))
#: Seconds of an answer.
TIMEOUT = 5.0


class Writer:
    def __init__(self, store: StreamLink, epoch: Epoch, time: FakeTime, copy: Copy) -> None:
        self.log = ShippedLog()
        self.time = time
        self.fenced: list[FencedError] = []
        self.shipper = Shipper(
            epoch=epoch,
            membership=MEMBERSHIP,
            log=copy.extents,
            answers={},
            transport=StoreLinks({"nats": store}),
            reader=WaitingReader(self.log),
            timers=time,
            fenced=self.fenced.append,
            limits=ShippingLimits(gather_seconds=0.0),
        )

    def begin(self, number: int) -> None:
        self.log.begin(number, created=float(number))
        self.shipper.begin(number, float(number), self.log.segments[number])

    def write(self, size: int) -> None:
        number = max(self.log.segments)
        before = len(self.log.segments[number])
        self.log.write(size)
        self.shipper.append(self.log.segments[number][before:])

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.time.advance(LOOK)
            await asyncio.sleep(LOOK)

    async def stable(self) -> None:
        await self.until(lambda: self.shipper.stable == self.shipper.end)


class World:
    def __init__(self, cluster: NATSCluster, time: FakeTime, stack: AsyncExitStack) -> None:
        self.cluster = cluster
        self.time = time
        self._stack = stack
        resolver = Resolver()
        stack.push_async_callback(resolver.close)
        self._parts = SharedParts(clock=time, timers=time, resolver=resolver)

    def store(self, at: int = 0) -> StreamLink:
        store = StreamLink(
            StreamMember(
                name="nats", servers=(self.cluster.url(at),), stream=STREAM, subject=SUBJECT
            ),
            session=SESSION,
            parts=self._parts,
            address_policy=AddressPolicy(allow_loopback=True),
            timeout=TIMEOUT,
        )
        self._stack.callback(store.close)
        return store

    def writer(self, store: StreamLink, number: int = 1, copy: Copy | None = None) -> Writer:
        writer = Writer(store, Epoch(number, "w"), self.time, copy or Copy())
        self._stack.callback(writer.shipper.close)
        return writer


@asynccontextmanager
async def worlds(folder: Path, time: FakeTime, **stream: object) -> AsyncIterator[World]:
    async with clustered(folder, **stream) as cluster, AsyncExitStack() as stack:
        yield World(cluster, time, stack)


def claim(number: int) -> ClaimRequest:
    return ClaimRequest(number=number, claimant="w")


def keep(segment: int, data: bytes, *, first: int, epoch: int = 1) -> KeepRequest:
    return KeepRequest(number=epoch, claimant="w", segment=segment, first=first, data=data)


async def test_a_writer_goes_on_when_the_leader_is_killed(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    async with worlds(tmp_path, fake_time) as world:
        leader = await world.cluster.leader()
        writer = world.writer(world.store((leader + 1) % 3))
        writer.begin(1)
        # The longest record has parts.
        for size in (10, 3_000_000, 200, 500_000):
            writer.write(size)
        await writer.stable()
        await world.cluster.kill(leader)
        writer.write(100)
        await writer.stable()
        writer.begin(2)
        writer.write(100)
        await writer.stable()
        await world.cluster.start(leader)
        store = world.store((leader + 2) % 3)
        copy = await copied(store, claim(2))
        assert copy.extents == writer.log.extents
        assert await content(store, copy) == writer.log.segments
        # The old writer learns of it with its next bytes.
        writer.write(10)
        await writer.until(lambda: bool(writer.fenced))
        assert "w has claimed the session under epoch 2" in str(writer.fenced[0])
        assert isinstance(await asked(world.store(), claim(1)), FencedError)


async def test_claims_at_once_leave_one_writer(tmp_path: Path, fake_time: FakeTime) -> None:
    async with worlds(tmp_path, fake_time) as world:
        writer = world.writer(world.store())
        writer.begin(1)
        for _ in range(20):
            writer.write(50)
        await writer.stable()
        claims = {number: world.store(number % 3) for number in (2, 3, 4)}
        told = await asyncio.gather(*(asked(store, claim(one)) for one, store in claims.items()))
        assert all(isinstance(one, Copy | FencedError) for one in told), told
        last = told[2]
        assert isinstance(last, Copy)
        assert last.extents == writer.log.extents
        for number in (2, 3):
            assert isinstance(await asked(claims[number], claim(number)), FencedError)


async def test_segments_that_are_removed_take_no_room(tmp_path: Path, fake_time: FakeTime) -> None:
    async with worlds(tmp_path, fake_time) as world:
        store = world.store()
        writer = world.writer(store)
        writer.begin(1)
        for _ in range(5):
            writer.write(100_000)
            await writer.stable()
        writer.begin(2)
        writer.write(100)
        await writer.stable()
        writer.shipper.close()
        before = await world.cluster.messages()
        through = writer.log.end
        remove = RemoveRequest(number=1, claimant="w", first=2, through=through)
        assert (await copied(store, remove)).extents == writer.log.extents[1:]
        assert await world.cluster.messages() <= before - 5
        fresh = world.store(1)
        copy = await copied(fresh, claim(2))
        assert await content(fresh, copy) == {2: writer.log.segments[2]}


async def test_identities_of_removed_segments_are_kept_and_forgotten(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    async with worlds(tmp_path, fake_time) as world:
        store = world.store()
        await copied(store, claim(1))
        files = {number: b"%d" % number * size for number, size in ((2, 9), (3, 2_500_000))}
        for number, data in files.items():
            await copied(store, keep(number, data, first=2))
        fresh = world.store(1)
        assert (await copied(fresh, claim(2))).identities == 0
        assert await identities(fresh, size=1 << 20) == files
        before = await world.cluster.messages()
        files = {4: b"4" * 1000}
        await copied(fresh, keep(4, files[4], first=4, epoch=2))
        # A file of one part, one of three, and what tells of the new one.
        assert await world.cluster.messages() == before - 4 + 2
        assert await identities(world.store(2), size=1 << 20) == files
        assert isinstance(await asked(store, keep(5, b"5", first=5)), FencedError)
        await copied(fresh, ReleaseRequest(number=2, claimant="w"))
        assert await world.cluster.messages() == 1


async def test_a_session_that_is_released_takes_no_room(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    async with worlds(tmp_path, fake_time) as world:
        store = world.store()
        writer = world.writer(store)
        writer.begin(1)
        writer.write(100_000)
        await writer.stable()
        writer.shipper.close()
        await copied(store, ReleaseRequest(number=1, claimant="w"))
        assert await world.cluster.messages() == 1
        assert (await copied(world.store(1), claim(2))).extents == ()


async def test_a_stream_that_was_deleted_gets_all_again(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    async with worlds(tmp_path, fake_time) as world:
        writer = world.writer(world.store())
        writer.begin(1)
        writer.write(1000)
        await writer.stable()
        await world.cluster.delete_stream()
        writer.write(10)
        await writer.until(lambda: bool(writer.shipper.problems))
        assert any(
            words in writer.shipper.problems["nats"]
            for words in ("no stream journals answers", "there is no stream journals; create it")
        )
        await world.cluster.create_stream()
        await writer.stable()
        store = world.store()
        copy = await copied(store, claim(2))
        assert await content(store, copy) == writer.log.segments


async def test_a_stream_with_one_replica_is_named(tmp_path: Path, fake_time: FakeTime) -> None:
    async with worlds(tmp_path, fake_time, num_replicas=1) as world:
        told = await asked(world.store(), claim(1))
        assert told == Unanswered(
            reason="stream journals is no store: one lost server takes it away; set replicas to 3"
            " or more"
        )


async def test_a_full_stream_refuses_and_loses_nothing(tmp_path: Path, fake_time: FakeTime) -> None:
    async with worlds(tmp_path, fake_time, max_bytes=100_000) as world:
        store = world.store()
        writer = world.writer(store)
        writer.begin(1)
        writer.write(50_000)
        await writer.stable()
        writer.write(90_000)
        await writer.until(lambda: bool(writer.shipper.problems))
        assert "maximum bytes exceeded" in writer.shipper.problems["nats"]
        fresh = world.store()
        copy = await copied(fresh, claim(2))
        kept = await content(fresh, copy)
        assert kept[1] == writer.log.segments[1][: len(kept[1])]
        assert len(kept[1]) > 50_000


async def test_a_message_of_somebody_else_is_named(tmp_path: Path, fake_time: FakeTime) -> None:
    async with worlds(tmp_path, fake_time) as world:
        writer = world.writer(world.store())
        writer.begin(1)
        await writer.stable()
        await world.cluster.publish(SESSION, b"hello")
        told = await asked(world.store(), claim(2))
        assert "is not of a journal" in str(told)
