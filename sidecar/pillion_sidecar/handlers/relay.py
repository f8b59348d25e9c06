"""The relay: hands what a destination is to get to a gateway, which delivers it (the design's "The
relay").

One request at a time over one kept connection. The first indication goes at once; what delivery
hands over meanwhile goes with the next request, so that a slow gateway costs batches, not order.
When a request fails, everything in it and behind it comes back in order, and nothing is sent before
it.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.gatewaytoken import GatewayToken, NoToken
from pillion_sidecar.handlers.http.exchange import Failure, Headers, Sender
from pillion_sidecar.handlers.http.outcome import later
from pillion_sidecar.handlers.http.target import HTTPTarget
from pillion_sidecar.handlers.relayanswer import failed_outcome, line_outcomes, unsent_outcome
from pillion_sidecar.handlers.relayline import render_line
from pillion_sidecar.indication import Indication

#: Lines of one request, and bytes of them: a longer one goes alone.
MOST_LINES = 256
MOST_BYTES = 1024 * 1024
#: Seconds after which the next request goes over another connection: an authority that is trusted
#: no more, or a gateway's key that was replaced, counts from then on.
CONNECTION_SECONDS = 300.0

#: Is told the outcome of one delivery.
Done = Callable[[DeliveryOutcome], None]


class _Line(NamedTuple):
    text: bytes
    done: Done


class RelayHandler:
    """Relays to one gateway for one destination."""

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        token: GatewayToken | None,
        clock: Clock,
        in_group: bool,
    ) -> None:
        """``in_group``: whether a line carries its place in its message group, which the gateway
        then orders; not where this deliverer has ordered it already."""
        self._sender = sender
        self._head = (
            f"POST {target.request_uri} HTTP/1.1\r\n"
            f"Host: {target.authority}\r\n"
            "Accept: application/json\r\n"
            "Content-Type: application/x-ndjson\r\n"
        ).encode("ascii")
        self._token = token
        self._clock = clock
        self._in_group = in_group
        self._waiting: deque[_Line] = deque()
        # A request is under way, or what became of one is being told.
        self._busy = False
        self._closed = False
        self._renewed_at = clock.monotonic()

    def deliver(self, delivery: Delivery, done: Done) -> None:
        """Begin an attempt; see :class:`pillion_sidecar.delivery.handler.Handler`."""
        epoch = self._clock.time() - self._clock.monotonic()
        try:
            text = render_line(delivery, epoch=epoch, in_group=self._in_group)
        except (ValueError, OverflowError) as error:
            later(done, DeliveryResult.FATAL_ERROR, f"no line can say this: {error}")
            return
        self._waiting.append(_Line(text, done))
        if not self._busy:
            self._send()

    def prepare(self, indication: Indication) -> None:
        """Nothing is worth making ready."""

    def close(self) -> None:
        """Release the connection; attempts under way are abandoned."""
        self._closed = True
        self._waiting.clear()
        self._sender.close()

    def _send(self) -> None:
        """Send what waits, as much as one request takes."""
        self._busy = True
        if self._token is None:
            self._send_with(b"")
        else:
            self._token.ask(self._send_with)

    def _send_with(self, authorization: bytes | NoToken) -> None:
        if self._closed:
            return
        lines = self._batch()
        if isinstance(authorization, NoToken):
            self._conclude(lines, [unsent_outcome(str(authorization))] * len(lines))
            return
        now = self._clock.monotonic()
        if now - self._renewed_at >= CONNECTION_SECONDS:
            # Nothing is under way.
            self._renewed_at = now
            self._sender.renew()
        body = b"".join([line.text for line in lines])
        head = b"%b%bContent-Length: %d\r\n\r\n" % (self._head, authorization, len(body))
        self._sender.send(head + body, _Request(self, lines))

    def _batch(self) -> list[_Line]:
        waiting = self._waiting
        lines = [waiting.popleft()]
        size = len(lines[0].text)
        while waiting and len(lines) < MOST_LINES:
            size += len(waiting[0].text)
            if size > MOST_BYTES:
                break
            lines.append(waiting.popleft())
        return lines

    # ------------------------------------------------------------------ what became of a request

    def answered(self, lines: list[_Line], status: int, headers: Headers, body: bytes) -> None:
        """There is an answer to a request."""
        if status == 401 and self._token is not None:
            self._token.forget()
        self._conclude(
            lines,
            line_outcomes(len(lines), status=status, headers=headers, body=body, clock=self._clock),
        )

    def failed(self, lines: list[_Line], failure: Failure) -> None:
        """There is none."""
        self._conclude(lines, [failed_outcome(failure)] * len(lines))

    def _conclude(self, lines: list[_Line], outcomes: list[DeliveryOutcome]) -> None:
        """Tell the outcomes in order. What delivery hands over for each success meanwhile waits,
        and comes back too where the last of them failed: it is behind that."""
        for line, outcome in zip(lines, outcomes, strict=True):
            if self._closed:
                return
            line.done(outcome)
        last = outcomes[-1]
        while self._waiting and not last.spends_attempt:
            self._waiting.popleft().done(last)
        self._busy = False
        if self._waiting and not self._closed:
            self._send()


class _Request:
    """One request under way."""

    __slots__ = ("_handler", "_lines")

    def __init__(self, handler: RelayHandler, lines: list[_Line]) -> None:
        self._handler = handler
        self._lines = lines

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        self._handler.answered(self._lines, status, headers, body)

    def failed(self, failure: Failure) -> None:
        self._handler.failed(self._lines, failure)
