"""A test indication for one destination, past its queue: it is no delivery of any subscription, and
neither counts nor waits there."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from pillion_cim.datetimes import CIMDateTime
from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.indication import Indication
from pillion_sidecar.protocols.snmp import PROTOCOL as SNMP
from pillion_sidecar.wire.diagnosis import TrialAnswer

logger = logging.getLogger("pillion.diagnosis")

#: IndicationFilterName of a test indication.
FILTER_NAME = "pillion-test"
CLASS_NAME = "CIM_AlertIndication"
DESCRIPTION = "A test of this destination by pillion test: nothing has happened."
#: Proxy Authentication Required.
_OF_A_PROXY = 407
BUSY = "other destinations need the connection; try again"


def trial_indication(identifier: str, *, destination: str, clock: Clock) -> Indication:
    """Return an alert of severity Information."""
    at = datetime.fromtimestamp(clock.time(), UTC)
    properties = {
        "IndicationIdentifier": identifier,
        "IndicationTime": CIMDateTime.from_datetime(at).text,
        "AlertType": 1,
        "OtherAlertType": "Test",
        "PerceivedSeverity": 2,
        "ProbableCause": 1,
        "Description": DESCRIPTION,
        "AlertingManagedElement": destination,
    }
    return Indication(
        body=msgspec.json.encode({"class": CLASS_NAME, "properties": properties}),
        class_name=CLASS_NAME,
        accepted_at=clock.monotonic(),
        source=FILTER_NAME,
        identifier=identifier,
    )


class TrialSequence(NamedTuple):
    context: str
    number: int


def trial_sequence(queue: DestinationQueue | None) -> TrialSequence | None:
    """Return the sequence identifier of a test: that of the entry before the first pending one.

    A listener that orders by sequence (SBLIM, ``pillion listen``) forgets the context at an
    indication without an identifier, and then drops all that follow in it as late. A number of a
    pending entry, or a later one, would take the place of a delivery. The number before the first
    pending one changes nothing: the listener has had it, or it fills the end of a gap, or it is the
    first of its sender, and the next number is expected.
    """
    if queue is None or queue.sequence_context is None:
        return None
    number = queue.lowest_number - queue.sequence.base - 1
    if number < 0 and not _may_know_the_context(queue):
        # A new context is expected to begin with 0 after an indication without an identifier.
        return None
    return TrialSequence(queue.sequence_context, number)


def _may_know_the_context(queue: DestinationQueue) -> bool:
    """Whether the listener may have received number 0, though no attempt has succeeded."""
    # SNMP numbers are unsigned, and no manager puts traps in order.
    if queue.protocol == SNMP.name:
        return False
    return bool(queue.in_flight or queue.waiting.tried(in_order=False))


async def try_destination(
    destination: ListenerDestination,
    *,
    sequence: TrialSequence | None,
    create_handler: Callable[[ListenerDestination], Handler],
    clock: Clock,
) -> TrialAnswer:
    """Send one test indication with a handler of its own, and wait for the outcome."""
    identifier = f"{FILTER_NAME}-{uuid.uuid4()}"
    delivery = Delivery(
        indication=trial_indication(identifier, destination=destination.name, clock=clock),
        filter_name=FILTER_NAME,
        sequence_context=None if sequence is None else sequence.context,
        sequence_number=None if sequence is None else sequence.number,
        attempt=1,
        correlated=False,
    )
    began = clock.monotonic()
    outcome = await _outcome(create_handler(destination), delivery)
    seconds = clock.monotonic() - began
    logger.info(
        "test of %s: %s %s",
        destination.name,
        outcome.result,
        outcome.detail,
        extra={
            "event": "destination-tested",
            "destination": destination.name,
            "identifier": identifier,
            "result": outcome.result.value,
            "detail": outcome.detail,
            "seconds": round(seconds, 6),
        },
    )
    return TrialAnswer(
        destination=destination.name,
        protocol=destination.protocol,
        identifier=identifier,
        result=outcome.result.value,
        cause=None if outcome.preempted else outcome.failure_cause,
        detail=BUSY if outcome.preempted else outcome.detail,
        status=outcome.status,
        credentials=None if outcome.status == _OF_A_PROXY else destination.credentials is not None,
        seconds=round(seconds, 6),
    )


async def _outcome(handler: Handler, delivery: Delivery) -> DeliveryOutcome:
    done: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()

    def settle(outcome: DeliveryOutcome) -> None:
        # Cancelled: the client has gone.
        if not done.done():
            done.set_result(outcome)

    try:
        handler.deliver(delivery, settle)
        return await done
    finally:
        handler.close()
