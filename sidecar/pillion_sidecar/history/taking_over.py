"""A gateway takes over the histories of ending sidecars: each outcome once, under a new number."""

import asyncio
from collections import OrderedDict

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.history.handed_over import HandedOver, Part, PartAnswer
from pillion_sidecar.history.outcome import (
    Outcome,
    OutcomeQuery,
    OutcomeResult,
    redrive_note,
)
from pillion_sidecar.history.recorder import History

#: Histories whose last numbers are remembered; those of others are read again.
MOST_HISTORIES = 1000
#: Seconds until a part must be written.
WRITE_SECONDS = 10.0


class NotWritten(Exception):
    """The part, or some of it, is not in the history yet."""


class TakenHistories:
    def __init__(self, *, history: History, clock: Clock) -> None:
        self._history = history
        self._clock = clock
        # The last number of each history, by whether it is of discards.
        self._last: OrderedDict[tuple[str, bool], int] = OrderedDict()
        self._lock = asyncio.Lock()

    async def take(self, part: Part) -> PartAnswer:
        """Return once it is written. Raises NotWritten, and OSError if the history cannot be
        read."""
        async with self._lock:
            key = part.history, part.discards
            if key not in self._last:
                await self._look_up(part.history)
            new = [one for one in part.outcomes if one.number > self._last[key]]
            for one in new:
                await self._add(one, key)
            self._last.move_to_end(key)
            await self._written()
            return PartAnswer(
                taken=len(new), known=len(part.outcomes) - len(new), last=self._last[key]
            )

    async def _look_up(self, history: str) -> None:
        """Note what an earlier run has taken, or one before many other histories."""
        read = self._history.every(OutcomeQuery(history=history))
        last = {True: 0, False: 0}

        def find() -> None:
            for _, outcome in read():
                if outcome.origin is not None and outcome.result != OutcomeResult.REDRIVEN:
                    is_discard = outcome.result == OutcomeResult.DISCARDED
                    last[is_discard] = max(last[is_discard], outcome.origin.number)

        await self._written()
        await asyncio.to_thread(find)
        for is_discard, number in last.items():
            self._last[history, is_discard] = number
        while len(self._last) > 2 * MOST_HISTORIES:
            self._last.popitem(last=False)

    async def _add(self, one: HandedOver, key: tuple[str, bool]) -> None:
        await self._history.wait_for_room()
        outcome = one.outcome
        if not self._history.keeps_body(OutcomeResult(outcome.result)):
            outcome = msgspec.structs.replace(outcome, body=None)
        number = self._append(outcome)
        self._last[key] = one.number
        if one.is_redriven:
            self._append(redrive_note(outcome, number, at=self._clock.time()))

    def _append(self, outcome: Outcome) -> int:
        before = self._history.last
        self._history.add(outcome)
        if self._history.last == before:
            # The disk is in trouble.
            raise NotWritten
        return self._history.last

    async def _written(self) -> None:
        last = self._history.last
        if self._history.settled < last:
            self._history.commit()
            if not await self._history.show(last, seconds=WRITE_SECONDS):
                raise NotWritten
