"""Accepts connections: asyncio's server cannot close one during its TLS handshake, and a client
without a token must evict only its own connections."""

import asyncio
import errno
import logging
import math
import socket
import ssl
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar, cast

from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.connections import Connection

Key = TypeVar("Key", bound=Hashable)
#: A gateway's connections: in the TLS handshake; with the unproven ones; in total.
MOST_HANDSHAKES = 96
MOST_UNPROVEN = 128
MOST_CONNECTIONS = 1000
#: A principal may have this many times the free connections: alone, three quarters of all.
OWNER_FACTOR = 3
#: Seconds for a TLS handshake or shutdown.
HANDSHAKE_SECONDS = 10.0
GOODBYE_SECONDS = 2.0
#: Seconds from the handshake to the first request, with a valid token if one is required.
PROOF_SECONDS = 15.0
#: Bytes of a request's head.
HEAD_BYTES = 32 * 1024
#: Seconds until the next ``accept`` after a failure.
PAUSE_SECONDS = 1.0
#: Seconds between two log records of evicted connections.
QUIET_SECONDS = 60.0
_HEAD_TOO_LONG = b"HTTP/1.1 431 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
logger = logging.getLogger("pillion.auth")


class GivenUp(StrEnum):
    #: A new one: publishers have all connections.
    FULL = "full"
    #: Evicted in the handshake.
    HANDSHAKE_CROWDED = "handshake-crowded"
    #: Evicted without a valid token.
    UNPROVEN_CROWDED = "unproven-crowded"
    #: The handshake failed, or took too long.
    HANDSHAKE_FAILED = "handshake-failed"
    #: No valid token in time.
    UNPROVEN_LATE = "unproven-late"
    #: Evicted without a request. (An alert matches "crowded", which means without a token.)
    IDLE = "idle"
    #: The head of its request was too long.
    HEAD_TOO_LONG = "head-too-long"
    #: No descriptor or memory. Not closed: it is accepted later.
    NOT_TAKEN = "not-taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many connections a listener has, of a gateway by default.

    Idle, a gateway's total takes 300 MB and the unproven ones 40 MB. A deliverer's default memory
    limit is 384 MiB; it takes 64 MB without connections.
    """

    handshakes: int = MOST_HANDSHAKES
    #: With those that have not shown a valid token.
    unproven: int = MOST_UNPROVEN
    #: With those of publishers.
    total: int = MOST_CONNECTIONS
    #: Seconds before a connection may be evicted, so that publishers that reconnect simultaneously
    #: do not evict each other.
    grace_seconds: float = 0.5
    #: Whether a proven connection without a request may be evicted. Off if new ones may be
    #: strangers' and proven ones are publishers'.
    evicts_idle: bool = False

    @classmethod
    def of_gateway(cls, connections: int) -> "Limits":
        return cls(
            handshakes=min(MOST_HANDSHAKES, max(1, connections // 4)),
            unproven=min(MOST_UNPROVEN, max(1, connections // 3)),
            total=connections,
        )

    @classmethod
    def of_plain(cls, connections: int) -> "Limits":
        """Little grace: the head of a plain request comes immediately."""
        half = max(1, connections // 2)
        return cls(
            handshakes=half,
            unproven=half,
            total=connections,
            grace_seconds=0.05,
            evicts_idle=True,
        )


class ConnectionLimiter(Generic[Key]):
    """Decides which connection is closed for a new one: the oldest unproven one; a proven one only
    without a request, if the limits allow it.

    Pure: the caller closes. A connection takes about 300 kB, with or without a token (asyncio's TLS
    buffer is 256 KiB), so unproven ones are few.
    """

    def __init__(
        self, limits: Limits, *, idle_since: Callable[[Key], float | None] = lambda _: None
    ) -> None:
        """``idle_since``: since when a proven connection has had no request, on any one clock; None
        during a request."""
        self._limits = limits
        self._idle_since = idle_since
        # By time of entering the stage, monotonic.
        self._handshakes: OrderedDict[Key, float] = OrderedDict()
        self._unproven: OrderedDict[Key, float] = OrderedDict()
        # With their owners.
        self._proven: dict[Key, Hashable] = {}

    def __len__(self) -> int:
        return len(self._handshakes) + len(self._unproven) + len(self._proven)

    def counts(self) -> tuple[int, int, int]:
        return len(self._handshakes), len(self._unproven), len(self._proven)

    def oldest_unproven(self) -> tuple[Key, float] | None:
        """Return the longest unproven connection, and since when."""
        return next(iter(self._unproven.items()), None)

    def wait(self, *, now: float) -> float:
        """Return the seconds before a new connection may be added."""
        crowd = self._crowd()
        return max(0.0, _oldest(crowd) + self._limits.grace_seconds - now) if crowd else 0.0

    def add(self, key: Key, *, now: float) -> Key | None:
        """Add a connection. Return the one to close for it: the new one if only proven ones are
        left."""
        leaving: Key | None = None
        crowd = self._crowd()
        if crowd:
            leaving, _ = crowd.popitem(last=False)
        elif crowd is not None:
            leaving = self._longest_idle(self._proven) if self._limits.evicts_idle else None
            if leaving is None:
                return key
            del self._proven[leaving]
        self._handshakes[key] = now
        return leaving

    def finish_handshake(self, key: Key, *, now: float) -> None:
        self._handshakes.pop(key, None)
        self._unproven[key] = now

    def prove(self, key: Key, owner: Hashable = None) -> Key | None:
        """Count it as proven. Return another connection of an ``owner`` that exceeds its share, to
        be closed."""
        self._unproven.pop(key, None)
        self._proven[key] = owner
        if owner is None:
            return None
        owned = [one for one, whose in self._proven.items() if whose == owner]
        free = self._limits.total - len(self._proven)
        leaving = self._longest_idle(owned) if len(owned) > OWNER_FACTOR * free else None
        if leaving is not None:
            del self._proven[leaving]
        return leaving

    def remove(self, key: Key) -> None:
        self._handshakes.pop(key, None)
        self._unproven.pop(key, None)
        self._proven.pop(key, None)

    def _longest_idle(self, keys: Iterable[Key]) -> Key | None:
        idle = [(since, one) for one in keys if (since := self._idle_since(one)) is not None]
        return min(idle, key=itemgetter(0))[1] if idle else None

    def _crowd(self) -> OrderedDict[Key, float] | None:
        if len(self._handshakes) >= self._limits.handshakes:
            return self._handshakes
        unproven = len(self._handshakes) + len(self._unproven)
        total = unproven + len(self._proven)
        if unproven >= self._limits.unproven or total >= self._limits.total:
            return min(self._handshakes, self._unproven, key=_oldest)
        return None


def _oldest(crowd: OrderedDict[Key, float]) -> float:
    return next(iter(crowd.values()), math.inf)


class AcceptorObserver(Protocol):
    def connection_given_up(self, reason: GivenUp) -> None: ...

    def watch(self, connections: Callable[[], tuple[int, int, int]]) -> None:
        """``connections`` returns the number in the handshake, unproven, and proven."""


class ConnectionAcceptor:
    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        observer: AcceptorObserver,
        tls: ssl.SSLContext | None,
        asks_for_tokens: bool,
        limits: Limits | None = None,
        name: str = "intake",
        head_bytes: int = HEAD_BYTES,
    ) -> None:
        """Without ``asks_for_tokens``, a complete request head is sufficient proof. ``name`` is the
        listener's."""
        self.tls = tls
        self.head_bytes = head_bytes
        self._name = name
        self._clock = clock
        self._timers = timers
        self._observer = observer
        self.asks_for_tokens = asks_for_tokens
        self._limiter: ConnectionLimiter[_AcceptedConnection] = ConnectionLimiter(
            limits or Limits(), idle_since=_idle_since
        )
        self._unproven: dict[asyncio.BaseProtocol, _AcceptedConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        # Not watched until a connection may be evicted.
        self._held: list[socket.socket] = []
        self._releasing: Timer | None = None
        # One timer, due no later than the oldest unproven connection.
        self._expiring: Timer | None = None
        self.create_handler: Callable[[], asyncio.Protocol]
        self._closed = False
        self._is_quiet = False
        observer.watch(self._limiter.counts)

    @classmethod
    def plain(
        cls,
        name: str,
        connections: int,
        *,
        clock: Clock,
        timers: Timers,
        observer: AcceptorObserver,
        head: int = HEAD_BYTES,
    ) -> "ConnectionAcceptor":
        """Return one without TLS and tokens, of so many connections; ``head``: bytes."""
        return cls(
            clock=clock,
            timers=timers,
            observer=observer,
            tls=None,
            asks_for_tokens=False,
            limits=Limits.of_plain(connections),
            name=name,
            head_bytes=head,
        )

    def open(
        self, listening: Iterable[socket.socket], create_handler: Callable[[], asyncio.Protocol]
    ) -> None:
        """Accept connections at these sockets and close them in the end. ``create_handler`` runs
        after each handshake."""
        self.create_handler = create_handler
        for one in listening:
            one.setblocking(False)
            self._listening.append(one)
            self._watch(one)

    def prove(self, handler: asyncio.BaseProtocol, owner: Hashable = None) -> None:
        """Note a valid token of ``owner``. Called for each request; only the first has an
        effect."""
        connection = self._unproven.pop(handler, None)
        if connection is not None:
            leaving = self._limiter.prove(connection, owner)
            if leaving is not None:
                self._count(GivenUp.IDLE)
                self._abort(leaving)

    def has_proven(self, handler: asyncio.BaseProtocol) -> bool:
        return handler not in self._unproven

    def refuse_head(self, connection: "_AcceptedConnection") -> None:
        """Answer 431: the incomplete head of a request is already too long."""
        self._observer.connection_given_up(GivenUp.HEAD_TOO_LONG)
        assert connection.transport is not None
        connection.transport.write(_HEAD_TOO_LONG)
        connection.transport.close()

    def check_heads(self, handler: asyncio.Protocol) -> None:
        """Answer 431 to the first request whose head is too long, after those before it, and none
        after it."""
        messages: deque[tuple[Any, StreamReader]] = handler._messages  # type: ignore[attr-defined]
        for place, (message, _) in enumerate(messages):
            if isinstance(message, RawRequestMessage) and _head_size(message) > self.head_bytes:
                self._observer.connection_given_up(GivenUp.HEAD_TOO_LONG)
                while len(messages) > place:
                    messages.pop()
                error = _ErrInfo(431, HttpProcessingError(code=431), "")
                messages.append((error, EMPTY_PAYLOAD))
                return

    async def close(self) -> None:
        """Accept no more, and end handshakes. Other connections belong to their handlers and are
        not evicted any more."""
        self._closed = True
        loop = asyncio.get_running_loop()
        for one in self._listening:
            loop.remove_reader(one)
            one.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._expiring is not None:
            self._expiring.cancel()
        self._unproven.clear()

    # ------------------------------------------------------------------ accepting

    def _watch(self, listening: socket.socket) -> None:
        if not self._closed:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        # One per turn of the loop: a handshake costs far more here than a request costs the client,
        # and established connections get their turn.
        now = self._clock.monotonic()
        seconds = self._limiter.wait(now=now)
        if seconds:
            self._hold(listening, seconds)
            return
        try:
            sock, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._pause(listening, error)
            return
        sock.setblocking(False)
        connection = _AcceptedConnection(self, sock)
        leaving = self._limiter.add(connection, now=now)
        if leaving is connection:
            sock.close()
            self._count(GivenUp.FULL)
            return
        if leaving is not None:
            self._evict(leaving)
        connection.handshake = task = asyncio.create_task(self._shake_hands(connection))
        self._tasks.add(task)
        task.add_done_callback(partial(self._handshake_ended, connection))

    def _hold(self, listening: socket.socket, seconds: float) -> None:
        asyncio.get_running_loop().remove_reader(listening)
        self._held.append(listening)
        # A timer that is set is due earlier.
        if self._releasing is None or self._releasing.cancelled:
            self._releasing = self._timers.call_later(seconds, self._release)

    def _release(self) -> None:
        while self._held:
            self._watch(self._held.pop())

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Without descriptors or memory the connection stays queued, and the loop would call back
        immediately."""
        asyncio.get_running_loop().remove_reader(listening)
        self._timers.call_later(PAUSE_SECONDS, lambda: self._watch(listening))
        self._observer.connection_given_up(GivenUp.NOT_TAKEN)
        reason = errno.errorcode.get(error.errno or 0, type(error).__name__)
        logger.warning(
            "no connection can be accepted for %g s: %s",
            PAUSE_SECONDS,
            reason,
            extra={
                "event": "connections-not-taken",
                "listener": self._name,
                "reason": reason,
            },
        )

    async def _shake_hands(self, connection: "_AcceptedConnection") -> None:
        encrypted = self.tls is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                connection.socket,
                ssl=self.tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if encrypted else None,
                ssl_shutdown_timeout=GOODBYE_SECONDS if encrypted else None,
            )
        except OSError as error:
            # Not logged: clients can cause any number. The traceback's frames refer to the error
            # and the connection's buffers, 300 kB each until a full garbage collection.
            error.__traceback__ = None
            self._observer.connection_given_up(GivenUp.HANDSHAKE_FAILED)

    def _handshake_ended(self, connection: "_AcceptedConnection", task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        connection.handshake = None
        if self._held:
            self._release()
        if connection.transport is None:
            # A task cancelled before its first step has not passed the socket on.
            connection.socket.close()
            self._limiter.remove(connection)
        if not task.cancelled():
            # Any other failure ends the deliverer.
            task.result()

    # ------------------------------------------------------------------ what connections call

    def opened(self, connection: "_AcceptedConnection") -> None:
        self._limiter.finish_handshake(connection, now=self._clock.monotonic())
        self._unproven[connection.handler] = connection
        if self._expiring is None:
            self._expiring = self._timers.call_later(PROOF_SECONDS, self._expire)

    def lost(self, connection: "_AcceptedConnection") -> None:
        self._unproven.pop(connection.handler, None)
        self._limiter.remove(connection)
        if self._held:
            self._release()

    # ------------------------------------------------------------------ closing

    def _evict(self, connection: "_AcceptedConnection") -> None:
        if connection.transport is None:
            self._count(GivenUp.HANDSHAKE_CROWDED)
            if connection.handshake is not None:
                connection.handshake.cancel()
        else:
            is_unproven = connection.handler in self._unproven
            self._count(GivenUp.UNPROVEN_CROWDED if is_unproven else GivenUp.IDLE)
            self._abort(connection)

    def _expire(self) -> None:
        self._expiring = None
        while (oldest := self._limiter.oldest_unproven()) is not None:
            connection, since = oldest
            left = since + PROOF_SECONDS - self._clock.monotonic()
            if left > 0:
                self._expiring = self._timers.call_later(left, self._expire)
                return
            self._observer.connection_given_up(GivenUp.UNPROVEN_LATE)
            self._limiter.remove(connection)
            self._abort(connection)

    def _abort(self, connection: "_AcceptedConnection") -> None:
        self._unproven.pop(connection.handler, None)
        assert connection.transport is not None
        if not connection.transport.is_closing():
            # Without a TLS shutdown, which would wait for the client.
            connection.transport.abort()
            return
        # In Python 3.11.2 aborting a transport that was closed twice raises. Shutting the socket
        # down ends its TLS shutdown or its writes.
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_RDWR)

    def _count(self, reason: GivenUp) -> None:
        self._observer.connection_given_up(reason)
        if self._is_quiet:
            return
        self._is_quiet = True
        self._timers.call_later(QUIET_SECONDS, self._end_quiet)
        handshakes, unproven, proven = self._limiter.counts()
        logger.warning(
            "connections to %s are closed because of the connection limit: %d in the handshake, %d"
            " without a valid request, %d with one",
            self._name,
            handshakes,
            unproven,
            proven,
            extra={
                "event": "connections-given-up",
                "listener": self._name,
                "reason": reason.value,
                "handshakes": handshakes,
                "unproven": unproven,
                "proven": proven,
            },
        )

    def _end_quiet(self) -> None:
        self._is_quiet = False


def _awaits_request(handler: asyncio.Protocol) -> bool:
    waiter = getattr(handler, "_waiter", None)
    return waiter is not None and not waiter.done()


def _idle_since(connection: "_AcceptedConnection") -> float | None:
    """Return since when a connection awaits a request; aiohttp keeps that time after each."""
    if not _awaits_request(connection.handler):
        return None
    return float(getattr(connection.handler, "_next_keepalive_close_time", 0.0))


def _head_size(message: RawRequestMessage) -> int:
    # The line has two blanks, version and end; an empty line ends the head.
    size = len(message.method) + len(message.path) + 14
    for name, value in message.raw_headers:
        size += len(name) + len(value) + 4
    return size


def _ignore(_data: bytes) -> None: ...


class _AcceptedConnection(Connection):
    """One connection. Counts the bytes before each complete request head."""

    __slots__ = ("_acceptor", "_head", "_recent", "_requests", "handshake", "socket", "transport")

    def __init__(self, acceptor: ConnectionAcceptor, sock: socket.socket) -> None:
        super().__init__(acceptor.create_handler)
        self._acceptor = acceptor
        self._head = 0
        #: Bytes that may begin the next head, received during another request.
        self._recent = 0
        #: Requests with a complete head.
        self._requests = 0
        self.socket = sock
        self.handshake: asyncio.Task[None] | None = None
        #: None until the handshake is done.
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        super().connection_made(transport)
        self.data_received = self._receive
        self._acceptor.opened(self)

    def _receive(self, data: bytes) -> None:
        handler = self.handler
        room = self._acceptor.head_bytes - self._head
        if len(data) > room and _awaits_request(handler):
            handler.data_received(data[:room])
            data = data[room:]
            self._recent += room
            if _awaits_request(handler):
                self._acceptor.refuse_head(self)
                return
        handler.data_received(data)
        requests: int = handler._request_count  # type: ignore[attr-defined]
        if requests != self._requests:
            # Complete heads now; no work on these requests has begun.
            if not self._requests and not self._acceptor.asks_for_tokens:
                self._acceptor.prove(handler)
            self._requests = requests
            if self._recent + self._head + len(data) > self._acceptor.head_bytes:
                self._acceptor.check_heads(handler)
            self._recent, self._head = len(data), 0
        elif _awaits_request(handler):
            self._head += len(data)
        else:
            self._recent += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        # Break the reference cycle.
        self.data_received = _ignore
        self._acceptor.lost(self)
        super().connection_lost(exc)
