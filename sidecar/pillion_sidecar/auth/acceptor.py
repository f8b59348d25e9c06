"""Takes up a listener's connections, so that it can end them before their TLS handshake is done, as
asyncio's server does not: whoever opens many and shows no token, or sends no request, pushes out
its own."""

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

from aiohttp import EMPTY_PAYLOAD, StreamReader
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import _ErrInfo

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.connections import Connection

Guest = TypeVar("Guest", bound=Hashable)
#: A gateway's connections in the TLS handshake, these with those that have shown nothing, and all.
MOST_HANDSHAKES = 96
MOST_UNPROVEN = 128
MOST_CONNECTIONS = 1000
#: Of what is free, a principal may have so many times as much: one alone three quarters of all.
OWNER_FACTOR = 3
#: Seconds that a TLS handshake may take, and the goodbye at the end.
HANDSHAKE_SECONDS = 10.0
GOODBYE_SECONDS = 2.0
#: Seconds from the handshake to the first request; with a token that lets it in, where one is asked
#: for.
PROOF_SECONDS = 15.0
#: Bytes of a request's head.
HEAD_BYTES = 32 * 1024
#: Seconds without a look for connections, once one could not be taken up.
PAUSE_SECONDS = 1.0
#: Seconds between two records that connections are given up for want of places.
QUIET_SECONDS = 60.0
_HEAD_TOO_LONG = b"HTTP/1.1 431 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
logger = logging.getLogger("pillion.door")


class GivenUp(StrEnum):
    """Why a listener closed a connection."""

    #: A newcomer: all places are taken by publishers.
    FULL = "full"
    #: The handshake was not done, and a newcomer took the place.
    HANDSHAKE_CROWDED = "handshake-crowded"
    #: No token had let it in, and a newcomer took the place.
    UNPROVEN_CROWDED = "unproven-crowded"
    #: The handshake failed, or took too long.
    HANDSHAKE_FAILED = "handshake-failed"
    #: No token had let it in for too long.
    UNPROVEN_LATE = "unproven-late"
    #: It asked for nothing just then, and a newcomer took the place. (An alert matches "crowded",
    #: which means those without tokens.)
    IDLE = "idle"
    #: The head of its request was too long.
    HEAD_TOO_LONG = "head-too-long"
    #: The system had no descriptor or memory for it. It was not closed: it is taken up later.
    NOT_TAKEN = "not-taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many connections a listener has, of a gateway by default.

    All of a gateway's take 300 MB where they are idle, those that have shown nothing 40 MB; a
    deliverer's memory limit is 384 MiB by default, and it takes 64 MB
    without any."""

    #: Those whose TLS handshake is not done.
    handshakes: int = MOST_HANDSHAKES
    #: These and those that have not shown a token that lets them in.
    unproven: int = MOST_UNPROVEN
    #: These and those of publishers.
    total: int = MOST_CONNECTIONS
    #: Seconds that one has before another may take its place. Without them, publishers that come
    #: all at once, as after a restart, would push out each other.
    grace_seconds: float = 0.5
    #: Whether one that has proven itself, and asks for nothing now, gives way to a newcomer. Not
    #: where newcomers may be strangers and those who have proven themselves are publishers.
    idle_gives_way: bool = False

    @classmethod
    def of_gateway(cls, connections: int) -> "Limits":
        """Limits of a listener that asks for tokens or TLS, with so many connections."""
        return cls(
            handshakes=min(MOST_HANDSHAKES, max(1, connections // 4)),
            unproven=min(MOST_UNPROVEN, max(1, connections // 3)),
            total=connections,
        )

    @classmethod
    def of_plain(cls, connections: int) -> "Limits":
        """Limits of a listener for anybody: a head comes at once, so there is little grace."""
        half = max(1, connections // 2)
        return cls(
            handshakes=half,
            unproven=half,
            total=connections,
            grace_seconds=0.05,
            idle_gives_way=True,
        )


class ConnectionLimiter(Generic[Guest]):
    """Where there is no place left, whoever has shown nothing for longest goes first; whoever has
    proven who it is only while it asks for nothing, where the limits say so.

    Pure: its caller closes the connections. A connection costs a gateway some 300 kB, token or none
    (asyncio's buffer for TLS alone is 256 KiB), so those that have not shown a token that lets them
    in are few, and have no claim to stay.
    """

    def __init__(
        self, limits: Limits, *, idle_since: Callable[[Guest], float | None] = lambda _: None
    ) -> None:
        """``idle_since``: since when one that has proven itself has asked for nothing, on a clock
        of its own; None while it asks."""
        self._limits = limits
        self._idle_since = idle_since
        # Each in the order in which they came to be there, with the time, on a monotonic clock.
        self._handshakes: OrderedDict[Guest, float] = OrderedDict()
        self._unproven: OrderedDict[Guest, float] = OrderedDict()
        # With whose they are.
        self._proven: dict[Guest, Hashable] = {}

    def __len__(self) -> int:
        return len(self._handshakes) + len(self._unproven) + len(self._proven)

    def counts(self) -> tuple[int, int, int]:
        """Return how many are in the handshake, unproven, and proven."""
        return len(self._handshakes), len(self._unproven), len(self._proven)

    def oldest_unproven(self) -> tuple[Guest, float] | None:
        """Return which has been unproven for longest, and since when."""
        return next(iter(self._unproven.items()), None)

    def wait(self, *, now: float) -> float:
        """Return how many seconds a newcomer has to wait until it may ask for a place."""
        crowd = self._crowd()
        return max(0.0, _oldest(crowd) + self._limits.grace_seconds - now) if crowd else 0.0

    def arrive(self, guest: Guest, *, now: float) -> Guest | None:
        """Give a newcomer a place. Return who has to go for it: nobody, somebody else, or the
        newcomer, where all places are taken by those who have proven who they are."""
        leaving: Guest | None = None
        crowd = self._crowd()
        if crowd:
            leaving, _ = crowd.popitem(last=False)
        elif crowd is not None:
            leaving = self._longest_idle(self._proven) if self._limits.idle_gives_way else None
            if leaving is None:
                return guest
            del self._proven[leaving]
        self._handshakes[guest] = now
        return leaving

    def greet(self, guest: Guest, *, now: float) -> None:
        """Its handshake is done."""
        self._handshakes.pop(guest, None)
        self._unproven[guest] = now

    def prove(self, guest: Guest, owner: Hashable = None) -> Guest | None:
        """It has proven whose it is, and keeps its place. Return another of the same owner's that
        goes for it, where the owner has more than its part."""
        self._unproven.pop(guest, None)
        self._proven[guest] = owner
        if owner is None:
            return None
        owned = [one for one, whose in self._proven.items() if whose == owner]
        free = self._limits.total - len(self._proven)
        leaving = self._longest_idle(owned) if len(owned) > OWNER_FACTOR * free else None
        if leaving is not None:
            del self._proven[leaving]
        return leaving

    def leave(self, guest: Guest) -> None:
        """Its place is free again. Asked twice, or of somebody who had none, it is none."""
        self._handshakes.pop(guest, None)
        self._unproven.pop(guest, None)
        self._proven.pop(guest, None)

    def _longest_idle(self, guests: Iterable[Guest]) -> Guest | None:
        idle = [(since, one) for one in guests if (since := self._idle_since(one)) is not None]
        return min(idle, key=itemgetter(0))[1] if idle else None

    def _crowd(self) -> OrderedDict[Guest, float] | None:
        """Return those whose oldest goes for a newcomer; None where nobody has to."""
        if len(self._handshakes) >= self._limits.handshakes:
            return self._handshakes
        unproven = len(self._handshakes) + len(self._unproven)
        total = unproven + len(self._proven)
        if unproven >= self._limits.unproven or total >= self._limits.total:
            return min(self._handshakes, self._unproven, key=_oldest)
        return None


def _oldest(crowd: OrderedDict[Guest, float]) -> float:
    """Return since when the first of them has been there."""
    return next(iter(crowd.values()), math.inf)


class AcceptorObserver(Protocol):
    """Counts connections (telemetry's metrics)."""

    def connection_given_up(self, reason: GivenUp) -> None:
        """A connection that nobody had proven to be a publisher's was closed."""

    def watch(self, connections: Callable[[], tuple[int, int, int]]) -> None:
        """Ask here how many connections are in the handshake, unproven, and proven."""


class ConnectionAcceptor:
    """The connections of one listener."""

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
        """Without ``tls`` it is plain. Where it asks for no tokens, the whole head of a request is
        proof enough. ``name`` is the listener's."""
        self.tls = tls
        self.head_bytes = head_bytes
        self._name = name
        self._clock = clock
        self._timers = timers
        self._observer = observer
        self.asks_for_tokens = asks_for_tokens
        self._places: ConnectionLimiter[_PendingConnection] = ConnectionLimiter(
            limits or Limits(), idle_since=_idle_since
        )
        self._unproven: dict[asyncio.BaseProtocol, _PendingConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listening: list[socket.socket] = []
        # Those that are not looked at, since there is no place yet for whoever comes.
        self._held: list[socket.socket] = []
        self._releasing: Timer | None = None
        # One timer for all: it is due no later than the oldest unproven connection.
        self._expiring: Timer | None = None
        self._factory: Callable[[], asyncio.Protocol]
        self._closed = False
        self._is_quiet = False
        observer.watch(self._places.counts)

    def open(
        self, listening: Iterable[socket.socket], factory: Callable[[], asyncio.Protocol]
    ) -> None:
        """Take up what comes at these sockets, which it closes in the end. ``factory`` makes the
        protocol of a connection once its handshake is done."""
        self._factory = factory
        for one in listening:
            one.setblocking(False)
            self._listening.append(one)
            self._look(one)

    def prove(self, protocol: asyncio.BaseProtocol, owner: Hashable = None) -> None:
        """The connection of a protocol has shown a token of ``owner`` that lets it in. Called for
        each request: nothing happens where it had before."""
        visitor = self._unproven.pop(protocol, None)
        if visitor is not None:
            leaving = self._places.prove(visitor, owner)
            if leaving is not None:
                self._count(GivenUp.IDLE)
                self._end(leaving)

    def refuse_head(self, visitor: "_PendingConnection") -> None:
        """The head of a request is too long before it is whole."""
        self._observer.connection_given_up(GivenUp.HEAD_TOO_LONG)
        assert visitor.transport is not None
        visitor.transport.write(_HEAD_TOO_LONG)
        visitor.transport.close()

    def check_heads(self, handler: asyncio.Protocol) -> None:
        """Have the first request whose head is too long answered 431, after those before it, and
        none after it."""
        messages: deque[tuple[Any, StreamReader]] = handler._messages  # type: ignore[attr-defined]
        for place, (message, _) in enumerate(messages):
            if isinstance(message, RawRequestMessage) and _head_size(message) > self.head_bytes:
                self._observer.connection_given_up(GivenUp.HEAD_TOO_LONG)
                while len(messages) > place:
                    messages.pop()
                error = _ErrInfo(431, HttpProcessingError(code=431), "")
                messages.append((error, EMPTY_PAYLOAD))
                return

    def has_proven(self, protocol: asyncio.BaseProtocol) -> bool:
        """Whether the connection of a protocol keeps its place for as long as it likes."""
        return protocol not in self._unproven

    async def close(self) -> None:
        """Take up no more. Whoever is in the handshake is let go; the others belong to ``factory``,
        and none is given up any more."""
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

    # ------------------------------------------------------------------ arriving

    def _look(self, listening: socket.socket) -> None:
        if not self._closed:
            asyncio.get_running_loop().add_reader(listening, self._take_up, listening)

    def _take_up(self, listening: socket.socket) -> None:
        # One a turn of the loop: a handshake costs a hundred times what it costs to ask for one,
        # and those who are in have their turn between two.
        seconds = self._places.wait(now=self._clock.monotonic())
        if seconds:
            self._hold(listening, seconds)
            return
        try:
            connection, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._pause(listening, error)
            return
        connection.setblocking(False)
        visitor = _PendingConnection(self, connection)
        leaving = self._places.arrive(visitor, now=self._clock.monotonic())
        if leaving is visitor:
            connection.close()
            self._count(GivenUp.FULL)
            return
        if leaving is not None:
            self._give_up(leaving)
        visitor.shaking = task = asyncio.create_task(self._shake_hands(visitor))
        self._tasks.add(task)
        task.add_done_callback(partial(self._shaken, visitor))

    def _hold(self, listening: socket.socket, seconds: float) -> None:
        """Whoever comes stays in the system's queue for now, where it costs next to nothing."""
        asyncio.get_running_loop().remove_reader(listening)
        self._held.append(listening)
        # One that is set is due before: whoever is the oldest now came later than the one then.
        if self._releasing is None or self._releasing.cancelled:
            self._releasing = self._timers.call_later(seconds, self._release)

    def _release(self) -> None:
        """There may be a place."""
        while self._held:
            self._look(self._held.pop())

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Without descriptors or memory the connection stays where it is, and it would be tried
        again at once."""
        asyncio.get_running_loop().remove_reader(listening)
        self._timers.call_later(PAUSE_SECONDS, lambda: self._look(listening))
        self._observer.connection_given_up(GivenUp.NOT_TAKEN)
        reason = errno.errorcode.get(error.errno or 0, type(error).__name__)
        logger.warning(
            "no connection can be taken up for %g s: %s",
            PAUSE_SECONDS,
            reason,
            extra={
                "event": "connections-not-taken",
                "listener": self._name,
                "reason": reason,
            },
        )

    async def _shake_hands(self, visitor: "_PendingConnection") -> None:
        encrypted = self.tls is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: visitor,
                visitor.connection,
                ssl=self.tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if encrypted else None,
                ssl_shutdown_timeout=GOODBYE_SECONDS if encrypted else None,
            )
        except OSError as error:
            # What it sent, and what openssl says of it, is nobody's concern here.
            # A frame that it came through refers to it, and to the connection's buffers: until the
            # garbage collector looks at everything they would stay, 300 kB of each that failed.
            error.__traceback__ = None
            self._observer.connection_given_up(GivenUp.HANDSHAKE_FAILED)

    def _shaken(self, visitor: "_PendingConnection", task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        visitor.shaking = None
        if self._held:
            self._release()
        if visitor.transport is None:
            # A task that was cancelled before its first step has given the socket to nobody.
            visitor.connection.close()
            self._places.leave(visitor)
        if not task.cancelled():
            # What failed but a connection ends the deliverer: the loop is told.
            task.result()

    # ------------------------------------------------------------------ staying

    def greet(self, visitor: "_PendingConnection") -> asyncio.Protocol:
        """The handshake of a visitor is done. Return what handles its requests."""
        handler = self._factory()
        self._places.greet(visitor, now=self._clock.monotonic())
        self._unproven[handler] = visitor
        if self._expiring is None:
            self._expiring = self._timers.call_later(PROOF_SECONDS, self._expire)
        return handler

    def leave(self, visitor: "_PendingConnection") -> None:
        """A visitor's connection has ended."""
        self._unproven.pop(visitor.handler, None)
        self._places.leave(visitor)
        if self._held:
            self._release()

    # ------------------------------------------------------------------ going

    def _give_up(self, visitor: "_PendingConnection") -> None:
        """Close the connection of somebody whose place another takes."""
        if visitor.transport is None:
            self._count(GivenUp.HANDSHAKE_CROWDED)
            if visitor.shaking is not None:
                visitor.shaking.cancel()
        else:
            is_unproven = visitor.handler in self._unproven
            self._count(GivenUp.UNPROVEN_CROWDED if is_unproven else GivenUp.IDLE)
            self._end(visitor)

    def _expire(self) -> None:
        """Close the connections that have proven nothing for too long."""
        self._expiring = None
        while (oldest := self._places.oldest_unproven()) is not None:
            visitor, since = oldest
            left = since + PROOF_SECONDS - self._clock.monotonic()
            if left > 0:
                self._expiring = self._timers.call_later(left, self._expire)
                return
            self._observer.connection_given_up(GivenUp.UNPROVEN_LATE)
            self._places.leave(visitor)
            self._end(visitor)

    def _end(self, visitor: "_PendingConnection") -> None:
        self._unproven.pop(visitor.handler, None)
        assert visitor.transport is not None
        if not visitor.transport.is_closing():
            # Without a goodbye: it would wait for the other side, and the place is given away.
            visitor.transport.abort()
            return
        # A transport of Python 3.11.2 that was closed twice raises when it is aborted. So its
        # goodbye gets its end of file, or its writes an error.
        with suppress(OSError):
            visitor.connection.shutdown(socket.SHUT_RDWR)

    def _count(self, reason: GivenUp) -> None:
        """Count a connection that there was no place for, and say so from time to time."""
        self._observer.connection_given_up(reason)
        if self._is_quiet:
            return
        self._is_quiet = True
        self._timers.call_later(QUIET_SECONDS, self._speak)
        handshakes, unproven, proven = self._places.counts()
        logger.warning(
            "connections to %s are given up for want of places: %d in the handshake, %d that have"
            " sent no good request, %d that have",
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

    def _speak(self) -> None:
        self._is_quiet = False


def _awaits_request(handler: asyncio.Protocol) -> bool:
    """Whether aiohttp's handler waits for a request: nothing of one, or not its whole head, is
    there."""
    waiter = getattr(handler, "_waiter", None)
    return waiter is not None and not waiter.done()


def _idle_since(visitor: "_PendingConnection") -> float | None:
    """Return since when a connection awaits a request; aiohttp keeps it as long after each."""
    if not _awaits_request(visitor.handler):
        return None
    return float(getattr(visitor.handler, "_next_keepalive_close_time", 0.0))


def _head_size(message: RawRequestMessage) -> int:
    """Bytes of a head, without blanks around the values."""
    # The line has two blanks, its version, and its end; the head has an empty line at its end.
    size = len(message.method) + len(message.path) + 14
    for name, value in message.raw_headers:
        size += len(name) + len(value) + 4
    return size


def _ignore(_data: bytes) -> None:
    """Nothing is received any more."""


class _PendingConnection(Connection):
    """One connection."""

    __slots__ = (
        "_entrance",
        "_head",
        "_recent",
        "_requests",
        "connection",
        "shaking",
        "transport",
    )

    def __init__(self, entrance: ConnectionAcceptor, connection: socket.socket) -> None:
        self._entrance = entrance
        self._head = 0
        #: Bytes before these in which the head may have begun, while another request was there.
        self._recent = 0
        #: Whose heads are whole.
        self._requests = 0
        self.connection = connection
        self.shaking: asyncio.Task[None] | None = None
        #: None until the handshake is done.
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.lead_to(self._entrance.greet(self))
        super().connection_made(transport)

    def lead_to(self, handler: asyncio.Protocol) -> None:
        """See ``Connection``. How much comes before the head of a request is whole is counted."""
        super().lead_to(handler)
        self.data_received = self._receive

    def _receive(self, data: bytes) -> None:
        handler = self.handler
        room = self._entrance.head_bytes - self._head
        if len(data) > room and _awaits_request(handler):
            handler.data_received(data[:room])
            data = data[room:]
            self._recent += room
            if _awaits_request(handler):
                self._entrance.refuse_head(self)
                return
        handler.data_received(data)
        requests: int = handler._request_count  # type: ignore[attr-defined]
        if requests != self._requests:
            # Heads that are whole now; no work on these requests has begun.
            if not self._requests and not self._entrance.asks_for_tokens:
                self._entrance.prove(handler)
            self._requests = requests
            if self._recent + self._head + len(data) > self._entrance.head_bytes:
                self._entrance.check_heads(handler)
            self._recent, self._head = len(data), 0
        elif _awaits_request(handler):
            self._head += len(data)
        else:
            self._recent += len(data)

    def connection_lost(self, exc: Exception | None) -> None:
        # It refers to this, and would keep it for the garbage collector.
        self.data_received = _ignore
        self._entrance.leave(self)
        super().connection_lost(exc)
