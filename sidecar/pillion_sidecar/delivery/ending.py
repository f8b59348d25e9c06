"""The end of a deliverer: it drains, hands over, and tells what is left (S0.14)."""

import asyncio
from collections.abc import Callable

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.resources import ListenerDestination
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.handingover import HandOver
from pillion_sidecar.delivery.keeping import Keeping
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.reasons import DiscardReason
from pillion_sidecar.delivery.settling import Settlements
from pillion_sidecar.delivery.table import DestinationTable
from pillion_sidecar.delivery.taking import Taking


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

    async def drain(self, grace_seconds: float, *, hand_over_to: str | None) -> int:
        """Deliver for at most ``grace_seconds``, and hand over what that does not deliver where
        there is a gateway for it; return how many pairs are left."""
        if self._settlements.pending and grace_seconds > 0:
            emptied = asyncio.Event()
            self._settlements.await_empty(emptied)
            if hand_over_to is not None:
                self._begin_to_hand_over(hand_over_to, grace_seconds)
            self._hasten()
            deadline = self._timers.call_later(grace_seconds, emptied.set)
            try:
                await emptied.wait()
            finally:
                deadline.cancel()
                self._settlements.stop_awaiting(emptied)
                if hand_over_to is not None:
                    self._end_hand_over()
        return self._settlements.pending

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

    def close(self) -> None:
        """Stop, with one line for each destination that something is left for (S0.14). What is in
        memory alone is discarded, each logged; what the journal has stays there."""
        self._taking.close()
        self._settlements.finish()
        self._table.subscriptions.close()
        for queue in self._table.all_queues():
            self._table.retire(queue)
            if self._keeping.packs:
                left = queue.depth + queue.reserved
                if left:
                    events.kept_at_shutdown(queue, left)
                continue
            entries, _ = queue.surrender()
            for entry in entries:
                self._settlements.discard(queue, entry, DiscardReason.SHUTDOWN)
            if left := queue.discarded[DiscardReason.SHUTDOWN]:
                events.left_at_shutdown(queue, left)
