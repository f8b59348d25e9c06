"""A sidecar with three gateways that keep copies of its journal: what was stable arrives although
its folder is lost, and too few gateways are named (S3.2, S3.3, S3.9)."""

import asyncio
import json
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiohttp import ClientError

from pillion_cli.exits import Exit
from pillion_cli.main import main
from pillion_sidecar.settings import POD_UID
from pillion_sidecar.stores.messages import ClaimRequest
from pillion_sidecar.stores.namespaces import SystemNamespaceFolders
from pillion_sidecar.stores.store import StoreLimits
from pillion_sidecar.stores_runtime import session_id
from pyspark_pillion.errors import FlushTimeoutError
from pyspark_pillion.options import parse_options
from pyspark_pillion.source import Job, publish_partition
from support.journal_gateway import JournalGateway, opened
from support.listening import Listening, listening
from support.resources import JSON, write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar

LIMITS = StoreLimits(maximum_bytes=256 << 20, maximum_sessions=4)
GATEWAY = "http://127.0.0.1:{service}"
SESSION = session_id("default", "one")


class World:
    def __init__(self, folder: Path, listener: Listening) -> None:
        self.folder = folder
        self.listener = listener
        self.journal = folder / "journal"
        self.gateways: list[JournalGateway] = []

    @property
    def names(self) -> list[str]:
        return [str(gateway.door.port) for gateway in self.gateways]

    @asynccontextmanager
    async def sidecar(self, *options: str, grace: int = 0, **stores: Any) -> AsyncIterator[Sidecar]:
        """Run it on the journal while the context lasts; then it is killed."""
        members = [{"gatewayRef": {"name": name}} for name in self.names]
        given: JSON = {"groups": [{"name": "all", "members": members}], **stores}
        folder = self.folder / "resources"
        folder.mkdir(exist_ok=True)
        service = {"stores": given, "shutdownGracePeriodSeconds": grace}
        write(folder, *resources(listener("there", self.listener.url), **service))
        arguments = ("--journal", str(self.journal), "--gateway", GATEWAY, *options)
        async with sidecar(folder, *arguments) as made:
            yield made

    def lose_the_journal(self) -> None:
        shutil.rmtree(self.journal)

    def away(self, *at: int) -> None:
        for one in at:
            self.gateways[one].shut("it is away")

    def back(self) -> None:
        for gateway in self.gateways:
            gateway.open()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        world = World(tmp_path, await stack.enter_async_context(listening()))
        for at in range(3):
            folder = tmp_path / f"store-{at}"
            folder.mkdir()
            gateway = JournalGateway(SystemNamespaceFolders(folder), limits=LIMITS)
            world.gateways.append(await stack.enter_async_context(opened(gateway)))
        yield world


async def test_what_was_stable_arrives_although_the_folder_is_gone(world: World) -> None:
    world.listener.behave(status=503)
    async with world.sidecar("--session", "one") as made:
        answer = await made.publish(*alerts(0, 500), query="ack=stable&timeout=60")
        assert (answer.status, answer.document["stable"]) == (200, True)
        status = (await made.get("/v1/status")).document["stores"]
        assert [one["name"] for one in status["members"]] == world.names
        assert not any(one["isMissed"] for one in status["members"])
        assert f'pillion_store_up{{store="{world.names[0]}"}} ' in await made.metrics()
    world.lose_the_journal()
    world.listener.behave()
    async with world.sidecar("--session", "one") as made:
        await world.listener.delivered(500)
        (claimed,) = made.events("session-claimed")
        assert (claimed["session"], claimed["restored"]) == (SESSION, True)
    async with world.sidecar("--session", "one") as made:
        await made.logged("session-claimed")
        (claimed,) = made.events("session-claimed")
        assert not claimed["restored"], "the folder has new contexts since"
    assert sorted(map(int, world.listener.identifiers)) == list(range(500))


async def test_a_pod_claims_with_its_uid_and_service(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = "8e0c86a1-6a7d-4bd2-a5a3-2a4f7a4d3c11"
    monkeypatch.setenv(POD_UID, uid)
    async with world.sidecar() as made:
        await made.publish(*alerts(0, 1), query="ack=stable&timeout=60")
        (claimed,) = made.events("session-claimed")
        lower = ClaimRequest(number=1, claimant="0")
        _, error = await world.gateways[0].refused(lower, session=claimed["session"])
    assert f"{uid}/default/" in str(error)


async def test_a_stop_waits_until_the_stores_know_what_is_delivered(world: World) -> None:
    async with world.sidecar("--session", "one", grace=30) as made:
        await made.publish(*alerts(0, 50), query="ack=delivered&timeout=60")
        made.process.terminate()
        assert await made.ended() == 0
    world.lose_the_journal()
    async with world.sidecar("--session", "one") as made:
        await made.publish(*alerts(50, 1), query="ack=delivered&timeout=60")
    assert sorted(map(int, world.listener.identifiers)) == list(range(51))


@pytest.mark.parametrize(
    ("options", "is_down", "is_kept"),
    [((), False, False), ((), True, True), (("--session", "one"), False, True)],
)
async def test_a_stop_that_leaves_nothing_pending_ends_the_session(
    world: World, options: tuple[str, ...], is_down: bool, is_kept: bool
) -> None:
    if is_down:
        world.listener.behave(status=503)
    async with world.sidecar(*options, grace=5) as made:
        await made.publish(*alerts(0, 50), query="ack=stable&timeout=60")
        if not is_down:
            await world.listener.delivered(50)
        made.process.terminate()
        await made.ended()
        assert bool(made.events("session-released")) is not is_kept
    for at in range(3):
        assert any((world.folder / f"store-{at}").rglob("*.segment")) is is_kept
    # It goes on from its folder.
    world.listener.behave()
    async with world.sidecar(*options) as made:
        await made.publish(*alerts(50, 1), query="ack=stable&timeout=60")
        await world.listener.until(lambda: "50" in world.listener.identifiers)
    assert set(map(int, world.listener.identifiers)) == set(range(51))


async def test_numbers_that_no_copy_has_are_not_used_again(world: World) -> None:
    """1,000 are delivered that no store has; the folder goes, and 1,000 more arrive."""
    async with world.sidecar("--session", "one") as made:
        await made.publish(*alerts(0, 10), query="ack=stable&timeout=60")
        world.away(0, 1, 2)
        await made.publish(*alerts(10, 1000), query="ack=durable")
        await world.listener.delivered(1010)
    world.lose_the_journal()
    world.back()
    async with world.sidecar("--session", "one") as made:
        await made.publish(*alerts(1010, 1000), query="ack=stable&timeout=60")
        # What was delivered, and its settlement not stable, is repeated.
        await world.listener.until(lambda: "2009" in world.listener.identifiers[-1:])
    assert set(map(int, world.listener.identifiers)) == set(range(2010))
    contexts = [one.text("SequenceContext") for one in world.listener.arrivals]
    assert not set(contexts[:1010]) & set(contexts[-1000:])


async def test_two_missing_gateways_are_named_and_publishing_resumes(world: World) -> None:
    names = world.names
    async with world.sidecar(flightSize="100Ki") as made:
        world.away(0)
        answer = await made.publish(*alerts(0, 10), query="ack=stable&timeout=60")
        assert answer.document["stable"] is True
        world.away(1)
        status = 200
        sent = 10
        while status == 200:
            answer = await made.publish(*alerts(sent, 100), query="ack=durable")
            status = answer.status
            sent += 100
        assert status == 429
        text = str(answer.document)
        assert [name in text for name in names] == [True, True, False]
        assert "it is away" in text
        world.back()
        while answer.status == 429:
            answer = await made.publish(*alerts(sent, 1), query="ack=stable&timeout=60")
        assert answer.document["stable"] is True


async def test_without_a_quorum_it_continues_if_it_is_to(world: World) -> None:
    async with world.sidecar(flightSize="10Ki", withoutQuorum="Continue") as made:
        await made.publish(*alerts(0, 1), query="ack=stable&timeout=60")
        world.away(0, 1, 2)
        answer = await made.publish(*alerts(1, 499), query="ack=durable")
        assert answer.status == 200
        await world.listener.delivered(500)
        # Nothing is called stable that is not, and what was accepted beyond is told.
        answer = await made.publish(*alerts(500, 1), query="ack=stable&timeout=0.1")
        assert (answer.status, answer.document["stable"]) == (202, False)
        await made.logged("flight-exceeded")
        stores = (await made.get("/v1/status")).document["stores"]
        assert stores["unprotected"] > 0
        assert stores["unstableSeconds"] > 0
        assert stores["unannouncedBytes"] > 0
        world.back()
        told = await made.get(f"/v1/receipts/{answer.document['receipt']}?timeout=60")
        assert (told.status, told.document["stable"]) == (200, True)
        await made.logged("flight-back")


async def test_a_discard_before_it_is_stable_is_told_as_forced(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.listener.behave(status=503)
    async with world.sidecar(consensus="Lowest") as made:
        await made.publish(*alerts(0, 1), query="ack=stable&timeout=60")
        world.away(0, 1, 2)
        await made.publish(*alerts(1, 1), query="ack=durable")
        await made.post("/v1/queues/there/purge")
        await made.logged("indication-discarded", 2)
        forced = {
            one["identifier"]: one.get("forced") for one in made.events("indication-discarded")
        }
        assert forced == {"0": None, "1": True}
        # The history has it a moment later.
        while await asyncio.to_thread(main, ["explain", "1", "--to", made.administration]):
            capsys.readouterr()
        assert "purged; before enough stores had it" in capsys.readouterr().out
        status = (await made.get("/v1/status")).document["stores"]
        assert (status["forcedDiscards"], status["consensus"]) == (1, "Lowest")
        assert 'pillion_store_forced_discards_total{reason="purged"} 1' in await made.metrics()


async def test_what_a_run_could_not_call_stable_the_next_one_does(world: World) -> None:
    world.listener.behave(status=503)
    async with world.sidecar() as made:
        await made.publish(*alerts(0, 1), query="ack=stable&timeout=60")
        world.away(1, 2)
        answer = await made.publish(*alerts(1, 2), query="ack=stable&timeout=0.1", publisher="p")
        assert (answer.status, answer.document["stable"]) == (202, False)
        receipt = f"/v1/receipts/{answer.document['receipt']}"
        flushed = await made.post("/v1/flush?publisher=p&level=stable&timeout=0.1")
        assert (flushed.status, flushed.document["stable"]) == (202, False)
        # Until its note is on disk.
        while not (await made.get("/v1/status")).document["history"]["last"]:
            await made.publish(*alerts(3, 1), query="ack=durable")
    world.back()
    async with world.sidecar() as made:
        await made.logged("session-claimed")
        told = await made.get(f"{receipt}?level=stable&timeout=60")
        assert (told.status, told.document["stable"], told.document["pending"]) == (200, True, 2)
        repeat = await made.publish(*alerts(1, 2), query="ack=stable&timeout=60")
        assert (repeat.document["duplicate"], repeat.document["stable"]) == (2, True)


async def test_a_task_and_a_command_end_once_their_rows_are_in_stores(world: World) -> None:
    world.listener.behave(status=503)
    lines = [json.dumps(alert).encode() for alert in alerts(0, 30)]
    file = world.folder / "alerts.ndjson"
    file.write_bytes(b"\n".join(lines))
    async with world.sidecar() as made:
        options = {"source": "s", "url": made.intake, "flushTimeoutSeconds": "60"}

        def task(level: str) -> int:
            job = Job(parse_options({**options, "flushLevel": level}), "value", "job")
            rows = pa.array([line.decode() for line in lines[:20]])
            batch = pa.record_batch([rows], names=["value"])
            return publish_partition([batch], job).counts.accepted

        assert await asyncio.to_thread(task, "stable") == 20
        command = ["publish", str(file), "--to", made.intake, "--source", "s", "--ack", "stable"]
        assert await asyncio.to_thread(main, command) == 0
        world.away(0, 1)
        await made.publish(*alerts(30, 1), query="ack=durable")
        options["flushTimeoutSeconds"] = "0.2"
        with pytest.raises(FlushTimeoutError, match="not all had reached stable"):
            await asyncio.to_thread(task, "stable")
        assert await asyncio.to_thread(main, [*command, "--timeout", "0.2"]) == Exit.PARTLY


async def test_with_a_lease_nothing_is_delivered_while_too_few_stores_answer(world: World) -> None:
    async with world.sidecar("--session", "one", fencing="Lease", leaseSeconds=5) as made:
        await made.publish(*alerts(0, 3), query="ack=delivered&timeout=60")
        await made.logged("lease-held")
        world.away(0, 1)
        await made.logged("lease-lapsed")
        answer = await made.publish(*alerts(3, 1), query="ack=delivered&timeout=0.5")
        assert (answer.status, answer.document["pending"]) == (202, 1)
        status = (await made.get("/v1/status")).document["stores"]
        assert status["leaseSeconds"] == 0
        assert "pillion_store_lease_seconds 0\n" in await made.metrics()
        world.back()
        await world.listener.delivered(4)
        await made.logged("lease-held", 2)


async def test_with_a_lease_one_that_was_stopped_delivers_nothing_beside_the_other(
    world: World,
) -> None:
    world.listener.behave(status=503)
    lease: dict[str, Any] = {"fencing": "Lease", "leaseSeconds": 5}
    async with world.sidecar("--session", "one", **lease) as first:
        await first.publish(*alerts(0, 20), query="ack=stable&timeout=60")
        first.process.send_signal(signal.SIGSTOP)
        world.journal = world.folder / "another"
        async with world.sidecar("--session", "one", **lease) as second:
            world.listener.behave()
            await second.logged("session-claimed")
            began = len(world.listener.arrivals)
            await second.logged("lease-held")
            await world.listener.until(lambda: len(world.listener.arrivals) == began + 20)
            first.process.send_signal(signal.SIGCONT)
            assert await first.ended() == 1
            await second.publish(*alerts(20, 1), query="ack=delivered&timeout=60")
    assert sorted(map(int, world.listener.identifiers[began:])) == list(range(21))


async def test_a_start_listens_while_it_waits_for_its_stores(world: World) -> None:
    world.away(1, 2)
    async with world.sidecar() as made:
        await made.logged("stores-awaited")
        answer = await made.publish(*alerts(0, 1))
        assert answer.status == 503
        # What is in the folder is pending, and nobody has read it.
        assert (await made.post("/drain")).status == 503
        assert (await made.get("/v1/queues")).document["starting"]
        assert (await made.get("/v1/status")).document["starting"]
        reason = answer.document["reason"]
        assert reason.startswith("the start waits for stores of the journal: ")
        assert all(f"{name} (it answered HTTP 503" in reason for name in world.names[1:])
        world.back()
        await made.logged("session-claimed")
        while answer.status == 503:
            answer = await made.publish(*alerts(0, 1), query="ack=durable")
        assert answer.status == 200
    # A stop is heeded while it waits.
    world.away(1, 2)
    async with world.sidecar() as made:
        await made.logged("stores-awaited")
        made.process.terminate()
        assert await made.ended() == 0
        assert not made.events("deliverer-stopping")


async def test_a_second_deliverer_of_the_session_ends_the_first_by_name(world: World) -> None:
    async with world.sidecar("--session", "one") as made:
        await made.publish(*alerts(0, 10), query="ack=stable&timeout=60")
        for gateway in world.gateways:
            await gateway.copy(ClaimRequest(number=9, claimant="other"), session=SESSION)
        # It may have ended by its last settlements.
        with suppress(ClientError):
            await made.publish(*alerts(10, 1), query="ack=durable")
        assert await made.ended() == 1
        assert "other has claimed the session under epoch 9" in "".join(made.said)


async def test_a_folder_of_another_session_is_refused(world: World) -> None:
    async with world.sidecar() as made:
        await made.publish(*alerts(0, 1), query="ack=stable&timeout=60")
    async with world.sidecar("--session", "one") as made:
        assert await made.ended() == 1
        assert "leave --session out, or name another folder" in "".join(made.said)
