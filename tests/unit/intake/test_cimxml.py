"""The door as a CIM-XML listener (D.6)."""

import asyncio
import gzip
import json

import pytest

from pillion_cim.cimxml.response import ResponseChecker
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.intake.limits import IntakeLimits
from support.intake import Door

INDICATION = (
    '<INSTANCE CLASSNAME="CIM_AlertIndication">'
    '<PROPERTY NAME="IndicationIdentifier" TYPE="string"><VALUE>i1</VALUE></PROPERTY>'
    '<PROPERTY NAME="AlertType" TYPE="uint16"><VALUE>6</VALUE></PROPERTY>'
    '<PROPERTY NAME="SequenceContext" TYPE="string"><VALUE>c</VALUE></PROPERTY>'
    '<PROPERTY NAME="SequenceNumber" TYPE="sint64"><VALUE>7</VALUE></PROPERTY>'
    "</INSTANCE>"
)
HEADERS = {
    "CIMExport": "MethodRequest",
    "CIMExportMethod": "ExportIndication",
    "CIMProtocolVersion": "1.0",
}


def message(*, parameter: str = "NewIndication", instance: str = INDICATION) -> bytes:
    return (
        '<?xml version="1.0" encoding="utf-8"?>'
        '<CIM CIMVERSION="2.0" DTDVERSION="2.0"><MESSAGE ID="42" PROTOCOLVERSION="1.0">'
        f'<SIMPLEEXPREQ><EXPMETHODCALL NAME="ExportIndication"><EXPPARAMVALUE NAME="{parameter}">'
        f"{instance}</EXPPARAMVALUE></EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>"
    ).encode()


async def export(
    door: Door,
    body: bytes,
    *,
    path: str = "/CIMListener",
    headers: dict[str, str] | None = None,
) -> tuple[int, str, dict[str, str]]:
    status, text, answered = await door.post(
        body,
        path=path,
        content_type="application/xml; charset=utf-8",
        headers=HEADERS if headers is None else headers,
    )
    return status, text, answered


@pytest.mark.parametrize(
    "path", ["/CIMListener", "/CIMListener/pywbem/1", "/cimom", "/", "/v1/indications"]
)
async def test_an_export_request_is_accepted_at_every_path_that_exporters_use(path: str) -> None:
    async with Door().open() as door:
        status, text, headers = await export(door, message(), path=path)
        ResponseChecker().check(status=status, headers=headers, body=text.encode(), message_id="42")
        (indication,) = door.queues.taken
        assert indication.identifier == "i1"
        assert json.loads(indication.body)["properties"]["AlertType"] == 6
        assert "SequenceContext" not in indication.body.decode()
        assert door.observer.counts == {("cim-xml", "accepted"): 1}


async def test_a_retry_is_a_duplicate_and_answered_with_success() -> None:
    async with Door().open() as door:
        await export(door, message())
        status, text, headers = await export(door, message())
        ResponseChecker().check(status=status, headers=headers, body=text.encode(), message_id="42")
        assert len(door.queues.taken) == 1
        assert door.observer.counts["cim-xml", "duplicate"] == 1


@pytest.mark.parametrize("path", ["/CIMListener", "/v1/indications"])
async def test_an_instance_that_is_not_known_is_refused(path: str) -> None:
    named = {"Pillion-Publisher": "bmc-17"}
    async with Door().open() as door:
        for headers, status in ((HEADERS, 400), (HEADERS | named, 409)):
            answer = await export(door, message(), path=f"{path}?instance=x", headers=headers)
            assert answer[0] == status
        assert door.queues.taken == []


async def test_a_full_queue_is_cim_error_1() -> None:
    async with Door().open() as door:
        door.queues.full.add("siem")
        status, text, _ = await export(door, message())
        assert status == 200
        assert 'ERROR CODE="1"' in text
        assert "siem" in text


async def test_a_wrong_parameter_is_a_cim_error() -> None:
    async with Door().open() as door:
        status, text, _ = await export(door, message(parameter="Old"))
        assert status == 200
        assert "<ERROR CODE=" in text
        assert door.queues.taken == []


@pytest.mark.parametrize(
    ("body", "cim_error"),
    [
        (b"<CIM", "request-not-well-formed"),
        (message()[:-10], "request-not-well-formed"),
        (message().replace(b"<CIM ", b"<!DOCTYPE CIM [<!ENTITY a 'aaaa'>]><CIM "), "request-not-"),
        (
            b"<!DOCTYPE x [<!ENTITY a '" + b"a" * 1000 + b"'><!ENTITY b '" + b"&a;" * 1000 + b"'>"
            b"<!ENTITY c '" + b"&b;" * 1000 + b"'>]><CIM>&c;</CIM>",
            "request-not-well-formed",
        ),
        (
            b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><CIM>&a;</CIM>',
            "request-not-well-formed",
        ),
        (b"<a>" * 100_000, "request-not-well-formed"),
        (message(instance=INDICATION.replace("i1", "a\0b")), "request-not-"),
        (message(instance=INDICATION.replace(">6<", ">six<")), "request-not-valid"),
        (message().replace(b"i1", b"\xff\xfe"), "request-not-valid"),
        (b"", "request-not-valid"),
    ],
)
async def test_bad_xml_is_refused_whatever_it_is(body: bytes, cim_error: str) -> None:
    async with Door().open() as door:
        status, _, headers = await export(door, body)
        assert status == 400
        assert headers["CIMError"].startswith(cim_error)
        assert door.queues.taken == []
        assert door.observer.counts == {("cim-xml", "invalid"): 1}


async def test_missing_headers_are_refused_as_dsp0200_says() -> None:
    async with Door().open() as door:
        status, _, headers = await export(door, message(), headers={})
        assert (status, headers["CIMError"]) == (400, "unsupported-operation")


@pytest.mark.parametrize(("method", "status"), [("GET", 405), ("PUT", 405), ("PROPFIND", 501)])
async def test_other_methods_are_refused(method: str, status: int) -> None:
    async with (
        Door().open() as door,
        door.session.request(method, door.url + "/CIMListener") as response,
    ):
        assert response.status == status
        assert response.headers["Allow"] == "POST"


@pytest.mark.parametrize("path", ["/CIMListener", "/v1/indications"])
async def test_a_compressed_message_is_415(path: str) -> None:
    async with (
        Door().open() as door,
        door.session.post(
            door.url + path,
            data=gzip.compress(message()),
            headers=HEADERS | {"Content-Encoding": "gzip", "Content-Type": "application/xml"},
        ) as response,
    ):
        assert response.status == 415
        assert door.queues.taken == []


async def test_a_message_that_is_too_large_is_413() -> None:
    async with Door(limits=IntakeLimits(line_bytes=1000)).open() as door:
        assert (await export(door, b" " * 1001))[0] == 413


async def test_content_languages_travel_with_an_exported_indication() -> None:
    async with Door().open() as door:
        await export(door, message(), headers=HEADERS | {"Content-Language": "fr-CA"})
        assert door.queues.taken[0].languages == ("fr-CA",)


@pytest.mark.parametrize("discarded", [None, DiscardReason.LIFETIME_EXPIRED])
async def test_who_asks_for_delivered_is_answered_when_it_is_settled(
    discarded: DiscardReason | None,
) -> None:
    async with Door().open() as door:
        asked = asyncio.create_task(export(door, message(), path="/CIMListener?ack=delivered"))
        await door.taken(1)
        assert not asked.done()
        door.queues.settle(0, discarded=discarded)
        status, text, _ = await asked
        assert status == 200
        assert ("lifetime-expired" in text) == (discarded is not None)


@pytest.mark.parametrize("in_time", [True, False])
async def test_who_asks_for_durable_is_answered_when_it_is_on_disk(in_time: bool) -> None:
    async with Door().open() as door:
        door.context.durability = Durability.DISK
        door.queues.barriers = []
        path = "/CIMListener?ack=durable" + ("" if in_time else "&timeout=0")
        asked = asyncio.create_task(export(door, message(), path=path))
        await door.queues.barrier_asked.wait()
        if in_time:
            assert not asked.done()
            door.queues.secure()
        status, text, _ = await asked
        assert status == 200
        assert ("not on disk within 0 s" in text) == (not in_time)


@pytest.mark.parametrize("in_time", [True, False])
async def test_who_asks_for_stable_is_answered_when_enough_stores_have_it(in_time: bool) -> None:
    async with Door().open() as door:
        door.context.stable = lambda done: done() if in_time else None
        path = "/CIMListener?ack=stable" + ("" if in_time else "&timeout=0")
        status, text, _ = await export(door, message(), path=path)
        assert status == 200
        assert ("not in enough stores within 0 s" in text) == (not in_time)


@pytest.mark.parametrize("ack", ["accepted", "durable", "delivered"])
async def test_an_exporter_is_told_that_its_indication_reaches_no_listener(ack: str) -> None:
    async with Door().open() as door:
        door.context.durability = Durability.DISK
        path = f"/CIMListener?ack={ack}"
        door.routes.targets = ()
        status, text, headers = await export(door, message(), path=path)
        ResponseChecker().check(status=status, headers=headers, body=text.encode(), message_id="42")
        assert headers["Pillion-Unreached"] == "unrouted"


async def test_a_request_that_is_not_understood_is_answered_with_a_body_that_says_why() -> None:
    async with Door().open() as door:
        status, text, headers = await export(door, b"<CIM>\xff")
        assert (status, headers["CIMError"]) == (400, "request-not-valid")
        assert text == "request-not-valid: the body is not UTF-8 at byte 5\n"
        assert headers["Content-Type"] == "text/plain; charset=utf-8"


async def test_what_a_wrong_request_holds_is_shown_bounded_and_escaped() -> None:
    async with Door().open() as door:
        status, text, _ = await export(door, ("<" + "x\u200c" * 2_000 + "/>").encode())
        assert status == 400
        assert len(text) < 500
        assert "the document is a x\\u200cx" in text
        assert text.removesuffix("\n").isprintable()
