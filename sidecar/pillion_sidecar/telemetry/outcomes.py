"""The administration API of the history (S0.11): ``/v1/outcomes``, and ``/v1/discards``, a view of
it."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
from aiohttp import web

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.connections import ended_with_client
from pillion_sidecar.delivery.redrive import Redriver, RedriveUnderWay
from pillion_sidecar.history.outcome import Numbered, OutcomeQuery, OutcomeResult
from pillion_sidecar.history.reading import Page
from pillion_sidecar.history.recorder import History
from pillion_sidecar.http_errors import (
    UNREAD_RETRY_AFTER,
    ParameterError,
    suggest,
    unread_reason,
)
from pillion_sidecar.indication import REDRIVEN_ELSEWHERE, DiscardReason
from pillion_sidecar.telemetry.parameters import flag, limit_of, moment, number, seconds
from pillion_sidecar.telemetry.turns import Turns
from pillion_sidecar.wire.outcomes import (
    HISTORY_HEADER,
    MORE_HEADER,
    NEXT_HEADER,
    OutcomeLine,
)

#: Default and maximum.
DEFAULT_OUTCOMES = 1000
MAXIMUM_OUTCOMES = 10_000
DEFAULT_DISCARDS = 1000
MAXIMUM_DISCARDS = 10_000
#: Maximum seconds of a request that waits for an outcome.
LONGEST_WAIT = 60.0
#: Concurrent requests for outcomes, those that wait too.
MOST_ANSWERED = 16
#: Answers that are sent at a time; the others wait for their turn.
MOST_SENT = 4
#: Seconds in which a client must read an answer, and bytes that are sent at a time.
ANSWER_SECONDS = 30.0
PIECE_BYTES = 64 << 10
OUTCOME_PARAMETERS = (
    "after", "destination", "identifier", "indication", "latest", "limit", "reason", "result",
    "since", "source", "until", "wait",
)  # fmt: skip
REDRIVE_PARAMETERS = (
    "after", "destination", "dryRun", "identifier", "limit", "reason", "since", "source", "through",
    "until",
)  # fmt: skip
DISCARD_PARAMETERS = ("destination", "limit", "reason", "since")
_encode = msgspec.json.Encoder().encode


class OutcomeRoutes:
    def __init__(
        self,
        history: History,
        *,
        clock: Clock,
        timers: Timers,
        redriver: Redriver,
        unknown: Callable[[str], web.HTTPNotFound | None],
    ) -> None:
        """``unknown`` returns the error for a destination that there is not."""
        self._history = history
        self._clock = clock
        self._redriver = redriver
        self._unknown = unknown
        self._timers = timers
        self._answering = Turns("requests for outcomes", most=MOST_ANSWERED)
        self._sending = asyncio.Semaphore(MOST_SENT)
        self._reading = asyncio.Lock()

    async def list_outcomes(self, request: web.Request) -> web.StreamResponse:
        """Answer one outcome a line, and in headers how to go on. With ``wait``, an answer without
        any comes only after that time."""
        with self._answering.one():
            return await self._list(request)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        query = _query(request)
        after, wait = number(request, "after", default=0), seconds(request, "wait", LONGEST_WAIT)
        limit = limit_of(request, default=DEFAULT_OUTCOMES, most=MAXIMUM_OUTCOMES)
        shows, is_latest = flag(request, "indication"), flag(request, "latest")
        self._check_begin(after)
        if wait:
            after = await self._wait(request, query, after, wait)
        async with self._sending:
            page = await self._page(query, after=after, limit=limit, is_latest=is_latest)
            body = await asyncio.to_thread(
                lambda: b"".join(_encode(_line(one, shows=shows)) + b"\n" for one in page.found)
            )
            return await self._send(request, page, body)

    async def _send(self, request: web.Request, page: Page, body: bytes) -> web.StreamResponse:
        """Send an answer within :data:`ANSWER_SECONDS`, or end the connection: what is not read
        takes memory."""
        answer = web.StreamResponse(
            headers={
                "Content-Type": "application/x-ndjson",
                HISTORY_HEADER: self._history.id,
                NEXT_HEADER: str(page.through),
                MORE_HEADER: "true" if page.has_more else "false",
            }
        )
        answer.content_length = len(body)
        await answer.prepare(request)
        transport = request.transport
        timer = (
            None if transport is None else self._timers.call_later(ANSWER_SECONDS, transport.abort)
        )
        try:
            for begin in range(0, len(body), PIECE_BYTES):
                await answer.write(body[begin : begin + PIECE_BYTES])
            await answer.write_eof()
        finally:
            if timer is not None:
                timer.cancel()
        return answer

    def _check_begin(self, after: int) -> None:
        if after > self._history.settled:
            raise web.HTTPConflict(
                text=f"after={after}: the last outcome is {self._history.settled}; the history has"
                " begun anew, so ask from after=0",
                headers={HISTORY_HEADER: self._history.id},
            )

    async def _wait(
        self, request: web.Request, query: OutcomeQuery, after: int, wait: float
    ) -> int:
        """Wait for an outcome of the query, for at most ``wait`` seconds; return the number up to
        which there is none."""
        until = self._clock.monotonic() + wait
        with ended_with_client(request):
            while True:
                page = await self._page(query, after=after, limit=1)
                left = until - self._clock.monotonic()
                if page.found or left <= 0:
                    return after
                after = page.through
                if not page.has_more:
                    await self._history.wait(after, left)

    async def _page(
        self, query: OutcomeQuery, *, after: int, limit: int, is_latest: bool = False
    ) -> Page:
        pages = self._history.last_page if is_latest else self._history.page
        # One at a time: a query may read for a while.
        async with self._reading:
            with _reading_history():
                return await asyncio.to_thread(pages(query, after=after, limit=limit))

    async def redrive(self, request: web.Request) -> web.Response:
        query = replace(_query(request), result=OutcomeResult.DISCARDED)
        through, after = request.query.get("through"), number(request, "after", default=0)
        self._check_begin(after)
        try:
            with _reading_history():
                answer = await self._redriver.redrive(
                    query,
                    after=after,
                    through=None if through is None else number(request, "through", default=0),
                    limit=limit_of(request, default=DEFAULT_OUTCOMES, most=MAXIMUM_OUTCOMES),
                    dry_run=flag(request, "dryRun"),
                )
        except RedriveUnderWay:
            raise web.HTTPConflict(text="another redrive is under way; try again later") from None
        return web.Response(body=_encode(answer), content_type="application/json")

    async def list_discards(self, request: web.Request) -> web.Response:
        destination = request.query.get("destination")
        query = OutcomeQuery(
            destination=destination,
            result=OutcomeResult.DISCARDED,
            reason=_one_of(request, "reason", DiscardReason),
            since=moment(request, "since"),
        )
        limit = limit_of(request, default=DEFAULT_DISCARDS, most=MAXIMUM_DISCARDS)
        async with self._reading:
            with _reading_history():
                found = await asyncio.to_thread(self._history.latest(query, limit=limit))
        # A removed destination has no queue, but may have discards.
        if destination is not None and not found and (error := self._unknown(destination)):
            raise error
        document = {"discards": list(found), "unlisted": self._history.unkept_discards}
        return web.Response(
            body=_encode(document), content_type="application/json", charset="utf-8"
        )


@contextmanager
def _reading_history() -> Iterator[None]:
    """Answer 503 if its files cannot be read."""
    try:
        yield
    except OSError as error:
        retry = {"Retry-After": str(UNREAD_RETRY_AFTER)}
        raise web.HTTPServiceUnavailable(text=unread_reason(error), headers=retry) from error


def _query(request: web.Request) -> OutcomeQuery:
    return OutcomeQuery(
        source=request.query.get("source"),
        identifier=request.query.get("identifier"),
        destination=request.query.get("destination"),
        result=_one_of(request, "result", OutcomeResult),
        reason=_one_of(request, "reason", DiscardReason),
        since=moment(request, "since"),
        until=moment(request, "until"),
    )


def _one_of(
    request: web.Request, name: str, kind: type[DiscardReason] | type[OutcomeResult]
) -> str | None:
    text = request.query.get(name)
    known = [str(one.value) for one in kind]
    if text is not None and text not in known:
        what = "reason of a discard" if kind is DiscardReason else "result"
        raise ParameterError(f"{name}={text[:40]!r} is no {what}; {suggest(text, known)}")
    return text


def _line(numbered: Numbered, *, shows: bool) -> OutcomeLine:
    one = numbered.outcome
    return OutcomeLine(
        number=numbered.number,
        time=_utc(one.time),
        result=one.result,
        destination=one.destination,
        subscription=one.subscription,
        class_name=one.class_name,
        source=one.source,
        identifier=one.identifier,
        reason=one.reason,
        cause=one.cause,
        detail=one.detail,
        status=one.status,
        attempts=one.attempts,
        first_attempt_time=None if one.first_attempt is None else _utc(one.first_attempt),
        last_attempt_time=None if one.last_attempt is None else _utc(one.last_attempt),
        accepted_time=_utc(one.accepted),
        sequence_context=one.sequence_context,
        sequence_number=one.sequence_number,
        group=one.group,
        group_sequence=one.group_sequence,
        redrives=one.redrives if one.redrives != REDRIVEN_ELSEWHERE else None,
        dead_letter=one.dead_letter,
        forced=one.forced,
        origin=None if one.origin is None else one.origin.pod,
        replay=one.replay,
        traceparent=None if one.trace is None else one.trace.parent,
        indication=msgspec.Raw(one.body) if shows and one.body else msgspec.UNSET,
    )


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
