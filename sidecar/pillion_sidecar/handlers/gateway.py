"""The way to the gateways: from a destination that is relayed to its handler."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from pillion_sidecar.config.schema.destination import DeliverThrough, ListenerDestination
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler
from pillion_sidecar.filewatch import FollowedFile, Unusable
from pillion_sidecar.handlers.errors import ConnectError
from pillion_sidecar.handlers.http.authorization import (
    Authorizer,
    StaticAuthorizer,
    TokenFileAuthorizer,
    unsent_outcome,
)
from pillion_sidecar.handlers.http.connector import Connector
from pillion_sidecar.handlers.http.exchange import Reading
from pillion_sidecar.handlers.http.sender import SharedParts
from pillion_sidecar.handlers.http.target import HTTPTarget, InvalidDestinationError, parse_target
from pillion_sidecar.handlers.http.wire import Wire
from pillion_sidecar.handlers.relay import RelayHandler
from pillion_sidecar.indication import Indication
from pillion_sidecar.settings import GatewayAccess

#: Where a gateway takes what is relayed, and how far that must have come to be answered.
RELAY_PATH = "/v1/relay"
RELAY_QUERY = "ack=durable"
#: An answer tells of each line that is refused.
RELAY_ANSWER = Reading(body=1024 * 1024, errors=True)
#: Seconds after which a gateway whose host acknowledges nothing is given up. While its pod is
#: replaced, its Service may lead to an address where nobody is any more, which answers nothing at
#: all; the next connection is led to the new one. A gateway that lives has a kernel that answers.
SILENCE = 5.0
#: What the name of a gateway's service looks like (RFC 1123): it becomes part of a host name.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Gateways:
    """Makes the handlers of destinations that are relayed."""

    def __init__(self, access: GatewayAccess, *, parts: SharedParts) -> None:
        self._access = access
        self._parts = parts
        self._authorizer: Authorizer = StaticAuthorizer()
        if access.token is not None:
            file, what = FollowedFile(access.token), "the token for the gateway"
            self._authorizer = TokenFileAuthorizer(file, clock=parts.clock, what=what)
        self._authorities = None if access.ca is None else FollowedFile(access.ca)

    def create_handler(self, destination: ListenerDestination) -> Handler:
        """Make the handler of a destination with ``relay_to``."""
        assert destination.relay_to is not None
        try:
            target = relay_target(self._access.url, destination.relay_to)
        except InvalidDestinationError as error:
            return UnableHandler(unsent_outcome(f"--gateway: {error}"))
        parts = self._parts
        connector = GatewayConnector(target, parts=parts, authorities=self._authorities)
        return RelayHandler(
            sender=parts.sender(
                connector, timeout=destination.timeout_seconds, reading=RELAY_ANSWER
            ),
            target=target,
            authorizer=self._authorizer,
            clock=parts.clock,
            # What is only handed over at the end was ordered here (S1.5).
            in_group=destination.deliver_through is DeliverThrough.GATEWAY,
        )


def relay_target(url: str, service: str) -> HTTPTarget:
    """Return where a gateway takes what is relayed: ``url`` with the service's name in it.

    Raises:
        InvalidDestinationError: that is no URL.
    """
    if not _NAME.fullmatch(service):
        raise InvalidDestinationError(f"{service!r} is not the name of a service")
    parts = urlsplit(parse_url(url.replace("{service}", service)))
    path = parts.path.rstrip("/") + RELAY_PATH
    return parse_target(urlunsplit((parts.scheme, parts.netloc, path, RELAY_QUERY, "")))


def parse_url(url: str) -> str:
    """Return a gateway's URL where it is one. Raises InvalidDestinationError."""
    parse_target(url)
    return url if "://" in url else f"http://{url}"


class GatewayConnector:
    """Connects to one gateway, with the authorities of its certificate as they are now."""

    def __init__(
        self,
        target: HTTPTarget,
        *,
        parts: SharedParts,
        authorities: FollowedFile | None,
        silence_seconds: float = SILENCE,
    ) -> None:
        self._silence_seconds = silence_seconds
        self._target = target
        self._parts = parts
        self._authorities = authorities
        self._connector: Connector | None = None
        self._pem: bytes | None = None

    async def connect(self, wire: Wire, stage: Callable[[str], None]) -> None:
        """See ``Connect``."""
        try:
            connector = await self._current()
        except (Unusable, InvalidDestinationError) as error:
            raise ConnectError(f"the authorities of its certificate: {error}") from None
        await connector.connect(wire, stage)

    async def _current(self) -> Connector:
        pem = None
        if self._target.tls and self._authorities is not None:
            pem = await asyncio.to_thread(self._authorities.read)
        if self._connector is None or pem != self._pem:
            self._connector = self._parts.connector(
                self._target,
                address_policy=_AnyAddress(),
                tls=TLSOptions(ca_certificates=pem),
                silence_seconds=self._silence_seconds,
            )
            self._pem = pem
        return self._connector


class _AnyAddress:
    """A gateway's URL comes from the command line, not from whoever may write a destination."""

    def check(self, address: str, /) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class UnableHandler:
    """Handles a destination that nothing can be sent to: every attempt has the same outcome."""

    outcome: DeliveryOutcome

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        # Not from within the call: the caller is in the middle of its own turn.
        asyncio.get_running_loop().call_soon(done, self.outcome)

    def prepare(self, indication: Indication) -> None:
        """Nothing is sent."""

    def close(self) -> None:
        """Nothing is held."""
