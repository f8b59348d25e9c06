"""The CIM-XML handler: what it sends, and which answers it believes (S0.1, D.1)."""

import asyncio

import pytest
from lxml import etree

from pillion_cim.cimxml.response import render_export_error, render_export_response
from pillion_cim.schema import Schema, load_schema
from pillion_sidecar.delivery.handler import (
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
)
from pillion_sidecar.handlers.authorization import StaticAuthorizer
from pillion_sidecar.handlers.cimxml import CIMXMLHandler
from pillion_sidecar.handlers.transport.exchange import Failure, Headers
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.testing import FakeTime
from pillion_sidecar.trace_context import TraceContext
from support.handlers import FakeSender, delivery, indication

ALERT = (
    b'{"class":"CIM_AlertIndication","properties":{"AlertType":5,"PerceivedSeverity":6,'
    b'"ProbableCause":52,"Description":"gust <40> & more"}}'
)
HEADERS: Headers = [
    (b"Content-Type", b"application/xml; charset=utf-8"),
    (b"CIMExport", b"MethodResponse"),
]


@pytest.fixture(scope="module")
def schema() -> Schema:
    return load_schema()


@pytest.fixture
def sender() -> FakeSender:
    return FakeSender()


@pytest.fixture
def handler(sender: FakeSender, schema: Schema) -> CIMXMLHandler:
    return CIMXMLHandler(
        sender=sender,
        target=parse_target("http://a.example/CIMListener/x", port=5988),
        authorizer=StaticAuthorizer(b"Authorization: Basic dTpw\r\n"),
        clock=FakeTime(),
        schema=schema,
    )


def exported(body: bytes) -> dict[str, str | None]:
    """Names and values of what was exported."""
    root = etree.fromstring(body)
    return {
        element.get("NAME", ""): element.findtext("VALUE")
        for element in root.iter("PROPERTY", "PROPERTY.ARRAY")
    }


def test_the_request_has_exactly_these_headers(handler: CIMXMLHandler, sender: FakeSender) -> None:
    handler.deliver(delivery(indication(ALERT)), lambda outcome: None)
    assert sorted(sender.heads[0]) == [
        "Accept: */*",
        "Authorization: Basic dTpw",
        "CIMExport: MethodRequest",
        "CIMExportMethod: ExportIndication",
        "CIMProtocolVersion: 1.0",
        f"Content-Length: {len(sender.bodies[0])}",
        "Content-Type: application/xml; charset=utf-8",
        "Host: a.example:5988",
        "POST /CIMListener/x HTTP/1.1",
    ]


def test_the_content_languages_travel_with_the_indication(
    handler: CIMXMLHandler, sender: FakeSender
) -> None:
    of = indication(ALERT, languages=("de-CH", "en"))
    handler.deliver(delivery(of), lambda outcome: None)
    assert "Content-Language: de-CH, en" in sender.heads[0]


def test_the_trace_travels_with_the_indication(handler: CIMXMLHandler, sender: FakeSender) -> None:
    trace = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    handler.deliver(delivery(indication(ALERT, trace=trace)), lambda outcome: None)
    assert f"traceparent: {trace.parent}" in sender.heads[0]


def test_the_body_is_the_indication_with_what_the_delivery_adds(
    handler: CIMXMLHandler, sender: FakeSender
) -> None:
    of = delivery(indication(ALERT), sequence_context="c", sequence_number=4)
    handler.deliver(of, lambda outcome: None)
    assert exported(sender.bodies[0]) == {
        "AlertType": "5",
        "PerceivedSeverity": "6",
        "ProbableCause": "52",
        "Description": "gust <40> & more",
        "IndicationFilterName": "severe",
        "SequenceContext": "c",
        "SequenceNumber": "4",
    }


def test_an_indication_is_rendered_once_and_each_attempt_has_its_own_message_id(
    handler: CIMXMLHandler, sender: FakeSender
) -> None:
    of = indication(ALERT)
    handler.deliver(delivery(of), lambda outcome: None)
    kept = dict(of.rendered or {})
    handler.deliver(delivery(of, attempt=2), lambda outcome: None)
    assert kept
    assert of.rendered == kept
    ids = [etree.fromstring(body).findall("MESSAGE")[0].get("ID") for body in sender.bodies]
    assert ids == ["1", "2"]


def outcome_of(
    handler: CIMXMLHandler, sender: FakeSender, status: int, headers: Headers, body: bytes
) -> DeliveryOutcome:
    outcomes: list[DeliveryOutcome] = []
    handler.deliver(delivery(indication(ALERT)), outcomes.append)
    sender.sent[-1][1].answered(status, headers, body)
    assert len(outcomes) == 1
    return outcomes[0]


def test_a_valid_response_without_an_error_is_success(
    handler: CIMXMLHandler, sender: FakeSender
) -> None:
    outcome = outcome_of(handler, sender, 200, HEADERS, render_export_response("1"))
    assert outcome == DeliveryOutcome(DeliveryResult.SUCCESS, "", 200)


@pytest.mark.parametrize(
    ("status", "headers", "body", "words"),
    [
        (200, HEADERS, b"", "no body"),
        (200, HEADERS, b"<html>", ""),
        (200, HEADERS[:1], render_export_response("1"), "CIMExport"),
        (200, HEADERS[1:], render_export_response("1"), "Content-Type"),
        (200, HEADERS, render_export_response("2"), "message"),
        (200, HEADERS, render_export_error("1", 1, "queue is full"), "CIM error 1: queue is full"),
        (202, HEADERS, render_export_response("1"), "202"),
        (204, [], b"", "204"),
        (302, [(b"Location", b"http://b/")], b"", "redirect to http://b/"),
        (400, [(b"CIMError", b"request-not-valid")], b"", "HTTP 400: request-not-valid"),
        (401, [], b"", "HTTP 401"),
        (503, [], b"", "HTTP 503"),
    ],
)
def test_any_other_answer_is_an_error_that_a_retry_may_mend(
    handler: CIMXMLHandler,
    sender: FakeSender,
    status: int,
    headers: Headers,
    body: bytes,
    words: str,
) -> None:
    outcome = outcome_of(handler, sender, status, headers, body)
    assert (outcome.result, outcome.status) == (DeliveryResult.ERROR, status)
    assert words in outcome.detail


def test_no_answer_is_what_the_sender_makes_of_it(
    handler: CIMXMLHandler, sender: FakeSender
) -> None:
    outcomes: list[DeliveryOutcome] = []
    handler.deliver(delivery(indication(ALERT)), outcomes.append)
    sender.sent[0][1].failed(Failure(DeliveryResult.POST_DELIVERY_ERROR, "gone", 200, in_body=True))
    lost = DeliveryOutcome(
        DeliveryResult.POST_DELIVERY_ERROR, "gone", 200, cause=FailureCause.RESET
    )
    assert outcomes == [lost]


@pytest.mark.parametrize(
    "body",
    [
        b'{"class":"CIM_AlertIndication","properties":{"Description":"\\u0001"}}',
        b'{"class":"CIM_AlertIndication","properties":{"AlertType":"five"}}',
        b'{"class":"X_Unknown","properties":{"A":1}}',
        b'{"class":"CIM_AlertIndication","properties":{"Description":"\\ud800"}}',
        b"not json",
    ],
)
async def test_what_no_xml_can_say_is_fatal_and_told_later(
    handler: CIMXMLHandler, sender: FakeSender, body: bytes
) -> None:
    told: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
    handler.deliver(delivery(indication(body)), told.set_result)
    assert not told.done()
    assert (await told).result is DeliveryResult.FATAL_ERROR
    assert sender.sent == []


def test_closing_releases_the_connections(handler: CIMXMLHandler, sender: FakeSender) -> None:
    handler.close()
    assert sender.closed


@pytest.mark.parametrize(
    ("kind", "value", "exported_as"),
    [
        ("uint64", b"18446744073709551615", "18446744073709551615"),
        ("real64", b"0.1", "0.1"),
        ("string", b'"\\u00e4"', "\u00e4"),
    ],
)
def test_each_value_of_json_is_exported(
    handler: CIMXMLHandler, sender: FakeSender, kind: str, value: bytes, exported_as: str
) -> None:
    body = b'{"class":"X_Own","superclass":"CIM_AlertIndication","properties":{"Own":{"type":"%b",'
    of = indication((body + b'"value":%b}}}') % (kind.encode(), value), class_name="X_Own")
    handler.deliver(delivery(of), lambda outcome: None)
    assert exported(sender.bodies[0])["Own"] == exported_as
