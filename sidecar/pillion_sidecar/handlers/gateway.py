"""Handlers of destinations that are relayed to a gateway."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import DeliverThrough, ListenerDestination
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler
from pillion_sidecar.filewatch import FollowedFile, Unusable
from pillion_sidecar.handlers.authorization import (
    AuthorizationError,
    Authorizer,
    StaticAuthorizer,
    TokenFileAuthorizer,
    unsent_outcome,
)
from pillion_sidecar.handlers.errors import ConnectError, InvalidDestinationError
from pillion_sidecar.handlers.http.answers import Reading, retry_after
from pillion_sidecar.handlers.http.wire import http_wires
from pillion_sidecar.handlers.relay import RelayHandler
from pillion_sidecar.handlers.transport.connector import Connector
from pillion_sidecar.handlers.transport.exchange import Failure, Headers, Sender
from pillion_sidecar.handlers.transport.sender import SharedParts
from pillion_sidecar.handlers.transport.target import HTTPTarget, parse_target
from pillion_sidecar.history.handed_over import CONTENT_TYPE
from pillion_sidecar.history.handing_over import Reply
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.settings import GatewayEndpoint
from pillion_sidecar.wire.relay import HISTORY_PATH, RELAY_PATH, RELAY_QUERY

if TYPE_CHECKING:
    from pillion_sidecar.handlers.journals import StorePost

#: An answer lists each refused line.
RELAY_ANSWER = Reading(body=1024 * 1024, errors=True)
#: Seconds without acknowledgement by the gateway's host. While a pod is replaced, its Service may
#: lead to an address that answers nothing; the next connection reaches the new one.
SILENCE = 5.0
#: RFC 1123: the service's name becomes part of a host name.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class Gateways:
    def __init__(self, access: GatewayEndpoint, *, parts: SharedParts) -> None:
        self._access = access
        self._parts = parts
        self._authorizer: Authorizer = StaticAuthorizer()
        if access.token is not None:
            file, what = FollowedFile(access.token), "the token for the gateway"
            self._authorizer = TokenFileAuthorizer(file, clock=parts.clock, what=what)
        self._authorities = None if access.ca is None else FollowedFile(access.ca)

    def create_handler(self, destination: ListenerDestination) -> Handler:
        assert destination.relay_to is not None
        try:
            target = relay_target(self._access.url, destination.relay_to)
        except InvalidDestinationError as error:
            return UnableHandler(unsent_outcome(f"--gateway: {error}"))
        parts = self._parts
        connector = GatewayConnector(target, parts=parts, authorities=self._authorities)
        return RelayHandler(
            sender=parts.sender(
                connector,
                new_wire=http_wires(parts.buffer, RELAY_ANSWER),
                timeout=destination.timeout_seconds,
            ),
            target=target,
            authorizer=self._authorizer,
            clock=parts.clock,
            # What is only handed over at the end was ordered here (S1.5).
            in_group=destination.deliver_through is DeliverThrough.GATEWAY,
        )

    def post_history(self, service: str, *, timeout: float) -> "HistoryPost | UnablePost":
        """``timeout``: seconds of an answer."""
        try:
            target = relay_target(self._access.url, service, path=HISTORY_PATH, query="")
        except InvalidDestinationError as error:
            return UnablePost(f"--gateway: {error}")
        parts = self._parts
        connector = GatewayConnector(target, parts=parts, authorities=self._authorities)
        sender = parts.sender(
            connector, new_wire=http_wires(parts.buffer, RELAY_ANSWER), timeout=timeout
        )
        return HistoryPost(sender, target, authorizer=self._authorizer, clock=parts.clock)

    def stores(
        self, services: Sequence[str], *, session: str, timeout: float
    ) -> "dict[str, StorePost]":
        """``services``: whose gateways keep copies of the journal ``session``; ``timeout``: seconds
        of an answer. Raises InvalidDestinationError."""
        # Late: a deliverer without stores has no use for it.
        from pillion_sidecar.handlers.journals import STORE_ANSWER, StorePost
        from pillion_sidecar.stores.messages import JOURNALS_PATH

        parts = self._parts
        posts: dict[str, StorePost] = {}
        for service in services:
            path = f"{JOURNALS_PATH}{session}"
            target = relay_target(self._access.url, service, path=path, query="")
            posts[service] = StorePost(
                parts.sender(
                    GatewayConnector(target, parts=parts, authorities=self._authorities),
                    new_wire=http_wires(parts.buffer, STORE_ANSWER),
                    timeout=timeout,
                ),
                target,
                authorizer=self._authorizer,
                clock=parts.clock,
            )
        return posts


class HistoryPost:
    """Posts parts of a history to a gateway; a ``GatewayPost``."""

    def __init__(
        self, sender: Sender, target: HTTPTarget, *, authorizer: Authorizer, clock: Clock
    ) -> None:
        self._sender = sender
        self._authorizer = authorizer
        self._clock = clock
        self._head = (
            f"POST {target.request_uri} HTTP/1.1\r\n"
            f"Host: {target.authority}\r\n"
            "Accept: application/json\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\n"
        ).encode("ascii")

    async def __call__(self, body: bytes) -> Reply:
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[bytes | AuthorizationError] = loop.create_future()
        self._authorizer.ask(lambda line: None if asked.done() else asked.set_result(line))
        authorization = await asked
        if isinstance(authorization, AuthorizationError):
            return Reply(0, detail=str(authorization))
        exchange = _PostExchange(loop.create_future(), self._clock)
        head = b"%b%bContent-Length: %d\r\n\r\n" % (self._head, authorization, len(body))
        self._sender.send(head + body, exchange)
        reply = await exchange.reply
        if reply.status == 401:
            self._authorizer.forget()
        return reply

    def close(self) -> None:
        self._sender.close()


@dataclass(frozen=True, slots=True)
class UnablePost:
    """A ``GatewayPost`` to where nothing can be sent."""

    reason: str

    async def __call__(self, body: bytes) -> Reply:
        return Reply(400, detail=self.reason)

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _PostExchange:
    reply: "asyncio.Future[Reply]"
    _clock: Clock

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        wait = retry_after(headers, self._clock.time())
        self._give(Reply(status, body, retry_after=wait))

    def failed(self, failure: Failure) -> None:
        self._give(Reply(0, detail=f"the gateway: {failure.detail}"))

    def _give(self, reply: Reply) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)


def relay_target(
    url: str, service: str, *, path: str = RELAY_PATH, query: str = RELAY_QUERY
) -> HTTPTarget:
    """Return the relay's target: ``url`` with the service's name. Raises
    InvalidDestinationError."""
    if not _NAME.fullmatch(service):
        raise InvalidDestinationError(f"{service!r} is not the name of a service")
    parts = urlsplit(parse_url(url.replace("{service}", service)))
    path = parts.path.rstrip("/") + path
    return parse_target(urlunsplit((parts.scheme, parts.netloc, path, query, "")))


def parse_url(url: str) -> str:
    """Check a gateway's URL. Raises InvalidDestinationError."""
    parse_target(url)
    return url if "://" in url else f"http://{url}"


class GatewayConnector:
    """Connects to one gateway, with the current authorities of its certificate."""

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

    async def connect(self, wire: asyncio.BaseProtocol, stage: Callable[[str], None]) -> None:
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
    def check(self, address: str, /) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class UnableHandler:
    """Every attempt has the same outcome, since nothing can be sent to the destination."""

    outcome: DeliveryOutcome

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        # Later: the caller is still in the middle of its own turn.
        asyncio.get_running_loop().call_soon(done, self.outcome)

    def prepare(self, indication: Indication, selection: Selection | None) -> None: ...

    def close(self) -> None: ...
