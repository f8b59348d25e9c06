"""The dispatcher: starts attempts in a fair round without polling, and applies their outcomes
(S0.4, S0.5, S0.7, S0.8, S0.15, S0.17).

Each turn takes one indication of each queue that can attempt, and is bounded, so that sockets are
served. A queue that has just delivered continues immediately: the event loop brings one answer of
each listener before a second one, so this is as fair as the round.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.entries import MOST_REFUSALS, QueueEntry
from pillion_sidecar.delivery.handler import (
    HOLD_RETRY_SECONDS,
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
)
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.retry import retry_wait
from pillion_sidecar.delivery.settlement import Settlements
from pillion_sidecar.delivery.shutdown import Shutdown
from pillion_sidecar.delivery.subscription_table import FailureTriggers
from pillion_sidecar.delivery.table import AttemptObserver, DestinationTable
from pillion_sidecar.indication import DiscardReason

#: Attempts per turn of the event loop.
ATTEMPTS_PER_TURN = 4
#: Expired entries that one turn of the event loop takes from a queue.
EXPIRED_PER_TURN = 256


class Dispatcher:
    shutdown: Shutdown

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        call_soon: Callable[[Callable[[], None]], object],
        table: DestinationTable,
        settlements: Settlements,
        observer: AttemptObserver,
        draw: Callable[[], float],
        triggers: FailureTriggers,
    ) -> None:
        """``draw`` gives jitter; ``triggers`` is told of each failed attempt."""
        self._clock = clock
        self._timers = timers
        self._call_soon = call_soon
        self._table = table
        self._settlements = settlements
        self._observer = observer
        self._draw = draw
        self._triggers = triggers
        # The queues that can attempt, in order.
        self._round: OrderedDict[DestinationQueue, None] = OrderedDict()
        self._scheduled = False
        # Guard against reentry: a handler may answer from within ``deliver``.
        self._is_attempting_round = self._is_attempting_next = False
        # Queues that may have more expired entries than one turn takes.
        self._expiring: set[DestinationQueue] = set()
        self.marks_retries = False

    # ------------------------------------------------------------------ what happens next

    def arrange(self, queue: DestinationQueue) -> None:
        """Schedule the queue's next event: an attempt, or a timer for one."""
        if queue.timer is not None:
            queue.schedule(None)
        if queue.removed or queue.suspended:
            return
        due = queue.health.next_attempt_at
        if not queue.waiting.front:
            if queue.waiting.count:
                # ``arrange`` runs again once some are loaded.
                queue.waiting.refill()
            elif due is not None and not queue.in_flight:
                # The next indication is tried immediately (S0.2): a retry wait applies to what is
                # queued.
                queue.health.retry_now()
            return
        if due is None and queue.gather_seconds:
            due = self._gathered_at(queue)
        if due is None:
            if len(queue.in_flight) < queue.max_in_flight:
                self._join_round(queue)
            return
        expiry = queue.expiry()
        wake_at = due if expiry is None else min(due, expiry)
        queue.schedule(self._timers.call_at(wake_at, lambda: self._wake(queue)))

    def _gathered_at(self, queue: DestinationQueue) -> float | None:
        if self.shutdown.is_draining:
            return None
        return queue.gathered_at(self._clock.monotonic())

    def _wake(self, queue: DestinationQueue) -> None:
        queue.schedule(None)
        now = self._clock.monotonic()
        due = queue.health.next_attempt_at
        if due is not None and now >= due:
            queue.health.retry_now()
        self._expiring.discard(queue)
        if not queue.suspended:
            self._discard_ended(queue, now)
        if queue not in self._expiring:
            self.arrange(queue)

    def _discard_ended(self, queue: DestinationQueue, now: float) -> None:
        """Discard waiting entries whose lifetime has ended (D.2) or that are behind a gap of their
        group (S1.5).

        Bounded: while there may be more, the queue is in ``_expiring`` and nothing of it is
        attempted.
        """
        taken: dict[DiscardReason, list[QueueEntry]] = {}
        left = EXPIRED_PER_TURN
        while (reason := _ended_by(queue, now)) is not None:
            if not left:
                self._go_on_expiring(queue)
                break
            left -= 1
            entry = queue.waiting.popleft()
            if reason is DiscardReason.DAMAGED:
                self._settlements.discard(queue, entry, reason)
                continue
            if reason is DiscardReason.LIFETIME_EXPIRED:
                # Immediately: the entry behind it is checked next.
                self._settlements.lose(queue, entry.indication)
            taken.setdefault(reason, []).append(entry)
        for reason, entries in taken.items():
            self._settlements.discard_many(queue, entries, reason)
        self.retire_if_drained(queue)

    def _go_on_expiring(self, queue: DestinationQueue) -> None:
        if queue not in self._expiring:
            self._expiring.add(queue)
            self._call_soon(partial(self._wake, queue))

    def retire_if_drained(self, queue: DestinationQueue) -> None:
        # Not twice: an answer may find the rest expired before its own entry is settled.
        if queue.draining and not (queue.depth or queue.reserved or queue.removed):
            self._table.retire(queue)

    # ------------------------------------------------------------------ attempts

    def _join_round(self, queue: DestinationQueue) -> None:
        if queue in self._round:
            return
        self._round[queue] = None
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._is_attempting_round = True
        for _ in range(min(len(self._round), ATTEMPTS_PER_TURN)):
            queue, _ = self._round.popitem(last=False)
            self._attempt(queue)
        self._is_attempting_round = False
        if self._round:
            self._call_soon(self._turn)
        else:
            self._scheduled = False

    def _attempt(self, queue: DestinationQueue) -> None:
        gathers = queue.gather_seconds and not queue.in_flight
        for _ in range(queue.most_together if gathers else 1):
            if not self._attempt_next(queue):
                return
        if queue.waiting.count and len(queue.in_flight) < queue.max_in_flight:
            self._join_round(queue)

    def _attempt_next(self, queue: DestinationQueue) -> bool:
        if queue.suspended:
            return False
        now = self._clock.monotonic()
        if _ended_by(queue, now) is not None:
            self._discard_ended(queue, now)
        if queue in self._expiring or queue.removed or queue.health.next_attempt_at is not None:
            return False
        entry = queue.take(now=now)
        if entry is None:
            return False
        attempts, sequence, sends = entry.attempts, queue.sequence, queue.sends_identifiers
        delivery = Delivery(
            indication=entry.indication,
            filter_name=entry.subscription.resource.filter_name,
            sequence_context=sequence.context if sends else None,
            sequence_number=sequence.sequence_number(entry.number) if sends else None,
            attempt=attempts + 1,
            correlated=self.marks_retries and attempts > 0,
            subscription=entry.subscription.resource.uid,
            selection=entry.subscription.selection,
        )
        queue.handler.deliver(delivery, partial(self._done, queue, entry, now))
        return True

    def _done(
        self, queue: DestinationQueue, entry: QueueEntry, began: float, outcome: DeliveryOutcome
    ) -> None:
        if self._is_attempting_next:
            # The previous one is settled first.
            self._call_soon(partial(self._done, queue, entry, began, outcome))
            return
        # What holds a destination may be what was changed meanwhile: it is tried anew, at once.
        is_outdated = outcome.hold is not None and queue.is_outdated(entry)
        if not queue.complete(entry):
            return
        seconds = self._clock.monotonic() - began
        delivered = outcome.result is DeliveryResult.SUCCESS
        if delivered and not self._is_attempting_round and queue.waiting.front:
            # Before the books are updated: the listener works on the next one meanwhile.
            self._is_attempting_next = True
            try:
                self._attempt(queue)
            finally:
                self._is_attempting_next = False
        cancelled = bool(queue.cancelled) and queue.pop_cancelled(entry)
        now = self._clock.monotonic()
        queue.statistics.record(
            entry,
            outcome,
            number=queue.sequence.sequence_number(entry.number),
            at=self._clock.time() - seconds,
            seconds=seconds,
            hands_over=queue.hands_over,
            now=now,
        )
        if not outcome.preempted:
            self._observer.attempted(queue.protocol, seconds)
        if delivered:
            if queue.health.troubled_since is not None:
                self._recover(queue, now)
            self._observer.delivered(queue.protocol, now - entry.indication.accepted_at)
            self._settlements.settle(queue, entry, None)
        elif is_outdated:
            self._put_back(queue, entry, cancelled=cancelled)
        else:
            self._conclude_failure(queue, entry, outcome, began_at=began, cancelled=cancelled)
        self.arrange(queue)
        if queue.draining:
            self.retire_if_drained(queue)
        if queue.in_flight and queue.waiting.front:
            following = queue.waiting.front[0]
            queue.handler.prepare(following.indication, following.subscription.selection)

    # ------------------------------------------------------------------ what is wrong with whom

    def _conclude_failure(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        began_at: float,
        cancelled: bool,
    ) -> None:
        if outcome.preempted:
            # It stays first and waits for its turn to have a connection.
            self._put_back(queue, entry, cancelled=cancelled)
        elif outcome.hold is not None and not queue.draining:
            self._hold(queue, entry, outcome, cancelled=cancelled)
        elif outcome.result is DeliveryResult.FATAL_ERROR and outcome.hold is None:
            # This says nothing of the destination.
            entry.attempts += 1
            self._settlements.discard(
                queue, entry, DiscardReason.FATAL_ERROR, detail=outcome.detail
            )
            return
        else:
            self._fail(queue, entry, outcome, began_at=began_at, cancelled=cancelled)
        self.shutdown.failed(queue)

    def _recover(self, queue: DestinationQueue, now: float) -> None:
        self._release(queue, now)
        health = queue.health
        if health.failing_since is not None:
            events.delivery_resumed(queue, seconds=now - health.failing_since)
        health.reset()
        health.retry_now()
        self._table.note(queue)

    def _release(self, queue: DestinationQueue, now: float) -> None:
        hold = queue.release(now)
        if hold is not None:
            events.destination_released(queue, hold, seconds=now - hold.since)

    def _hold(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        cancelled: bool,
    ) -> None:
        """The destination is wrong: its queue waits, and no attempt is spent (S0.8)."""
        assert outcome.hold is not None
        now = self._clock.monotonic()
        self._put_back(queue, entry, cancelled=cancelled)
        before = queue.health.hold
        hold = queue.health.hold_for(outcome.hold, outcome.detail, now)
        if before is None or before.cause is not hold.cause:
            events.destination_held(queue, hold)
        queue.pause_or_go_on(now)
        queue.health.wait_until(now + HOLD_RETRY_SECONDS)
        self._triggers.watch(queue)
        if before != hold:
            self._table.note(queue)

    def _put_back(self, queue: DestinationQueue, entry: QueueEntry, *, cancelled: bool) -> None:
        if cancelled:
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
        cancelled: bool,
    ) -> None:
        now, before = self._clock.monotonic(), entry.attempts
        self._release(queue, now)
        entry.attempts += outcome.spends_attempt
        if outcome.refuses_indication:
            entry.refuse()
        # All entries that return from an unreachable gateway count as one failure.
        if counts := outcome.spends_attempt or queue.health.next_attempt_at is None:
            self._back_off(queue, entry, outcome, began_at=began_at, now=now)
        reason = _reason_to_give_up(queue, entry, outcome, cancelled=cancelled)
        if reason is DiscardReason.ATTEMPTS_EXCEEDED and self.shutdown.is_draining:
            # A drain brought this attempt forward, so it is not the last one.
            entry.attempts, reason = before, None
            self.shutdown.wait_no_more(queue)
        if reason is not None:
            self._settlements.discard(queue, entry, reason, detail=outcome.detail)
        elif self.shutdown.is_draining:
            # Nothing new comes, so its place is free.
            queue.waiting.put_back(entry)
        elif not queue.insert_front(entry):
            self._settlements.discard(queue, entry, DiscardReason.QUEUE_FULL)
        if reason is DiscardReason.FATAL_ERROR and entry.attempts > 1:
            # Its own attempts have already waited; the next entry may be attempted.
            queue.health.retry_now()
        if queue.health.begin_failing(now):
            events.delivery_failed(queue, outcome)
        self._triggers.watch(queue)
        if counts:
            self._table.note(queue)

    def _back_off(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        began_at: float,
        now: float,
    ) -> None:
        # All refusals of one indication count as one failure.
        if not (outcome.refuses_indication and entry.refusals > 1):
            queue.health.count_failure(began_at=began_at, now=now)
        wait = retry_wait(
            queue.retry,
            failures=queue.health.failures,
            retry_after=outcome.retry_after,
            draw=self._draw(),
        )
        queue.health.wait_until(now + wait)


def _reason_to_give_up(
    queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome, *, cancelled: bool
) -> DiscardReason | None:
    if cancelled:
        return DiscardReason.PURGED
    if not entry.subscription.active and not queue.draining:
        return DiscardReason.SUBSCRIPTION_NOT_ACTIVE
    limit = queue.retry.attempts
    is_last = limit is not None and entry.attempts > limit
    if outcome.refuses_indication and (is_last or entry.refusals >= MOST_REFUSALS):
        return DiscardReason.FATAL_ERROR
    return DiscardReason.ATTEMPTS_EXCEEDED if is_last else None


def _ended_by(queue: DestinationQueue, now: float) -> DiscardReason | None:
    """Return why the first entry is no longer attempted; None if it is, or none is loaded."""
    front = queue.waiting.front
    if not front:
        return None
    indication = front[0].indication
    if not indication.body:
        return DiscardReason.DAMAGED
    expiry = queue.expiry()
    if expiry is not None and expiry <= now:
        return DiscardReason.LIFETIME_EXPIRED
    if indication.member is None or queue.passes_gaps or not queue.gaps.is_behind(indication):
        return None
    return DiscardReason.OUT_OF_ORDER
