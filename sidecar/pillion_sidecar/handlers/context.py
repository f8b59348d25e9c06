from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pillion_cim.schema import Schema
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.delivery.handler import Handler
from pillion_sidecar.handlers.authorization import Authorizer, StaticAuthorizer, authorization
from pillion_sidecar.handlers.folder import DeliveryFolder
from pillion_sidecar.handlers.http.answers import USUAL, Reading
from pillion_sidecar.handlers.http.oauth2 import OAuth2Authorizer, TokenSources
from pillion_sidecar.handlers.http.wire import http_wires
from pillion_sidecar.handlers.plugin_slots import LinkSlots
from pillion_sidecar.handlers.transport.connector import NAME_ADVICE, AddressCheck, Upgrade
from pillion_sidecar.handlers.transport.proxy import through
from pillion_sidecar.handlers.transport.sender import PooledSender, SharedParts, Waits
from pillion_sidecar.handlers.transport.target import HTTPTarget, NetworkTarget, parse_target
from pillion_sidecar.handlers.transport.wire import NewWire
from pillion_sidecar.protocols import Protocol as DeliveryProtocol
from pillion_sidecar.settings import PluginEndpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerContext:
    """The parts that all of a deliverer's handlers share."""

    parts: SharedParts
    address_policy: AddressCheck
    schema: Schema
    service_name: str
    #: None: no file is written.
    delivery_folder: DeliveryFolder | None = None
    #: The plug-ins that the deliverer declares, by name.
    plugins: Mapping[str, PluginEndpoint]
    plugin_links: LinkSlots
    tokens: TokenSources

    def target(self, destination: ListenerDestination, protocol: DeliveryProtocol) -> HTTPTarget:
        """Raises InvalidDestinationError."""
        ports = protocol.ports
        target = parse_target(destination.destination, port=ports["http"], tls_port=ports["https"])
        return through(target, destination.proxy)

    def authorizer(self, destination: ListenerDestination) -> Authorizer:
        """Raises InvalidDestinationError."""
        credentials = destination.credentials
        if credentials is None or credentials.oauth2 is None:
            return StaticAuthorizer(authorization(credentials))
        return OAuth2Authorizer(
            self.tokens.source(credentials.oauth2, destination.proxy),
            timers=self.parts.timers,
            timeout=destination.timeout_seconds,
        )

    def sender(
        self,
        destination: ListenerDestination,
        target: NetworkTarget,
        *,
        reading: Reading = USUAL,
        new_wire: NewWire | None = None,
        datagrams: bool = False,
        waits: Waits | None = None,
    ) -> PooledSender:
        """``new_wire`` None: HTTP/1.1, whose answers are read as ``reading`` says. ``datagrams``:
        UDP. Raises InvalidDestinationError."""
        connector = self.parts.connect(
            target,
            proxy=destination.proxy,
            address_policy=self.address_policy,
            tls=destination.tls,
            name_advice=_name_advice(destination.tls),
            discreet=destination.url_is_secret,
            datagrams=datagrams,
        )
        return self.parts.sender(
            connector,
            new_wire=new_wire or http_wires(self.parts.buffer, reading),
            timeout=destination.timeout_seconds,
            waits=waits,
        )

    def upgrade(self, destination: ListenerDestination, target: NetworkTarget) -> Upgrade:
        """Raises InvalidDestinationError."""
        tls = destination.tls
        return Upgrade(
            context=self.parts.tls_contexts.context(tls),
            server_name=tls.server_name or target.host,
            name_advice=_name_advice(tls),
            discreet=destination.url_is_secret,
        )


class Factory(Protocol):
    """The ``create_handler`` of a handler's module, which a protocol names."""

    def __call__(self, destination: ListenerDestination, context: HandlerContext, /) -> Handler:
        """Raises InvalidDestinationError if nothing can be sent to the destination."""


def _name_advice(tls: TLSOptions) -> str:
    if tls.allow_common_name:
        return NAME_ADVICE
    return (
        f"{NAME_ADVICE}: issue it anew, or write the name that it holds as tls.serverName; only for"
        " a certificate without any subjectAltName, set tls.allowCommonName: true"
    )
