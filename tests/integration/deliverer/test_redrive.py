"""What was discarded is delivered again: in order, once each, also over kill -9 (S0.11)."""

import asyncio
from pathlib import Path
from typing import Any

from support.asking import settled
from support.listening import listening
from support.resources import write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar

ROOM = 20


async def redriven(process: Sidecar, query: str = "") -> list[dict[str, Any]]:
    """Redrive page by page, as the command does; the answers."""
    answers: list[dict[str, Any]] = []
    after = 0
    while True:
        answer = await process.post(f"/v1/outcomes/redrive?after={after}&{query}")
        assert answer.status == 200
        answers.append(answer.document)
        after = answer.document["next"]
        if not answer.document["more"]:
            return answers
        # The queue is full: it is being delivered.
        await asyncio.sleep(0)


def full(url: str, **more: Any) -> Any:
    return listener(
        "ops",
        url,
        queueSize=ROOM,
        queueFullPolicy="DiscardOldest",
        retry={"attempts": 1000, "intervalSeconds": 1},
        **more,
    )


async def overflowed(process: Sidecar, count: int) -> None:
    for first in range(0, count, 100):
        answer = await process.publish(*alerts(first, 100), query="ack=durable")
        assert answer.document["accepted"] == 100


async def test_an_afternoon_that_a_dead_listener_lost_is_redriven_in_order(tmp_path: Path) -> None:
    count = 500
    async with listening(status=503) as ops:
        folder = write(tmp_path, *resources(full(ops.url)))
        async with sidecar(folder, "--journal", str(tmp_path / "journal")) as process:
            await overflowed(process, count)
            await settled(process, count - ROOM, "result=discarded")
            dry = await process.post("/v1/outcomes/redrive?dryRun=true&destination=ops")
            ops.behave()
            answers = await redriven(process, "destination=ops")
            total = sum(one["redriven"] for one in answers)
            await ops.delivered(count)
            again = await redriven(process, "destination=ops")
    assert dry.document["redriven"] == total == count - ROOM
    assert sorted(ops.identifiers, key=int) == [str(number) for number in range(count)]
    lost = [one for one in ops.identifiers if int(one) < count - ROOM]
    assert lost == [str(number) for number in range(count - ROOM)]
    assert sum(one["redriven"] for one in again) == 0
    assert sum(one["skipped"].get("redriven", 0) for one in again) == count - ROOM


async def test_what_is_redriven_is_marked_and_kill_9_loses_nothing_of_it(tmp_path: Path) -> None:
    count = 300
    journal = tmp_path / "journal"
    async with listening(status=503) as ops:
        folder = write(tmp_path, *resources(full(ops.url)))
        async with sidecar(folder, "--journal", str(journal)) as process:
            await overflowed(process, count)
            await settled(process, count - ROOM, "result=discarded")
            await process.post("/v1/queues/ops/purge")
            await settled(process, count, "result=discarded")
            ops.behave()
            # Killed while its first page is on the way.
            await process.post("/v1/outcomes/redrive?limit=15")
            process.process.kill()
            await process.ended()
        async with sidecar(folder, "--journal", str(journal)) as process:
            await redriven(process)
            await ops.until(lambda: len(set(ops.identifiers)) == count)
    for arrival in ops.arrivals:
        identifier = arrival.text("IndicationIdentifier")
        assert arrival.properties["CorrelatedIndications"] == [identifier]
    firsts = list(dict.fromkeys(ops.identifiers))
    assert firsts == [str(number) for number in range(count)]


async def test_a_dead_listener_loses_nothing_of_what_is_redriven(tmp_path: Path) -> None:
    count = 100
    async with listening(status=503) as ops:
        folder = write(tmp_path, *resources(full(ops.url)))
        async with sidecar(folder, "--journal", str(tmp_path / "journal")) as process:
            await overflowed(process, count)
            await settled(process, count - ROOM, "result=discarded")
            answer = await process.post("/v1/outcomes/redrive")
            queue = await process.get("/v1/queues/ops")
    document = answer.document
    assert (document["redriven"], document["next"], document["more"]) == (0, 0, True)
    assert document["refusal"] == "the queue of destination ops is full"
    assert queue.document["discarded"] == {"queue-full": count - ROOM}
