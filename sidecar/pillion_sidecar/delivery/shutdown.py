"""Shutdown: drains, hands over to a gateway, and reports what is left (S0.14)."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.admission import Admission
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.relay import as_handed_over
from pillion_sidecar.delivery.settlement import DISCARDS_PER_TURN, Settlements
from pillion_sidecar.delivery.table import DestinationTable
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.ports import Journal

#: Minimum seconds for a gateway's answer, regardless of the grace period.
LEAST_TIMEOUT = 1.0
#: Seconds between two checks of whether a drain can end.
LOOK_SECONDS = 0.25


class Redirect(Protocol):
    """Restarts a queue with another destination; attempts under way are abandoned."""

    def __call__(
        self, queue: DestinationQueue, destination: ListenerDestination, *, sends: bool
    ) -> None:
        """``sends``: whether sequence identifiers are sent."""


@dataclass(slots=True)
class _Course:
    destination: ListenerDestination
    sends_identifiers: bool
    delivered: int
    #: Whether its own listener may get it again.
    returns: bool = False


class HandOver:
    """Hands the queues of a stopping deliverer over to one gateway.

    A suspended or disabled queue is handed over immediately. Every other one is tried once, and
    handed over if that fails; one that delivers continues until half of the time is over. What the
    gateway does not take returns to a listener that delivered before, once, so that two failing
    receivers do not alternate.
    """

    def __init__(
        self,
        gateway: str,
        *,
        grace_seconds: float,
        clock: Clock,
        timers: Timers,
        redirect: Redirect,
    ) -> None:
        self._gateway = gateway
        self._grace = grace_seconds
        self._clock = clock
        self._timers = timers
        self._redirect = redirect
        self._began = clock.monotonic()
        self._courses: dict[DestinationQueue, _Course] = {}

    def begin(self, queues: list[DestinationQueue]) -> None:
        """Begin with the queues that hold anything; relayed ones go to their gateways anyway."""
        for queue in queues:
            # Accepted indications may not be on disk yet.
            holds = queue.depth or queue.reserved
            if holds and queue.relay_to is None and not queue.draining:
                self._courses[queue] = _Course(
                    queue.destination, queue.sends_identifiers, queue.statistics.delivered
                )
        for queue in list(self._courses):
            if queue.suspended or queue.health.waits_for_a_change:
                self._hand_over(queue)
        self._half = self._timers.call_later(self._grace / 2, self._hand_over_all)

    def failed(self, queue: DestinationQueue) -> None:
        course = self._courses.get(queue)
        if course is None:
            return
        if not queue.hands_over:
            if queue.destination is course.destination and not course.returns:
                self._hand_over(queue)
        elif course.returns:
            self._redirect(queue, course.destination, sends=course.sends_identifiers)

    def will_get(self, queue: DestinationQueue) -> bool:
        """Whether the gateway gets what the listener has not taken at half of the time."""
        return not self._half.cancelled and queue in self._courses

    def _hand_over_all(self) -> None:
        for queue in list(self._courses):
            if queue.depth and not queue.hands_over:
                self._courses[queue].returns = True
                self._hand_over(queue)

    def _hand_over(self, queue: DestinationQueue) -> None:
        left = self._began + self._grace - self._clock.monotonic()
        timeout = max(LEAST_TIMEOUT, left / 2)
        own = self._courses[queue].destination
        handed_over = as_handed_over(
            own, durability=queue.durability, gateway=self._gateway, timeout=timeout
        )
        self._redirect(queue, handed_over, sends=True)

    def end(self) -> None:
        """Stop handing over, and log the result of each destination."""
        self._half.cancel()
        seconds = self._clock.monotonic() - self._began
        for queue, course in self._courses.items():
            delivered = queue.statistics.delivered - course.delivered
            events.handed_over(queue, self._gateway, delivered=delivered, seconds=seconds)


class Shutdown:
    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        table: DestinationTable,
        journal: Journal,
        settlements: Settlements,
        admission: Admission,
        hasten: Callable[[], None],
        arrange: Callable[[DestinationQueue], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._table = table
        self._keeps = journal.durability is Durability.DISK
        #: Whether the journal has failed, so that it is unknown what it keeps.
        self.journal_failed = False
        self._settlements = settlements
        self._admission = admission
        self._hasten = hasten
        self._arrange = arrange
        self._hand_over: HandOver | None = None
        self._drains = 0
        # Queues whose first indication has no attempt left.
        self._exhausted: set[DestinationQueue] = set()
        # Shared by both callers: if one is interrupted the other continues.
        self._rest = self._give_up()

    @property
    def is_draining(self) -> bool:
        return self._drains > 0

    def wait_no_more(self, queue: DestinationQueue) -> None:
        self._exhausted.add(queue)

    async def drain(self, grace_seconds: float, *, hand_over_to: str | None) -> int:
        """Deliver for at most ``grace_seconds``, and hand over the rest to a gateway; return how
        many pairs are left."""
        if self._settlements.pending and grace_seconds > 0:
            emptied = asyncio.Event()
            self._settlements.await_empty(emptied)
            if hand_over_to is not None:
                self._begin_to_hand_over(hand_over_to, grace_seconds)
            deadline = self._clock.monotonic() + grace_seconds
            self._drains += 1
            self._exhausted.clear()
            self._hasten()
            try:
                while not (emptied.is_set() or self._nothing_can_come(deadline)):
                    await self._look_again(emptied, deadline)
            finally:
                self._drains -= 1
                self._settlements.stop_awaiting(emptied)
                if hand_over_to is not None:
                    self._end_hand_over()
        return self._settlements.pending

    async def _look_again(self, emptied: asyncio.Event, deadline: float) -> None:
        woken = asyncio.Event()
        self._settlements.await_empty(woken)
        look_at = min(self._clock.monotonic() + LOOK_SECONDS, deadline)
        timer = self._timers.call_at(look_at, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()
            self._settlements.stop_awaiting(woken)

    def _nothing_can_come(self, deadline: float) -> bool:
        """Whether no pending attempt is under way, or due before the deadline."""
        if self._clock.monotonic() >= deadline:
            return True
        if self._admission.releases:
            return False
        queues = self._table.all_queues()
        left = sum(queue.depth + queue.reserved for queue in queues)
        # Entries being discarded are in no queue.
        return left == self._settlements.pending and all(
            _is_stuck(
                queue,
                deadline,
                is_last=queue in self._exhausted,
                goes_on=self._hand_over is not None and self._hand_over.will_get(queue),
            )
            for queue in queues
        )

    def _begin_to_hand_over(self, gateway: str, grace_seconds: float) -> None:
        self._hand_over = HandOver(
            gateway,
            grace_seconds=grace_seconds,
            clock=self._clock,
            timers=self._timers,
            redirect=self._redirect,
        )
        self._hand_over.begin(self._table.all_queues())

    def _redirect(
        self, queue: DestinationQueue, destination: ListenerDestination, *, sends: bool
    ) -> None:
        for entry in self._table.redirect(queue, destination, sends=sends):
            self._settlements.discard(queue, entry, DiscardReason.PURGED)
        self._arrange(queue)

    def _end_hand_over(self) -> None:
        hand_over, self._hand_over = self._hand_over, None
        if hand_over is not None:
            hand_over.end()

    def failed(self, queue: DestinationQueue) -> None:
        if self._hand_over is not None:
            self._hand_over.failed(queue)

    async def give_up(self) -> None:
        """Take nothing more, and discard what is only in memory, in turns of the event loop."""
        if self._keeps:
            return
        self._admission.close()
        for count, _ in enumerate(self._rest, 1):
            if count % DISCARDS_PER_TURN == 0:
                await asyncio.sleep(0)

    def close(self) -> None:
        """Stop, and log what is left for each destination (S0.14). Indications only in memory are
        discarded; the journal keeps its own."""
        self._admission.close()
        deque(self._settlements.turns.finish(), maxlen=0)
        self._table.subscriptions.close()
        if not self._keeps:
            deque(self._rest, maxlen=0)
        for queue in list(self._table.all_queues()):
            self._table.retire(queue)
            if not self._keeps:
                if left := queue.statistics.discarded[DiscardReason.SHUTDOWN]:
                    events.left_at_shutdown(queue, left)
            elif left := queue.depth + queue.reserved:
                tell = events.left_at_shutdown if self.journal_failed else events.kept_at_shutdown
                tell(queue, left)

    def _give_up(self) -> Iterator[None]:
        yield from self._settlements.turns.finish()
        yield from self._admission.give_up()
        for queue in self._table.all_queues():
            entries, _ = queue.surrender()
            for entry in entries:
                self._settlements.discard(queue, entry, DiscardReason.SHUTDOWN)
                yield


def _is_stuck(queue: DestinationQueue, deadline: float, *, is_last: bool, goes_on: bool) -> bool:
    """Whether nothing that it holds can be delivered before the deadline.

    Incomplete groups cannot: intake is closed. ``is_last``: the failed attempt was the last one;
    ``goes_on``: to a gateway, if its limit delays it for so long.
    """
    if queue.in_flight:
        return False
    if queue.suspended:
        return True
    due = queue.health.next_attempt_at
    if due is not None:
        # A hold ends with a new configuration, and a stopping deliverer applies none.
        return is_last or due >= deadline or queue.health.hold is not None
    if queue.pace is not None and queue.pace.due() >= deadline:
        return not goes_on
    return not (queue.waiting.count or queue.staged)
