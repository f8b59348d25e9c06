"""Authentication at a gateway by service-account tokens, before the body is read."""

import re
from asyncio import BaseProtocol
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from aiohttp.streams import StreamReader
from aiohttp.typedefs import Handler, Middleware

from pillion_sidecar.auth.principal import (
    IS_FROM_GATEWAY,
    IS_OF_GATEWAY,
    PRINCIPAL,
    Principal,
    Turned,
    is_gateway,
)
from pillion_sidecar.auth.tokens import TokenError, TokenKeys, Verified, verify
from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.service import AllowedPublisher

#: Verified tokens in the cache. A pod has one, and gets another each hour.
MAXIMUM_TOKENS = 10_000
#: Retry-After in seconds while there are no keys.
NO_KEYS_RETRY_AFTER = 5
#: Bytes and seconds for which the body of a refused request is read and dropped, so that a client
#: that sends it first sees the answer.
UNREAD_BYTES = 1 << 20
UNREAD_SECONDS = 5.0
#: Concurrent requests for which that is done.
UNREAD_REQUESTS = 64
#: RFC 6750, 2.1.
_BEARER = re.compile(r"bearer +(?P<token>[A-Za-z0-9\-._~+/]+=*) *", re.IGNORECASE)
#: Characters that a challenge's quoted string cannot carry (RFC 6750, 3).
_UNQUOTABLE = re.compile(r"[^\x20\x21\x23-\x5b\x5d-\x7e]")


class TokenCache:
    """Headers with a verified token, until it expires. Bounded, least recently used dropped."""

    def __init__(self, *, maximum: int = MAXIMUM_TOKENS) -> None:
        self._maximum = maximum
        # By digest, so that no token stays in memory.
        self._tokens: OrderedDict[bytes, Verified] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tokens)

    def find(self, header: str, *, now: float) -> Verified | None:
        """``now`` in seconds since the epoch."""
        digest = _digest(header)
        found = self._tokens.get(digest)
        if found is None:
            return None
        if now > found.until:
            del self._tokens[digest]
            return None
        self._tokens.move_to_end(digest)
        return found

    def keep(self, header: str, verified: Verified) -> None:
        self._tokens[_digest(header)] = verified
        if len(self._tokens) > self._maximum:
            self._tokens.popitem(last=False)

    def clear(self) -> None:
        self._tokens.clear()


def _digest(header: str) -> bytes:
    return blake2b(header.encode("utf-8", "surrogatepass"), digest_size=32).digest()


class TokenObserver(Protocol):
    def turned_away(self, reason: Turned) -> None: ...


class _TurnedAway(TimeoutError):
    """Ends a body that nobody reads; aiohttp accepts no other exception."""


class TokenMiddleware:
    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        publishers: Callable[[], Sequence[AllowedPublisher]],
        observer: TokenObserver,
        proven: Callable[[BaseProtocol, Principal], None],
        has_proven: Callable[[BaseProtocol], bool],
    ) -> None:
        """``publishers``: of the configuration in force; none: all service accounts of the
        gateway's own namespace.

        ``proven`` is called with the connection and the principal of each accepted request;
        ``has_proven``: whether it was ever called with a connection.
        """
        self._clock = clock
        self._timers = timers
        self._publishers = publishers
        self._observer = observer
        self._proven = proven
        self._has_proven = has_proven
        self._keys: TokenKeys | None = None
        # The gateway's own.
        self._namespace: str | None = None
        #: The service account of the gateway; None: it is not known.
        self.own: Principal | None = None
        self._cache = TokenCache()
        self._unread = 0

    @property
    def has_keys(self) -> bool:
        return self._keys is not None

    @property
    def namespace(self) -> str | None:
        """The gateway's own; None before the first keys."""
        return self._namespace

    def use_keys(self, keys: TokenKeys) -> None:
        """From now on, verify with these keys only."""
        self._keys = keys
        self._namespace = keys.namespace
        self._cache.clear()

    # ------------------------------------------------------------------ before the body

    @property
    def middleware(self) -> Middleware:
        @web.middleware
        async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
            found = self._examine(request)
            if isinstance(found, Principal):
                self._proven(request.protocol, found)
                request[PRINCIPAL] = found
                request[IS_OF_GATEWAY] = found.namespace == self._namespace
                request[IS_FROM_GATEWAY] = is_gateway(
                    found, namespace=self._namespace, own=self.own
                )
                return await handler(request)
            if self._has_proven(request.protocol):
                # A publisher that is no longer allowed must not keep a proven connection.
                found.force_close()
            try:
                await found.prepare(request)
                await found.write_eof()
            except ConnectionError:
                # The client is gone; aiohttp notices when the answer is returned.
                return found
            await self._leave_unread(request.content)
            return found

        return authenticate

    async def expect(self, request: web.Request) -> web.StreamResponse | None:
        """Answer ``Expect: 100-continue``: a refused client need not send the body."""
        if request.version != HttpVersion11:
            return None
        if request.headers[hdrs.EXPECT].lower() != "100-continue":
            raise web.HTTPExpectationFailed(text="Expect: only 100-continue is known")
        found = self._examine(request)
        if isinstance(found, web.Response):
            found.force_close()
            request.content.set_exception(_TurnedAway())
            return found
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
        return None

    def _examine(self, request: web.Request) -> Principal | web.Response:
        keys = self._keys
        if keys is None:
            self._observer.turned_away(Turned.NO_KEYS)
            reason = "the keys that tokens are verified with have not come yet"
            return _answer(503, reason, {"Retry-After": str(NO_KEYS_RETRY_AFTER)})
        try:
            principal = self._principal(request.headers.getall(hdrs.AUTHORIZATION, []), keys)
        except TokenError as error:
            self._observer.turned_away(error.reason)
            return _answer(401, error.text, {"WWW-Authenticate": _challenge(error.text)})
        if self._may_publish(principal, keys):
            return principal
        self._observer.turned_away(Turned.FORBIDDEN)
        return _answer(
            403,
            f"{principal} may not publish here; name it in publishers of the gateway's"
            " IndicationService",
            {},
        )

    def _principal(self, given: Sequence[str], keys: TokenKeys) -> Principal:
        now = self._clock.time()
        # The whole header is the key: parsing a thousand characters takes longer.
        known = self._cache.find(given[0], now=now) if len(given) == 1 else None
        if known is None:
            known = verify(_token(given, audience=keys.audience), keys, now=now)
            self._cache.keep(given[0], known)
        return known.principal

    def _may_publish(self, principal: Principal, keys: TokenKeys) -> bool:
        allowed = self._publishers()
        if not allowed:
            return principal.namespace == keys.namespace
        return any(
            one.namespace == principal.namespace
            and one.service_account in (None, principal.service_account)
            for one in allowed
        )

    # ------------------------------------------------------------------ the body

    async def _leave_unread(self, content: StreamReader) -> None:
        if content.at_eof():
            return
        if self._unread < UNREAD_REQUESTS:
            self._unread += 1
            timer = self._timers.call_later(
                UNREAD_SECONDS, lambda: content.set_exception(_TurnedAway())
            )
            try:
                await _discard(content)
            finally:
                timer.cancel()
                self._unread -= 1
        if not content.at_eof():
            content.set_exception(_TurnedAway())


async def _discard(content: StreamReader) -> None:
    left = UNREAD_BYTES
    try:
        while left > 0 and not content.at_eof():
            left -= len(await content.readany())
    except (_TurnedAway, web.RequestPayloadError, ConnectionError):
        return


def _token(given: Sequence[str], *, audience: str) -> str:
    """Return the token of the Authorization headers. Raises TokenError."""
    if not given:
        raise TokenError(
            Turned.MISSING,
            "there is no token; send Authorization: Bearer TOKEN with a service account's token"
            f" for the audience {audience}",
        )
    found = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if found is None:
        raise TokenError(Turned.MALFORMED, "Authorization is not one Bearer TOKEN")
    return found["token"]


def _challenge(text: str) -> str:
    described = _UNQUOTABLE.sub("?", text)
    return f'Bearer error="invalid_token", error_description="{described}"'


def _answer(status: int, reason: str, headers: dict[str, str]) -> web.Response:
    return web.json_response({"reason": reason}, status=status, headers=headers)
