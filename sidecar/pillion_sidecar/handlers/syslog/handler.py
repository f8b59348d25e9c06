"""The syslog handler: one message for each delivery."""

from functools import partial
from typing import ClassVar

from pillion_sidecar.clock import Timers
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import Delivery, Handler
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.syslog.message import MessageFormat
from pillion_sidecar.handlers.syslog.wire import SyslogWire
from pillion_sidecar.handlers.transport.exchange import Sender
from pillion_sidecar.handlers.transport.handler import MessageHandler
from pillion_sidecar.handlers.transport.target import parse_network_target
from pillion_sidecar.handlers.transport.wire import RequestWire, WireOwner
from pillion_sidecar.protocols.syslog import PROTOCOL, SyslogOptions


class SyslogHandler(MessageHandler):
    """Delivers to one syslog listener. Success: its system has acknowledged the message."""

    form: ClassVar[str] = "syslog"

    def __init__(self, *, sender: Sender, message_format: MessageFormat) -> None:
        super().__init__(sender=sender)
        self._format = message_format

    def render(self, delivery: Delivery) -> bytes:
        return self._format.frame(delivery)


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    target = parse_network_target(destination.destination, PROTOCOL)
    options = destination.options
    parts = context.parts
    return SyslogHandler(
        sender=context.sender(destination, target, new_wire=partial(_new_wire, parts.timers)),
        message_format=MessageFormat(
            options if isinstance(options, SyslogOptions) else SyslogOptions(),
            clock=parts.clock,
        ),
    )


def _new_wire(timers: Timers, owner: WireOwner) -> RequestWire:
    return SyslogWire(owner=owner, timers=timers)
