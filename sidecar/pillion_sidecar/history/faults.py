"""The faults of publishers, a view of the history (S1.4, S1.9)."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pillion_sidecar.history.outcome import Numbered, OutcomeQuery
from pillion_sidecar.history.recorder import History

#: Seconds that a list waits for the disk to have what was discarded before it.
SETTLE_SECONDS = 10.0
#: Lists that are asked for at a time; one is read at a time.
MOST_ASKED = 64
#: Publishers of which it is remembered how far the history was looked through.
MOST_LOOKED = 10_000


class FaultsBusy(Exception):
    """The list cannot be given now; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPage:
    found: Sequence[Numbered]
    #: The number of the last fault; at least the number behind which was asked.
    last: int
    #: At most how many faults behind that number are not in the history any more.
    dropped: int


class FaultList:
    def __init__(self, history: History) -> None:
        self._history = history
        self._reading = asyncio.Lock()
        self._asked = 0
        # By publisher: two numbers, between which it has no fault, so that who asks again and again
        # has only what is new looked through.
        self._looked: OrderedDict[str, tuple[int, int]] = OrderedDict()

    async def after(self, publisher: str, number: int, *, limit: int) -> FaultPage:
        """Return the first ``limit`` faults of a publisher above a number. Raises FaultsBusy, and
        OSError if the history cannot be read."""
        if self._asked >= MOST_ASKED:
            raise FaultsBusy(f"{MOST_ASKED} lists of faults are asked for already")
        self._asked += 1
        try:
            # What a flush has reported must be in it.
            if not await self._history.show(self._history.last, seconds=SETTLE_SECONDS):
                raise FaultsBusy("the disk has not taken the latest outcomes")
            async with self._reading:
                return await self._read(publisher, number, limit)
        finally:
            self._asked -= 1

    async def _read(self, publisher: str, number: int, limit: int) -> FaultPage:
        history, query = self._history, OutcomeQuery(publisher=publisher, faults=True)
        lower, begin = number, number
        looked = self._looked.get(publisher)
        if looked is not None and looked[0] <= number < looked[1]:
            lower, begin = looked
        while True:
            page = await asyncio.to_thread(history.page(query, after=begin, limit=max(1, limit)))
            if page.found or not page.has_more:
                break
            # A part of a long history.
            begin = page.through
        found, last = page.found[:limit], page.found[-1].number if page.found else number
        if page.has_more:
            newest: Callable[[], int | None] = history.last_in(query, after=last)
            found_last = await asyncio.to_thread(newest)
            last = last if found_last is None else found_last
        else:
            self._note(publisher, last if page.found else lower, max(last, page.through))
        return FaultPage(found=found, last=last, dropped=history.unkept_after(number, publisher))

    def _note(self, publisher: str, last: int, through: int) -> None:
        self._looked[publisher] = last, through
        self._looked.move_to_end(publisher)
        if len(self._looked) > MOST_LOOKED:
            self._looked.popitem(last=False)
