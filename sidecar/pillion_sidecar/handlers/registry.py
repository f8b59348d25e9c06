"""From a destination to its handler: the one place that knows which protocols there are (S0.13)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pillion_cim.schema import Schema
from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.resources import ListenerDestination, Protocol
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult, Handler
from pillion_sidecar.handlers.cimxml import CIM_XML_PORT, CIM_XML_TLS_PORT, CIMXMLHandler
from pillion_sidecar.handlers.cloudevents import CloudEventsHandler
from pillion_sidecar.handlers.http.connector import AddressCheck, Connector, NameResolver
from pillion_sidecar.handlers.http.fields import authorization
from pillion_sidecar.handlers.http.outcome import later
from pillion_sidecar.handlers.http.sender import IDLE_SECONDS, RECEIVE_BUFFER, HTTPSender
from pillion_sidecar.handlers.http.target import HTTPTarget, InvalidDestinationError, parse_target
from pillion_sidecar.handlers.http.tls import TLSContexts


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerServices:
    """What all handlers of a deliverer share."""

    clock: Clock
    timers: Timers
    resolver: NameResolver
    address_policy: AddressCheck
    schema: Schema
    service_name: str
    tls_contexts: TLSContexts = field(default_factory=TLSContexts)
    idle_seconds: float = IDLE_SECONDS
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(RECEIVE_BUFFER)))


def create_handler(destination: ListenerDestination, *, services: HandlerServices) -> Handler:
    """Make the handler of a destination.

    Never raises for what a destination says: one that nothing can ever be sent to gets a handler
    that answers FATAL_ERROR with the reason (S0.8).
    """
    make = _HANDLERS.get(destination.protocol)
    if make is None:
        return UnsupportedHandler(f"protocol {destination.protocol!r} is not supported")
    try:
        return make(destination, services)
    except InvalidDestinationError as error:
        return UnsupportedHandler(str(error))


class UnsupportedHandler:
    """Stands for a destination that nothing can ever be sent to."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        """Answer FATAL_ERROR."""
        later(done, DeliveryResult.FATAL_ERROR, self._reason)

    def close(self) -> None:
        """Nothing is held."""


def _cim_xml(destination: ListenerDestination, services: HandlerServices) -> Handler:
    target = parse_target(destination.destination, port=CIM_XML_PORT, tls_port=CIM_XML_TLS_PORT)
    return CIMXMLHandler(
        sender=_sender(destination, target, services),
        target=target,
        authorization=authorization(destination.credentials),
        clock=services.clock,
        schema=services.schema,
    )


def _cloud_events(destination: ListenerDestination, services: HandlerServices) -> Handler:
    target = parse_target(destination.destination)
    return CloudEventsHandler(
        sender=_sender(destination, target, services),
        target=target,
        authorization=authorization(destination.credentials),
        clock=services.clock,
        service_name=services.service_name,
    )


def _sender(
    destination: ListenerDestination, target: HTTPTarget, services: HandlerServices
) -> HTTPSender:
    connector = Connector(
        target=target,
        resolver=services.resolver,
        address_policy=services.address_policy,
        tls=services.tls_contexts.context(destination.tls) if target.tls else None,
        server_name=destination.tls.server_name,
    )
    return HTTPSender(
        connector=connector,
        clock=services.clock,
        timers=services.timers,
        buffer=services.buffer,
        timeout=destination.timeout_seconds,
        idle_seconds=services.idle_seconds,
    )


_HANDLERS: dict[Protocol, Callable[[ListenerDestination, HandlerServices], Handler]] = {
    Protocol.CIM_XML: _cim_xml,
    Protocol.CLOUD_EVENTS: _cloud_events,
}
