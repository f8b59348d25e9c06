"""The CIM-XML handler against a real listener that we did not write: pywbem's."""

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pywbem

from pillion_cim.schema import Schema, load_schema
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult, Handler
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery, indication

COUNT = 20


class Record:
    """What pywbem handed to its callback, in order."""

    def __init__(self, listener: pywbem.WBEMListener) -> None:
        self.listener = listener
        self.indications: list[pywbem.CIMInstance] = []
        listener.add_callback(self.received)

    def received(self, indication: pywbem.CIMInstance, host: str) -> None:
        self.indications.append(indication)

    async def all_handled(self) -> None:
        # Stopping it while a callback runs fails in pywbem itself.
        await asyncio.to_thread(self.listener._ind_queue.join)


def start(**options: int) -> tuple[pywbem.WBEMListener, int]:
    """Start pywbem's listener; it cannot be asked to choose a port itself."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        listener = pywbem.WBEMListener("127.0.0.1", http_port=port, **options)
        with contextlib.suppress(pywbem.ListenerPortError):
            listener.start()
            return listener, port


@pytest.fixture(scope="module")
def schema() -> Schema:
    return load_schema()


@asynccontextmanager
async def recording(schema: Schema, **options: int) -> AsyncIterator[tuple[Record, Handler]]:
    """A listener of pywbem's, and the handler of a destination that is that listener."""
    time = FakeTime()
    listener, port = await asyncio.to_thread(start, **options)
    record = Record(listener)
    resolver = Resolver()
    registry = HandlerRegistry(
        clock=time,
        timers=time,
        resolver=resolver,
        address_policy=AddressPolicy(allow_loopback=True),
        schema=schema,
        service_name="default",
    )
    destination = ListenerDestination(
        name="pywbem",
        uid="u",
        destination=f"http://localhost:{port}/anything",
        protocol="CIM-XML",
    )
    handler = registry.create_handler(destination)
    try:
        yield record, handler
    finally:
        handler.close()
        await resolver.close()
        await record.all_handled()
        await asyncio.to_thread(listener.stop)


async def attempt(handler: Handler, of: Delivery) -> DeliveryOutcome:
    told: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
    handler.deliver(of, told.set_result)
    return await told


def alert(number: int) -> bytes:
    properties = {
        "IndicationIdentifier": f"pillion:{number}",
        "IndicationTime": "20261121133000.000000+060",
        "AlertType": 5,
        "PerceivedSeverity": 6,
        "ProbableCause": 52,
        "Description": f'gust <{number}> & "more" – ünïcode\r\n\ttab',
        "MessageArguments": ["a", None, "]]>"],
        "AlertingManagedElement": None,
    }
    return json.dumps({"class": "CIM_AlertIndication", "properties": properties}).encode()


async def test_pywbem_records_what_was_delivered_in_order(schema: Schema) -> None:
    async with recording(schema) as (record, handler):
        for number in range(COUNT):
            of = delivery(
                indication(alert(number), identifier=f"pillion:{number}"),
                filter_name="gusts",
                sequence_context="service#journal#uid#1",
                sequence_number=number,
                correlated=number == 3,
            )
            outcome = await attempt(handler, of)
            assert outcome == DeliveryOutcome(DeliveryResult.SUCCESS, "", 200)
    assert [instance["SequenceNumber"] for instance in record.indications] == list(range(COUNT))
    seventh = record.indications[7]
    assert seventh.classname == "CIM_AlertIndication"
    assert dict(seventh.items()) == {
        "IndicationIdentifier": "pillion:7",
        "IndicationTime": pywbem.CIMDateTime("20261121133000.000000+060"),
        "AlertType": 5,
        "PerceivedSeverity": 6,
        "ProbableCause": 52,
        "Description": 'gust <7> & "more" – ünïcode\r\n\ttab',
        "MessageArguments": ["a", None, "]]>"],
        "AlertingManagedElement": None,
        "IndicationFilterName": "gusts",
        "SequenceContext": "service#journal#uid#1",
        "SequenceNumber": 7,
    }
    assert seventh.properties["ProbableCause"].type == "uint16"
    assert seventh.properties["SequenceNumber"].type == "sint64"
    assert record.indications[3]["CorrelatedIndications"] == ["pillion:3"]


async def test_a_full_queue_of_pywbems_is_an_error_that_says_so(
    schema: Schema, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    loop = asyncio.get_running_loop()
    held = asyncio.Event()
    release = threading.Event()

    def hold(instance: pywbem.CIMInstance, host: str) -> None:
        loop.call_soon_threadsafe(held.set)
        release.wait()

    async with recording(schema, max_ind_queue_size=1) as (record, handler):
        record.listener.add_callback(hold)
        try:
            await attempt(handler, delivery(indication(alert(0))))
            await held.wait()
            # The second waits in pywbem's queue of one, the third finds it full.
            second = await attempt(handler, delivery(indication(alert(1))))
            third = await attempt(handler, delivery(indication(alert(2))))
        finally:
            release.set()
    assert second.result is DeliveryResult.SUCCESS
    assert (third.result, third.status) == (DeliveryResult.ERROR, 200)
    assert third.detail.startswith("CIM error 1: ")
    assert [instance["IndicationIdentifier"] for instance in record.indications] == [
        "pillion:0",
        "pillion:1",
    ]
