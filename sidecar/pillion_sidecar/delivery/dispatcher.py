"""The dispatcher: starts attempts, fairly, and never polls (S0.5, S0.15, S0.17).

Queues that have something to attempt stand in one round. Each turn takes one indication of each
queue, so no destination gets ahead of another; a turn is bounded, so that the event loop gets
round to everybody's sockets. An empty or waiting queue costs nothing but its place in memory.

A queue that has just delivered goes on at once. Its listener's answer came from the event loop,
which brings one answer of each listener before it brings another, so this is as fair as the round.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.entry import QueueEntry
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.delivery.queue import DestinationQueue

#: Attempts started before the event loop gets its turn.
ATTEMPTS_PER_TURN = 4


class Settling(Protocol):
    """What the dispatcher leaves to the delivery service."""

    def expire(self, queue: DestinationQueue, now: float) -> bool:
        """Discard waiting entries whose lifetime has ended at ``now`` (monotonic); return whether
        there may be more, so that nothing is attempted yet."""

    def conclude(
        self, queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome, seconds: float
    ) -> None:
        """Settle an entry after its attempt, or put it back."""


class Dispatcher:
    """Starts the attempts of all destination queues."""

    def __init__(
        self,
        *,
        clock: Clock,
        call_soon: Callable[[Callable[[], None]], object],
        settling: Settling,
    ) -> None:
        """``call_soon`` is that of the event loop."""
        self._clock = clock
        self._call_soon = call_soon
        self._settling = settling
        self._round: deque[DestinationQueue] = deque()
        self._scheduled = False
        # What an answer from within ``deliver`` finds under way.
        self._turning = self._continuing = False
        #: Whether failed attempts are marked in CorrelatedIndications (S0.9).
        self.marks_retries = False

    def ready(self, queue: DestinationQueue) -> None:
        """Give a queue its place in the round."""
        if queue.ready:
            return
        queue.ready = True
        self._round.append(queue)
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = True
        for _ in range(min(len(self._round), ATTEMPTS_PER_TURN)):
            queue = self._round.popleft()
            queue.ready = False
            self._attempt(queue)
        self._turning = False
        if self._round:
            self._call_soon(self._turn)
        else:
            self._scheduled = False

    def _attempt(self, queue: DestinationQueue) -> None:
        now = self._clock.monotonic()
        if self._settling.expire(queue, now):
            return
        if queue.removed or queue.suspended or queue.next_attempt_at is not None:
            return
        entry = queue.take()
        if entry is None:
            return
        queue.last_attempt_at = now
        attempts = entry.attempts
        delivery = Delivery(
            indication=entry.indication,
            filter_name=entry.subscription.resource.filter_name,
            sequence_context=queue.sequence_context,
            sequence_number=queue.sequence.sequence_number(entry.number)
            if queue.sends_identifiers
            else None,
            attempt=attempts + 1,
            correlated=self.marks_retries and attempts > 0,
            subscription=entry.subscription.resource.uid,
        )
        queue.handler.deliver(delivery, partial(self._done, queue, entry, now))
        if queue.in_flight < queue.max_in_flight and queue.waiting:
            self.ready(queue)

    def _done(
        self, queue: DestinationQueue, entry: QueueEntry, began: float, outcome: DeliveryOutcome
    ) -> None:
        if self._continuing:
            # The one before it is settled first.
            self._call_soon(partial(self._done, queue, entry, began, outcome))
            return
        if not queue.land(entry):
            return
        seconds = self._clock.monotonic() - began
        if outcome.result is DeliveryResult.SUCCESS and not self._turning:
            # Before the books are written: meanwhile the listener works on the next one.
            self._continuing = True
            try:
                self._attempt(queue)
            finally:
                self._continuing = False
        self._settling.conclude(queue, entry, outcome, seconds)
        following = queue.waiting.first() if queue.flying else None
        if following is not None:
            queue.handler.prepare(following.indication)
