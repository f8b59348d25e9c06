"""A sidecar hands its history over to a gateway at its end, as far as its time allows."""

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.filewatch import pause
from pillion_sidecar.history.handed_over import (
    MOST_OUTCOMES,
    HandedOver,
    Part,
    encode_part,
    read_answer,
)
from pillion_sidecar.history.outcome import Numbered, OutcomeQuery, OutcomeResult, redrive_note
from pillion_sidecar.history.recorder import History

logger = logging.getLogger("pillion.history")

#: Bytes of the indications in a part, and of an outcome beside its own.
PART_BYTES = 512 << 10
OUTCOME_BYTES = 500
#: Seconds until what was settled at the end is written.
WRITE_SECONDS = 1.0
#: Seconds between two attempts, unless the gateway gives another number.
RETRY_SECONDS = 1.0
#: Answers after which the same part is sent again.
_FOR_NOW = (401, 408, 429)


@dataclass(frozen=True, slots=True)
class Reply:
    """The gateway's answer; status 0: none came."""

    status: int
    body: bytes = b""
    detail: str = ""
    retry_after: float | None = None


class GatewayPost(Protocol):
    async def __call__(self, body: bytes) -> Reply: ...


class _Stopped(Exception):
    """No more is handed over; the text says why."""


class HistoryHandOver:
    def __init__(self, *, history: History, pod: str, clock: Clock, timers: Timers) -> None:
        self._history = history
        self._pod = pod
        self._clock = clock
        self._timers = timers
        #: Outcomes that the gateway has, and the discards among them.
        self._sent = self._discards = 0
        self._problem = ""

    async def run(self, post: GatewayPost, *, gateway: str, until: float) -> None:
        """Hand over until ``until`` (``Clock.monotonic()``), and log what has gone and what has
        not."""
        if not self._history.last:
            return
        outcomes = discards = 0
        try:
            if until > self._clock.monotonic():
                self._history.commit()
                await self._history.show(self._history.last, seconds=WRITE_SECONDS)
            outcomes, discards = await asyncio.to_thread(self._history.count())
            await self._send_until(until, post)
        except (_Stopped, OSError) as error:
            left = max(0, outcomes - self._sent), max(0, discards - self._discards)
            self._tell_left(gateway, *left, reason=str(error))
        else:
            self._tell(gateway)

    async def _send_until(self, until: float, post: GatewayPost) -> None:
        if until <= self._clock.monotonic():
            raise _Stopped("no time was left")
        task = asyncio.ensure_future(self._send_all(post))

        def stop() -> None:
            task.cancel()

        timer = self._timers.call_at(until, stop)
        try:
            await asyncio.wait([task])
        finally:
            timer.cancel()
            task.cancel()
        if task.cancelled():
            raise _Stopped(self._problem or "the time was over")
        task.result()

    def _tell(self, gateway: str) -> None:
        logger.info(
            "%d outcomes of the history handed over to %s, %d discards among them",
            self._sent,
            gateway,
            self._discards,
            extra={
                "event": "history-handed-over",
                "gateway": gateway,
                "count": self._sent,
                "discards": self._discards,
            },
        )

    def _tell_left(self, gateway: str, left: int, discards: int, *, reason: str) -> None:
        logger.warning(
            "%d outcomes of the history, %d discards among them, were not handed over to %s: %s",
            left,
            discards,
            gateway,
            reason,
            extra={
                "event": "history-not-handed-over",
                "gateway": gateway,
                "count": left,
                "discards": discards,
                "reason": reason,
            },
        )

    async def _send_all(self, post: GatewayPost) -> None:
        for discards in (True, False):
            await self._send_kind(post, discards=discards)

    async def _send_kind(self, post: GatewayPost, *, discards: bool) -> None:
        query, redriven = OutcomeQuery(), frozenset[int]()
        if discards:
            query = OutcomeQuery(result=OutcomeResult.DISCARDED)
            redriven = frozenset(await asyncio.to_thread(self._history.redriven()))
        after, more, last = 0, True, 0
        while more:
            page = await asyncio.to_thread(
                self._history.page(query, after=after, limit=MOST_OUTCOMES)
            )
            after, more = page.through, page.has_more
            others = (OutcomeResult.DISCARDED, OutcomeResult.REDRIVEN)
            found = [one for one in page.found if discards or one.outcome.result not in others]
            for part in _parts(found):
                # The gateway may have it of an earlier end.
                if part[-1].number > last:
                    last = await self._send(post, part, discards=discards, redriven=redriven)
                self._sent += len(part)
                if discards:
                    self._discards += len(part)
                    await self._note([one for one in part if one.number not in redriven])

    async def _note(self, discards: Sequence[Numbered]) -> None:
        """A later run on this volume redrives none that the gateway may redrive."""
        if not self._history.is_on_disk:
            return
        for number, outcome in discards:
            await self._history.wait_for_room()
            self._history.add(redrive_note(outcome, number, at=self._clock.time()))
        self._history.commit()

    async def _send(
        self,
        post: GatewayPost,
        part: Sequence[Numbered],
        *,
        discards: bool,
        redriven: Collection[int],
    ) -> int:
        """Return the last number that the gateway has. Raises _Stopped."""
        body = encode_part(
            Part(
                pod=self._pod,
                history=self._history.id,
                discards=discards,
                outcomes=[HandedOver(*one, one.number in redriven) for one in part],
            )
        )
        while True:
            reply = await post(body)
            if reply.status == 200:
                try:
                    last = read_answer(reply.body).last
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    raise _Stopped("the gateway's answer is not understood") from None
                self._problem = ""
                return last
            if reply.status == 404:
                raise _Stopped("HTTP 404: it is no gateway, or of an earlier version")
            self._problem = reply.detail or f"the gateway answered HTTP {reply.status}"
            if 0 < reply.status < 500 and reply.status not in _FOR_NOW:
                raise _Stopped(self._problem)
            await pause(self._timers, reply.retry_after or RETRY_SECONDS)


def _parts(found: Sequence[Numbered]) -> Iterator[Sequence[Numbered]]:
    part: list[Numbered] = []
    size = 0
    for one in found:
        more = OUTCOME_BYTES + len(one.outcome.body or b"")
        if part and size + more > PART_BYTES:
            yield part
            part, size = [], 0
        part.append(one)
        size += more
    if part:
        yield part
