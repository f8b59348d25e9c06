"""Requests of a writer to its stores. Those to a gateway are ``POST /v1/journals/{session}``."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.config.schema.stores import StreamMember
from pillion_sidecar.handlers.authorization import AuthorizationError, Authorizer
from pillion_sidecar.handlers.http.answers import Reading, retry_after
from pillion_sidecar.handlers.relay import CONNECTION_SECONDS
from pillion_sidecar.handlers.transport.exchange import Failure, Headers, Sender
from pillion_sidecar.handlers.transport.target import HTTPTarget
from pillion_sidecar.stores.messages import (
    CONTENT_TYPE,
    MAXIMUM_READ,
    IdentitiesRequest,
    ReadRequest,
    Request,
    decode_copy,
    decode_refusal,
    encode_request,
)
from pillion_sidecar.stores.ports import Answer, Unanswered

#: What a store answers, of which a read is the longest.
STORE_ANSWER = Reading(body=MAXIMUM_READ, errors=True)
_UNAUTHORIZED = 401
_REASON_LIMIT = 300

Answered: TypeAlias = Callable[[Answer], None]


class StoreLink(Protocol):
    """The way to one store for one session: a gateway or a stream."""

    def send(self, request: Request, answered: Answered) -> None: ...

    def close(self) -> None: ...


class RenewableLink(StoreLink, Protocol):
    """The way to a stream."""

    def renew(self, member: StreamMember) -> None: ...


class StoreLinks:
    """A ``Transport``."""

    def __init__(
        self,
        links: Mapping[str, StoreLink],
        *,
        streams: Mapping[str, RenewableLink] | None = None,
    ) -> None:
        """``links``: by store. One request to each is under way at most. ``streams``: those of
        them whose servers and credentials may change."""
        self._links = links
        self._streams = streams or {}

    def send(self, store: str, request: Request, answered: Answered) -> None:
        self._links[store].send(request, answered)

    def renew(self, streams: Sequence[StreamMember]) -> None:
        """Use what a later configuration says of the same streams. Raises
        InvalidDestinationError."""
        for one in streams:
            if one.name in self._streams:
                self._streams[one.name].renew(one)

    def close(self) -> None:
        """Requests under way hear nothing more."""
        for link in self._links.values():
            link.close()


class StorePost:
    """Asks one store for one session."""

    def __init__(
        self, sender: Sender, target: HTTPTarget, *, authorizer: Authorizer, clock: Clock
    ) -> None:
        self._sender = sender
        self._authorizer = authorizer
        self._clock = clock
        self._closed = False
        self._renewed_at = clock.monotonic()
        self._head = (
            f"POST {target.request_uri} HTTP/1.1\r\n"
            f"Host: {target.authority}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\n"
        ).encode("ascii")

    def send(self, request: Request, answered: Answered) -> None:
        exchange = _Exchange(
            self, answered, reads=isinstance(request, ReadRequest | IdentitiesRequest)
        )
        self._authorizer.ask(partial(self._send, encode_request(request), exchange))

    def close(self) -> None:
        self._closed = True
        self._sender.close()

    def _send(
        self, body: bytes, exchange: "_Exchange", authorization: bytes | AuthorizationError
    ) -> None:
        if self._closed:
            return
        if isinstance(authorization, AuthorizationError):
            # Later: the shipper is in the middle of its own turn.
            refused = Unanswered(reason=str(authorization))
            asyncio.get_running_loop().call_soon(exchange.tell, refused)
            return
        now = self._clock.monotonic()
        if now - self._renewed_at >= CONNECTION_SECONDS:
            # Nothing is under way.
            self._renewed_at = now
            self._sender.renew()
        head = b"%b%bContent-Length: %d\r\n\r\n" % (self._head, authorization, len(body))
        self._sender.send(head + body, exchange)

    def answer(self, status: int, headers: Headers, body: bytes, *, reads: bool) -> Answer:
        if status == _UNAUTHORIZED:
            self._authorizer.forget()
        wait = retry_after(headers, self._clock.time()) or 0.0
        return read_answer(status, body, wait=wait, reads=reads)


class _Reason(msgspec.Struct):
    reason: str = ""


_decode_reason = msgspec.json.Decoder(_Reason).decode


def read_answer(status: int, body: bytes, *, wait: float, reads: bool = False) -> Answer:
    """Return the copy after a request, or why there is none. ``wait``: of Retry-After; ``reads``:
    the request asks for bytes."""
    if status == 200 and reads:
        return body
    if status == 200:
        try:
            return decode_copy(body)
        except ValueError as error:
            return Unanswered(reason=f"its answer is no copy: {error}", retry_after=wait)
    refusal = decode_refusal(body)
    if refusal is not None:
        return refusal
    try:
        reason = _decode_reason(body).reason
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        reason = ""
    told = f"it answered HTTP {status}" + (f": {reason}" if reason else "")
    return Unanswered(reason=one_line(told, _REASON_LIMIT), retry_after=wait)


@dataclass(frozen=True, slots=True)
class _Exchange:
    _post: StorePost
    tell: Answered
    reads: bool

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        self.tell(self._post.answer(status, headers, body, reads=self.reads))

    def failed(self, failure: Failure) -> None:
        self.tell(Unanswered(reason=failure.detail))
