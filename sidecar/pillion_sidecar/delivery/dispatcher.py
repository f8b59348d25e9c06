"""The dispatcher: starts attempts, fairly, and never polls (S0.5, S0.15, S0.17).

Queues that have something to attempt stand in one round. Each turn takes one indication of each
queue, so no destination gets ahead of another; a turn is bounded, so that the event loop gets
round to everybody's sockets. An empty or waiting queue costs nothing but its place in memory.

A queue that has just delivered goes on at once. Its listener's answer came from the event loop,
which brings one answer of each listener before it brings another, so this is as fair as the round.

What the outcome of an attempt means for its entry, its queue and its subscription is here, too
(S0.4, S0.7, S0.8).
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.entries import MOST_REFUSALS, QueueEntry
from pillion_sidecar.delivery.failure_triggers import FailureTriggers
from pillion_sidecar.delivery.handler import (
    HOLD_RETRY_SECONDS,
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Hold,
)
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.retry import retry_wait
from pillion_sidecar.delivery.settlement import Settlements
from pillion_sidecar.delivery.shutdown import Shutdown
from pillion_sidecar.delivery.table import AttemptObserver, DestinationTable
from pillion_sidecar.indication import DiscardReason

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


class Concluding:
    """Concludes attempts."""

    def __init__(
        self,
        *,
        clock: Clock,
        table: DestinationTable,
        settlements: Settlements,
        observer: AttemptObserver,
        draw: Callable[[], float],
        shutdown: Shutdown,
        triggers: FailureTriggers,
    ) -> None:
        """``draw`` gives jitter; ``shutdown`` is called for each attempt that may be repeated,
        ``triggers`` for each that failed."""
        self._clock = clock
        self._table = table
        self._settlements = settlements
        self._observer = observer
        self._draw = draw
        self._shutdown = shutdown
        self._triggers = triggers

    def conclude(
        self, queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome, seconds: float
    ) -> None:
        """Settle an entry after its attempt, or put it back for another (S0.4, S0.7)."""
        queue.record(entry, outcome, at=self._clock.time() - seconds, seconds=seconds)
        condemned = entry in queue.condemned
        if condemned:
            queue.condemned.remove(entry)
        if outcome.gave_way:
            # It is next again, and waits for its turn to have a connection.
            self._put_back(queue, entry, condemned=condemned)
            self._shutdown.failed(queue)
            return
        self._observer.attempted(queue.protocol, seconds)
        if outcome.result is DeliveryResult.SUCCESS:
            self._succeed(queue, entry)
        elif outcome.hold is not None and not queue.draining:
            self._hold(queue, entry, outcome, condemned=condemned)
            self._shutdown.failed(queue)
        elif outcome.result is DeliveryResult.FATAL_ERROR and outcome.hold is None:
            # It says nothing of the destination: nothing was sent.
            self._settlements.discard(queue, entry, DiscardReason.FATAL_ERROR)
        else:
            began_at = self._clock.monotonic() - seconds
            self._fail(queue, entry, outcome, began_at=began_at, condemned=condemned)
            self._shutdown.failed(queue)

    def _succeed(self, queue: DestinationQueue, entry: QueueEntry) -> None:
        now = self._clock.monotonic()
        if queue.troubled_since is not None:
            self._recover(queue, now)
        if queue.hands_over:
            queue.handed_over += 1
        else:
            queue.delivered += 1
        queue.last_success_at = now
        self._observer.delivered(queue.protocol, now - entry.indication.accepted_at)
        self._settlements.settle(queue, entry, None)

    def _recover(self, queue: DestinationQueue, now: float) -> None:
        self._release(queue, now)
        if queue.failing_since is not None:
            events.delivery_resumed(queue, seconds=now - queue.failing_since)
        queue.begin_anew()
        queue.next_attempt_at = None
        self._table.note(queue)

    def _release(self, queue: DestinationQueue, now: float) -> None:
        hold = queue.release(now)
        if hold is not None:
            events.destination_released(queue, hold, seconds=now - hold.since)

    # ------------------------------------------------------------------ what is wrong with whom

    def _hold(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        condemned: bool,
    ) -> None:
        """The destination is wrong: all that is for it waits, and spends nothing (S0.8)."""
        assert outcome.hold is not None
        now = self._clock.monotonic()
        self._put_back(queue, entry, condemned=condemned)
        before = queue.hold
        since = now if before is None else before.since
        queue.hold = Hold(outcome.hold, outcome.detail, since)
        if before is None or before.cause is not outcome.hold:
            events.destination_held(queue, queue.hold)
        queue.pause_or_go_on(now)
        queue.next_attempt_at = now + HOLD_RETRY_SECONDS
        self._note_trouble(queue, now)
        if before != queue.hold:
            self._table.note(queue)

    def _put_back(self, queue: DestinationQueue, entry: QueueEntry, *, condemned: bool) -> None:
        """Return an entry to its place: it was not attempted."""
        if condemned:
            self._settlements.discard(queue, entry, DiscardReason.PURGED)
        elif not (entry.subscription.active or queue.draining):
            self._settlements.discard(queue, entry, DiscardReason.SUBSCRIPTION_NOT_ACTIVE)
        else:
            queue.waiting.put_back(entry)

    def _fail(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        began_at: float,
        condemned: bool,
    ) -> None:
        now, before = self._clock.monotonic(), entry.attempts
        self._release(queue, now)
        entry.attempts += outcome.spends_attempt
        if outcome.refuses_indication:
            entry.refuse()
        # What comes back from the way to a gateway comes back together, and is one failure.
        if counts := outcome.spends_attempt or queue.next_attempt_at is None:
            self._count(queue, entry, outcome, began_at=began_at, now=now)
            self._wait_to_retry(queue, outcome, now)
        reason: DiscardReason | None = DiscardReason.PURGED
        if not condemned:
            reason = self._reason_to_give_up(queue, entry, outcome)
        if reason is DiscardReason.ATTEMPTS_EXCEEDED and self._shutdown.is_draining:
            # An attempt that a drain has brought forward is not its last.
            entry.attempts, reason = before, None
            self._shutdown.wait_no_more(queue)
        if reason is not None:
            self._settlements.discard(queue, entry, reason)
        elif self._shutdown.is_draining:
            # Nothing new comes, so nothing needs its room.
            queue.waiting.put_back(entry)
        elif not queue.insert_front(entry):
            self._settlements.discard(queue, entry, DiscardReason.QUEUE_FULL)
        if reason is DiscardReason.FATAL_ERROR and entry.attempts > 1:
            # The waits between its own attempts were enough; the next one may be taken.
            queue.next_attempt_at = None
        self._note_failure(queue, outcome, now)
        if counts:
            self._table.note(queue)

    def _count(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        began_at: float,
        now: float,
    ) -> None:
        """Count a failure of the listener. Attempts that were under way at the last one failed
        with it; and all attempts at an indication that is refused are one."""
        failed_at = queue.failed_at
        is_retry = failed_at is None or began_at >= failed_at
        if is_retry and not (outcome.refuses_indication and entry.refusals > 1):
            queue.failures += 1
            queue.failed_at = now

    def _wait_to_retry(self, queue: DestinationQueue, outcome: DeliveryOutcome, now: float) -> None:
        queue.next_attempt_at = now + retry_wait(
            queue.retry, failures=queue.failures, retry_after=outcome.retry_after, draw=self._draw()
        )

    def _reason_to_give_up(
        self, queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome
    ) -> DiscardReason | None:
        if not entry.subscription.active and not queue.draining:
            return DiscardReason.SUBSCRIPTION_NOT_ACTIVE
        limit = queue.retry.attempts
        is_last = limit is not None and entry.attempts > limit
        if outcome.refuses_indication and (is_last or entry.refusals >= MOST_REFUSALS):
            return DiscardReason.FATAL_ERROR
        return DiscardReason.ATTEMPTS_EXCEEDED if is_last else None

    def _note_trouble(self, queue: DestinationQueue, now: float) -> None:
        """Note that nothing gets through."""
        if queue.troubled_since is None:
            queue.troubled_since = now
        self._triggers.watch(queue)

    def _note_failure(self, queue: DestinationQueue, outcome: DeliveryOutcome, now: float) -> None:
        if queue.failing_since is None:
            queue.failing_since = now
            events.delivery_failed(queue, outcome)
        self._note_trouble(queue, now)
