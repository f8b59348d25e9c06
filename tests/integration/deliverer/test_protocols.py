"""In by one protocol, out by another: CIM exporters (D.6), CloudEvents, languages (S0.21)."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pywbem as wbem

from support.http_listener import Peer, ok
from support.http_listener import listening as scripted
from support.listening import listening
from support.pywbem_peer import PywbemPeer
from support.running import Running, alerts, listener, resources, running

MESSAGE = 'Wind: 41 < 60 & "gusty"\n– ünïcode'
#: An alert as it comes out, whatever it came in as.
PROPERTIES: dict[str, Any] = {
    "IndicationIdentifier": "i-1",
    "IndicationTime": "20261121133000.000000+060",
    "AlertType": 6,
    "PerceivedSeverity": 5,
    "ProbableCause": 52,
    "Message": MESSAGE,
    "MessageArguments": ["41", None, "mph"],
    "AlertingManagedElement": None,
}
EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/weather/station-7",
    "type": "org.example.gust",
    "time": "2026-11-21T13:30:00Z",
    "data": {
        "class": "CIM_AlertIndication",
        "properties": {
            "AlertType": 6,
            "PerceivedSeverity": 5,
            "ProbableCause": 52,
            "Message": MESSAGE,
            "MessageArguments": ["41", None, "mph"],
        },
    },
}


def exported(class_name: str) -> wbem.CIMInstance:
    """The alert, in pywbem's types."""
    properties: dict[str, Any] = {
        **PROPERTIES,
        "IndicationTime": wbem.CIMDateTime(PROPERTIES["IndicationTime"]),
        "AlertingManagedElement": wbem.CIMProperty("AlertingManagedElement", None, "string"),
    }
    for name in ("AlertType", "PerceivedSeverity", "ProbableCause"):
        properties[name] = wbem.Uint16(PROPERTIES[name])
    return wbem.CIMInstance(class_name, properties=properties)


async def export(run: Running, *class_names: str) -> None:
    """Send an export message for an instance of each class, as pywbem does."""
    connection = wbem.WBEMConnection(f"{run.deliverer.intake_url}/CIMListener")
    loop = asyncio.get_running_loop()
    try:
        for class_name in class_names:
            send = partial(connection.ExportIndication, exported(class_name))
            await loop.run_in_executor(None, send)
    finally:
        await loop.run_in_executor(None, connection.close)


async def test_what_pywbem_exports_comes_out_at_a_cloudevents_listener(tmp_path: Path) -> None:
    async with listening() as events:
        to_events = listener("events", events.url, protocol="CloudEvents")
        async with running(tmp_path, *resources(to_events)) as run:
            await export(run, "CIM_AlertIndication")
            await run.settled()
            labels = {"kind": "cim-xml", "outcome": "accepted"}
            assert await run.metric("pillion_intake_indications_total", **labels) == 1
    (arrival,) = events.arrivals
    assert (arrival.protocol, arrival.class_name) == ("CloudEvents", "CIM_AlertIndication")
    sent = dict(arrival.properties)
    assert sent.pop("SequenceNumber") == 0
    assert sent.pop("SequenceContext")
    assert sent.pop("IndicationFilterName") == "alerts"
    assert sent == PROPERTIES


async def test_what_pywbem_exports_comes_out_at_pywbem_as_it_went_in(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    async with running(tmp_path, *resources(listener("pywbem", pywbem.url))) as run:
        await export(run, "CIM_AlertIndication", "CIM_ThresholdIndication")
        await run.settled()
        await pywbem.received(2)
        record = await pywbem.record()
    assert [one.class_name for one in record] == ["CIM_AlertIndication", "CIM_ThresholdIndication"]
    for received in record:
        assert received.properties == {**received.properties, **PROPERTIES}


async def test_a_cloudevent_comes_out_at_pywbem_as_cim_xml(
    tmp_path: Path, pywbem: PywbemPeer
) -> None:
    async with running(tmp_path, *resources(listener("pywbem", pywbem.url))) as run:
        body = json.dumps(EVENT).encode()
        for expected in ({"accepted": 1, "duplicate": 0}, {"accepted": 0, "duplicate": 1}):
            answer = await run.post(
                "/v1/indications", body, content_type="application/cloudevents+json"
            )
            assert (answer.status, expected.items() <= answer.document.items()) == (200, True)
        await run.settled()
        (received,) = await pywbem.record()
    assert received.class_name == "CIM_AlertIndication"
    assert received.identifier == "e-1"
    assert received.properties["IndicationTime"] == "20261121133000.000000+000"
    assert received.properties["Message"] == MESSAGE
    assert received.properties["MessageArguments"] == ["41", None, "mph"]
    assert received.properties["PerceivedSeverity"] == 5
    assert received.sequence[1] == 0


Publish = Callable[[Running], Awaitable[Any]]


async def by_ndjson(run: Running) -> None:
    body = json.dumps(alerts(0, 1)[0]).encode()
    await run.post("/v1/indications", body, headers={"Content-Language": "de-CH, en"})


async def by_cloudevent(run: Running) -> None:
    await run.post(
        "/v1/indications",
        json.dumps(EVENT).encode(),
        content_type="application/cloudevents+json",
        headers={"Content-Language": "de-CH, en"},
    )


async def by_cim_xml(run: Running) -> None:
    await run.post(
        "/CIMListener/weather",
        EXPORT_MESSAGE,
        content_type="application/xml; charset=utf-8",
        headers={
            "CIMExport": "MethodRequest",
            "CIMExportMethod": "ExportIndication",
            "Content-Language": "de-CH, en",
        },
    )


EXPORT_MESSAGE = b"""<?xml version="1.0" encoding="utf-8"?>
<CIM CIMVERSION="2.0" DTDVERSION="2.0"><MESSAGE ID="1" PROTOCOLVERSION="1.0"><SIMPLEEXPREQ>
<EXPMETHODCALL NAME="ExportIndication"><EXPPARAMVALUE NAME="NewIndication">
<INSTANCE CLASSNAME="CIM_AlertIndication">
<PROPERTY NAME="AlertType" TYPE="uint16"><VALUE>6</VALUE></PROPERTY>
<PROPERTY NAME="PerceivedSeverity" TYPE="uint16"><VALUE>5</VALUE></PROPERTY>
<PROPERTY NAME="ProbableCause" TYPE="uint16"><VALUE>52</VALUE></PROPERTY>
</INSTANCE></EXPPARAMVALUE></EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>"""


@pytest.mark.parametrize("publish", [by_ndjson, by_cloudevent, by_cim_xml])
@pytest.mark.parametrize("protocol", ["CIM-XML", "CloudEvents"])
async def test_content_languages_travel_from_publisher_to_listener(
    tmp_path: Path, publish: Publish, protocol: str
) -> None:
    seen: list[bytes] = []

    async def keep(peer: Peer) -> None:
        while True:
            head, _ = await peer.request()
            seen.append(head)
            await peer.send(ok(b""))

    async with (
        scripted(keep) as raw,
        running(tmp_path, *resources(listener("raw", raw.url, protocol=protocol))) as run,
    ):
        await publish(run)
        await run.until(lambda: sum(run.queue("raw").statistics.attempts.values()) == 1)
    (head,) = seen
    assert b"\r\nContent-Language: de-CH, en\r\n" in head
