"""The syslog handler: one message for each delivery."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from pillion_sidecar.clock import Timers
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult, Handler
from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.syslog.message import MessageFormat
from pillion_sidecar.handlers.syslog.wire import SyslogWire
from pillion_sidecar.handlers.transport.exchange import (
    Failure,
    Headers,
    Sender,
    failure_outcome,
    later,
)
from pillion_sidecar.handlers.transport.target import parse_network_target
from pillion_sidecar.handlers.transport.wire import RequestWire, WireOwner
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.protocols.syslog import PROTOCOL, SyslogOptions

_SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)


class SyslogHandler:
    """Delivers to one syslog listener. Success: its system has acknowledged the message."""

    def __init__(self, *, sender: Sender, message_format: MessageFormat) -> None:
        self._sender = sender
        self._format = message_format

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        try:
            frame = self._format.frame(delivery)
        except UNSAYABLE as error:
            later(done, DeliveryResult.FATAL_ERROR, f"syslog cannot express this: {error}")
            return
        self._sender.send(frame, _Attempt(done))

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: destinations differ in their options."""

    def close(self) -> None:
        self._sender.close()


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


@dataclass(slots=True, eq=False)
class _Attempt:
    _done: Callable[[DeliveryOutcome], None]

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        self._done(_SUCCESS)

    def failed(self, failure: Failure) -> None:
        self._done(failure_outcome(failure))
