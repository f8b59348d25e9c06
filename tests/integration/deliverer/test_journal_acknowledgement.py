"""What ``ack=durable`` says is true: it is answered once it is on disk, and not before."""

import asyncio
from pathlib import Path

import pytest

from support.listening import listening
from support.running import (
    MOST_TURNS,
    Answer,
    Running,
    alert,
    alerts,
    later,
    listener,
    resources,
    running,
)
from support.system_disk import SystemDisk

CIM_XML = {
    "CIMExport": "MethodRequest",
    "CIMExportMethod": "ExportIndication",
}


async def waits(run: Running, publishing: "asyncio.Task[Answer]", disk: SystemDisk) -> None:
    """Wait until the bytes of a request are with the disk, which keeps them."""
    await asyncio.to_thread(disk.holding.wait)
    # Whatever would have answered it has had its turn.
    await run.get("/v1/queues")
    assert not publishing.done()


async def test_durable_is_answered_only_once_the_disk_has_it(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 1), ack="delivered")
            await run.kept()
            with disk.held():
                publishing = await run.begun(run.publish(*alerts(1, 2), ack="durable"))
                await waits(run, publishing, disk)
                # Nor is it delivered: its number must not be given out twice.
                assert ops.identifiers == ["0"]
            answer = await publishing
            assert answer.status == 200
            assert answer.document == {
                "accepted": 2,
                "duplicate": 0,
                "refused": [],
                "durable": True,
            }
            await run.settled()
    assert ops.identifiers == ["0", "1", "2"]


async def test_accepted_does_not_wait_for_the_disk(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 1), ack="delivered")
            await run.kept()
            with disk.held():
                answer = await run.publish(*alerts(1, 2), ack="accepted")
            assert (answer.status, answer.document["accepted"]) == (200, 2)
            assert "durable" not in answer.document
            await run.settled()
    assert ops.identifiers == ["0", "1", "2"]


async def test_what_was_accepted_and_not_written_when_it_was_killed_can_be_sent_again(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 1), ack="delivered")
            await run.kept()
            disk.hold()
            # With the disk, which has not got it yet.
            await run.publish(*alerts(1, 1), ack="accepted")
            await asyncio.to_thread(disk.holding.wait)
            # Not even with the disk.
            await run.publish(*alerts(2, 1), ack="accepted")
            killing = asyncio.create_task(run.kill())
            await asyncio.sleep(0)
            disk.go_on()
            await killing
        async with running(config, journal=journal, time=later(run.time, 1)) as again:
            answer = await again.publish(*alerts(0, 4), ack="durable")
            assert answer.document["accepted"] + answer.document["duplicate"] == 4
            # What was on its way may have been written or not: it is known or it is taken.
            assert 2 <= answer.document["accepted"] <= 3
            await again.settled()
    assert sorted(one for one in ops.identifiers if one) == ["0", "1", "2", "3"]


async def test_a_wait_that_is_too_short_leaves_a_receipt(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            disk.hold()
            publishing = await run.begun(run.publish(*alerts(0, 2), ack="durable", timeout="5"))
            await waits(run, publishing, disk)
            run.time.advance(5.0)
            answer = await publishing
            assert answer.status == 202
            assert (answer.document["durable"], answer.document["pending"]) == (False, 2)
            receipt = f"/v1/receipts/{answer.document['receipt']}?timeout="
            early = await run.get(f"{receipt}0")
            assert (early.status, early.document["durable"]) == (202, False)
            asking = await run.begun(run.get(f"{receipt}300"))
            disk.go_on()
            told = await asking
            assert (told.status, told.document["durable"]) == (200, True)
            # On disk, and not delivered.
            assert told.document["pending"] == 2
            whole = await run.get(f"{receipt}0&level=delivered")
            assert whole.status == 202


async def test_a_duplicate_is_durable_once_its_original_is(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            disk.hold()
            await run.publish(*alerts(0, 1), ack="accepted")
            repeating = await run.begun(run.publish(*alerts(0, 1), ack="durable"))
            await waits(run, repeating, disk)
            disk.go_on()
            answer = await repeating
            assert (answer.document["duplicate"], answer.document["durable"]) == (1, True)
            await run.settled()
    assert ops.identifiers == ["0"]


async def test_a_flush_waits_for_the_disk_alone_where_it_is_asked_to(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            disk.hold()
            await run.publish(*alerts(0, 2), ack="accepted", publisher="task")
            flush = "/v1/flush?publisher=task&level=durable&timeout=60"
            flushing = await run.begun(run.post(flush))
            await waits(run, flushing, disk)
            disk.go_on()
            answer = await flushing
            assert answer.status == 200
            assert (answer.document["complete"], answer.document["durable"]) == (True, True)
            assert answer.document["destinations"]["ops"]["pending"] == 2


async def test_an_exporter_is_answered_once_the_disk_has_it(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            disk.hold()
            exporting = await run.begun(export(run, "7", ack="durable"))
            await waits(run, exporting, disk)
            disk.go_on()
            answer = await exporting
            assert answer.status == 200
            assert "<ERROR" not in answer.document
            await run.settled()
            disk.hold()
            late = await run.begun(export(run, "8", ack="durable", timeout="5"))
            await waits(run, late, disk)
            run.time.advance(5.0)
            answer = await late
            # An exporter that retries, retries.
            assert answer.status == 200
            assert '<ERROR CODE="1"' in answer.document
            disk.go_on()
            await run.settled()
    assert ops.identifiers == ["7", "8"]


async def export(run: Running, identifier: str, **query: str) -> Answer:
    """Publish as a CIM-XML exporter does."""
    body = f"""<?xml version="1.0" encoding="utf-8"?>
<CIM CIMVERSION="2.0" DTDVERSION="2.3"><MESSAGE ID="1" PROTOCOLVERSION="1.0"><SIMPLEEXPREQ>
<EXPMETHODCALL NAME="ExportIndication"><EXPPARAMVALUE NAME="NewIndication">
<INSTANCE CLASSNAME="CIM_AlertIndication">
<PROPERTY NAME="IndicationIdentifier" TYPE="string"><VALUE>{identifier}</VALUE></PROPERTY>
<PROPERTY NAME="AlertType" TYPE="uint16"><VALUE>6</VALUE></PROPERTY>
<PROPERTY NAME="PerceivedSeverity" TYPE="uint16"><VALUE>5</VALUE></PROPERTY>
<PROPERTY NAME="ProbableCause" TYPE="uint16"><VALUE>52</VALUE></PROPERTY>
</INSTANCE></EXPPARAMVALUE></EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>"""
    content_type = 'application/xml; charset="utf-8"'
    query = {"source": "bmc"} | query
    return await run.post(
        "/CIMListener", body.encode(), content_type=content_type, headers=CIM_XML, query=query
    )


@pytest.mark.parametrize(("durability", "waits_for_disk"), [("Disk", True), ("StateOnly", False)])
async def test_the_highest_level_that_the_durability_gives_is_the_default(
    durability: str,
    waits_for_disk: bool,
    config: Path,
    journal: Path,
    disk: SystemDisk,
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), durability=durability)
        async with running(config, *documents, journal=journal) as run:
            disk.hold()
            publishing = await run.begun(run.publish(*alerts(0, 1)))
            if waits_for_disk:
                await waits(run, publishing, disk)
                disk.go_on()
            answer = await publishing
            assert answer.status == 200
            assert answer.document.get("durable") is (True if waits_for_disk else None)
            disk.go_on()


@pytest.mark.parametrize("durability", ["Memory", "StateOnly"])
async def test_durable_is_refused_where_the_durability_does_not_give_it(
    durability: str, config: Path, journal: Path
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), durability=durability)
        async with running(config, *documents, journal=journal) as run:
            for path in ("/v1/indications?source=x&ack=durable", "/v1/flush?level=durable"):
                answer = await run.post(path, b"{}\n")
                assert answer.status == 400
                assert f"this deliverer has {durability}" in answer.document["reason"]
            assert (await run.get("/v1/queues")).document["durability"] == durability
            assert (await run.publish(alert("1"), ack="delivered")).status == 200


async def test_the_service_may_ask_for_less_than_its_durability_gives(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), acknowledgement="Accepted")
        async with running(config, *documents, journal=journal) as run:
            disk.hold()
            answer = await run.publish(*alerts(0, 1))
            assert answer.document == {"accepted": 1, "duplicate": 0, "refused": []}
            disk.go_on()
            await run.settled()


async def test_what_is_with_the_disk_when_the_end_comes_is_answered_and_kept(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 1), ack="delivered")
            await run.kept()
            disk.hold()
            publishing = await run.begun(run.publish(*alerts(1, 2), ack="durable"))
            await waits(run, publishing, disk)
            run.stop.set()
            await ending(run)
            disk.go_on()
            answer = await publishing
            assert (answer.status, answer.document["accepted"]) == (200, 2)
            assert answer.document["durable"] is True
            await run.ended
        assert ops.identifiers == ["0"]
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            await again.settled()
    assert ops.identifiers == ["0", "1", "2"]


async def test_without_bodies_what_waits_for_the_disk_at_the_end_is_discarded_and_told(
    config: Path, journal: Path, disk: SystemDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), durability="StateOnly")
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 1), ack="delivered")
            await run.kept()
            disk.hold()
            publishing = await run.begun(run.publish(*alerts(1, 2), ack="delivered"))
            await waits(run, publishing, disk)
            run.stop.set()
            await ending(run)
            answer = await publishing
            assert [one["reason"] for one in answer.document["discarded"]] == ["shutdown"] * 2
            disk.go_on()
            await run.ended
    assert ops.identifiers == ["0"]
    told = [record.__dict__ for record in caplog.records]
    discards = [one for one in told if one.get("event") == "indication-discarded"]
    assert [(one["identifier"], one["reason"]) for one in discards] == [
        ("1", "shutdown"),
        ("2", "shutdown"),
    ]
    assert [one["count"] for one in told if one.get("event") == "left-at-shutdown"] == [2]


async def ending(run: Running) -> None:
    """Wait until nothing is delivered any more."""
    queue = run.queue("ops")
    for _ in range(MOST_TURNS):
        if queue.removed:
            return
        await asyncio.sleep(0)
    raise AssertionError("it goes on")
