"""The MQTT handler: one message with one CloudEvent in structured mode for each delivery."""

import math
from functools import partial

from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.handlers.authorization import authorization
from pillion_sidecar.handlers.broker.handler import MEDIA_TYPE, BrokerHandler
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.mqtt.packets import message_properties
from pillion_sidecar.handlers.mqtt.reasons import (
    FAILURE,
    HOLDS,
    INDICATION_REFUSED,
    NO_SUBSCRIBERS,
    reason_text,
)
from pillion_sidecar.handlers.mqtt.wire import TOO_LARGE, MQTTWire, Publishing
from pillion_sidecar.handlers.transport.exchange import shown
from pillion_sidecar.handlers.transport.handler import SUCCESS
from pillion_sidecar.handlers.transport.target import parse_network_target
from pillion_sidecar.protocols.mqtt import LONGEST_CREDENTIAL, PROTOCOL, MQTTOptions

_LONGEST_KEEP_ALIVE = 0xFFFF
_NOBODY = DeliveryOutcome(DeliveryResult.SUCCESS, "the broker has no subscriber of the topic")


class MQTTHandler(BrokerHandler):
    """Delivers to one topic. Success: the broker has taken the message."""

    def judge(self, status: int, body: bytes) -> DeliveryOutcome:
        if status == TOO_LARGE:
            return DeliveryOutcome(DeliveryResult.ERROR, body.decode(), refuses_indication=True)
        if status >= FAILURE:
            said = f": {shown(body)}" if body and not self.discreet else ""
            return DeliveryOutcome(
                DeliveryResult.ERROR,
                f"the broker refuses the message, {reason_text(status)}{said}",
                hold=HOLDS.get(status),
                refuses_indication=status in INDICATION_REFUSED,
            )
        return _NOBODY if status == NO_SUBSCRIBERS else SUCCESS


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    target = parse_network_target(destination.destination, PROTOCOL)
    options = destination.options
    if not isinstance(options, MQTTOptions):
        raise InvalidDestinationError("it has no mqtt.topic")
    _check_credentials(destination.credentials)
    parts = context.parts
    # No connection is silent for longer.
    silence = parts.idle_seconds + destination.timeout_seconds
    publishing = Publishing(
        topic=options.topic.encode("ascii"),
        qos=options.qos,
        retain=options.retain,
        properties=message_properties(MEDIA_TYPE.encode("ascii"), options.expiry_seconds),
        keep_alive=min(math.ceil(silence), _LONGEST_KEEP_ALIVE),
        credentials=destination.credentials,
        discreet=destination.url_is_secret,
    )
    return MQTTHandler(
        sender=context.sender(
            destination,
            target,
            new_wire=partial(
                MQTTWire, buffer=parts.buffer, timers=parts.timers, publishing=publishing
            ),
        ),
        service_name=context.service_name,
        discreet=destination.url_is_secret,
    )


def _check_credentials(credentials: Credentials | None) -> None:
    """Raises InvalidDestinationError if they cannot be sent."""
    authorization(credentials)
    if credentials is None:
        return
    for one in (credentials.username, credentials.password, credentials.bearer_token):
        if one is not None and len(one.encode()) > LONGEST_CREDENTIAL:
            raise InvalidDestinationError(
                f"MQTT cannot carry credentials of more than {LONGEST_CREDENTIAL} bytes",
                cause=HoldCause.CREDENTIALS,
            )
