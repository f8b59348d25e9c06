"""CloudEvents in batches, from a publisher to a real listener."""

import json
from pathlib import Path

import pytest

from pillion_sidecar.config.schema.response_policy import REFUSALS
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, ok
from support.http_listener import listening as scripted
from support.listening import listening
from support.running import alerts, listener, resources, running

BATCHED = {"protocol": "CloudEvents", "cloudEvents": {"maxBatch": 20}}


@pytest.mark.parametrize("journaled", [False, True])
async def test_all_arrive_in_order_in_few_requests(tmp_path: Path, journaled: bool) -> None:
    journal = tmp_path / "journal" if journaled else None
    async with listening() as events:
        documents = resources(listener("events", events.url, **BATCHED))
        async with running(tmp_path, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 100))
            await run.settled()
            assert await run.books("events") == {"depth": 0, "delivered": 100, "discarded": 0}
        assert events.listener.summary.received == 100
    assert [arrival.properties["SequenceNumber"] for arrival in events.arrivals] == list(range(100))


async def test_one_refused_event_is_found_and_discarded_and_the_others_arrive(
    tmp_path: Path,
) -> None:
    taken: list[str] = []
    sizes: list[int] = []

    async def refuse_seven(peer: Peer) -> None:
        while True:
            _, body = await peer.request()
            identifiers = [event["id"] for event in json.loads(body)]
            sizes.append(len(identifiers))
            if "7" in identifiers:
                await peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            else:
                taken.extend(identifiers)
                await peer.send(ok())

    async with scripted(refuse_seven) as events:
        documents = resources(listener("events", events.url, **BATCHED))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 30))
            for failures in range(1, REFUSALS + 1):
                await run.until(
                    lambda: (
                        run.queue("events").health.next_attempt_at is not None
                        or not run.deliverer.delivery.pending
                    )
                )
                if run.deliverer.delivery.pending and failures < REFUSALS:
                    run.retry("events")
            await run.settled()
            books = await run.books("events")
            reason = {"destination": "events", "reason": "fatal-error"}
            assert await run.metric("pillion_indications_discarded_total", **reason) == 1
    assert books == {"depth": 0, "delivered": 29, "discarded": 1}
    assert taken == [str(number) for number in range(30) if number != 7]
    assert max(sizes) > 1


async def test_a_batch_that_fails_is_one_failure_and_order_holds(tmp_path: Path) -> None:
    taken: list[str] = []
    statuses = iter((200, 503))
    time = FakeTime()

    async def fail_second(peer: Peer) -> None:
        while True:
            _, body = await peer.request()
            if next(statuses, 200) == 503:
                time.advance(0.1)
                await peer.send(b"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n")
                continue
            taken.extend(event["id"] for event in json.loads(body))
            await peer.send(ok())

    async with scripted(fail_second) as events:
        documents = resources(listener("events", events.url, **BATCHED))
        async with running(tmp_path, *documents, time=time) as run:
            await run.publish(*alerts(0, 50))
            await run.failed("events", 1)
            # All of the batch together.
            assert (taken, run.queue("events").health.failures) == (["0"], 1)
            run.retry("events")
            await run.settled()
    assert taken == [str(number) for number in range(50)]


async def test_what_is_gathered_goes_in_one_request(tmp_path: Path) -> None:
    taken: list[list[str]] = []
    time = FakeTime()

    async def take(peer: Peer) -> None:
        while True:
            _, body = await peer.request()
            taken.append([event["id"] for event in json.loads(body)])
            await peer.send(ok())

    batched = {"protocol": "CloudEvents", "cloudEvents": {"maxBatch": 20, "maxDelaySeconds": 5}}
    async with scripted(take) as events:
        documents = resources(listener("events", events.url, **batched))
        async with running(tmp_path, *documents, time=time) as run:
            await run.publish(*alerts(0, 20))
            await run.settled()
            await run.publish(*alerts(20, 3))
            await run.until(lambda: run.queue("events").waiting.count == 3)
            time.advance(5)
            await run.settled()
    assert taken == [[str(number) for number in range(20)], ["20", "21", "22"]]
