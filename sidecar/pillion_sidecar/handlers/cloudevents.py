"""The CloudEvents handlers: CloudEvents 1.0 over HTTP as JSON, in structured mode or in batches.

id: IndicationIdentifier, else ``SequenceContext#SequenceNumber``, else random. source: the
indication's, else the service's name. type: :data:`TYPE_PREFIX` and the class. time:
IndicationTime, if it is one. sequence: SequenceNumber as text. data: the instance in JSON, with
IndicationFilterName and the sequence properties. A dead letter has further attributes.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import ClassVar, cast
from urllib.parse import quote

import msgspec

from pillion_sidecar import trace_context
from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler
from pillion_sidecar.handlers.authorization import Authorizer
from pillion_sidecar.handlers.batches import Batches, Waiting
from pillion_sidecar.handlers.content import (
    UNSAYABLE,
    Content,
    data_parts,
    identifier_of,
    read_content,
)
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.dead_letters import event_attributes
from pillion_sidecar.handlers.http.answers import STATUS
from pillion_sidecar.handlers.http.posting import PostHandler
from pillion_sidecar.handlers.transport.exchange import Sender
from pillion_sidecar.handlers.transport.target import HTTPTarget
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.protocols import BatchOptions
from pillion_sidecar.protocols.cloud_events import PROTOCOL

#: The class follows.
TYPE_PREFIX = "org.dmtf.cim.indication."

_RENDERED = "CloudEvents"
_encode = msgspec.json.encode


class _Event(msgspec.Struct, eq=False):
    """The part of an event that its deliveries share."""

    #: The event up to the value of its ``id``.
    prefix: bytes
    content: Content


def event_of(indication: Indication, service_name: str, body: bytes) -> _Event:
    """Raises as :func:`pillion_sidecar.handlers.content.read_content` does."""
    content = read_content(indication, body)
    prefix = _attributes(indication.class_name, indication.source or service_name)
    time = b"" if content.time is None else b'"time":"%b",' % content.time.encode()
    return _Event(b'%b%b"id":' % (prefix, time), content)


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


def kept_event(indication: Indication, selection: Selection | None, service_name: str) -> _Event:
    """Kept. Raises as :func:`event_of` does."""
    if selection is None and indication.rendered is not None:
        # The usual case: it was prepared.
        kept = indication.rendered.get(_RENDERED)
        if kept is not None:
            return cast(_Event, kept)
    return indication.form(_RENDERED, selection, partial(event_of, indication, service_name))


def render(event: _Event, delivery: Delivery) -> bytes:
    content, indication, number = event.content, delivery.indication, delivery.sequence_number
    identifier = content.identifier
    if identifier is None:
        identifier = identifier_of(content, delivery)
    parts = [event.prefix, _encode(identifier)]
    if number is not None:
        parts.append(b',"sequence":"%d"' % number)
    if (dead_letter := indication.dead_letter) is not None:
        parts.append(event_attributes(dead_letter))
    if (trace := indication.trace) is not None:
        parts.append(trace_context.event_attributes(trace))
    parts.append(b',"data":')
    parts += data_parts(content, delivery)
    parts.append(b"}")
    return b"".join(parts)


class CloudEventsHandler(PostHandler):
    """Delivers CloudEvents to one listener destination. Any 2xx is success."""

    what = "a CloudEvent"
    media_type: ClassVar[str] = "application/cloudevents+json"

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        authorizer: Authorizer,
        clock: Clock,
        service_name: str,
    ) -> None:
        super().__init__(
            sender=sender,
            target=target,
            content_type=f"{self.media_type}; charset=utf-8",
            authorizer=authorizer,
            clock=clock,
        )
        self._service_name = service_name

    def read(self, indication: Indication, selection: Selection | None) -> _Event:
        return kept_event(indication, selection, self._service_name)

    def render(self, delivery: Delivery) -> tuple[bytes, bytes]:
        return b"", render(self.read(delivery.indication, delivery.selection), delivery)


class CloudEventsBatchHandler(CloudEventsHandler):
    """Delivers batches of CloudEvents to one listener destination: one answer for all."""

    media_type = "application/cloudevents-batch+json"

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        authorizer: Authorizer,
        clock: Clock,
        service_name: str,
        options: BatchOptions,
    ) -> None:
        super().__init__(
            sender=sender,
            target=target,
            authorizer=authorizer,
            clock=clock,
            service_name=service_name,
        )
        self._batches = Batches(
            self._send, most=options.max_batch, gathers=options.max_delay_seconds > 0
        )

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        try:
            _, body = self.render(delivery)
        except UNSAYABLE as error:
            self.refuse(done, error)
            return
        self._batches.add(body, done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: events are rendered at once."""

    def close(self) -> None:
        self._batches.close()
        super().close()

    def _send(self, batch: list[Waiting]) -> None:
        events = [waiting.body for waiting in batch]
        # Brackets at its ends, so that the whole is copied once.
        events[0] = b"[" + events[0]
        events[-1] += b"]"
        self.post(b"", b",".join(events), partial(self._batches.conclude_as_one, batch))


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    target = context.target(destination, PROTOCOL)
    sender = context.sender(destination, target, reading=STATUS)
    authorizer = context.authorizer(destination)
    options = destination.options
    if isinstance(options, BatchOptions) and options.max_batch > 1:
        return CloudEventsBatchHandler(
            sender=sender,
            target=target,
            authorizer=authorizer,
            clock=context.parts.clock,
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
