"""A real listener that answers each time, and takes fewer than arrive."""

import asyncio
from pathlib import Path

import pytest

from support.http_listener import Peer, ok
from support.http_listener import listening as scripted
from support.listening import listening
from support.running import Running, alerts, listener, resources, running

SLOW_SINCE = "pillion_destination_slow_since_timestamp_seconds"


class Taking:
    """A listener that answers a request when it is let."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Semaphore(0)

    async def __call__(self, peer: Peer) -> None:
        while True:
            await peer.request()
            await self.may_answer.acquire()
            await peer.send(ok())


async def seconds(run: Running, taking: Taking, count: int, *, arrive: int, taken: int) -> None:
    """Let so many seconds pass, with their arrivals and answers."""
    queue = run.queue("slow")
    for _ in range(count):
        first = queue.throughput.accepted
        if arrive:
            await run.publish(*alerts(first, arrive))
        delivered = queue.statistics.delivered + min(taken, queue.depth)
        for _ in range(min(taken, queue.depth)):
            taking.may_answer.release()
        await run.delivered("slow", delivered)
        await run.delivered("fast", queue.throughput.accepted)
        run.time.advance(1.0)


async def test_a_slow_listener_is_named_with_its_rates_and_what_will_be_lost(
    tmp_path: Path,
) -> None:
    taking = Taking()
    async with scripted(taking) as slow, listening() as fast:
        documents = resources(
            listener("slow", slow.url, protocol="CloudEvents", indicationLifetimeSeconds=600),
            listener("fast", fast.url),
        )
        async with running(tmp_path, *documents) as run:
            begin = run.time.time()
            await seconds(run, taking, 40, arrive=10, taken=4)
            told = {one["name"]: one for one in (await run.get("/v1/queues")).document["queues"]}
            since = await run.metric(SLOW_SINCE, destination="slow")
            assert begin + 10 <= since <= begin + 25
            assert told["slow"]["slowSince"] is not None
            assert told["slow"]["acceptedPerSecond"] == pytest.approx(10, rel=0.1)
            assert told["slow"]["deliveredPerSecond"] == pytest.approx(4, rel=0.1)
            assert told["slow"]["firstLossDueTime"] is not None
            assert told["slow"]["fullTime"] is not None
            assert told["fast"]["acceptedPerSecond"] == told["slow"]["acceptedPerSecond"]
            for name in ("slowSince", "firstLossDueTime", "fullTime"):
                assert told["fast"][name] is None
            assert await run.metric("pillion_indications_queued_total", destination="slow") == 400

            # Publishers rest, and it catches up.
            await seconds(run, taking, 10, arrive=0, taken=20)
            (told_now,) = (await run.get("/v1/queues?after=fast")).document["queues"]
            assert told_now["depth"] == 40
            assert (told_now["slowSince"], told_now["firstLossDueTime"]) == (None, None)
            with pytest.raises(AssertionError, match="no sample"):
                await run.metric(SLOW_SINCE, destination="slow")
            await seconds(run, taking, 3, arrive=0, taken=20)
            await run.settled()
