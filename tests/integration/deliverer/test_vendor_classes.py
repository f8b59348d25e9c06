"""Indications of vendors' classes reach the subscribers of the classes above them (D.4, D.6)."""

import asyncio
import logging
from functools import partial
from pathlib import Path

import pytest
import pywbem as wbem

from support.listening import listening
from support.pywbem_peer import PywbemPeer
from support.running import Running, alert, listener, resources, running

CLASSES = [{"name": "HP_AlertIndication", "superclass": "CIM_AlertIndication"}]
MOF = "class HP_AlertIndication : CIM_AlertIndication { uint16 Bay; string Rooms[]; };"


async def export(run: Running, identifier: str) -> None:
    """Export an alert of a vendor's class, as its provider does."""
    instance = wbem.CIMInstance(
        "HP_AlertIndication",
        properties={
            "IndicationIdentifier": identifier,
            "PerceivedSeverity": wbem.Uint16(6),
            "Bay": wbem.Uint16(3),
        },
    )
    connection = wbem.WBEMConnection(f"{run.deliverer.intake_url}/CIMListener")
    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(None, partial(connection.ExportIndication, instance))
    finally:
        await loop.run_in_executor(None, connection.close)


def vendors(identifier: str, **more: object) -> dict[str, object]:
    return {**alert(identifier), "class": "HP_AlertIndication", **more}


async def test_a_providers_subclass_reaches_a_subscriber_once_it_is_declared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with listening() as ops:
        to_ops = listener("ops", ops.url)
        async with running(tmp_path, *resources(to_ops)) as run:
            await export(run, "lost")
            assert await run.metric("pillion_indications_unreached_total", reason="unrouted") == 1
            assert await run.metric("pillion_indications_undeclared_total") == 1
            # Declared while it runs.
            await run.reload(*resources(to_ops, classes=CLASSES))
            await export(run, "a")
            await run.publish(vendors("b"))
            await run.settled()
            # And no more.
            await run.reload(*resources(to_ops))
            await export(run, "c")
            await run.settled()
        assert ops.identifiers == ["a", "b"]
        assert {arrival.class_name for arrival in ops.arrivals} == {"HP_AlertIndication"}
    told = [one for one in caplog.records if getattr(one, "event", "") == "classes-undeclared"]
    assert "HP_AlertIndication (nearest known: CIM_AlertIndication)" in told[0].getMessage()


async def test_a_line_that_names_the_superclass_reaches_the_subscriber(tmp_path: Path) -> None:
    async with listening() as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            named = await run.publish(vendors("a", superclass="CIM_AlertIndication"))
            assert named.document == {"accepted": 1, "duplicate": 0, "refused": []}
            refused = await run.publish(vendors("b"))
            assert refused.status == 400
            await run.settled()
        assert ops.identifiers == ["a"]


async def test_declared_types_reach_a_cim_xml_listener_after_the_declaration_is_gone(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    folder, journal = tmp_path / "resources", tmp_path / "journal"
    folder.mkdir()
    to_pywbem = listener("pywbem", pywbem.url, suspended=True)
    line = vendors("a")
    properties = line["properties"]
    assert isinstance(properties, dict)
    properties |= {"Bay": 3, "Rooms": ["x", None]}
    declaring = resources(to_pywbem, mof=MOF, durability="Disk")
    async with running(folder, *declaring, journal=journal) as run:
        answer = await run.publish(line, ack="durable")
        assert answer.status == 200
    to_pywbem["spec"]["suspended"] = False
    async with running(folder, *resources(to_pywbem, durability="Disk"), journal=journal) as run:
        await pywbem.received(1)
        await run.settled()
    (received,) = await pywbem.record()
    assert received.class_name == "HP_AlertIndication"
    assert (received.properties["Bay"], received.properties["Rooms"]) == (3, ["x", None])
