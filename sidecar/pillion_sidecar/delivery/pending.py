"""Looks for the pending indications with one identifier. Nothing is changed, and each turn of the
event loop is bounded."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pillion_sidecar.delivery.entries import Subscription
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.ports import Journal

#: Entries of one answer.
MOST_FOUND = 100
#: Entries in memory that one turn of the event loop compares.
COMPARED_PER_TURN = 2048
#: Entries that are read back together, and for one answer.
READ_TOGETHER = 64
MOST_READ = 100_000


@dataclass(frozen=True, slots=True)
class Pending:
    queue: DestinationQueue
    subscription: Subscription
    indication: Indication
    #: In the queue's count.
    number: int
    #: Entries before it in the queue.
    ahead: int
    in_flight: bool = False
    #: Failed attempts of this run.
    attempts: int = 0


class PendingSearch:
    """One search. ``unread`` counts what was not compared."""

    def __init__(
        self,
        *,
        journal: Journal,
        subscription_at: Callable[[int], Subscription],
        matches: Callable[[Indication], bool],
        most_read: int = MOST_READ,
    ) -> None:
        """``subscription_at`` maps a journal index to a subscription."""
        self.found: list[Pending] = []
        self.unread = 0
        self._journal = journal
        self._subscription_at = subscription_at
        self._matches = matches
        self._left = most_read
        self._seen: set[tuple[int, int]] = set()

    async def run(self, queues: Iterable[DestinationQueue]) -> None:
        for queue in queues:
            if len(self.found) >= MOST_FOUND:
                self.unread += queue.depth + queue.reserved
                continue
            self.unread += queue.held
            known = await self._in_memory(queue, -1)
            if len(queue.waiting.back):
                await self._on_disk(queue, known)
                # Some were loaded meanwhile.
                await self._in_memory(queue, known)
        self.found.sort(key=lambda one: (one.queue.name, one.ahead))
        del self.found[MOST_FOUND:]

    async def _in_memory(self, queue: DestinationQueue, above: int) -> int:
        """Compare the loaded entries with numbers above one; return the last number."""
        # Both change while others have their turns.
        in_flight, front = list(queue.in_flight), list(queue.waiting.front)
        last = above
        for at, entry in enumerate((*in_flight, *front)):
            if at % COMPARED_PER_TURN == COMPARED_PER_TURN - 1:
                await asyncio.sleep(0)
            last = max(last, entry.number)
            is_new = entry.number > above and (queue.index, entry.number) not in self._seen
            if is_new and self._matches(entry.indication):
                self._add(
                    Pending(
                        queue=queue,
                        subscription=entry.subscription,
                        indication=entry.indication,
                        number=entry.number,
                        ahead=at,
                        in_flight=at < len(in_flight),
                        attempts=entry.attempts,
                    )
                )
        return last

    async def _on_disk(self, queue: DestinationQueue, above: int) -> None:
        """Read back the entries with numbers above one, in order."""
        while len(self.found) < MOST_FOUND:
            packed = queue.waiting.back.behind(above, min(READ_TOGETHER, self._left))
            if not packed:
                break
            self._left -= len(packed)
            ahead = queue.depth - queue.waiting.back.count_behind(above)
            loaded = await self._load([one.position for one in packed])
            for at, (one, indication) in enumerate(zip(packed, loaded, strict=True)):
                if indication is not None and self._matches(indication):
                    subscription = self._subscription_at(one.subscription)
                    self._add(Pending(queue, subscription, indication, one.number, ahead + at))
            above = packed[-1].number
        self.unread += queue.waiting.back.count_behind(above)

    def _add(self, one: Pending) -> None:
        self._seen.add((one.queue.index, one.number))
        self.found.append(one)

    async def _load(self, positions: Sequence[int]) -> Sequence[Indication | None]:
        loaded: asyncio.Future[Sequence[Indication | None]] = (
            asyncio.get_running_loop().create_future()
        )
        self._journal.load(positions, partial(_set, loaded))
        return await loaded


def _set(
    loaded: asyncio.Future[Sequence[Indication | None]], found: Sequence[Indication | None]
) -> None:
    # Cancelled: the client has gone.
    if not loaded.done():
        loaded.set_result(found)
