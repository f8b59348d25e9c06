"""Deliveries with the properties that a filter lists, of both protocols (D.3)."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from lxml import etree

from pillion_cim.schema import load_schema
from pillion_sidecar.delivery.handler import Delivery, DeliveryResult, Handler
from pillion_sidecar.handlers.authorization import StaticAuthorizer
from pillion_sidecar.handlers.cimxml import CIMXMLHandler
from pillion_sidecar.handlers.cloudevents import CloudEventsBatchHandler, CloudEventsHandler
from pillion_sidecar.handlers.relay import render_line
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.indication import MOST_LISTED, Indication, Selection, selection_of
from pillion_sidecar.protocols import BatchOptions
from pillion_sidecar.testing import FakeTime
from support.handlers import FakeSender, delivery, indication

SCHEMA = load_schema()
#: With a sequence of its own, as an exporter's indication has it.
ALERT = (
    b'{"class":"CIM_AlertIndication","properties":{"IndicationIdentifier":"i","IndicationTime":'
    b'"20261121133000.000000+000","CorrelatedIndications":["h"],"AlertType":5,"Message":"gust",'
    b'"SequenceContext":"theirs","SequenceNumber":9,"IndicationFilterName":"theirs"}}'
)
#: What each delivery carries, beside what is listed.
ADDED = {
    "IndicationIdentifier",
    "IndicationTime",
    "CorrelatedIndications",
    "IndicationFilterName",
    "SequenceContext",
    "SequenceNumber",
}
MESSAGE = selection_of(["Message"])


def cim_xml(sender: FakeSender) -> Handler:
    return CIMXMLHandler(
        sender=sender,
        target=parse_target("http://a.example/", port=5988),
        authorizer=StaticAuthorizer(),
        clock=FakeTime(),
        schema=SCHEMA,
    )


def cloud_events(sender: FakeSender) -> Handler:
    return CloudEventsHandler(
        sender=sender,
        target=parse_target("http://a.example/"),
        authorizer=StaticAuthorizer(),
        clock=FakeTime(),
        service_name="default",
    )


def exported(body: bytes) -> dict[str, Any]:
    return {
        one.get("NAME", ""): one.findtext("VALUE") or [item.text for item in one.iter("VALUE")]
        for one in etree.fromstring(body).iter("PROPERTY", "PROPERTY.ARRAY")
    }


def posted(body: bytes) -> dict[str, Any]:
    properties: dict[str, Any] = json.loads(body)["data"]["properties"]
    return properties


Make = Callable[[FakeSender], Handler]
Read = Callable[[bytes], dict[str, Any]]
PROTOCOLS = pytest.mark.parametrize(
    ("make", "read"),
    [pytest.param(cim_xml, exported, id="CIM-XML"), pytest.param(cloud_events, posted, id="CE")],
)


def numbered(of: Indication, selection: Selection | None, **given: Any) -> Delivery:
    place = {"sequence_context": "c", "sequence_number": 4}
    return delivery(of, selection=selection, **(place | given))


@PROTOCOLS
def test_a_delivery_carries_what_is_listed_and_what_the_deliverer_adds(
    make: Make, read: Read
) -> None:
    sender = FakeSender()
    handler, of = make(sender), indication(ALERT, identifier="i")
    handler.deliver(numbered(of, MESSAGE), lambda outcome: None)
    handler.deliver(numbered(of, MESSAGE, correlated=True), lambda outcome: None)
    first, again = map(read, sender.bodies)
    assert set(first) == {"Message", *ADDED}
    assert first["Message"] == "gust"
    assert (first["SequenceContext"], str(first["SequenceNumber"])) == ("c", "4")
    assert first["IndicationFilterName"] == "severe"
    assert again["CorrelatedIndications"] == ["h", "i"]


@PROTOCOLS
def test_deliveries_without_a_list_and_with_another_carry_their_own(make: Make, read: Read) -> None:
    sender = FakeSender()
    handler, of = make(sender), indication(ALERT, identifier="i")
    for selection in (MESSAGE, None, selection_of(["AlertType"]), selection_of([])):
        handler.deliver(numbered(of, selection), lambda outcome: None)
    listed = [set(read(body)) - ADDED for body in sender.bodies]
    assert listed == [{"Message"}, {"Message", "AlertType"}, {"AlertType"}, set()]


@PROTOCOLS
def test_deliveries_with_the_same_list_share_one_form(make: Make, read: Read) -> None:
    sender = FakeSender()
    of = indication(ALERT, identifier="i")
    make(sender).prepare(of, MESSAGE)
    prepared = dict(of.rendered or {})
    for _ in range(2):
        make(sender).deliver(numbered(of, selection_of(["message"])), lambda outcome: None)
    assert len(prepared) == 1
    kept = of.rendered or {}
    assert [kept[key] is prepared[key] for key in kept] == [True]


@PROTOCOLS
def test_an_indication_keeps_few_forms_however_many_lists_there_are(make: Make, read: Read) -> None:
    sender = FakeSender()
    handler, of = make(sender), indication(ALERT)
    lists = [selection_of([f"P{number}"]) for number in range(3 * MOST_LISTED)]
    handler.deliver(delivery(of), lambda outcome: None)
    for selection in (*lists, *lists):
        handler.deliver(delivery(of, selection=selection), lambda outcome: None)
    kept = [key[1] for key in of.rendered or {} if isinstance(key, tuple)]
    assert kept == lists[-MOST_LISTED:]
    assert {type(key) for key in of.rendered or {}} == {str, tuple}


def test_a_batch_carries_what_is_listed() -> None:
    sender, time = FakeSender(), FakeTime()
    handler = CloudEventsBatchHandler(
        sender=sender,
        target=parse_target("http://a.example/"),
        authorizer=StaticAuthorizer(),
        clock=time,
        service_name="default",
        options=BatchOptions(max_batch=2),
    )
    of = indication(ALERT, identifier="i")
    handler.prepare(of, MESSAGE)
    handler.deliver(numbered(of, MESSAGE), lambda outcome: None)
    ((event,),) = map(json.loads, sender.bodies)
    assert set(event["data"]["properties"]) == {"Message", *ADDED}


def test_a_random_id_stays_whatever_is_listed() -> None:
    sender = FakeSender()
    handler, of = cloud_events(sender), indication()
    lists = [selection_of([f"P{number}"]) for number in range(2 * MOST_LISTED)]
    for selection in (None, *lists, lists[0]):
        handler.deliver(delivery(of, selection=selection), lambda outcome: None)
    assert len({json.loads(body)["id"] for body in sender.bodies}) == 1


@PROTOCOLS
async def test_what_is_no_instance_ends_its_attempt(make: Make, read: Read) -> None:
    handler, of = make(FakeSender()), indication(b'{"class":"CIM_AlertIndication"}')
    outcome = asyncio.get_running_loop().create_future()
    handler.prepare(of, MESSAGE)
    handler.deliver(numbered(of, MESSAGE), outcome.set_result)
    assert (await outcome).result is DeliveryResult.FATAL_ERROR


def test_a_relay_carries_all_since_its_gateway_selects() -> None:
    of = numbered(indication(ALERT), MESSAGE, subscription="s")
    line = json.loads(render_line(of, epoch=0.0, in_group=True))
    assert line["properties"] == json.loads(ALERT)["properties"]
