"""CloudEvents: the attributes, the splicing, and the slow way round it."""

import asyncio
import json
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
)
from pillion_sidecar.handlers.authorization import StaticAuthorizer
from pillion_sidecar.handlers.cloudevents import CloudEventsHandler, event_of, render
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.testing import FakeTime
from pillion_sidecar.trace_context import TraceContext
from support.handlers import FakeSender, delivery, indication


def event(of: Delivery) -> dict[str, Any]:
    rendered: dict[str, Any] = json.loads(
        render(event_of(of.indication, "default", of.indication.body), of)
    )
    return rendered


def test_an_indication_becomes_an_event() -> None:
    body = (
        b'{"class":"CIM_AlertIndication","properties":'
        b'{"IndicationTime":"20261121133000.250000+060","AlertType":5}}'
    )
    of = delivery(
        indication(body, source="urn:jobs:weather", identifier="id-1"),
        sequence_context="context",
        sequence_number=7,
    )
    assert event(of) == {
        "specversion": "1.0",
        "id": "id-1",
        "type": "org.dmtf.cim.indication.CIM_AlertIndication",
        "source": "urn:jobs:weather",
        "time": "2026-11-21T12:30:00.250000Z",
        "datacontenttype": "application/json",
        "sequence": "7",
        "data": {
            "class": "CIM_AlertIndication",
            "properties": {
                "IndicationTime": "20261121133000.250000+060",
                "AlertType": 5,
                "IndicationFilterName": "severe",
                "SequenceContext": "context",
                "SequenceNumber": 7,
            },
        },
    }


_TEXT = st.text(max_size=20)
_NAMES = st.one_of(
    _TEXT,
    st.sampled_from(
        ("IndicationTime", "IndicationFilterName", "sequencenumber", "SequenceContext", "Class")
    ),
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=5,
)
_SET_BY_DELIVERY = {"indicationfiltername", "sequencecontext", "sequencenumber"}


def plainly(of: Delivery, class_name: str, properties: dict[str, Any]) -> bytes:
    """The event as the manual describes it, from its parts."""
    number = of.sequence_number
    kept = {name: v for name, v in properties.items() if name.lower() not in _SET_BY_DELIVERY}
    kept["IndicationFilterName"] = of.filter_name
    sequence = {}
    if number is not None:
        kept |= {"SequenceContext": of.sequence_context, "SequenceNumber": number}
        sequence = {"sequence": str(number)}
    document = {
        "specversion": "1.0",
        "type": f"org.dmtf.cim.indication.{class_name}",
        "source": of.indication.source,
        "datacontenttype": "application/json",
        "time": properties["IndicationTime"],
        "id": of.indication.identifier,
        **sequence,
        "data": {"class": class_name, "properties": kept},
    }
    return msgspec.json.encode(document)


@given(
    st.dictionaries(_NAMES, _VALUES, max_size=6),
    st.datetimes(),
    _TEXT,
    _TEXT,
    st.none() | st.tuples(_TEXT, st.integers(0, 2**63 - 1)),
)
def test_each_event_has_the_bytes_of_one_that_is_made_from_its_parts(
    properties: dict[str, Any],
    moment: datetime,
    identifier: str,
    filter_name: str,
    sequence: tuple[str, int] | None,
) -> None:
    properties["IndicationTime"] = f"{moment.isoformat()}Z"
    body = msgspec.json.encode({"class": "CIM_AlertIndication", "properties": properties})
    context, number = sequence or (None, None)
    of = delivery(
        indication(body, source="urn:jobs:weather", identifier=identifier),
        filter_name=filter_name,
        sequence_context=context,
        sequence_number=number,
    )
    rendered = render(event_of(of.indication, "default", body), of)
    assert rendered == plainly(of, "CIM_AlertIndication", properties)


def test_the_id_is_the_identifier_else_the_sequence_else_one_that_stays() -> None:
    assert event(delivery(indication(identifier="i")))["id"] == "i"
    of = delivery(sequence_context="c", sequence_number=3)
    assert event(of)["id"] == "c#3"
    shared = indication()
    first, again = (event(delivery(shared, attempt=n))["id"] for n in (1, 2))
    assert first == again
    assert event(delivery())["id"] != first


def test_the_source_is_a_uri_reference() -> None:
    assert event(delivery())["source"] == "default"
    assert event(delivery(indication(source='a b"ä')))["source"] == "a%20b%22%C3%A4"


def test_an_instance_without_properties_can_be_spliced() -> None:
    of = delivery(indication(b'{"class":"CIM_AlertIndication","properties":{}}'))
    assert event(of)["data"]["properties"] == {"IndicationFilterName": "severe"}


def test_an_instance_that_ends_in_an_embedded_one_can_be_spliced() -> None:
    of = delivery(indication(b'{"class":"C","properties":{"A":{"class":"B","properties":{}}}}'))
    assert event(of)["data"]["properties"] == {
        "A": {"class": "B", "properties": {}},
        "IndicationFilterName": "severe",
    }


@pytest.mark.parametrize(
    "body",
    [
        b'{"class":"C","properties":{"A":1,"indicationFILTERname":"x","SequenceNumber":9}}',
        b'{"class":"C","properties":{"A":1,"Sequence\\u0043ontext":"other"}}',
        b'{"properties":{"A":1},"class":"C"}',
        b'{ "class" : "C" , "properties" : { "A" : 1 } }',
        b'{"class":"C","properties":{"A":1} }',
    ],
)
def test_no_property_is_there_twice_however_the_body_is_written(body: bytes) -> None:
    of = delivery(indication(body), sequence_context="c", sequence_number=1)
    rendered = render(event_of(of.indication, "default", of.indication.body), of)
    pairs: list[list[str]] = []
    json.loads(rendered, object_pairs_hook=lambda p: pairs.append([k.lower() for k, _ in p]))
    assert all(len(names) == len(set(names)) for names in pairs)
    assert event(of)["data"] == {
        "class": "C",
        "properties": {
            "A": 1,
            "IndicationFilterName": "severe",
            "SequenceContext": "c",
            "SequenceNumber": 1,
        },
    }


def test_a_publishers_sequence_does_not_go_out_as_the_deliverers() -> None:
    body = b'{"class":"C","properties":{"SequenceContext":"theirs","SequenceNumber":9}}'
    assert event(delivery(indication(body)))["data"]["properties"] == {
        "IndicationFilterName": "severe"
    }


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        (b"", ["id-1"]),
        (b',"CorrelatedIndications":["id-0"]', ["id-0", "id-1"]),
        (b',"CorrelatedIndications":null', ["id-1"]),
        (
            b',"CorrelatedIndications":{"type":"string","array":true,"value":["id-0"]}',
            ["id-0", "id-1"],
        ),
    ],
)
def test_a_marked_retry_names_itself_among_the_correlated(
    published: bytes, expected: list[str]
) -> None:
    of = indication(b'{"class":"C","properties":{"A":1' + published + b"}}", identifier="id-1")
    properties = event(delivery(of, correlated=True))["data"]["properties"]
    assert properties["CorrelatedIndications"] == expected


def test_a_marked_retry_without_an_identifier_holds_null() -> None:
    properties = event(delivery(correlated=True))["data"]["properties"]
    assert properties["CorrelatedIndications"] == [None]


def test_what_was_published_as_correlated_goes_out_unmarked() -> None:
    of = indication(b'{"class":"C","properties":{"CorrelatedIndications":["a"]}}')
    assert event(delivery(of))["data"]["properties"]["CorrelatedIndications"] == ["a"]


@pytest.mark.parametrize(
    ("value", "time"),
    [
        ("20261121133000.000000+000", "2026-11-21T13:30:00Z"),
        ("2026-11-21T14:30:00+01:00", "2026-11-21T13:30:00Z"),
        ({"type": "datetime", "value": "20261121133000.000000+000"}, "2026-11-21T13:30:00Z"),
        ("00000001060000.000000:000", None),
        ("20261121******.******+000", None),
        ("0001-01-01T00:00:00+10:00", None),
        ("2026-11-21T14:30:00", None),
        (5, None),
        (None, None),
    ],
)
def test_the_time_is_the_indications_where_it_is_one(value: Any, time: str | None) -> None:
    body = json.dumps({"class": "C", "properties": {"IndicationTime": value}}).encode()
    assert event(delivery(indication(body))).get("time") == time


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.fixed_dictionaries({"type": st.just("string"), "value": inner})
    ),
    max_leaves=5,
)
NAMES = st.sampled_from(["A", "Ü", "IndicationTime", "SequenceNumber", "sequencecontext"])


@given(st.dictionaries(NAMES | st.text(max_size=5), JSON, max_size=5), st.booleans(), st.text())
def test_any_instance_comes_out_as_it_went_in(
    properties: dict[str, Any], escaped: bool, context: str
) -> None:
    body = json.dumps({"class": "C", "properties": properties}, ensure_ascii=escaped).encode(
        "utf-8", "surrogatepass"
    )
    of = delivery(indication(body), sequence_context=context, sequence_number=0)
    spliced = {"IndicationFilterName": "severe", "SequenceContext": context, "SequenceNumber": 0}
    names = {name.lower() for name in spliced}
    rest = {name: value for name, value in properties.items() if name.lower() not in names}
    assert event(of)["data"] == {"class": "C", "properties": rest | spliced}


@pytest.fixture
def sender() -> FakeSender:
    return FakeSender()


@pytest.fixture
def handler(sender: FakeSender) -> CloudEventsHandler:
    return CloudEventsHandler(
        sender=sender,
        target=parse_target("http://a.example:81/hook?x=1"),
        authorizer=StaticAuthorizer(b"Authorization: Bearer t\r\n"),
        clock=FakeTime(),
        service_name="default",
    )


def test_the_request_has_exactly_these_headers(
    handler: CloudEventsHandler, sender: FakeSender
) -> None:
    handler.deliver(delivery(indication(languages=("de", "en"))), lambda outcome: None)
    assert sender.heads[0] == [
        "POST /hook?x=1 HTTP/1.1",
        "Host: a.example:81",
        "Accept: */*",
        "Content-Type: application/cloudevents+json; charset=utf-8",
        "Authorization: Bearer t",
        "Content-Language: de, en",
        f"Content-Length: {len(sender.bodies[0])}",
    ]


def test_a_trace_is_in_headers_and_in_the_event(
    handler: CloudEventsHandler, sender: FakeSender
) -> None:
    trace = TraceContext("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "a=1")
    handler.deliver(delivery(indication(trace=trace)), lambda outcome: None)
    sent = json.loads(sender.bodies[0])
    assert (sent["traceparent"], sent["tracestate"]) == (trace.parent, "a=1")
    assert f"traceparent: {trace.parent}" in sender.heads[0]
    assert "tracestate: a=1" in sender.heads[0]


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_any_2xx_is_success(handler: CloudEventsHandler, sender: FakeSender, status: int) -> None:
    outcomes: list[DeliveryOutcome] = []
    handler.deliver(delivery(), outcomes.append)
    sender.sent[0][1].answered(status, [], b"whatever")
    assert outcomes == [DeliveryOutcome(DeliveryResult.SUCCESS, "", status)]


def test_success_is_not_taken_back_by_what_follows_the_head(
    handler: CloudEventsHandler, sender: FakeSender
) -> None:
    outcomes: list[DeliveryOutcome] = []
    handler.deliver(delivery(), outcomes.append)
    sender.sent[0][1].failed(Failure(DeliveryResult.ERROR, "too long", 200, in_body=True))
    assert outcomes[0].result is DeliveryResult.SUCCESS


def test_a_failure_before_that_is_the_outcome(
    handler: CloudEventsHandler, sender: FakeSender
) -> None:
    outcomes: list[DeliveryOutcome] = []
    handler.deliver(delivery(), outcomes.append)
    sender.sent[0][1].failed(Failure(DeliveryResult.POST_DELIVERY_ERROR, "gone", 200))
    lost = DeliveryOutcome(
        DeliveryResult.POST_DELIVERY_ERROR, "gone", 200, cause=FailureCause.RESET
    )
    assert outcomes == [lost]


def test_an_indication_is_prepared_once(handler: CloudEventsHandler, sender: FakeSender) -> None:
    of = indication()
    handler.deliver(delivery(of), lambda outcome: None)
    kept = dict(of.rendered or {})
    handler.deliver(delivery(of, attempt=2), lambda outcome: None)
    assert of.rendered == kept
    assert sender.sent[0][0] == sender.sent[1][0]


def test_closing_releases_the_connections(handler: CloudEventsHandler, sender: FakeSender) -> None:
    handler.close()
    assert sender.closed


async def test_what_is_no_instance_is_fatal_and_told_later(
    handler: CloudEventsHandler, sender: FakeSender
) -> None:
    told = asyncio.get_running_loop().create_future()
    handler.deliver(delivery(indication(b'{"class":"C"}')), told.set_result)
    assert not told.done()
    assert (await told).result is DeliveryResult.FATAL_ERROR
    assert sender.sent == []


async def test_a_language_tag_cannot_write_a_header(
    handler: CloudEventsHandler, sender: FakeSender
) -> None:
    told = asyncio.get_running_loop().create_future()
    handler.deliver(delivery(indication(languages=("de\r\nX: y",))), told.set_result)
    assert (await told).result is DeliveryResult.FATAL_ERROR
    assert sender.sent == []


async def test_what_cannot_be_made_ready_is_reported_by_its_attempt() -> None:
    sender = FakeSender()
    handler = CloudEventsHandler(
        sender=sender,
        target=parse_target("http://listener.example/"),
        authorizer=StaticAuthorizer(),
        clock=FakeTime(),
        service_name="default",
    )
    outcome = asyncio.get_running_loop().create_future()
    broken = indication(b'{"class":"C","SequenceNumber":1}')

    handler.prepare(broken, None)
    handler.deliver(delivery(broken), outcome.set_result)

    assert (await outcome).result is DeliveryResult.FATAL_ERROR


def test_what_was_made_ready_is_not_taken_apart_again() -> None:
    sender = FakeSender()
    handler = CloudEventsHandler(
        sender=sender,
        target=parse_target("http://listener.example/"),
        authorizer=StaticAuthorizer(),
        clock=FakeTime(),
        service_name="default",
    )
    ready = indication(identifier="i")

    handler.prepare(ready, None)
    kept = dict(ready.rendered or {})
    handler.deliver(delivery(ready), lambda _: None)

    assert kept
    assert ready.rendered == kept
