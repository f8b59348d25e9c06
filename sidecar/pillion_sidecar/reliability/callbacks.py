"""Acknowledgement by callback (S1.9): a request's receipt, posted to the publisher's own URL once
every line is settled.

Everything is bounded: those awaited, and those to be sent in number and bytes. What cannot be
called back is counted and logged, and can still be polled for.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from pillion_sidecar.clock import Timers
from pillion_sidecar.reliability.receipts import Receipt

#: Characters of a callback URL.
MAXIMUM_URL = 2048
_PORTS = {"http": 80, "https": 443}
#: What some servers take for a dot segment or for a separator of segments, and others do not.
_AMBIGUOUS = re.compile(r"\\|%(?:2e|2f|5c)", re.IGNORECASE)
logger = logging.getLogger("pillion.reliability")
#: Receipts whose lines are not settled yet.
MAXIMUM_AWAITED = 10_000
#: Receipts that are being sent or wait for another try, and bytes of them.
MAXIMUM_OUTGOING = 1_000
MAXIMUM_OUTGOING_BYTES = 16 << 20
#: Calls under way to one scheme, host and port at a time.
MAXIMUM_IN_FLIGHT = 4
#: Seconds before the second try, the third, and so on.
WAITS = (1.0, 5.0, 25.0, 125.0)


class BadCallback(Exception):
    """A callback URL that is not allowed; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """A URL, taken apart as far as it is compared."""

    scheme: str
    host: str
    port: int
    segments: tuple[str, ...]

    def contains(self, other: "Place") -> bool:
        """Whether another URL is this one or lies below it."""
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port) and (
            other.segments[: len(self.segments)] == self.segments
        )


def check_callback(url: str, prefixes: Iterable[str]) -> None:
    """Check that a URL is, or lies below, one of the prefixes; both by whole path segments.

    Raises :class:`BadCallback`.
    """
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
        # The resource's schema lets addresses in brackets pass that are none.
        return False


def take_apart(url: str) -> Place:
    """Take a callback URL, or a prefix of such, apart. Raises ValueError saying what is wrong."""
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
    """Posts JSON; the deliverer's own is ``handlers.callbacks.HTTPCallbackPoster``."""

    def post(self, url: str, body: bytes, done: Callable[[str | None], None]) -> None:
        """Begin to post, and return at once. ``done`` is called once, later: None where the answer
        was a success, else why it was not. Must not raise."""


class CallbackObserver(Protocol):
    """Counts callbacks (telemetry's metrics)."""

    def called_back(self, *, delivered: bool) -> None:
        """A callback has been answered with success, or given up."""


@dataclass(slots=True)
class _Call:
    receipt_id: str
    url: str
    body: bytes
    tries: int = 0

    @property
    def authority(self) -> str:
        """Scheme, host and port."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.lower()}"


class Callbacks:
    """Those that are awaited, and those that are being sent."""

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
        """Why no further request may ask for a callback now; None where it may."""
        if self._awaited < self._maximum_awaited:
            return None
        return f"{self._maximum_awaited} callbacks are awaited already"

    def expect(
        self, receipt: Receipt, *, url: str, seconds: float, render: Callable[[Receipt], bytes]
    ) -> None:
        """Call back once the receipt's lines are settled, or when ``seconds`` have passed.

        ``render`` gives the body; it is called then.
        """
        self._awaited += 1
        # By the timer in both cases: what settles the last line has others to serve first.
        timer = self._timers.call_later(seconds, lambda: self._come(receipt, url, render))

        def settled() -> None:
            if not timer.cancelled:
                timer.cancel()
                self._timers.call_later(0, lambda: self._come(receipt, url, render))

        receipt.settled_all.then(settled)

    def _come(self, receipt: Receipt, url: str, render: Callable[[Receipt], bytes]) -> None:
        if self._closed:
            return
        self._awaited -= 1
        call = _Call(receipt.id, url, render(receipt))
        if (
            self._outgoing >= self._maximum_outgoing
            or self._outgoing_bytes + len(call.body) > self._maximum_outgoing_bytes
        ):
            self._give_up(call, "too many callbacks wait to be sent")
            return
        self._outgoing += 1
        self._outgoing_bytes += len(call.body)
        self._send(call)

    def close(self) -> None:
        """Give up all that are awaited or being sent; the poster is to be closed as well."""
        left = self._awaited + self._outgoing
        self._closed = True
        self._awaited = self._outgoing = self._outgoing_bytes = 0
        for _ in range(left):
            self._observer.called_back(delivered=False)
        if left:
            logger.warning(
                "%d publishers are not called back any more",
                left,
                extra={"event": "callbacks-left-at-shutdown", "count": left},
            )

    # ------------------------------------------------------------------ sending

    def _send(self, call: _Call) -> None:
        """Send, or wait for one under way to the same place: a place that hangs holds up nobody
        but those who are called back there."""
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
        self._observer.called_back(delivered=False)
        logger.warning(
            "receipt %s could not be called back: %s",
            call.receipt_id,
            why,
            # The path and the query may hold what only the publisher should know.
            extra={
                "event": "callback-dropped",
                "receipt": call.receipt_id,
                "url": call.authority,
                "reason": why,
            },
        )
