"""Faults, receipts and callbacks over kill -9: the same numbers, the same answers (S1.9, S0.11)."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from support.asking import asked, settled
from support.listening import listening
from support.resources import JSON, write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar

#: Seconds between attempts, so that what waits is not attempted by itself.
LATER = {"attempts": 100, "intervalSeconds": 3000}
NEVER = {"attempts": 0, "intervalSeconds": 1}


@asynccontextmanager
async def deliverer(folder: Path, *documents: JSON) -> AsyncIterator[Sidecar]:
    config = folder / "resources"
    config.mkdir(exist_ok=True)
    write(config, *documents)
    async with sidecar(config, "--journal", str(folder / "journal")) as process:
        assert process.intake, process.said
        yield process


async def kill(process: Sidecar) -> None:
    process.process.kill()
    await process.ended()


async def told(process: Sidecar, receipt: str, instance: str) -> list[Any]:
    """Return what the receipt, the faults and the outcomes say now."""
    faults = f"/v1/faults?publisher=job-7&instance={instance}"
    paths = (
        f"/v1/receipts/{receipt}?timeout=0",
        faults,
        faults + "&after=4&limit=2",
        "/v1/faults?publisher=job-7",
        "/v1/faults?publisher=another",
        "/v1/receipts/unknown?timeout=0",
    )
    answers = [await process.get(path) for path in paths]
    outcomes, _ = await asked(process)
    return [*((one.status, one.document) for one in answers), outcomes]


async def test_faults_and_receipts_are_the_same_before_and_after_kill_9(tmp_path: Path) -> None:
    async with listening() as good, listening(status=400) as bad, listening(status=503) as slow:
        documents = resources(
            listener("good", good.url),
            listener("bad", bad.url, retry=NEVER),
            listener("slow", slow.url, retry=LATER),
            durability="Disk",
        )
        async with deliverer(tmp_path, *documents) as process:
            published = await process.publish(
                *alerts(0, 5), query="ack=delivered&timeout=0", publisher="job-7"
            )
            assert published.status == 202
            receipt, instance = published.document["receipt"], published.document["instance"]
            await settled(process, 10)
            before = await told(process, receipt, instance)
            await kill(process)
        (status, of_receipt), (_, faults), (_, later), (_, unnamed), (_, nobody), gone, _ = before
        assert (status, of_receipt["pending"], of_receipt["delivered"]) == (202, 5, 0)
        assert [one["line"] for one in of_receipt["discarded"]] == list(range(5))
        assert [one["identifier"] for one in faults["faults"]] == list("01234")
        assert (faults["dropped"], faults["last"]) == (0, faults["faults"][-1]["number"])
        assert len(later["faults"]) == 2
        assert unnamed["faults"] == faults["faults"]
        assert (nobody["faults"], gone[0]) == ([], 404)
        for _ in range(2):
            async with deliverer(tmp_path, *documents) as process:
                assert await told(process, receipt, instance) == before
                await kill(process)
        async with deliverer(tmp_path, *documents) as process:
            waiting = asyncio.create_task(process.get(f"/v1/receipts/{receipt}?timeout=60"))
            slow.behave()
            await process.post("/drain?timeout=30")
            answer = await waiting
            assert answer.status == 200
            assert {**of_receipt, "pending": 0} == {**answer.document, "receipt": receipt}


async def test_what_is_settled_after_a_restart_is_told_by_line(tmp_path: Path) -> None:
    async with listening(status=503) as slow:
        documents = resources(listener("slow", slow.url, retry=LATER), durability="Disk")
        async with deliverer(tmp_path, *documents) as process:
            first = await process.publish(
                *alerts(0, 3), query="ack=delivered&timeout=0", publisher="job-7"
            )
            # Three duplicates of pending originals, and three new ones.
            second = await process.publish(*alerts(0, 6), query="ack=delivered&timeout=0")
            await slow.treated_badly()
            await kill(process)
        async with deliverer(tmp_path, *documents) as process:
            path = f"/v1/receipts/{second.document['receipt']}"
            answer = await process.get(path + "?timeout=0")
            assert (answer.status, answer.document["pending"]) == (202, 6)
            assert (await process.post("/v1/queues/slow/skip")).status == 200
            # Of the publisher that the journal has, and of no other.
            named = f"/v1/faults?publisher=job-7&instance={first.document['instance']}"
            faults = (await process.get(named)).document["faults"]
            assert [(one["identifier"], one["reason"]) for one in faults] == [("0", "purged")]
            slow.behave()
            await process.post("/drain?timeout=30")
            lost = [{"line": 0, "destination": "slow", "reason": "purged"}]
            for one, delivered in ((first, 2), (second, 5)):
                answer = await process.get(f"/v1/receipts/{one.document['receipt']}?timeout=60")
                assert answer.status == 200
                told = answer.document
                assert (told["delivered"], told["discarded"], told["pending"]) == (
                    delivered,
                    lost,
                    0,
                )


@asynccontextmanager
async def hooks() -> AsyncIterator[tuple[str, "asyncio.Queue[dict[str, Any]]"]]:
    called: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def called_back(request: web.Request) -> web.Response:
        await called.put(await request.json())
        return web.Response()

    app = web.Application()
    app.router.add_post("/hooks/{job}", called_back)
    async with TestServer(app) as server:
        yield str(server.make_url("/hooks")), called


async def test_a_callback_is_sent_by_a_later_run_once(tmp_path: Path) -> None:
    async with hooks() as (prefix, called), listening(status=503) as slow:
        documents = resources(
            listener("slow", slow.url, retry=LATER), durability="Disk", callbacks=[prefix]
        )
        query = f"callback={prefix}/secret-7&timeout=3600"
        async with deliverer(tmp_path, *documents) as process:
            first = await process.publish(*alerts(0, 2), query=query)
            assert first.status == 202
            await kill(process)
        async with deliverer(tmp_path, *documents) as process:
            # Nothing is settled yet, and a stop in order leaves it to the next run, too.
            process.process.terminate()
            await process.ended()
            # A stop may come before they are read from the history: then none is left.
            for left in process.events("callbacks-left-at-shutdown"):
                assert (left["count"], "next start" in left["message"]) == (1, True)
        slow.behave()
        async with deliverer(tmp_path, *documents) as process:
            await process.post("/drain?timeout=30")
            told = await called.get()
            assert told["receipt"] == first.document["receipt"]
            assert (told["complete"], told["delivered"]) == (True, 2)
            outcomes, _ = await asked(process, "indication=true")
            assert "secret-7" not in str(outcomes) + str(process.log)
            # A later one is noted after it.
            await process.publish(*alerts(2, 1), query=query)
            await called.get()
            await process.publish(*alerts(3, 1), query="ack=delivered&timeout=30")
            await settled(process, 4)
            await kill(process)
        async with deliverer(tmp_path, *documents) as process:
            last = await process.publish(*alerts(4, 1), query=query)
            assert (await called.get())["receipt"] == last.document["receipt"]
            assert called.empty()


async def test_a_callback_that_is_not_allowed_any_more_is_dropped(tmp_path: Path) -> None:
    async with hooks() as (prefix, called), listening(status=503) as slow:
        documents = resources(
            listener("slow", slow.url, retry=LATER), durability="Disk", callbacks=[prefix]
        )
        async with deliverer(tmp_path, *documents) as process:
            await process.publish(*alerts(0, 2), query=f"callback={prefix}/7&timeout=3600")
            await kill(process)
        elsewhere = resources(
            listener("slow", slow.url, retry=LATER),
            durability="Disk",
            callbacks=["https://jobs.example.com/"],
        )
        async with deliverer(tmp_path, *elsewhere) as process:
            await process.logged("callback-dropped")
            (dropped,) = process.events("callback-dropped")
            assert "not allow" in dropped["reason"]
            assert "/7" not in dropped["url"]
            assert called.empty()


#: Lines of a request, and the one that a listener refuses.
EACH, REFUSED = 8, 5


class Divided:
    """A listener that refuses one of eight identifiers for good, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self._happened = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        found = re.search(rb'"IndicationIdentifier":\s*"(\d+)"', await request.read())
        assert found is not None
        self.asked += 1
        self._happened.set()
        return web.Response(status=400 if int(found[1]) % EACH == REFUSED else 204)

    async def more(self, count: int) -> None:
        """Wait until it was asked so often again."""
        least = self.asked + count
        while self.asked < least:
            self._happened.clear()
            await self._happened.wait()


async def take_all(_: web.Request) -> web.Response:
    return web.Response(status=204)


async def test_a_receipt_is_right_whenever_the_deliverer_was_killed(tmp_path: Path) -> None:
    """Each round is killed at another point of delivery; every receipt that a publisher has got is
    right in the end: delivered is what both listeners took."""
    divided = Divided()
    app = web.Application()
    app.router.add_post("/divided", divided.take)
    app.router.add_post("/all", take_all)
    async with TestServer(app) as server:
        documents = resources(
            *(
                listener(
                    name, str(server.make_url(f"/{name}")), protocol="CloudEvents", retry=NEVER
                )
                for name in ("divided", "all")
            ),
            durability="Disk",
        )
        receipts: list[str] = []
        for number, killed_at in enumerate((1, 7, 3)):
            async with deliverer(tmp_path, *documents) as process:
                seen = asyncio.create_task(divided.more(killed_at))
                for part in range(2):
                    first = (2 * number + part) * EACH
                    answer = await process.publish(
                        *alerts(first, EACH), query="ack=delivered&timeout=0"
                    )
                    assert answer.status == 202
                    receipts.append(answer.document["receipt"])
                await seen
                await kill(process)
        for _ in range(2):
            async with deliverer(tmp_path, *documents) as process:
                for receipt in receipts:
                    answer = await process.get(f"/v1/receipts/{receipt}?timeout=60")
                    assert answer.status == 200
                    assert answer.document == {
                        "delivered": EACH - 1,
                        "discarded": [
                            {"line": REFUSED, "destination": "divided", "reason": "fatal-error"}
                        ],
                        "pending": 0,
                    }
                await kill(process)
