"""The end of a deliverer: it drains, hands over, and tells what is left (S0.14)."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.resources import ListenerDestination
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.discarding import DISCARDS_PER_TURN
from pillion_sidecar.delivery.handingover import HandOver
from pillion_sidecar.delivery.keeping import Keeping
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.settling import Settlements
from pillion_sidecar.delivery.table import DestinationTable
from pillion_sidecar.delivery.taking import Taking
from pillion_sidecar.indication import DiscardReason

#: Seconds between two looks at whether a drain has anything left to wait for.
LOOK_SECONDS = 0.25


class Ending:
    """Brings delivery to its end."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        table: DestinationTable,
        keeping: Keeping,
        settlements: Settlements,
        taking: Taking,
        hasten: Callable[[], None],
        arrange: Callable[[DestinationQueue], None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._table = table
        self._keeping = keeping
        self._settlements = settlements
        self._taking = taking
        self._hasten = hasten
        self._arrange = arrange
        self._hand_over: HandOver | None = None
        self._drains = 0
        # Queues whose first indication has no attempt left.
        self._exhausted: set[DestinationQueue] = set()
        # One for both who discard: where the first is interrupted the other goes on.
        self._rest = self._give_up()

    @property
    def is_draining(self) -> bool:
        """Whether a drain is under way."""
        return self._drains > 0

    def wait_no_more(self, queue: DestinationQueue) -> None:
        """Let no drain wait for a queue: its first indication has no attempt left."""
        self._exhausted.add(queue)

    async def drain(self, grace_seconds: float, *, hand_over_to: str | None) -> int:
        """Deliver for at most ``grace_seconds``, and hand over what that does not deliver where
        there is a gateway for it; return how many pairs are left."""
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
        """Wait until nothing is pending, or for a moment."""
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
        """Whether no attempt is under way, or due before the deadline, for anything pending."""
        if self._clock.monotonic() >= deadline:
            return True
        if self._taking.releases:
            return False
        queues = self._table.all_queues()
        left = sum(queue.depth + queue.reserved for queue in queues)
        # What is being discarded is in no queue any more.
        return left == self._settlements.pending and all(
            _is_stuck(queue, deadline, is_last=queue in self._exhausted) for queue in queues
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
        """See ``handingover.Redirect``: whether a listener has what was under way is uncertain."""
        for entry in self._table.redirect(queue, destination, sends=sends):
            self._settlements.discard(queue, entry, DiscardReason.PURGED)
        self._arrange(queue)

    def _end_hand_over(self) -> None:
        hand_over, self._hand_over = self._hand_over, None
        if hand_over is not None:
            hand_over.end()

    def failed(self, queue: DestinationQueue) -> None:
        """An attempt has failed."""
        if self._hand_over is not None:
            self._hand_over.failed(queue)

    async def give_up(self) -> None:
        """Take nothing more, and discard what is in memory alone, in turns of the event loop;
        nothing where the journal keeps it."""
        if self._keeping.packs:
            return
        self._taking.close()
        for count, _ in enumerate(self._rest, 1):
            if count % DISCARDS_PER_TURN == 0:
                await asyncio.sleep(0)

    def close(self) -> None:
        """Stop, with one line for each destination that something is left for (S0.14). What is in
        memory alone and was not given up yet is discarded; what the journal has stays there."""
        self._taking.close()
        deque(self._settlements.finish(), maxlen=0)
        self._table.subscriptions.close()
        if not self._keeping.packs:
            deque(self._rest, maxlen=0)
        for queue in list(self._table.all_queues()):
            self._table.retire(queue)
            if not self._keeping.packs:
                if left := queue.discarded[DiscardReason.SHUTDOWN]:
                    events.left_at_shutdown(queue, left)
            elif left := queue.depth + queue.reserved:
                is_kept = not self._keeping.failed
                (events.kept_at_shutdown if is_kept else events.left_at_shutdown)(queue, left)

    def _give_up(self) -> Iterator[None]:
        """Discard what is in memory alone, one entry at each step."""
        yield from self._settlements.finish()
        yield from self._taking.give_up()
        for queue in self._table.all_queues():
            entries, _ = queue.surrender()
            for entry in entries:
                self._settlements.discard(queue, entry, DiscardReason.SHUTDOWN)
                yield


def _is_stuck(queue: DestinationQueue, deadline: float, *, is_last: bool) -> bool:
    """Whether nothing that it holds can be delivered before the deadline. Members of groups that
    wait for their predecessors cannot: intake is closed. ``is_last``: the attempt that failed was
    the last one."""
    if queue.flying:
        return False
    if queue.suspended:
        return True
    due = queue.next_attempt_at
    if due is not None:
        # A hold ends with a change of the configuration, and a deliverer that ends takes none over.
        return is_last or due >= deadline or queue.hold is not None
    return not (queue.waiting.count or queue.staged)
