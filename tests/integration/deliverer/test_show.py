"""The show: everything published arrives, in order, at a listener that is stopped three times."""

import logging
import os
from itertools import pairwise
from pathlib import Path

import pytest

from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.indication import DiscardReason
from support.listening import listening
from support.pywbem_peer import PywbemPeer, Received
from support.resources import alert_filter, service, subscription, write
from support.running import Running, alerts, listener, resources, running

#: As many as the show has, or a number that pywbem (some hundreds a second) takes in a few seconds.
COUNT = 10_000 if os.environ.get("PILLION_FULL") else 2_000
OUTAGES = 3
#: Shares of one outage: before it, at its start, after each of the two retries that fail in it.
SHARES = 4
BATCH = 50
SEVERE = "SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity >= 5"


class Publishing:
    """A publisher who goes on and on: identifiers are 0, 1, 2, …"""

    def __init__(self, run: Running) -> None:
        self._run = run
        self.published = 0

    async def go_on(self, count: int) -> None:
        end = self.published + count
        while self.published < end:
            size = min(BATCH, end - self.published)
            answer = await self._run.publish(*alerts(self.published, size))
            assert (answer.status, answer.document["accepted"]) == (200, size)
            self.published += size


def in_order(record: list[Received], *, uncertain: int) -> list[str]:
    """The identities in a record, once each, where repeats come only of uncertain outcomes."""
    distinct: list[str] = []
    repeats = 0
    for before, after in pairwise([None, *record]):
        assert after is not None
        if before is not None and before.identifier == after.identifier:
            assert before.sequence == after.sequence
            repeats += 1
        else:
            distinct.append(after.identifier)
    assert repeats <= uncertain
    return distinct


async def outage(run: Running, pywbem: PywbemPeer, publishing: Publishing) -> None:
    """Stop pywbem in the middle, for longer than two retry intervals, while publishing goes on."""
    share = COUNT // (OUTAGES * SHARES)
    before = run.queue("pywbem").statistics.delivered
    await publishing.go_on(share)
    # In the middle of what it is given.
    await run.delivered("pywbem", before + share // 2)
    await pywbem.stop()
    await publishing.go_on(share)
    for failures in (1, 2):
        await run.failed("pywbem", failures)
        await publishing.go_on(share)
        run.retry("pywbem")
    await run.failed("pywbem", 3)
    run.time.advance(1.0)
    await pywbem.start()
    run.retry("pywbem")
    await run.until(lambda: run.queue("pywbem").health.failures == 0)


@pytest.mark.timeout(60 if COUNT == 2_000 else 300)
async def test_all_arrive_in_order_at_a_listener_that_is_stopped_three_times(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    write(tmp_path, service(), file="service.yaml")
    write(tmp_path, listener("pywbem", pywbem.url), file="destination.yaml")
    write(tmp_path, alert_filter(), file="filter.yaml")
    write(tmp_path, subscription("alerts-to-pywbem", "pywbem"), file="subscription.yaml")
    async with running(tmp_path) as run:
        publishing = Publishing(run)
        for _ in range(OUTAGES):
            await outage(run, pywbem, publishing)
        await publishing.go_on(COUNT - publishing.published)
        await run.settled()
        assert await run.books("pywbem") == {"depth": 0, "delivered": COUNT, "discarded": 0}
        uncertain = run.queue("pywbem").statistics.attempts[DeliveryResult.POST_DELIVERY_ERROR]
        record = await pywbem.record()
        assert in_order(record, uncertain=uncertain) == [str(n) for n in range(COUNT)]


async def test_two_subscriptions_to_one_destination_are_two_deliveries_of_each(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    count = 100
    documents = resources(
        listener("pywbem", pywbem.url),
        filters=(alert_filter("severe", query=SEVERE),),
        subscriptions=(
            subscription("all-to-pywbem", "pywbem", "alerts"),
            subscription("severe-to-pywbem", "pywbem", "severe"),
        ),
    )
    async with running(tmp_path, *documents) as run:
        publishing = Publishing(run)
        await publishing.go_on(count // 2)
        await run.delivered("pywbem", 10)
        await pywbem.stop()
        await publishing.go_on(count // 2)
        for failures in (1, 2):
            await run.failed("pywbem", failures)
            run.retry("pywbem")
        await run.failed("pywbem", 3)
        await pywbem.start()
        run.retry("pywbem")
        await run.settled()
        assert await run.books("pywbem") == {"depth": 0, "delivered": 2 * count, "discarded": 0}
        uncertain = run.queue("pywbem").statistics.attempts[DeliveryResult.POST_DELIVERY_ERROR]
        record = await pywbem.record()
    for name in ("alerts", "severe"):
        mine = [received for received in record if received.filter_name == name]
        assert in_order(mine, uncertain=uncertain) == [str(n) for n in range(count)]
    assert {received.sequence[1] for received in record} == set(range(2 * count))


async def test_a_full_queue_that_fails_discards_its_oldest_and_says_so(
    tmp_path: Path, pywbem: PywbemPeer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await pywbem.stop()
    room, count = 20, 50
    async with running(tmp_path, *resources(listener("pywbem", pywbem.url, queueSize=room))) as run:
        first = await run.publish(*alerts(0, 1), publisher="task-1")
        await run.failed("pywbem", 1)
        run.retry("pywbem")
        await run.failed("pywbem", 2)
        rest = await run.publish(*alerts(1, count - 1), publisher="task-1")
        assert (first.document["accepted"], rest.document["accepted"]) == (1, count - 1)
        lost = count - room
        assert await run.books("pywbem") == {"depth": room, "delivered": 0, "discarded": lost}
        await pywbem.start()
        run.retry("pywbem")
        await run.settled()
        assert await run.books("pywbem") == {"depth": 0, "delivered": room, "discarded": lost}
        reason = {"destination": "pywbem", "reason": "queue-full"}
        assert await run.metric("pillion_indications_discarded_total", **reason) == lost
        flush = await run.post("/v1/flush?publisher=task-1&level=delivered&timeout=1")
        told = flush.document["destinations"]["pywbem"]
        assert told == {"delivered": room, "discarded": {"queue-full": lost}, "pending": 0}
        discards = (await run.get("/v1/discards?destination=pywbem")).document["discards"]
        record = await pywbem.record()
    assert [received.identifier for received in record] == [str(n) for n in range(lost, count)]
    # A listener that follows the numbers sees what was dropped as a gap.
    assert [received.sequence[1] for received in record] == list(range(lost, count))
    assert [one["identifier"] for one in discards] == [str(n) for n in range(lost)]
    assert {one["reason"] for one in discards} == {DiscardReason.QUEUE_FULL.value}
    told = [r for r in caplog.records if getattr(r, "event", "") == "indication-discarded"]
    assert [r.__dict__["identifier"] for r in told] == [str(n) for n in range(len(told))]
    assert told


async def test_a_full_queue_that_delivers_pushes_back_and_nothing_is_lost(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    room, count = 10, 100
    documents = resources(listener("pywbem", pywbem.url, queueSize=room))
    async with running(tmp_path, *documents) as run:
        await run.publish(*alerts(0, 1))
        await run.delivered("pywbem", 1)
        waiting = alerts(1, count - 1)
        refusals = 0
        while waiting:
            answer = await run.publish(*waiting)
            refused = answer.document["refused"]
            for line in refused:
                assert (line["status"], line["destination"]) == (429, "pywbem")
            # The first that does not fit closes the door for those behind it: order holds.
            assert answer.document["accepted"] + len(refused) == len(waiting)
            assert [line["line"] for line in refused] == list(
                range(answer.document["accepted"], len(waiting))
            )
            waiting = [waiting[line["line"]] for line in refused]
            if refused:
                refusals += 1
                assert float(answer.headers["Retry-After"]) > 0
                half = run.queue("pywbem").statistics.delivered + room // 2
                await run.delivered("pywbem", half)
        assert refusals >= (count - 1) // room - 1
        await run.settled()
        assert await run.books("pywbem") == {"depth": 0, "delivered": count, "discarded": 0}
        record = await pywbem.record()
    assert [received.identifier for received in record] == [str(n) for n in range(count)]


async def test_a_burst_at_a_listener_that_has_not_been_tried_is_pushed_back_not_discarded(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    room = 10
    documents = resources(listener("pywbem", pywbem.url, queueSize=room))
    async with running(tmp_path, *documents) as run:
        # Nothing is known of the listener at first; and nothing new after a long silence.
        for first in (0, 50):
            answer = await run.publish(*alerts(first, 50))
            assert (answer.status, answer.document["accepted"] >= room) == (207, True)
            await run.settled()
            run.time.advance(3600.0)
        books = await run.books("pywbem")
        assert (books["depth"], books["discarded"]) == (0, 0)
        assert books["delivered"] == len(await pywbem.record())


async def test_a_listener_that_hangs_refuses_nobody_once_its_retry_has_hung_too(
    tmp_path: Path,
) -> None:
    room = 10
    async with listening(hang=True) as hung, listening() as healthy:
        documents = resources(
            listener("hung", hung.url, queueSize=room, timeoutSeconds=30),
            listener("healthy", healthy.url),
        )
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 1))
            await hung.treated_badly()
            early = await run.publish(*alerts(1, 20))
            assert early.status == 207
            taken = 1 + early.document["accepted"]
            run.time.advance(31.0)
            await run.failed("hung", 1)
            assert (await run.publish(*alerts(taken, 1))).status == 429
            run.retry("hung")
            await hung.treated_badly(2)
            run.time.advance(31.0)
            await run.failed("hung", 2)
            late = await run.publish(*alerts(taken, 20))
            assert late.document["accepted"] == 20
            await run.delivered("healthy", taken + 20)
            # What was in flight had its place back, one more than there are.
            full = run.queue("hung").statistics.discarded[DiscardReason.QUEUE_FULL]
            assert full == taken + 20 - (room + 1)
