"""From a destination to its handler: the one place that knows which protocols there are (S0.13)."""

from collections.abc import Callable

from pillion_cim.schema import Schema
from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.listeneraddress import CIM_XML_PORT, CIM_XML_TLS_PORT
from pillion_sidecar.config.resources import ListenerDestination, Protocol, TLSOptions
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.cimxml import CIMXMLHandler
from pillion_sidecar.handlers.cloudevents import CloudEventsHandler
from pillion_sidecar.handlers.gateway import Gateways, UnreachableHandler
from pillion_sidecar.handlers.http.connector import NAME_ADVICE, AddressCheck, NameResolver
from pillion_sidecar.handlers.http.exchange import authorization, later
from pillion_sidecar.handlers.http.outgoing import OutgoingConnections
from pillion_sidecar.handlers.http.sender import IDLE_SECONDS, HTTPSender, SharedParts
from pillion_sidecar.handlers.http.target import HTTPTarget, InvalidDestinationError, parse_target
from pillion_sidecar.handlers.redaction import DiscreetHandler
from pillion_sidecar.indication import Indication
from pillion_sidecar.settings import GatewayAccess


class HandlerRegistry:
    """Makes handlers, and holds what all of a deliverer's handlers share."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        resolver: NameResolver,
        address_policy: AddressCheck,
        schema: Schema,
        service_name: str,
        gateway: GatewayAccess | None = None,
        idle_seconds: float = IDLE_SECONDS,
        outgoing: OutgoingConnections | None = None,
    ) -> None:
        """``gateway``: how what is relayed gets to its gateway; without it that waits.
        ``outgoing``: how many connections there may be; None: no bound."""
        self._address_policy = address_policy
        self._schema = schema
        self._service_name = service_name
        self._parts = SharedParts(
            clock=clock,
            timers=timers,
            resolver=resolver,
            idle_seconds=idle_seconds,
            outgoing=outgoing or OutgoingConnections(),
        )
        self._gateways = None if gateway is None else Gateways(gateway, parts=self._parts)

    def create_handler(self, destination: ListenerDestination) -> Handler:
        """Make the handler of a destination.

        Never raises for what a destination says: one that nothing can be sent to gets a handler
        that answers with the cause, for which its queue is held (S0.8).
        """
        if destination.relay_to is not None:
            return self._relay(destination)
        if destination.fault is not None:
            return UnsupportedHandler(destination.fault.message, cause=destination.fault.cause)
        makers = {Protocol.CIM_XML: self._cim_xml, Protocol.CLOUD_EVENTS: self._cloud_events}
        make = makers.get(destination.protocol)
        if make is None:
            reason = f"protocol {destination.protocol!r} is not supported"
            return UnsupportedHandler(reason, cause=HoldCause.PROTOCOL)
        try:
            handler = make(destination)
        except InvalidDestinationError as error:
            secret = destination.url_is_secret and error.cause is HoldCause.DESTINATION
            reason = "no request can be sent to the URL in its Secret" if secret else str(error)
            return UnsupportedHandler(reason, cause=error.cause)
        if destination.credentials is None and not destination.url_is_secret:
            return handler
        return DiscreetHandler(
            handler,
            credentials=destination.credentials,
            url_is_secret=destination.url_is_secret,
        )

    def _relay(self, destination: ListenerDestination) -> Handler:
        if self._gateways is None:
            return UnreachableHandler(
                f"it is relayed to gateway {destination.relay_to}, and this deliverer was started"
                " without --gateway"
            )
        return self._gateways.create_handler(destination)

    def _cim_xml(self, destination: ListenerDestination) -> Handler:
        target = parse_target(destination.destination, port=CIM_XML_PORT, tls_port=CIM_XML_TLS_PORT)
        return CIMXMLHandler(
            sender=self._sender(destination, target),
            target=target,
            authorization=authorization(destination.credentials),
            clock=self._parts.clock,
            schema=self._schema,
        )

    def _cloud_events(self, destination: ListenerDestination) -> Handler:
        target = parse_target(destination.destination)
        return CloudEventsHandler(
            sender=self._sender(destination, target),
            target=target,
            authorization=authorization(destination.credentials),
            clock=self._parts.clock,
            service_name=self._service_name,
        )

    def _sender(self, destination: ListenerDestination, target: HTTPTarget) -> HTTPSender:
        connector = self._parts.connector(
            target,
            address_policy=self._address_policy,
            tls=destination.tls,
            name_advice=_name_advice(destination.tls),
            discreet=destination.url_is_secret,
        )
        return self._parts.sender(connector, timeout=destination.timeout_seconds)


def _name_advice(tls: TLSOptions) -> str:
    if tls.allow_common_name:
        return NAME_ADVICE
    return (
        f"{NAME_ADVICE}: issue it anew, or write the name that it holds as tls.serverName; only for"
        " a certificate without any subjectAltName, set tls.allowCommonName: true"
    )


class UnsupportedHandler:
    """Stands for a destination that nothing can be sent to until its resource is mended."""

    def __init__(self, reason: str, *, cause: HoldCause) -> None:
        self._reason = reason
        self._cause = cause

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        """Answer FATAL_ERROR, with the cause."""
        later(done, DeliveryResult.FATAL_ERROR, self._reason, hold=self._cause)

    def prepare(self, indication: Indication) -> None:
        """Nothing can be made ready."""

    def close(self) -> None:
        """Nothing is held."""
