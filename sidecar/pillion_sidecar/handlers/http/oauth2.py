"""Bearer tokens from a token endpoint: the client credentials grant of OAuth 2.0 (RFC 6749 4.4)."""

import asyncio
import base64
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote_plus, urlencode
from weakref import WeakValueDictionary

import msgspec

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.config.credentials import is_bearer_token
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.config.schema.oauth2 import ClientAuthentication, OAuth2
from pillion_sidecar.config.schema.proxy import Proxy
from pillion_sidecar.config.schema.urls import is_loopback
from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.handlers.authorization import AuthorizationError, Tell
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.http.answers import Reading
from pillion_sidecar.handlers.http.wire import http_wires
from pillion_sidecar.handlers.redaction import Quotations
from pillion_sidecar.handlers.transport.connector import AddressCheck
from pillion_sidecar.handlers.transport.exchange import Failure, Headers, Sender
from pillion_sidecar.handlers.transport.proxy import through
from pillion_sidecar.handlers.transport.sender import SharedParts
from pillion_sidecar.handlers.transport.target import HTTPTarget, parse_target

#: Maximum seconds of one token request.
REQUEST_SECONDS = 30.0
#: Lifetime in seconds of a token whose answer states none.
USUAL_LIFETIME = 300.0
LONGEST_LIFETIME = 86_400.0
#: A token is replaced so many seconds before it expires, or so many parts of its lifetime.
MARGIN_SECONDS, MARGIN_SHARE = 60.0, 0.1
#: A token that is younger, in seconds, is not replaced when a listener refuses it: another one
#: would be refused, too.
LEAST_AGE = 10.0
#: Seconds without a request after the client was refused: endpoints lock clients for repeated ones.
#: Changed credentials have a source of their own, which asks at once.
REFUSED_SECONDS = 300.0
#: Maximum characters of a token; more would not fit into the head that servers accept.
LONGEST_TOKEN = 16 * 1024
ANSWER = Reading(body=64 * 1024, errors=True)

#: RFC 6749 5.2, RFC 8707 2: the client is at fault, and asking again does not help.
_REFUSALS = frozenset(
    (
        "access_denied",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "invalid_target",
        "unauthorized_client",
        "unsupported_grant_type",
    )
)
_MOST_SHOWN = 200
_QUOTES = "the token endpoint's answer quotes the client's secret, so it is not shown"


class TokenSource:
    """The token of one client. At most one request is under way, for all who ask."""

    def __init__(self, client: OAuth2, *, target: HTTPTarget, sender: Sender, clock: Clock) -> None:
        self.place = target.authority
        #: The current token and the one before.
        self.tokens: tuple[str, ...] = ()
        self._request = token_request(client, target)
        self._secrets = Quotations([Credentials(oauth2=client)])
        self._sender = sender
        self._clock = clock
        self._line = b""
        #: ``Clock.monotonic()``.
        self._obtained_at = self._valid_until = 0.0
        #: The client was refused, and until when nothing is asked.
        self._refusal: tuple[AuthorizationError, float] | None = None
        self._asking: list[Tell] = []
        self._users: set[object] = set()

    @property
    def line(self) -> bytes | None:
        """The header line of a valid token."""
        if self._line and self._clock.monotonic() < self._valid_until:
            return self._line
        return None

    def ask(self, tell: Tell) -> None:
        """``tell`` is called unless it leaves: at once if there is a token."""
        line = self.line
        if line is not None:
            tell(line)
            return
        if self._refusal is not None and self._clock.monotonic() < self._refusal[1]:
            asyncio.get_running_loop().call_soon(tell, self._refusal[0])
            return
        self._asking.append(tell)
        if len(self._asking) == 1:
            self._sender.send(self._request, self)

    def leave(self, tell: Tell) -> None:
        """Who asked does not wait any more."""
        if tell not in self._asking:
            return
        self._asking.remove(tell)
        if not self._asking:
            # The next one asks anew, and not behind a request that hangs.
            self._sender.close()

    def forget(self) -> bool:
        """Return whether another token will be asked for."""
        if self._clock.monotonic() - self._obtained_at < LEAST_AGE:
            return False
        self._line = b""
        return True

    def join(self, user: object) -> None:
        self._users.add(user)

    def part(self, user: object) -> None:
        """The last one closes the connection."""
        self._users.discard(user)
        if not self._users:
            self._sender.close()

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        """See ``Exchange``."""
        try:
            token, lifetime = read_answer(status, body)
        except AuthorizationError as error:
            text = str(error)
            if self._secrets.are_in(text):
                text = f"HTTP {status}: {_QUOTES}"
            text = f"{self.place} gave no token: {text}"
            if error.hold is not None:
                text = f"{text}; it is asked again after {REFUSED_SECONDS:.0f} s"
            told = AuthorizationError(text, hold=error.hold)
            if told.hold is not None:
                self._refusal = told, self._clock.monotonic() + REFUSED_SECONDS
            self._tell(told)
            return
        self.tokens = (token, *self.tokens[:1])
        self._line = b"Authorization: Bearer %b\r\n" % token.encode("ascii")
        self._obtained_at = self._clock.monotonic()
        margin = min(MARGIN_SECONDS, lifetime * MARGIN_SHARE)
        self._valid_until = self._obtained_at + lifetime - margin
        self._tell(self._line)

    def failed(self, failure: Failure) -> None:
        """See ``Exchange``."""
        text = f"{self.place} gave no token: {failure.detail}"
        self._tell(AuthorizationError(text, hold=failure.hold))

    def _tell(self, found: bytes | AuthorizationError) -> None:
        asking, self._asking = self._asking, []
        for tell in asking:
            tell(found)


def token_request(client: OAuth2, target: HTTPTarget) -> bytes:
    form = {"grant_type": "client_credentials"}
    if client.scopes:
        form["scope"] = " ".join(client.scopes)
    if client.audience is not None:
        form["audience"] = client.audience
    authorization = b""
    if client.client_authentication is ClientAuthentication.BASIC:
        # RFC 6749 2.3.1: each is encoded first, so a colon may be in both.
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
        encoded = base64.b64encode(pair.encode("ascii"))
        authorization = b"Authorization: Basic %b\r\n" % encoded
    else:
        form |= {"client_id": client.client_id, "client_secret": client.client_secret}
    body = urlencode(form).encode("ascii")
    fields = (
        "Accept: application/json\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(body)}\r\n"
    )
    return b"%b%b%b\r\n%b" % (target.post, fields.encode("ascii"), authorization, body)


def read_answer(status: int, body: bytes) -> tuple[str, float]:
    """Return the token and its lifetime in seconds. Raises AuthorizationError."""
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        document = None
    answer: dict[str, Any] = document if isinstance(document, dict) else {}
    if not 200 <= status < 300:
        raise _refusal(status, answer)
    token, kind = answer.get("access_token"), answer.get("token_type", "Bearer")
    if not isinstance(token, str) or not is_bearer_token(token):
        raise AuthorizationError("the answer has no access_token that a header can carry")
    if len(token) > LONGEST_TOKEN:
        raise AuthorizationError(f"its token is longer than {LONGEST_TOKEN:,} characters")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        # RFC 6749 7.1: a client must not use a token of a type that it does not know.
        shown = one_line(str(kind), _MOST_SHOWN)
        raise AuthorizationError(
            f"its token_type is {shown}, and only Bearer can be sent", hold=HoldCause.CREDENTIALS
        )
    return token, _lifetime(answer.get("expires_in"))


def _refusal(status: int, answer: dict[str, Any]) -> AuthorizationError:
    told = [answer.get("error"), answer.get("error_description")]
    texts = [text for text in told if isinstance(text, str) and text]
    shown = [f"HTTP {status}", *(one_line(text, _MOST_SHOWN) for text in texts)]
    refused = status == 401 or (400 <= status < 500 and not _REFUSALS.isdisjoint(texts[:1]))
    return AuthorizationError(": ".join(shown), hold=HoldCause.REFUSED if refused else None)


def _lifetime(value: object) -> float:
    # Some endpoints write it as a text.
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = float(value[:9])
    if isinstance(value, bool) or not isinstance(value, int | float):
        return USUAL_LIFETIME
    return min(max(float(value), 0.0), LONGEST_LIFETIME)


class TokenSources:
    """Sources by client: destinations with equal credentials share one."""

    def __init__(self, parts: SharedParts, *, address_policy: AddressCheck) -> None:
        self._parts = parts
        self._address_policy = address_policy
        self._sources: WeakValueDictionary[tuple[OAuth2, Proxy | None], TokenSource] = (
            WeakValueDictionary()
        )

    def source(self, client: OAuth2, proxy: Proxy | None) -> TokenSource:
        """``proxy``: on the way to the endpoint. Raises InvalidDestinationError."""
        if is_loopback(client.token_url):
            # It may be without TLS.
            proxy = None
        source = self._sources.get((client, proxy))
        if source is None:
            source = self._sources[client, proxy] = self._new(client, proxy)
        return source

    def shown_of(
        self, credentials: Credentials | None, proxy: Proxy | None
    ) -> Callable[[], Sequence[str]]:
        """Return what gives the tokens that were sent lately with ``credentials``."""
        if credentials is None or credentials.oauth2 is None:
            return tuple
        source = self.source(credentials.oauth2, proxy)
        return lambda: source.tokens

    def _new(self, client: OAuth2, proxy: Proxy | None) -> TokenSource:
        try:
            target = through(parse_target(client.token_url), proxy)
            connector = self._parts.connect(
                target,
                proxy=proxy,
                address_policy=self._address_policy,
                tls=TLSOptions(ca_certificates=client.ca_certificates),
            )
        except InvalidDestinationError as error:
            raise InvalidDestinationError(
                f"credentials.oauth2: {error}", cause=HoldCause.CREDENTIALS
            ) from None
        sender = self._parts.sender(
            connector, new_wire=http_wires(self._parts.buffer, ANSWER), timeout=REQUEST_SECONDS
        )
        return TokenSource(client, target=target, sender=sender, clock=self._parts.clock)


class OAuth2Authorizer:
    """Of one destination, whose time-out bounds the wait for a token."""

    def __init__(self, source: TokenSource, *, timers: Timers, timeout: float) -> None:
        self._source = source
        self._timers = timers
        self._timeout = timeout
        self._waiting: dict[Tell, Timer] = {}
        source.join(self)

    @property
    def line(self) -> bytes | None:
        return self._source.line

    def ask(self, tell: Tell) -> None:
        """See ``Authorizer``."""

        def told(found: bytes | AuthorizationError) -> None:
            timer = self._waiting.pop(told, None)
            if timer is not None:
                timer.cancel()
                tell(found)

        self._waiting[told] = self._timers.call_later(
            self._timeout, partial(self._time_out, told, tell)
        )
        self._source.ask(told)

    def forget(self) -> bool:
        """See ``Authorizer``."""
        return self._source.forget()

    def close(self) -> None:
        """See ``Authorizer``."""
        for told in list(self._waiting):
            self._give_up(told)
        self._source.part(self)

    def _time_out(self, told: Tell, tell: Tell) -> None:
        self._give_up(told)
        text = f"timed out after {self._timeout:g} s, waiting for a token of {self._source.place}"
        tell(AuthorizationError(text))

    def _give_up(self, told: Tell) -> None:
        self._waiting.pop(told).cancel()
        self._source.leave(told)
