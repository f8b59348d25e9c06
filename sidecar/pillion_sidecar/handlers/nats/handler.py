"""The NATS handler: one message with one CloudEvent in structured mode for each delivery."""

import json
from functools import partial

from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.authorization import authorization
from pillion_sidecar.handlers.broker.handler import MEDIA_TYPE, BrokerHandler
from pillion_sidecar.handlers.cloudevents import kept_event
from pillion_sidecar.handlers.content import identifier_of
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.nats.wire import NO_RESPONDERS, TAKEN, TOO_LARGE, Login, NATSWire
from pillion_sidecar.handlers.standard_webhooks import header_identifier
from pillion_sidecar.handlers.transport.exchange import shown
from pillion_sidecar.handlers.transport.handler import SUCCESS
from pillion_sidecar.handlers.transport.target import parse_network_target
from pillion_sidecar.protocols.nats import PROTOCOL, NATSDelivery, NATSOptions

#: err_code of JetStream: the message is larger than the stream allows.
_TOO_LARGE_FOR_STREAM = 10054
_NO_STREAM = DeliveryOutcome(
    DeliveryResult.FATAL_ERROR,
    "no stream of the server has this subject, or JetStream is off (503)",
    hold=HoldCause.DESTINATION,
)
_NO_ACKNOWLEDGEMENT = DeliveryOutcome(
    DeliveryResult.POST_DELIVERY_ERROR, "the answer is not an acknowledgement of a stream"
)


class NATSHandler(BrokerHandler):
    """Delivers to one subject. Success: a stream has stored the message, or for Core the server has
    received it."""

    def render(self, delivery: Delivery) -> bytes:
        event = super().render(delivery)
        identifier = message_identifier(delivery, self.service_name)
        head = f"NATS/1.0\r\nNats-Msg-Id: {identifier}\r\ncontent-type: {MEDIA_TYPE}\r\n\r\n"
        return head.encode("ascii") + event

    def judge(self, status: int, body: bytes) -> DeliveryOutcome:
        if status == TAKEN:
            return SUCCESS
        if status == NO_RESPONDERS:
            return _NO_STREAM
        if status == TOO_LARGE:
            return DeliveryOutcome(DeliveryResult.ERROR, body.decode(), refuses_indication=True)
        return self._judge_acknowledgement(body)

    def _judge_acknowledgement(self, body: bytes) -> DeliveryOutcome:
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            return _NO_ACKNOWLEDGEMENT
        if not isinstance(told, dict):
            return _NO_ACKNOWLEDGEMENT
        error = told.get("error")
        if isinstance(error, dict):
            text = shown(str(error.get("description", "")).encode("utf-8", "replace"))
            code = error.get("err_code")
            words = "" if self.discreet else f": {text}"
            return DeliveryOutcome(
                DeliveryResult.ERROR,
                f"JetStream error {code if isinstance(code, int) else 'without a code'}{words}",
                refuses_indication=code == _TOO_LARGE_FOR_STREAM,
            )
        stream, number = told.get("stream"), told.get("seq")
        if isinstance(stream, str) and stream and type(number) is int and number > 0:
            return SUCCESS
        return _NO_ACKNOWLEDGEMENT


def message_identifier(delivery: Delivery, service_name: str) -> str:
    """Nats-Msg-Id, by which a stream recognizes a repeat: source, filter and ``id`` of the
    CloudEvent. Events of two sources may have one ``id``, and two filters each deliver an
    indication."""
    indication = delivery.indication
    kept = kept_event(indication, delivery.selection, service_name)
    parts: tuple[str, ...] = (
        indication.source or service_name,
        delivery.filter_name,
        identifier_of(kept.content, delivery),
    )
    if indication.dead_letter is not None:
        # Two destinations may each have lost the same indication.
        parts = (*parts, indication.dead_letter.destination)
    return header_identifier("\n".join(parts))


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    target = parse_network_target(destination.destination, PROTOCOL)
    options = destination.options
    if not isinstance(options, NATSOptions):
        raise InvalidDestinationError("it has no nats.subject")
    # Raises if credentials cannot be sent.
    authorization(destination.credentials)
    login = Login(
        subject=options.subject.encode("ascii"),
        is_stored=options.delivery is NATSDelivery.JETSTREAM,
        tls=target.tls,
        tls_first=options.tls_first,
        credentials=destination.credentials,
        discreet=destination.url_is_secret,
    )
    return NATSHandler(
        sender=context.sender(
            destination,
            target,
            new_wire=partial(NATSWire, buffer=context.parts.buffer, login=login),
        ),
        service_name=context.service_name,
        discreet=destination.url_is_secret,
    )
