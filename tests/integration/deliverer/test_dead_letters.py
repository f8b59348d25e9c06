"""Dead letters as listeners see them: in order, with the reason, over kill -9, and when their own
queue is full (S0.11)."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from aiohttp import web

from support.asking import asked, settled
from support.listening import listening
from support.resources import JSON, write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar

ROOM = 20
#: An attempt is the last one; the next indication is attempted a second later.
ONCE = {"attempts": 0, "intervalSeconds": 1}
FOR_LONG = {"attempts": 1000, "intervalSeconds": 1}


class Grave:
    """A listener of CloudEvents that keeps all that comes."""

    def __init__(self) -> None:
        self.url = ""
        self.events: list[dict[str, Any]] = []
        self._happened = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        self.events.append(json.loads(await request.read()))
        self._happened.set()
        return web.Response(status=204)

    async def buried(self, count: int) -> None:
        """Wait until so many different ones have come."""
        while len(set(self.identifiers)) < count:
            self._happened.clear()
            await self._happened.wait()

    @property
    def identifiers(self) -> list[str]:
        return [event["id"] for event in self.events]

    @property
    def reasons(self) -> set[str]:
        return {event["pilliondiscardreason"] for event in self.events}


@asynccontextmanager
async def burying() -> AsyncIterator[Grave]:
    grave = Grave()
    app = web.Application()
    app.router.add_post("/", grave.take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        grave.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        yield grave
    finally:
        await runner.cleanup()


def losing(url: str, **more: Any) -> JSON:
    return listener("ops", url, deadLetterRef={"name": "grave"}, **more)


def folder_of(path: Path, ops: JSON | None, grave: str, **more: Any) -> Path:
    """A configuration with a subscription to ops alone."""
    graves = listener("grave", grave, protocol="CloudEvents", **more)
    if ops is None:
        return write(path, *resources(graves, subscriptions=()))
    documents = resources(ops)
    return write(path, *documents, graves)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


async def overflowed(process: Sidecar, count: int) -> None:
    for first in range(0, count, 100):
        answer = await process.publish(*alerts(first, 100), query="ack=durable")
        assert answer.document["accepted"] == 100


async def test_a_dead_listener_loses_to_another_one_in_order_with_the_reason(
    tmp_path: Path,
) -> None:
    async with listening(status=503) as ops, burying() as grave:
        folder = folder_of(tmp_path, losing(ops.url, retry=ONCE), grave.url)
        async with sidecar(folder, "--journal", str(tmp_path / "journal")) as process:
            await process.publish(*alerts(0, 3))
            await grave.buried(3)
            told, _ = await settled(process, 3, "destination=ops")
            metrics = await process.metrics()
    assert grave.identifiers == numbers(3)
    event = grave.events[0]
    assert {name: event[name] for name in event if name.startswith("pillion")} == {
        "pilliondiscardreason": "attempts-exceeded",
        "pilliondiscarddestination": "ops",
        "pilliondiscarddetail": "HTTP 503",
        "pilliondiscardattempts": 1,
    }
    assert event["source"] == "test"
    assert [one["deadLetter"] for one in told] == ["grave"] * 3
    assert 'pillion_dead_letters_total{destination="ops",result="taken"} 3' in metrics


async def test_kill_9_loses_none_on_its_way_to_the_dead_letters(tmp_path: Path) -> None:
    count = 600
    journal = str(tmp_path / "journal")
    full = {"queueSize": ROOM, "queueFullPolicy": "DiscardOldest", "retry": FOR_LONG}
    async with listening(status=503) as ops, burying() as grave:
        folder = folder_of(tmp_path, losing(ops.url, **full), grave.url)
        async with sidecar(folder, "--journal", journal) as process:
            await overflowed(process, count // 2)
            await grave.buried(ROOM)
            process.process.kill()
            await process.ended()
        async with sidecar(folder, "--journal", journal) as process:
            for first in range(count // 2, count, 100):
                await process.publish(*alerts(first, 100), query="ack=durable")
            process.process.kill()
            await process.ended()
        async with sidecar(folder, "--journal", journal) as process:
            # What was on its way out may be in its queue again, which is then too long.
            ops.behave()
            while {*grave.identifiers, *ops.identifiers} != {*numbers(count)}:
                await process.get("/v1/queues")
    assert len(set(grave.identifiers)) >= ROOM
    # Those that were sent when it was killed may come once more.
    firsts = [int(one) for one in dict.fromkeys(grave.identifiers)]
    # What was being attempted at a kill was not evicted with the others: one for each run.
    late = sum(later < earlier for earlier, later in pairwise(firsts))
    assert late <= 2
    assert grave.reasons == {"queue-full"}


async def test_a_removed_destination_leaves_its_queue_to_the_dead_letters(tmp_path: Path) -> None:
    count = 400
    journal = str(tmp_path / "journal")
    leaves = {"removalPolicy": "DeadLetter", "retry": FOR_LONG}
    async with listening(status=503) as ops, burying() as grave:
        folder = folder_of(tmp_path, losing(ops.url, **leaves), grave.url)
        async with sidecar(folder, "--journal", journal) as process:
            await overflowed(process, count)
            folder_of(tmp_path, None, grave.url)
            await grave.buried(1)
            process.process.kill()
            await process.ended()
        async with sidecar(folder, "--journal", journal) as process:
            await grave.buried(count)
            queue = await process.get("/v1/queues/grave")
    assert list(dict.fromkeys(grave.identifiers)) == numbers(count)
    assert grave.reasons == {"destination-removed"}
    assert queue.status == 200


async def test_a_full_queue_of_dead_letters_takes_no_more_and_the_history_has_the_rest(
    tmp_path: Path,
) -> None:
    count = 200
    full = {"queueSize": ROOM, "queueFullPolicy": "DiscardOldest", "retry": FOR_LONG}
    shut = {"suspended": True, "queueSize": 10, "queueFullPolicy": "Reject"}
    async with listening(status=503) as ops, burying() as grave:
        folder = folder_of(tmp_path, losing(ops.url, **full), grave.url, **shut)
        async with sidecar(folder, "--journal", str(tmp_path / "journal")) as process:
            await overflowed(process, count)
            await settled(process, count - ROOM, "result=discarded")
            told, _ = await asked(process, "destination=ops&indication=true")
            queue = await process.get("/v1/queues/grave")
            metrics = await process.metrics()
            await process.logged("dead-letter-refused")
            again = await process.post("/v1/outcomes/redrive?destination=ops&dryRun=true")
    assert queue.document["depth"] == 10
    assert [one.get("deadLetter") for one in told].count("grave") == 10
    assert all("indication" in one for one in told)
    taken, refused = 10, count - ROOM - 10
    labels = 'pillion_dead_letters_total{destination="ops",result='
    assert f'{labels}"taken"}} {taken}' in metrics
    assert f'{labels}"refused"}} {refused}' in metrics
    assert len(process.events("dead-letter-refused")) == 1
    assert again.document["redriven"] == count - ROOM
