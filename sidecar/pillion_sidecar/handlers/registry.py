"""Creates a destination's handler (S0.13)."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pillion_cim.schema import Schema
from pillion_sidecar.clock import Clock, Slices, Timers
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.stores import StreamMember
from pillion_sidecar.delivery.handler import (
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.authorization import unsent_outcome
from pillion_sidecar.handlers.context import Factory, HandlerContext
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.folder import DeliveryFolder
from pillion_sidecar.handlers.gateway import Gateways, HistoryPost, UnableHandler, UnablePost
from pillion_sidecar.handlers.http.oauth2 import TokenSources
from pillion_sidecar.handlers.plugin_slots import LinkSlots
from pillion_sidecar.handlers.redaction import DiscreetHandler
from pillion_sidecar.handlers.transport.connector import AddressCheck, NameResolver
from pillion_sidecar.handlers.transport.outgoing import OutgoingConnections
from pillion_sidecar.handlers.transport.sender import IDLE_SECONDS, SharedParts
from pillion_sidecar.protocols import PROTOCOLS, Protocol
from pillion_sidecar.settings import GatewayEndpoint, PluginEndpoint

if TYPE_CHECKING:
    from pillion_sidecar.handlers.journals import StoreLinks


class HandlerRegistry:
    """Makes handlers, and holds what they share."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        resolver: NameResolver,
        address_policy: AddressCheck,
        schema: Schema,
        service_name: str,
        gateway: GatewayEndpoint | None = None,
        idle_seconds: float = IDLE_SECONDS,
        outgoing: OutgoingConnections | None = None,
        delivery_folder: Path | None = None,
        protocols: Mapping[str, Protocol] = PROTOCOLS,
        plugins: Mapping[str, PluginEndpoint] | None = None,
        plugin_links: LinkSlots | None = None,
        slices: Slices | None = None,
    ) -> None:
        """``gateway``: makes handlers that relay; without it, such destinations wait. ``outgoing``
        None: no limit of connections. ``delivery_folder``: where destinations may write files.
        ``slices``: see ``SharedParts``."""
        self._protocols = protocols
        self._factories: dict[str, Factory] = {}
        parts = SharedParts(
            clock=clock,
            timers=timers,
            resolver=resolver,
            idle_seconds=idle_seconds,
            outgoing=outgoing or OutgoingConnections(),
            slices=slices,
        )
        self._delivery_folder = None if delivery_folder is None else DeliveryFolder(delivery_folder)
        self._context = HandlerContext(
            parts=parts,
            address_policy=address_policy,
            schema=schema,
            service_name=service_name,
            delivery_folder=self._delivery_folder,
            plugins=plugins or {},
            plugin_links=plugin_links or LinkSlots(timers=timers),
            tokens=TokenSources(parts, address_policy=address_policy),
        )
        self._gateways = None if gateway is None else Gateways(gateway, parts=parts)

    def create_handler(self, destination: ListenerDestination) -> Handler:
        """Make the handler of a destination. Never raises for an invalid destination: its handler
        reports the cause, for which the queue is held (S0.8)."""
        if destination.relay_to is not None:
            return self._relay(destination)
        if destination.fault is not None:
            return _unsupported(destination.fault.message, cause=destination.fault.cause)
        protocol = self._protocols.get(destination.protocol)
        if protocol is None:
            reason = f"protocol {destination.protocol!r} is not supported"
            return _unsupported(reason, cause=HoldCause.PROTOCOL)
        try:
            handler = self._factory(protocol)(destination, self._context)
        except InvalidDestinationError as error:
            secret = destination.url_is_secret and error.cause is HoldCause.DESTINATION
            reason = "no request can be sent to the URL in its Secret" if secret else str(error)
            return _unsupported(reason, cause=error.cause)
        proxy = destination.proxy
        of_proxy = None if proxy is None else proxy.credentials
        if (destination.credentials, of_proxy) == (None, None) and not destination.url_is_secret:
            return handler
        return DiscreetHandler(
            handler,
            credentials=(destination.credentials, of_proxy),
            url_is_secret=destination.url_is_secret,
            tokens=self._context.tokens.shown_of(destination.credentials, proxy),
        )

    def post_history(self, service: str, *, timeout: float) -> HistoryPost | UnablePost:
        """Post to a gateway; ``timeout``: seconds of an answer."""
        assert self._gateways is not None
        return self._gateways.post_history(service, timeout=timeout)

    @property
    def reaches_gateways(self) -> bool:
        return self._gateways is not None

    def stores(
        self,
        services: Sequence[str],
        *,
        session: str,
        timeout: float,
        streams: Sequence[StreamMember] = (),
    ) -> "StoreLinks":
        """``services``: see ``Gateways.stores``; ``streams`` keep copies of the same journal.
        Raises InvalidDestinationError."""
        # Late: a deliverer without stores has no use for it.
        from pillion_sidecar.handlers.journals import StoreLink, StoreLinks

        links: dict[str, StoreLink] = {}
        if services:
            assert self._gateways is not None
            links.update(self._gateways.stores(services, session=session, timeout=timeout))
        if not streams:
            return StoreLinks(links)
        from pillion_sidecar.handlers.nats.link import StreamLink

        ways = {
            one.name: StreamLink(
                one,
                session=session,
                parts=self._context.parts,
                address_policy=self._context.address_policy,
                timeout=timeout,
            )
            for one in streams
        }
        return StoreLinks({**links, **ways}, streams=ways)

    def close(self) -> None:
        """End what the handlers share. They are closed before."""
        if self._delivery_folder is not None:
            self._delivery_folder.close()

    def _factory(self, protocol: Protocol) -> Factory:
        factory = self._factories.get(protocol.name)
        if factory is None:
            factory = self._factories[protocol.name] = load_factory(protocol)
        return factory

    def _relay(self, destination: ListenerDestination) -> Handler:
        if self._gateways is None:
            # It waits: the indications are not at fault.
            reason = (
                f"it is relayed to gateway {destination.relay_to}, and this deliverer was started"
                " without --gateway"
            )
            return UnableHandler(unsent_outcome(reason))
        return self._gateways.create_handler(destination)


def _unsupported(reason: str, *, cause: HoldCause) -> Handler:
    """Return the handler of a destination until its resource is corrected."""
    return UnableHandler(DeliveryOutcome(DeliveryResult.FATAL_ERROR, reason, hold=cause))


def load_factories(protocols: Iterable[str]) -> None:
    """Import what protocols' handlers need, by protocol name: in a thread before handlers are made,
    so that the event loop does not wait for it. Unknown names are left out."""
    for name in set(protocols) & PROTOCOLS.keys():
        load_factory(PROTOCOLS[name])


def load_factory(protocol: Protocol) -> Factory:
    """Import the module of a protocol's handler: only a destination that needs it pays for it."""
    if protocol.library and find_spec(protocol.library) is None:
        reason = f"protocol {protocol.name} needs {protocol.library}"
        reason += f": install pillion[{protocol.extra}]"
        return lambda _destination, _context: _unsupported(reason, cause=HoldCause.PROTOCOL)
    module, _, name = protocol.handler.partition(":")
    factory: Factory = getattr(importlib.import_module(module), name)
    return factory
