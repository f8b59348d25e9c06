"""Rate limits from a publisher to a real listener: arrivals by time moved by hand."""

import json
from pathlib import Path

import pytest

from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, ok
from support.http_listener import listening as scripted
from support.listening import listening
from support.running import Running, alerts, later, listener, resources, running


async def waiting(run: Running, delivered: int) -> None:
    """Wait until so many are delivered, and the next one waits for the limit alone."""
    queue = run.queue("ops")

    def waits() -> bool:
        limited = queue.pace is not None and queue.pace.due() > run.time.monotonic()
        return queue.statistics.delivered == delivered and not queue.in_flight and limited

    await run.until(waits)


@pytest.mark.parametrize("journaled", [False, True])
async def test_arrivals_keep_to_the_limit_in_order(tmp_path: Path, journaled: bool) -> None:
    journal = tmp_path / "journal" if journaled else None
    async with listening() as ops, listening() as siem:
        documents = resources(
            listener("ops", ops.url, rateLimit={"perSecond": 0.5, "burst": 3}),
            listener("siem", siem.url),
        )
        async with running(tmp_path, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 6))
            await run.delivered("siem", 6)
            for arrived in (3, 4, 5):
                await waiting(run, arrived)
                assert ops.listener.summary.received == arrived
                run.time.advance(1.999)
                await waiting(run, arrived)
                run.time.advance(0.001)
            await run.settled()
            assert await run.books("ops") == {"depth": 0, "delivered": 6, "discarded": 0}
            name = "pillion_destination_rate_limited_seconds_total"
            assert await run.metric(name, destination="ops") == 6.0
    assert [one.properties["SequenceNumber"] for one in ops.arrivals] == list(range(6))


async def test_batches_are_no_longer_than_the_burst_and_count_each_event(tmp_path: Path) -> None:
    taken: list[list[str]] = []

    async def take(peer: Peer) -> None:
        while True:
            _, body = await peer.request()
            events = json.loads(body)
            events = events if isinstance(events, list) else [events]
            taken.append([event["id"] for event in events])
            await peer.send(ok())

    batched = {"protocol": "CloudEvents", "cloudEvents": {"maxBatch": 50}}
    limited = {"rateLimit": {"perSecond": 1, "burst": 4}}
    async with scripted(take) as events:
        documents = resources(listener("ops", events.url, **batched, **limited))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 20))
            for seconds in range(16):
                await waiting(run, 4 + seconds)
                run.time.advance(1.0)
            await run.settled()
    assert max(map(len, taken)) <= 4
    assert [one for batch in taken for one in batch] == [str(number) for number in range(20)]


async def test_a_reload_changes_the_limit_at_once(tmp_path: Path) -> None:
    async with listening() as ops:
        slow = listener("ops", ops.url, rateLimit={"perSecond": 0.001})
        async with running(tmp_path, *resources(slow)) as run:
            await run.publish(*alerts(0, 20))
            await waiting(run, 1)
            # With the same limit, nothing more goes.
            await run.reload(*resources({**slow, "spec": {**slow["spec"], "queueSize": 500}}))
            await waiting(run, 1)
            await run.reload(*resources(listener("ops", ops.url, rateLimit={"perSecond": 5})))
            run.time.advance(1)
            await waiting(run, 6)
            await run.reload(*resources(listener("ops", ops.url)))
            await run.settled()
    assert ops.listener.summary.received == 20


async def test_a_restart_gives_no_second_burst(tmp_path: Path) -> None:
    journal, limited = tmp_path / "journal", {"rateLimit": {"perSecond": 0.1, "burst": 3}}
    async with listening() as ops:
        documents = resources(listener("ops", ops.url, **limited))
        time = FakeTime()
        async with running(tmp_path, *documents, journal=journal, time=time) as run:
            await run.publish(*alerts(0, 6))
            await waiting(run, 3)
            await run.kept()
            await run.kill()
        async with running(tmp_path, journal=journal, time=later(time, 1)) as run:
            pace = run.queue("ops").pace
            assert pace is not None
            assert pace.due() == run.time.monotonic() + 10
            # One more, so that what was read back is looked at.
            await run.publish(*alerts(6, 1))
            await waiting(run, 0)
            run.time.advance(10)
            await waiting(run, 1)
            assert ops.listener.summary.received == 4


async def test_the_limit_holds_during_the_drain_whose_time_ends_it(tmp_path: Path) -> None:
    journal, limited = tmp_path / "journal", {"rateLimit": {"perSecond": 0.1}}
    async with listening() as ops:
        documents = resources(listener("ops", ops.url, **limited), shutdownGracePeriodSeconds=25)
        async with running(tmp_path, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 6))
            await waiting(run, 1)
            run.stop.set()
            assert (await run.publish(*alerts(6, 1))).status == 503
            for arrived in (2, 3):
                run.time.advance(10)
                await run.delivered("ops", arrived)
            # The next one is due after the drain: nothing can come any more, so it ends.
            run.time.advance(0.25)
            await run.ended
            assert run.deliverer.left == 3
    assert ops.listener.summary.received == 3


async def test_the_queue_says_that_it_is_limited_and_until_when(tmp_path: Path) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url, rateLimit={"perSecond": 0.1, "burst": 2}))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 2))
            await run.settled()
            shown = (await run.get("/v1/queues/ops")).document
            assert shown["rateLimit"] == {"perSecond": 0.1, "burst": 2, "limiting": False}
            assert shown["nextAttemptTime"] is None
            await run.publish(*alerts(2, 2))
            (shown,) = (await run.get("/v1/queues")).document["queues"]
            assert shown["rateLimit"]["limiting"]
            assert shown["nextAttemptTime"] == "2023-11-14T22:13:30.000Z"
            assert (shown["failingSince"], shown["depth"], shown["inFlight"]) == (None, 2, 0)


async def test_a_publisher_beyond_its_limit_is_refused_and_others_are_not(tmp_path: Path) -> None:
    async with listening() as ops:
        documents = resources(
            listener("ops", ops.url), publisherRateLimit={"perSecond": 0.5, "burst": 10}
        )
        async with running(tmp_path, *documents) as run:
            answer = await run.publish(*alerts(0, 15), source="loop")
            assert (answer.status, answer.document["accepted"]) == (207, 10)
            assert answer.headers["Retry-After"] == "10"
            assert (await run.publish(*alerts(0, 10), source="calm")).status == 200
            assert await run.metric("pillion_intake_rate_limited_total") == 5
            run.time.advance(10)
            assert (await run.publish(*alerts(10, 5), source="loop")).status == 200
            await run.reload(*resources(listener("ops", ops.url)))
            assert (await run.publish(*alerts(100, 50), source="loop")).status == 200
            await run.settled()
    assert ops.listener.summary.received == 75
