"""A publisher's repeat heals what a listener's fault has cost, and reaches nobody twice (S0.11)."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from support.asking import asked, settled
from support.listening import Listening, listening
from support.resources import write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar

COUNT = 200
DELIVERED = "ack=delivered"
AGAIN = f"{DELIVERED}&redeliver=true"


@asynccontextmanager
async def dead_beside_healthy(
    tmp_path: Path, **settings: Any
) -> AsyncIterator[tuple[Path, Listening, Listening]]:
    """Two listeners, and a folder whose deliverer gives up on the first, which is down."""
    async with AsyncExitStack() as stack:
        ops = await stack.enter_async_context(listening(status=503))
        archive = await stack.enter_async_context(listening())
        once = [{"answers": ["503"], "action": "Discard"}]
        folder = write(
            tmp_path,
            *resources(
                listener("ops", ops.url, responsePolicy=once),
                listener("archive", archive.url),
                **settings,
            ),
        )
        yield folder, ops, archive


async def lost(process: Sidecar) -> None:
    answer = await process.publish(*alerts(0, COUNT), query=DELIVERED)
    assert answer.document["accepted"] == COUNT
    assert {one["destination"] for one in answer.document["discarded"]} == {"ops"}
    assert len(answer.document["discarded"]) == COUNT


async def test_a_repeated_batch_heals_once_its_listener_is_back(tmp_path: Path) -> None:
    async with (
        dead_beside_healthy(tmp_path) as (folder, ops, archive),
        sidecar(folder, "--journal", str(tmp_path / "journal")) as process,
    ):
        await lost(process)
        plain = await process.publish(*alerts(0, COUNT), query=DELIVERED)
        ops.behave()
        healed = await process.publish(*alerts(0, COUNT), query=AGAIN)
        third = await process.publish(*alerts(0, COUNT), query=DELIVERED)
        redriven = await process.post("/v1/outcomes/redrive")
    assert len(plain.document["discarded"]) == COUNT
    assert healed.status == 200
    assert healed.document["redelivered"] == healed.document["duplicate"] == COUNT
    assert (healed.document["delivered"], healed.document["discarded"]) == (COUNT, [])
    assert (third.document["delivered"], third.document["discarded"]) == (COUNT, [])
    assert "redelivered" not in third.document
    assert redriven.document["redriven"] == 0
    assert redriven.document["skipped"] == {"redriven": COUNT}
    assert sorted(archive.identifiers) == sorted(ops.identifiers)
    assert len(ops.identifiers) == len(set(ops.identifiers)) == COUNT
    for arrival in ops.arrivals:
        identifier = arrival.text("IndicationIdentifier")
        assert arrival.properties["CorrelatedIndications"] == [identifier]


async def test_it_heals_after_kill_9_too(tmp_path: Path) -> None:
    journal = str(tmp_path / "journal")
    async with dead_beside_healthy(tmp_path) as (folder, ops, archive):
        async with sidecar(folder, "--journal", journal) as process:
            await lost(process)
            # The answer comes before its commit.
            await settled(process, COUNT, "result=discarded")
            await settled(process, COUNT, "result=delivered")
            process.process.kill()
            await process.ended()
        ops.behave()
        async with sidecar(folder, "--journal", journal) as process:
            healed = await process.publish(*alerts(0, COUNT), query=AGAIN)
            await settled(process, 2 * COUNT, "result=delivered")
            process.process.kill()
            await process.ended()
        async with sidecar(folder, "--journal", journal) as process:
            later = await process.publish(*alerts(0, COUNT), query=AGAIN)
    assert healed.document["redelivered"] == healed.document["delivered"] == COUNT
    # The history says that they have come since.
    assert (later.document["delivered"], later.document["discarded"]) == (COUNT, [])
    assert "redelivered" not in later.document
    assert len(ops.identifiers) == len(archive.identifiers) == COUNT


async def test_what_is_lost_again_may_be_redelivered_again(tmp_path: Path) -> None:
    async with (
        dead_beside_healthy(tmp_path, durability="Memory") as (folder, ops, _),
        sidecar(folder) as process,
    ):
        await lost(process)
        again = await process.publish(*alerts(0, COUNT), query=AGAIN)
        ops.behave()
        healed = await process.publish(*alerts(0, COUNT), query=AGAIN)
        found, _ = await asked(process, "result=redriven")
    assert again.document["redelivered"] == len(again.document["discarded"]) == COUNT
    assert healed.document["redelivered"] == healed.document["delivered"] == COUNT
    assert len(found) == 2 * COUNT
    assert sorted(ops.identifiers, key=str) == sorted(map(str, range(COUNT)))


async def test_what_was_purged_is_not_redelivered(tmp_path: Path) -> None:
    async with dead_beside_healthy(tmp_path) as (_, ops, archive):
        folder = write(
            tmp_path,
            *resources(listener("ops", ops.url), listener("archive", archive.url)),
        )
        async with sidecar(folder, "--journal", str(tmp_path / "journal")) as process:
            await process.publish(*alerts(0, 5), query="ack=accepted")
            await archive.delivered(5)
            await ops.treated_badly()
            await process.post("/v1/queues/ops/purge")
            await settled(process, 5, "result=discarded")
            ops.behave()
            answer = await process.publish(*alerts(0, 5), query=AGAIN)
    assert [one["reason"] for one in answer.document["discarded"]] == ["purged"] * 5
    assert "redelivered" not in answer.document
    assert ops.identifiers == []
