"""Delivery's rules through real resources, sockets and a real listener (S0, S1.3)."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pywbem as wbem

from support.http_listener import Peer, ok
from support.http_listener import listening as scripted
from support.listening import listening
from support.pywbem_peer import PywbemPeer
from support.running import alert, alerts, listener, resources, running


async def test_all_that_waited_arrive_before_the_attempts_of_the_first_are_used_up(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    count = 50
    await pywbem.stop()
    async with running(tmp_path, *resources(listener("pywbem", pywbem.url))) as run:
        await run.publish(*alerts(0, count))
        for failures in (1, 2, 3):
            await run.failed("pywbem", failures)
            if failures < 3:
                run.retry("pywbem")
        await pywbem.start()
        run.retry("pywbem")
        await run.settled()
        assert await run.books("pywbem") == {"depth": 0, "delivered": count, "discarded": 0}
        # As soon as it is back, they go one after the other without any wait.
        attempts = sum(run.queue("pywbem").statistics.attempts.values())
        assert attempts == 3 + count
    record = await pywbem.record()
    assert [received.identifier for received in record] == [str(n) for n in range(count)]


async def test_one_whose_attempts_are_used_up_gives_way_to_the_next(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    await pywbem.stop()
    documents = resources(listener("pywbem", pywbem.url), deliveryRetryAttempts=2)
    async with running(tmp_path, *documents) as run:
        await run.publish(*alerts(0, 2))
        for failures in (1, 2, 3):
            await run.failed("pywbem", failures)
            if failures < 3:
                run.retry("pywbem")
        reason = {"destination": "pywbem", "reason": "attempts-exceeded"}
        assert await run.metric("pillion_indications_discarded_total", **reason) == 1
        await pywbem.start()
        run.retry("pywbem")
        await run.settled()
    (received,) = await pywbem.record()
    assert (received.identifier, received.sequence[1]) == ("1", 1)


async def test_what_has_waited_for_its_lifetime_is_discarded_and_told(tmp_path: Path) -> None:
    async with listening(status=503) as ops:
        patient = listener("ops", ops.url, retry={"attempts": 1000})
        documents = resources(patient, indicationLifetimeSeconds=100)
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 2), publisher="early")
            await run.failed("ops", 1)
            run.time.advance(50.0)
            await run.failed("ops", 2)
            await run.publish(*alerts(2, 1), publisher="late")
            run.time.advance(50.0)
            await run.failed("ops", 3)
            flush = await run.post("/v1/flush?publisher=early&timeout=0")
            expired = {"delivered": 0, "discarded": {"lifetime-expired": 2}, "pending": 0}
            assert flush.document["destinations"]["ops"] == expired
            ops.behave()
            run.retry("ops")
            await run.settled()
        assert ops.identifiers == ["2"]


async def test_a_retry_is_marked_where_the_service_says_so(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    await pywbem.stop()
    documents = resources(listener("pywbem", pywbem.url), correlatedIndications=True)
    async with running(tmp_path, *documents) as run:
        await run.publish(*alerts(0, 2))
        await run.failed("pywbem", 1)
        await pywbem.start()
        run.retry("pywbem")
        await run.settled()
    record = await pywbem.record()
    marks = [received.properties.get("CorrelatedIndications") for received in record]
    assert marks == [["0"], None]


async def test_expiry_gates_acceptance_and_nothing_else(tmp_path: Path) -> None:
    async with listening(status=503) as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            now = run.time.time()
            soon, past = (
                datetime.fromtimestamp(now + seconds, UTC).isoformat() for seconds in (5, -5)
            )
            answer = await run.publish({**alert("0"), "expires": soon})
            assert answer.document["accepted"] == 1
            answer = await run.publish({**alert("1"), "expires": past})
            (refused,) = answer.document["refused"]
            assert (answer.status, refused["field"]) == (400, "expires")
            await run.failed("ops", 1)
            ops.behave()
            run.retry("ops")
            await run.settled()
        assert ops.identifiers == ["0"]


async def test_without_order_many_are_under_way_at_once_and_none_is_numbered(
    tmp_path: Path,
) -> None:
    held = asyncio.Event()
    seen: list[str] = []
    begun = asyncio.Event()

    async def hold(peer: Peer) -> None:
        while True:
            _, body = await peer.request()
            properties = json.loads(body)["data"]["properties"]
            assert "SequenceNumber" not in properties
            seen.append(properties["IndicationIdentifier"])
            if len(seen) == 8:
                begun.set()
            await held.wait()
            await peer.send(ok(b""))

    async with scripted(hold) as wide:
        to = listener("wide", wide.url, protocol="CloudEvents", ordering="None", maxInFlight=8)
        async with running(tmp_path, *resources(to)) as run:
            await run.publish(*alerts(0, 20))
            await begun.wait()
            assert (run.queue("wide").in_flight_count, len(seen)) == (8, 8)
            held.set()
            await run.settled()
            assert run.queue("wide").statistics.delivered == 20
        assert wide.connections == 8
    assert sorted(seen, key=int) == [str(number) for number in range(20)]


async def test_drain_hastens_what_waits_for_a_retry(tmp_path: Path) -> None:
    async with listening(status=503) as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            await run.publish(*alerts(0, 3))
            await run.failed("ops", 1)
            ops.behave()
            answer = await run.post("/drain?timeout=60")
            assert answer.document == {"complete": True, "pending": 0, "destinations": {}}
            # Not the end: it goes on taking indications.
            await run.publish(*alerts(3, 1))
            await run.settled()
        assert ops.identifiers == ["0", "1", "2", "3"]


async def test_an_exporter_is_answered_when_delivered_where_the_service_says_so(
    tmp_path: Path,
) -> None:
    async with listening() as ops:
        documents = resources(
            listener("ops", ops.url), acknowledgement="Delivered", deliveryRetryAttempts=0
        )
        async with running(tmp_path, *documents) as run:
            connection = wbem.WBEMConnection(run.deliverer.intake_url)
            try:
                await asyncio.to_thread(connection.ExportIndication, exported())
                assert len(ops.arrivals) == 1
                ops.behave(status=500)
                with pytest.raises(wbem.CIMError, match="discarded at destination ops") as error:
                    await asyncio.to_thread(connection.ExportIndication, exported())
                assert error.value.status_code == wbem.CIM_ERR_FAILED
            finally:
                await asyncio.to_thread(connection.close)


def exported() -> wbem.CIMInstance:
    names = ("AlertType", "PerceivedSeverity", "ProbableCause")
    return wbem.CIMInstance(
        "CIM_AlertIndication", properties={name: wbem.Uint16(5) for name in names}
    )


async def test_a_publisher_that_stalls_is_answered_and_disturbs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    never = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield json.dumps(alert("0")).encode() + b"\n" + b'{"class": "CIM_Al'
        await never.wait()

    async with listening() as ops, running(tmp_path, *resources(listener("ops", ops.url))) as run:
        stalling = asyncio.create_task(run.post("/v1/indications?source=slow", body()))
        await run.delivered("ops", 1)
        await run.publish(*alerts(1, 1))
        await run.delivered("ops", 2)
        for _ in range(2):
            run.time.advance(30.0)
        answer = await stalling
        assert (answer.status, answer.document["accepted"]) == (408, 1)
        assert answer.document["unreadFrom"] == 1
        assert (await run.publish(*alerts(2, 1))).status == 200
        await run.settled()
    assert ops.identifiers == ["0", "1", "2"]
    assert [record.getMessage() for record in caplog.records] == []
