"""Acknowledgement by callback (S1.9): a request's receipt is posted to the publisher's URL once
every line is settled. Everything is bounded; what cannot be sent is counted, logged, and can still
be polled for."""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

from pillion_sidecar.clock import Timers
from pillion_sidecar.reliability.receipts import ReceiptView

MAXIMUM_URL = 2048
_PORTS = {"http": 80, "https": 443}
#: Some servers take these for a dot segment or a separator, others do not.
_AMBIGUOUS = re.compile(r"\\|%(?:2e|2f|5c)", re.IGNORECASE)
logger = logging.getLogger("pillion.reliability")
MAXIMUM_AWAITED = 10_000
#: Maximum receipts being sent or waiting for a retry, and their bytes.
MAXIMUM_OUTGOING = 1_000
MAXIMUM_OUTGOING_BYTES = 16 << 20
#: Concurrent calls to one scheme, host and port.
MAXIMUM_IN_FLIGHT = 4
#: Seconds before the second try, the third, and so on.
WAITS = (1.0, 5.0, 25.0, 125.0)


def _nothing() -> None: ...


class BadCallback(Exception):
    """A callback URL that is not allowed; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """The parts of a URL that are compared."""

    scheme: str
    host: str
    port: int
    segments: tuple[str, ...]

    def contains(self, other: "Place") -> bool:
        """Whether a URL is this one or lies below it."""
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port) and (
            other.segments[: len(self.segments)] == self.segments
        )


def check_callback(url: str, prefixes: Iterable[str]) -> None:
    """Check that a URL equals or lies below a prefix, by whole path segments. Raises
    :class:`BadCallback`."""
    allowed = list(prefixes)
    if not allowed:
        raise BadCallback(
            "the service allows no callbacks: list the URL's prefix in IndicationService.callbacks"
        )
    try:
        place = take_apart(url)
    except ValueError as error:
        raise BadCallback(f"{url!r:.80}: {error}") from None
    if not any(_lies_below(place, prefix) for prefix in allowed):
        raise BadCallback(
            f"{url!r:.80} is below none of the prefixes in IndicationService.callbacks"
        )


def _lies_below(place: Place, prefix: str) -> bool:
    try:
        return take_apart(prefix).contains(place)
    except ValueError:
        # The schema accepts invalid addresses in brackets.
        return False


def take_apart(url: str) -> Place:
    """Parse a callback URL or a prefix. Raises ValueError saying what is wrong."""
    if len(url) > MAXIMUM_URL:
        raise ValueError(f"give at most {MAXIMUM_URL} characters")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("encode spaces, control and non-ASCII characters")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("write http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")
    if "@" in parts.netloc:
        raise ValueError("leave out the user information")
    if "#" in url:
        raise ValueError("leave out the fragment")
    if _AMBIGUOUS.search(parts.path):
        raise ValueError("leave encoded dots and slashes, and backslashes, out of the path")
    segments = parts.path.split("/")[1:]
    if any(segment in (".", "..") for segment in segments):
        raise ValueError("leave dot segments out of the path")
    if segments and not segments[-1]:
        segments.pop()
    port = parts.port
    return Place(
        parts.scheme,
        parts.hostname,
        _PORTS[parts.scheme] if port is None else port,
        tuple(segments),
    )


class CallbackPoster(Protocol):
    """Posts JSON; see ``handlers.callbacks.HTTPCallbackPoster``."""

    def post(self, url: str, body: bytes, done: Callable[[str | None], None]) -> None:
        """Begin to post, and return. ``done`` is called once, later: None for success, else the
        reason. Must not raise."""


class CallbackObserver(Protocol):
    def called_back(self, *, delivered: bool) -> None: ...


@dataclass(slots=True)
class _Call:
    receipt_id: str
    url: str
    body: bytes
    done: Callable[[], None]
    tries: int = 0

    @property
    def authority(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.lower()}"


class Callbacks:
    def __init__(
        self,
        *,
        poster: CallbackPoster,
        timers: Timers,
        observer: CallbackObserver,
        maximum_awaited: int = MAXIMUM_AWAITED,
        maximum_outgoing: int = MAXIMUM_OUTGOING,
        maximum_outgoing_bytes: int = MAXIMUM_OUTGOING_BYTES,
    ) -> None:
        self._poster = poster
        self._timers = timers
        self._observer = observer
        self._maximum_awaited = maximum_awaited
        self._maximum_outgoing = maximum_outgoing
        self._maximum_outgoing_bytes = maximum_outgoing_bytes
        self._awaited = 0
        self._outgoing = 0
        self._outgoing_bytes = 0
        self._in_flight: dict[str, int] = {}
        self._ready: dict[str, deque[_Call]] = {}
        self._closed = False

    @property
    def refusal(self) -> str | None:
        """Return why no request may ask for a callback now, or None."""
        if self._awaited < self._maximum_awaited:
            return None
        return f"{self._maximum_awaited} callbacks are awaited already"

    def expect(
        self,
        receipt: ReceiptView,
        *,
        url: str,
        seconds: float,
        render: Callable[[ReceiptView], bytes],
        done: Callable[[], None] = _nothing,
    ) -> None:
        """Call back once the receipt's lines are settled, or after ``seconds``. ``render`` makes
        the body then; ``done`` is called once it was sent or given up."""
        self._awaited += 1
        # By the timer in both cases, so that settling a line stays short.
        come = partial(self._come, receipt, url, render, done)
        timer = self._timers.call_later(seconds, come)

        def settled() -> None:
            if not timer.cancelled:
                timer.cancel()
                self._timers.call_later(0, come)

        receipt.settled_all.then(settled)

    def refuse(self, receipt_id: str, url: str, why: str, done: Callable[[], None]) -> None:
        """Give up a callback of an earlier run."""
        self._give_up(_Call(receipt_id, url, b"", done), why)

    def _come(
        self,
        receipt: ReceiptView,
        url: str,
        render: Callable[[ReceiptView], bytes],
        done: Callable[[], None],
    ) -> None:
        if self._closed:
            return
        self._awaited -= 1
        call = _Call(receipt.id, url, render(receipt), done)
        if (
            self._outgoing >= self._maximum_outgoing
            or self._outgoing_bytes + len(call.body) > self._maximum_outgoing_bytes
        ):
            self._give_up(call, "too many callbacks wait to be sent")
            return
        self._outgoing += 1
        self._outgoing_bytes += len(call.body)
        self._send(call)

    def close(self, *, are_kept: bool = False) -> None:
        """Abandon all callbacks, or leave them to the next run if they ``are_kept``. The caller
        also closes the poster."""
        left = self._awaited + self._outgoing
        self._closed = True
        self._awaited = self._outgoing = self._outgoing_bytes = 0
        for _ in range(0 if are_kept else left):
            self._observer.called_back(delivered=False)
        if left:
            logger.warning(
                "%d publishers are called back after the next start"
                if are_kept
                else "%d publishers are not called back any more",
                left,
                extra={"event": "callbacks-left-at-shutdown", "count": left},
            )

    def _send(self, call: _Call) -> None:
        """Send, or queue behind the calls to the same place: one that hangs delays only its own."""
        if self._closed:
            return
        place = call.authority
        if self._in_flight.get(place, 0) >= MAXIMUM_IN_FLIGHT:
            self._ready.setdefault(place, deque()).append(call)
            return
        self._in_flight[place] = self._in_flight.get(place, 0) + 1
        call.tries += 1
        self._poster.post(call.url, call.body, lambda why: self._answered(call, why))

    def _answered(self, call: _Call, why: str | None) -> None:
        if self._closed:
            return
        self._leave(call.authority)
        if why is None:
            self._observer.called_back(delivered=True)
            call.done()
        elif call.tries <= len(WAITS):
            self._timers.call_later(WAITS[call.tries - 1], lambda: self._send(call))
            return
        else:
            self._give_up(call, why)
        self._outgoing -= 1
        self._outgoing_bytes -= len(call.body)

    def _leave(self, place: str) -> None:
        self._in_flight[place] -= 1
        if not self._in_flight[place]:
            del self._in_flight[place]
        ready = self._ready.get(place)
        if ready:
            following = ready.popleft()
            if not ready:
                del self._ready[place]
            self._send(following)

    def _give_up(self, call: _Call, why: str) -> None:
        call.done()
        self._observer.called_back(delivered=False)
        logger.warning(
            "receipt %s could not be called back: %s",
            call.receipt_id,
            why,
            # Path and query may hold secrets of the publisher.
            extra={
                "event": "callback-dropped",
                "receipt": call.receipt_id,
                "url": call.authority,
                "reason": why,
            },
        )
