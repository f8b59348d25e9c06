"""The relay: hands a destination's indications to a gateway (docs/decisions/0016).

One request at a time over one kept connection. The first indication goes at once; those that arrive
meanwhile go with the next request, so a slow gateway causes batches and keeps the order. If a
request fails, everything in and behind it comes back in order, before anything else is sent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

import msgspec
from msgspec import UNSET

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.handlers.authorization import AuthorizationError, Authorizer, unsent_outcome
from pillion_sidecar.handlers.batches import Batches, Waiting
from pillion_sidecar.handlers.http.answers import retry_after
from pillion_sidecar.handlers.transport.exchange import Failure, Headers, Sender, later
from pillion_sidecar.handlers.transport.target import HTTPTarget
from pillion_sidecar.indication import DeadLetter, Indication, Selection
from pillion_sidecar.trace_context import TraceContext
from pillion_sidecar.wire.relay import (
    MAXIMUM_DETAIL,
    MAXIMUM_LANGUAGES,
    MAXIMUM_NAME,
    MOST_TRACE_BYTES,
    RELAYED_LINE,
    REPEATED_HEADER,
    TRACE_HEADER,
    RelayedDiscard,
)
from pillion_sidecar.wire.submission import SubmissionAnswer

#: The last second of RFC 3339 since the epoch, less one: with an offset a publisher can name the
#: year 10000, and a group must expire after its members.
LATEST_EXPIRES = 253_402_300_798.0
LATEST_GROUP_EXPIRES = 253_402_300_799.0
_encode = msgspec.json.encode
_DETAIL_LIMIT = 300
#: Answers with lines; 400 and 429 if all were refused for one reason.
_TELLING = frozenset((200, 207, 400, 429))
_WRONG = 400
_SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS, "", 200)
#: Lines of one request.
MOST_LINES = 256
#: Seconds before a new connection, on which changed authorities and gateway keys take effect.
CONNECTION_SECONDS = 300.0
#: Gets the outcome of one delivery.
Done = Callable[[DeliveryOutcome], None]


class _Marked(bytes):
    """A line of which headers say more."""

    #: Whether it repeats a discarded one.
    repeats = False
    trace: TraceContext | None = None


def render_line(delivery: Delivery, *, epoch: float, in_group: bool) -> bytes:
    """Return the line of ``POST /v1/indications`` with ``relay``: the subscription's uid, the first
    acceptance (seconds since the epoch), and the queue's context and number, an identity for
    indications without one. The body is spliced in unchanged.

    ``epoch``: ``Clock.time()`` less ``Clock.monotonic()``; ``in_group``: include the place in its
    message group. Raises ValueError for a text that UTF-8 cannot carry.
    """
    indication = delivery.indication
    return RELAYED_LINE % (
        indication.body[:-1],
        _envelope(indication, in_group=in_group),
        _text(delivery.subscription),
        indication.accepted_at + epoch,
        _text(delivery.sequence_context or ""),
        delivery.sequence_number or 0,
        b"" if indication.dead_letter is None else _discard(indication.dead_letter),
    )


def _discard(dead_letter: DeadLetter) -> bytes:
    """The last member of ``relay``, with a comma before it."""
    told = RelayedDiscard(
        destination=dead_letter.destination[:MAXIMUM_NAME],
        reason=dead_letter.reason,
        detail=dead_letter.detail[:MAXIMUM_DETAIL],
        attempts=dead_letter.attempts,
        at=max(0.0, dead_letter.at),
    )
    return b',"discard":' + _encode(told)


def _envelope(indication: Indication, *, in_group: bool) -> bytes:
    """Members beside class and properties, each with a comma before it."""
    given = _source(indication.source)
    if indication.group is not None:
        given += b',"group":' + _encode(indication.group)
    if indication.member is not None and in_group:
        given += _membership(indication)
    if indication.expires is not None:
        given += b',"expires":"%b"' % _rfc3339(min(indication.expires, LATEST_EXPIRES))
    if indication.languages:
        given += b',"languages":' + _encode(indication.languages[:MAXIMUM_LANGUAGES])
    return given


# Neighbors mostly have the same source, and all of a queue the same context.
@lru_cache(maxsize=64)
def _source(source: str | None) -> bytes:
    return b"" if source is None else b',"source":' + _encode(source)


@lru_cache(maxsize=64)
def _text(text: str) -> bytes:
    return _encode(text)


def _membership(indication: Indication) -> bytes:
    member = indication.member
    assert member is not None
    given: dict[str, Any] = {"sequence": member.sequence}
    if member.last:
        given["last"] = True
    if member.ordered:
        given["ordered"] = True
    if member.expires is not None:
        given["groupExpires"] = _rfc3339(min(member.expires, LATEST_GROUP_EXPIRES)).decode()
    if member.max_idle_seconds is not None:
        given["groupMaxIdleSeconds"] = member.max_idle_seconds
    return b"," + _encode(given)[1:-1]


def _rfc3339(seconds: float) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z").encode()


_decode = msgspec.json.Decoder(SubmissionAnswer).decode


def line_outcomes(
    lines: int, *, status: int, headers: Headers, body: bytes, clock: Clock
) -> list[DeliveryOutcome]:
    """Return an outcome per line, in order: accepted or permanently refused lines first; from the
    first temporarily refused line on, all come back.

    Doubts are decided against loss: only lines that the answer reports as on the gateway's disk
    count. The rest is sent again, and the gateway recognizes it.
    """
    answer = _parsed(body)
    wait = retry_after(headers, clock.time())
    if status not in _TELLING or answer is None:
        reason = f": {answer.reason}" if answer is not None and answer.reason else ""
        return [_back(f"the gateway answered HTTP {status}{reason}", status, wait)] * lines
    if not _adds_up(answer, lines):
        told = answer.reason or "its answer does not say what became of each line"
        return [_back(f"the gateway answered HTTP {status}: {told}", status, wait)] * lines
    if (answer.accepted or answer.duplicate) and answer.durable is not True:
        return [_back("the gateway does not say that it is on its disk", status, wait)] * lines
    return _of_lines(answer, lines, status=status, wait=wait)


def failed_outcome(failure: Failure) -> DeliveryOutcome:
    """Return the outcome of all lines of a request without an answer."""
    return DeliveryOutcome(
        failure.result,
        f"the gateway: {failure.detail}",
        failure.status,
        spends_attempt=False,
        preempted=failure.preempted,
        cause=failure.cause,
    )


def _parsed(body: bytes) -> SubmissionAnswer | None:
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _adds_up(answer: SubmissionAnswer, lines: int) -> bool:
    """Whether the answer accounts for every line once."""
    told = {refused.line for refused in answer.refused}
    read = lines if answer.unread_from is UNSET else answer.unread_from
    return (
        0 <= read <= lines
        and len(told) == len(answer.refused)
        and all(0 <= line < read for line in told)
        and answer.accepted + answer.duplicate + len(told) == read
    )


def _of_lines(
    answer: SubmissionAnswer, lines: int, *, status: int, wait: float | None
) -> list[DeliveryOutcome]:
    refused = sorted(answer.refused, key=lambda one: one.line)
    for_now = next((one for one in refused if one.status != _WRONG), None)
    taken = lines if answer.unread_from is UNSET else answer.unread_from
    if for_now is not None:
        taken = for_now.line
    outcomes = [_SUCCESS] * taken
    for one in refused:
        if one.line < taken:
            reason = f"the gateway refuses it for good: {one_line(one.reason, _DETAIL_LIMIT)}"
            outcomes[one.line] = DeliveryOutcome(DeliveryResult.FATAL_ERROR, reason, one.status)
    reason = for_now.reason if for_now is not None else "it did not read all"
    back = _back(f"the gateway refuses it for now: {reason}", status, wait)
    return outcomes + [back] * (lines - taken)


def _back(detail: str, status: int, wait: float | None) -> DeliveryOutcome:
    shown = one_line(detail, _DETAIL_LIMIT)
    return DeliveryOutcome(DeliveryResult.ERROR, shown, status, wait, spends_attempt=False)


class RelayHandler:
    """Relays to one gateway for one destination."""

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        authorizer: Authorizer,
        clock: Clock,
        in_group: bool,
    ) -> None:
        """``in_group``: lines carry their place in a message group, for the gateway to order; not
        if this deliverer has ordered them."""
        self._sender = sender
        self._head = (
            f"POST {target.request_uri} HTTP/1.1\r\n"
            f"Host: {target.authority}\r\n"
            "Accept: application/json\r\n"
            "Content-Type: application/x-ndjson\r\n"
        ).encode("ascii")
        self._authorizer = authorizer
        self._clock = clock
        self._in_group = in_group
        self._batches = Batches(self._send, most=MOST_LINES)
        self._closed = False
        # Whether there was a marked line.
        self._marks = False
        self._renewed_at = clock.monotonic()

    def deliver(self, delivery: Delivery, done: Done) -> None:
        epoch = self._clock.time() - self._clock.monotonic()
        try:
            text = render_line(delivery, epoch=epoch, in_group=self._in_group)
        except (ValueError, OverflowError) as error:
            later(done, DeliveryResult.FATAL_ERROR, f"a line cannot express this: {error}")
            return
        indication = delivery.indication
        if indication.redrives or indication.trace is not None:
            self._marks = True
            text = _Marked(text)
            text.repeats, text.trace = bool(indication.redrives), indication.trace
        self._batches.add(text, done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: lines are rendered at once."""

    def close(self) -> None:
        self._closed = True
        self._batches.close()
        self._sender.close()

    def _send(self, lines: list[Waiting]) -> None:
        self._authorizer.ask(partial(self._send_with, lines))

    def _send_with(self, lines: list[Waiting], authorization: bytes | AuthorizationError) -> None:
        if self._closed:
            return
        if isinstance(authorization, AuthorizationError):
            self._batches.conclude(lines, [unsent_outcome(str(authorization))] * len(lines))
            return
        now = self._clock.monotonic()
        if now - self._renewed_at >= CONNECTION_SECONDS:
            # Nothing is under way.
            self._renewed_at = now
            self._sender.renew()
        body = b"".join([line.body for line in lines])
        if self._marks:
            authorization += _mark_headers([line.body for line in lines])
        head = b"%b%bContent-Length: %d\r\n\r\n" % (self._head, authorization, len(body))
        self._sender.send(head + body, _Request(self, lines))

    # Outcomes.

    def answered(self, lines: list[Waiting], status: int, headers: Headers, body: bytes) -> None:
        if status == 401:
            self._authorizer.forget()
        self._batches.conclude(
            lines,
            line_outcomes(len(lines), status=status, headers=headers, body=body, clock=self._clock),
        )

    def failed(self, lines: list[Waiting], failure: Failure) -> None:
        self._batches.conclude(lines, [failed_outcome(failure)] * len(lines))


def _mark_headers(lines: Sequence[bytes]) -> bytes:
    repeated: list[str] = []
    of_trace: dict[TraceContext, list[str]] = {}
    for at, line in enumerate(lines):
        if not isinstance(line, _Marked):
            continue
        if line.repeats:
            repeated.append(str(at))
        if line.trace is not None:
            of_trace.setdefault(line.trace, []).append(str(at))
    headers = f"{REPEATED_HEADER}: {','.join(repeated)}\r\n".encode() if repeated else b""
    most = len(headers) + MOST_TRACE_BYTES
    for trace, numbers in of_trace.items():
        text = f"{TRACE_HEADER}: {trace.parent} {','.join(numbers)} {trace.state}".rstrip()
        if len(headers) + len(text) + 2 <= most:
            headers += text.encode("ascii") + b"\r\n"
    return headers


@dataclass(slots=True, eq=False)
class _Request:
    _handler: RelayHandler
    _lines: list[Waiting]

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        self._handler.answered(self._lines, status, headers, body)

    def failed(self, failure: Failure) -> None:
        self._handler.failed(self._lines, failure)
