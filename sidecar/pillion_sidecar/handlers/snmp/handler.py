"""The SNMP handler: one notification for each delivery."""

from functools import partial
from typing import ClassVar

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.snmp.messages import (
    ERROR_STATUSES,
    PDU_BYTES,
    CommunitySecurity,
    Security,
)
from pillion_sidecar.handlers.snmp.notification import NotificationFormat
from pillion_sidecar.handlers.snmp.usm import LONGEST_ENGINE, UserSecurity
from pillion_sidecar.handlers.snmp.wire import SNMPWire
from pillion_sidecar.handlers.transport.exchange import Sender
from pillion_sidecar.handlers.transport.handler import SUCCESS, MessageHandler
from pillion_sidecar.handlers.transport.target import parse_network_target
from pillion_sidecar.handlers.transport.wire import RequestWire, WireOwner
from pillion_sidecar.protocols.snmp import PROTOCOL, Notification, SNMPOptions, SNMPVersion

_TOO_BIG = ERROR_STATUSES.index("tooBig")
#: The private enterprise number 32473 (RFC 5612), and a text (RFC 3411, SnmpEngineID).
_ENGINE_PREFIX = bytes.fromhex("80007ed904")


class SNMPHandler(MessageHandler):
    """Delivers to one receiver. Success: it has confirmed an inform, or the network has a trap."""

    form: ClassVar[str] = "SNMP"

    def __init__(self, *, sender: Sender, notification_format: NotificationFormat) -> None:
        super().__init__(sender=sender)
        self._format = notification_format

    def render(self, delivery: Delivery) -> bytes:
        return self._format.bindings(delivery)

    def judge(self, status: int, body: bytes) -> DeliveryOutcome:
        if status == 0:
            return SUCCESS
        is_known = 0 < status < len(ERROR_STATUSES)
        name = ERROR_STATUSES[status] if is_known else f"error status {status}"
        return DeliveryOutcome(
            DeliveryResult.ERROR,
            f"the receiver answered {name}",
            refuses_indication=status == _TOO_BIG,
        )


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    target = parse_network_target(destination.destination, PROTOCOL)
    options = destination.options
    if not isinstance(options, SNMPOptions):
        options = SNMPOptions()
    parts = context.parts
    security = _security(destination, options, context)
    new_wire = partial(
        _new_wire,
        parts.clock,
        parts.timers,
        security,
        options.notification is Notification.INFORM,
    )
    return SNMPHandler(
        sender=context.sender(destination, target, new_wire=new_wire, datagrams=True),
        notification_format=NotificationFormat(
            options,
            clock=parts.clock,
            service_name=context.service_name,
            overhead=security.overhead + PDU_BYTES,
        ),
    )


def engine_id(options: SNMPOptions, service_name: str) -> bytes:
    """Return the deliverers' own."""
    if options.engine_id is not None:
        return bytes.fromhex(options.engine_id.removeprefix("0x"))
    return (_ENGINE_PREFIX + service_name.encode())[:LONGEST_ENGINE]


def _security(
    destination: ListenerDestination, options: SNMPOptions, context: HandlerContext
) -> Security:
    credentials = destination.credentials
    given = None if credentials is None else credentials.snmp
    if given is not None and given.community is not None and options.version is SNMPVersion.V2C:
        return CommunitySecurity(given.community)
    if given is not None and given.user is not None and options.version is SNMPVersion.V3:
        is_trap = options.notification is Notification.TRAP
        own = engine_id(options, context.service_name) if is_trap else None
        return UserSecurity(given.user, clock=context.parts.clock, own_engine=own)
    needed = "community" if options.version is SNMPVersion.V2C else "user"
    raise InvalidDestinationError(
        f"it has no {needed}, which SNMP {options.version} needs", cause=HoldCause.CREDENTIALS
    )


def _new_wire(
    clock: Clock, timers: Timers, security: Security, confirmed: bool, owner: WireOwner
) -> RequestWire:
    return SNMPWire(owner=owner, clock=clock, timers=timers, security=security, confirmed=confirmed)
