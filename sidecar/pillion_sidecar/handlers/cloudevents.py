"""The CloudEvents handlers: CloudEvents 1.0 over HTTP as JSON, in structured mode or in batches.

id: IndicationIdentifier, else ``SequenceContext#SequenceNumber``, else random. source: the
indication's, else the service's name. type: :data:`TYPE_PREFIX` and the class. time:
IndicationTime, if it is one. sequence: SequenceNumber as text. data: the instance in JSON, with
IndicationFilterName and the sequence properties. Usual events are spliced from bytes; an instance
with a spliced property is decoded and encoded again.
"""

import contextlib
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote

import msgspec

from pillion_cim.datetimes import to_rfc3339
from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult, Handler
from pillion_sidecar.handlers.batches import Batches, Waiting
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.forms import listed_form
from pillion_sidecar.handlers.http.authorization import (
    Authorizer,
    StaticAuthorizer,
    authorization,
)
from pillion_sidecar.handlers.http.exchange import (
    Failure,
    Headers,
    Sender,
    failure_outcome,
    later,
    status_outcome,
)
from pillion_sidecar.handlers.http.sender import AuthorizedRequests, content_language
from pillion_sidecar.handlers.http.target import HTTPTarget
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.protocols import BatchOptions
from pillion_sidecar.protocols.cloud_events import PROTOCOL

#: The class follows.
TYPE_PREFIX = "org.dmtf.cim.indication."

_RENDERED = "CloudEvents"
_RANDOM_ID = "CloudEvents id"
_SUCCESS = {
    status: DeliveryOutcome(DeliveryResult.SUCCESS, "", status) for status in (200, 202, 204)
}
#: Raised by a body that is no instance.
UNSAYABLE = (ValueError, TypeError, KeyError, AttributeError)
_encode = msgspec.json.encode
_OPENING_BRACE = ord("{")

_SPLICED_NAMES = frozenset(
    ("indicationfiltername", "sequencecontext", "sequencenumber", "correlatedindications")
)
#: A spliced name in quotes; names are case-insensitive.
_SPLICED = re.compile(
    rb'"(?:indicationfiltername|sequence(?:context|number)|correlatedindications)"', re.IGNORECASE
)
_CANONICAL = re.compile(rb'\{"class": ?"[^"\\]*", ?"properties": ?\{')


class _Times(msgspec.Struct):
    time: Any = msgspec.field(name="IndicationTime", default=None)


class _Glance(msgspec.Struct):
    """All that is read of a spliceable body; msgspec skips the rest."""

    properties: _Times


_glance = msgspec.json.Decoder(_Glance)


@dataclass(slots=True, kw_only=True, eq=False)
class Event:
    """The part of an event that its deliveries share."""

    #: The event up to its ``id``.
    prefix: bytes
    #: The instance without the spliced properties: ``{"class":…,"properties":{…}}``.
    body: bytes
    identifier: str | None
    #: As published.
    correlated: list[Any] | None


def event_of(indication: Indication, service_name: str, body: bytes) -> Event:
    """``body`` has the properties to deliver. Raises ValueError if it is not the JSON form of an
    instance."""
    correlated = None
    if (
        _SPLICED.search(body) is not None
        # An escape might hide one of the names.
        or (b"\\" in body and b"\\u" in body)
        or _CANONICAL.match(body) is None
        or not body.endswith(b"}}")
    ):
        body, correlated = _without_spliced(body)
    time = rfc3339(_glance.decode(body).properties.time) if b"IndicationTime" in body else None
    prefix = _attributes(indication.class_name, indication.source or service_name)
    return Event(
        prefix=prefix if time is None else b'%b"time":"%b",' % (prefix, time.encode()),
        body=body,
        identifier=indication.identifier,
        correlated=correlated,
    )


# Neighbors mostly have the same class and source.
@lru_cache(maxsize=64)
def _attributes(class_name: str, source: str) -> bytes:
    """The attributes that a source's indications of a class share; more follow."""
    attributes = {
        "specversion": "1.0",
        "type": TYPE_PREFIX + class_name,
        "source": quote(source, safe="/:?#[]@!$&'()*+,;=%-._~"),
        "datacontenttype": "application/json",
    }
    return _encode(attributes)[:-1] + b","


def _without_spliced(body: bytes) -> tuple[bytes, list[Any] | None]:
    """Return the canonical body without the properties that a delivery sets, and
    CorrelatedIndications, if any."""
    instance = json.loads(body)
    correlated = None
    properties = {}
    for name, value in instance["properties"].items():
        lowered = name.lower()
        if lowered == "correlatedindications":
            stated = value.get("value") if isinstance(value, dict) else value
            correlated = stated if isinstance(stated, list) else None
        elif lowered not in _SPLICED_NAMES:
            properties[name] = value
    return _encode({"class": instance["class"], "properties": properties}), correlated


def rfc3339(value: object) -> str | None:
    """Convert a CIM datetime; None for an interval or wildcards."""
    text = value.get("value") if isinstance(value, dict) else value
    if not isinstance(text, str):
        return None
    # The JSON form also accepts RFC 3339.
    return to_rfc3339(text) or _in_utc(text)


def _in_utc(text: str) -> str | None:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return None
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return None


def render(event: Event, delivery: Delivery) -> bytes:
    context, number = delivery.sequence_context, delivery.sequence_number
    identifier = event.identifier
    if identifier is None:
        has_place = context is not None
        identifier = f"{context}#{number}" if has_place else _random_id(delivery.indication)
    parts = [event.prefix, b'"id":', _encode(identifier)]
    if number is not None:
        parts.append(b',"sequence":"%d"' % number)
    parts += (b',"data":', data(event, delivery), b"}")
    return b"".join(parts)


def data(event: Event, delivery: Delivery) -> bytes:
    """The instance with the properties that the delivery sets: ``{"class":…,"properties":{…}}``."""
    context, number = delivery.sequence_context, delivery.sequence_number
    # Further properties can follow before the two closing braces.
    parts = [event.body[:-2]]
    if event.body[-3] != _OPENING_BRACE:
        parts.append(b",")
    parts += (b'"IndicationFilterName":', _encode(delivery.filter_name))
    if context is not None and number is not None:
        parts += (b',"SequenceContext":', _encode(context), b',"SequenceNumber":%d' % number)
    correlated = event.correlated
    if delivery.correlated:
        correlated = [*(correlated or ()), delivery.indication.identifier]
    if correlated is not None:
        parts += (b',"CorrelatedIndications":', _encode(correlated))
    parts.append(b"}}")
    return b"".join(parts)


def _random_id(indication: Indication) -> str:
    """Kept with the indication, so that a retry has the same one, whatever properties it has."""
    rendered = indication.rendered
    if rendered is None:
        rendered = indication.rendered = {}
    kept = rendered.get(_RANDOM_ID)
    if not isinstance(kept, str):
        kept = rendered[_RANDOM_ID] = str(uuid.uuid4())
    return kept


class CloudEventsHandler:
    """Delivers CloudEvents to one listener destination. Any 2xx is success."""

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        authorizer: Authorizer,
        clock: Clock,
        service_name: str,
    ) -> None:
        head = _head(target, "application/cloudevents+json")
        self._requests = AuthorizedRequests(sender=sender, head=head, authorizer=authorizer)
        self._clock = clock
        self._service_name = service_name

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        try:
            languages = content_language(delivery.indication.languages)
            event = kept_event(delivery.indication, self._service_name, delivery.selection)
            body = render(event, delivery)
        except UNSAYABLE as error:
            _refuse(done, error)
            return
        self._requests.send(languages, body, _Attempt(self._requests, done, self._clock), done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        with contextlib.suppress(*UNSAYABLE):
            kept_event(indication, self._service_name, selection)

    def close(self) -> None:
        self._requests.close()


class CloudEventsBatchHandler:
    """Delivers batches of CloudEvents to one listener destination: one answer for all."""

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        authorizer: Authorizer,
        clock: Clock,
        timers: Timers,
        service_name: str,
        options: BatchOptions,
    ) -> None:
        head = _head(target, "application/cloudevents-batch+json")
        self._requests = AuthorizedRequests(sender=sender, head=head, authorizer=authorizer)
        self._clock = clock
        self._service_name = service_name
        self._most = options.max_batch
        self._batches = Batches(
            self._send,
            most=options.max_batch,
            timers=timers,
            delay=options.max_delay_milliseconds / 1000,
        )

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        try:
            event = kept_event(delivery.indication, self._service_name, delivery.selection)
            body = render(event, delivery)
        except UNSAYABLE as error:
            _refuse(done, error)
            return
        self._batches.add(body, done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: events are rendered at once."""

    def close(self) -> None:
        self._batches.close()
        self._requests.close()

    def _send(self, batch: list[Waiting]) -> None:
        body = b"[%b]" % b",".join([waiting.body for waiting in batch])
        conclude = partial(self._conclude, batch)
        attempt = _Attempt(self._requests, conclude, self._clock)
        self._requests.send(b"", body, attempt, conclude)

    def _conclude(self, batch: list[Waiting], outcome: DeliveryOutcome) -> None:
        if outcome.refuses_indication and len(batch) > 1:
            # Smaller batches show which event is refused, or were too large together.
            self._batches.most = len(batch) // 2
            outcome = replace(
                outcome, spends_attempt=False, preempted=True, refuses_indication=False
            )
        elif outcome.result is DeliveryResult.SUCCESS and len(batch) == self._batches.most:
            self._batches.most = min(self._most, 2 * self._batches.most)
        self._batches.conclude(batch, [outcome] * len(batch))


def _head(target: HTTPTarget, content_type: str) -> bytes:
    return (
        f"POST {target.request_uri} HTTP/1.1\r\n"
        f"Host: {target.authority}\r\n"
        "Accept: */*\r\n"
        f"Content-Type: {content_type}; charset=utf-8\r\n"
    ).encode("ascii")


def _refuse(done: Callable[[DeliveryOutcome], None], error: Exception) -> None:
    later(done, DeliveryResult.FATAL_ERROR, f"a CloudEvent cannot express this: {error}")


def kept_event(
    indication: Indication, service_name: str, selection: Selection | None = None
) -> Event:
    """:func:`event_of`, made once for all deliveries with the same properties."""
    if selection is not None:
        make = partial(event_of, indication, service_name)
        return listed_form(indication, _RENDERED, selection, make)
    rendered = indication.rendered
    if rendered is None:
        rendered = indication.rendered = {}
    event = rendered.get(_RENDERED)
    if not isinstance(event, Event):
        event = rendered[_RENDERED] = event_of(indication, service_name, indication.body)
    return event


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    target = context.target(destination, PROTOCOL)
    sender = context.sender(destination, target)
    authorizer = StaticAuthorizer(authorization(destination.credentials))
    options = destination.options
    if isinstance(options, BatchOptions) and options.max_batch > 1:
        return CloudEventsBatchHandler(
            sender=sender,
            target=target,
            authorizer=authorizer,
            clock=context.parts.clock,
            timers=context.parts.timers,
            service_name=context.service_name,
            options=options,
        )
    return CloudEventsHandler(
        sender=sender,
        target=target,
        authorizer=authorizer,
        clock=context.parts.clock,
        service_name=context.service_name,
    )


@dataclass(slots=True, eq=False)
class _Attempt:
    _requests: AuthorizedRequests
    _done: Callable[[DeliveryOutcome], None]
    _clock: Clock

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        if 200 <= status < 300:
            outcome = _SUCCESS.get(status) or DeliveryOutcome(DeliveryResult.SUCCESS, "", status)
        else:
            if status == 401:
                self._requests.refused()
            outcome = status_outcome(status, headers, self._clock)
        self._done(outcome)

    def failed(self, failure: Failure) -> None:
        if failure.in_body:
            # The status decides, whatever happened to the rest of the answer.
            self._done(DeliveryOutcome(DeliveryResult.SUCCESS, failure.detail, failure.status))
        else:
            self._done(failure_outcome(failure))
