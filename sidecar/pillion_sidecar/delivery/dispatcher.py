"""The dispatcher: starts attempts in a fair round without polling, and applies their outcomes
(S0.4, S0.5, S0.7, S0.8, S0.15, S0.17).

Each turn takes one indication of each queue that can attempt, and is bounded, so that sockets are
served. A queue that has just delivered continues immediately: the event loop brings one answer of
each listener before a second one, so this is as fair as the round.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from pillion_sidecar.clock import Clock, Slices, Timers
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    HoldCause,
)
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.response_policy import (
    Reaction,
    opens_breaker,
    pause_of,
    reaction_to,
    refuses_indication,
    stopped_seconds,
)
from pillion_sidecar.delivery.retry import retry_wait
from pillion_sidecar.delivery.settlement import Settlements
from pillion_sidecar.delivery.shutdown import Shutdown
from pillion_sidecar.delivery.subscription_table import FailureTriggers
from pillion_sidecar.delivery.table import AttemptObserver, DestinationTable
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.ports import DeliveryLease
from pillion_sidecar.pacing import Pace

#: Attempts per turn of the event loop.
ATTEMPTS_PER_TURN = 4
#: Attempts of a queue at a time where several go together: each delivery makes room for more than
#: one, so that batches grow to what the queue has.
ATTEMPTS_OF_BATCH = 2
#: Expired entries that one turn of the event loop takes from a queue.
EXPIRED_PER_TURN = 256
Done: TypeAlias = Callable[[DeliveryOutcome], None]
#: Begins the span of an attempt: returns what to call with its outcome instead of ``done``, and may
#: set ``Delivery.span``.
BeginSpan: TypeAlias = Callable[[DestinationQueue, Delivery, Done], Done]


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
        begin_span: BeginSpan | None = None,
        slices: Slices | None = None,
        lease: DeliveryLease | None = None,
    ) -> None:
        """``draw`` gives jitter; ``triggers`` is told of each failed attempt. Queues in trouble
        are tried again in ``slices``; None: at once when it is due. ``lease``: see ``Journal``."""
        self._clock = clock
        self._timers = timers
        self._call_soon = call_soon
        self._table = table
        self._settlements = settlements
        self._observer = observer
        self._draw = draw
        self._triggers = triggers
        self._begin_span = begin_span
        self._slices = slices
        # The queues that wait there.
        self._waking: set[DestinationQueue] = set()
        # The queues that can attempt, in order.
        self._round: OrderedDict[DestinationQueue, None] = OrderedDict()
        self._scheduled = False
        # Guard against reentry: a handler may answer from within ``deliver``.
        self._is_attempting_round = self._is_attempting_next = False
        # Queues that may have more expired entries than one turn takes.
        self._expiring: set[DestinationQueue] = set()
        self.marks_retries = False
        self._lease = lease
        if lease is not None:
            lease.follow(self._go_on)

    # ------------------------------------------------------------------ what happens next

    def arrange(self, queue: DestinationQueue) -> None:
        """Schedule the queue's next event: an attempt, or a timer for one."""
        if queue.timer is not None:
            self._cancel_timer(queue)
        if queue.removed or queue.suspended:
            return
        due = queue.health.next_attempt_at
        if not queue.waiting.front:
            self._await_entries(queue)
            return
        if due is None and queue.gather_seconds:
            due = self._gathered_at(queue)
        if due is None:
            if len(queue.in_flight) >= queue.max_in_flight:
                return
            if queue.pace is None or (due := self._paced_at(queue.pace)) is None:
                self._join_round(queue)
                return
        expiry = queue.expiry()
        wake_at = due if expiry is None else min(due, expiry)
        if wake_at == math.inf:
            return
        queue.schedule(self._timers.call_at(wake_at, lambda: self._due(queue)))

    def _await_entries(self, queue: DestinationQueue) -> None:
        if queue.waiting.count:
            # ``arrange`` runs again once some are loaded.
            queue.waiting.refill()
        elif queue.health.next_attempt_at is not None and not queue.in_flight:
            # The next indication is tried immediately (S0.2): a retry wait applies to what is
            # queued.
            queue.health.hurry()

    def _cancel_timer(self, queue: DestinationQueue) -> None:
        queue.schedule(None)
        if queue.pace is not None:
            queue.pace.go_on(self._clock.monotonic())

    def _gathered_at(self, queue: DestinationQueue) -> float | None:
        if self.shutdown.is_draining:
            return None
        return queue.gathered_at(self._clock.monotonic())

    def _paced_at(self, pace: Pace) -> float | None:
        now, due = self._clock.monotonic(), pace.due()
        if due <= now:
            return None
        pace.wait(now)
        return due

    def _due(self, queue: DestinationQueue) -> None:
        if self._slices is None or queue.health.troubled_since is None:
            self._wake(queue)
        elif queue not in self._waking:
            # It keeps its place there, whatever comes meanwhile.
            self._waking.add(queue)
            self._slices.add(partial(self._wake_in_turn, queue))

    def _wake_in_turn(self, queue: DestinationQueue) -> None:
        self._waking.discard(queue)
        if not queue.removed:
            self._wake(queue)

    def _wake(self, queue: DestinationQueue) -> None:
        self._cancel_timer(queue)
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
        most = 1
        if queue.most_together > 1:
            gathers = queue.gather_seconds and not queue.in_flight
            most = queue.most_together if gathers else ATTEMPTS_OF_BATCH
        for _ in range(most):
            if not self._attempt_next(queue) or len(queue.in_flight) >= queue.max_in_flight:
                return
        if queue.waiting.count:
            self._join_round(queue)

    def _go_on(self) -> None:
        for queue in self._table.all_queues():
            self.arrange(queue)

    def _attempt_next(self, queue: DestinationQueue) -> bool:
        if queue.suspended or (self._lease is not None and not self._lease.holds()):
            return False
        now = self._clock.monotonic()
        if _ended_by(queue, now) is not None:
            self._discard_ended(queue, now)
        if queue in self._expiring or queue.removed or queue.health.next_attempt_at is not None:
            return False
        pace = queue.pace
        if pace is not None and pace.due() > now:
            self.arrange(queue)
            return False
        entry = queue.take(now=now)
        if entry is None:
            return False
        if pace is not None:
            pace.spend(now)
        attempts, sequence, sends = entry.attempts, queue.sequence, queue.sends_identifiers
        delivery = Delivery(
            indication=entry.indication,
            filter_name=entry.subscription.resource.filter_name,
            sequence_context=sequence.context if sends else None,
            sequence_number=sequence.sequence_number(entry.number) if sends else None,
            attempt=attempts + 1,
            correlated=(self.marks_retries and attempts > 0) or bool(entry.indication.redrives),
            subscription=entry.subscription.resource.uid,
            selection=entry.subscription.selection,
        )
        done: Done = partial(self._done, queue, entry, now)
        if self._begin_span is not None:
            done = self._begin_span(queue, delivery, done)
        queue.handler.deliver(delivery, done)
        return True

    def _done(
        self, queue: DestinationQueue, entry: QueueEntry, began: float, outcome: DeliveryOutcome
    ) -> None:
        if self._is_attempting_next:
            # The previous one is settled first.
            self._call_soon(partial(self._done, queue, entry, began, outcome))
            return
        # What stops a destination may be what was changed meanwhile: it is tried anew, at once.
        is_outdated = (
            outcome.result is not DeliveryResult.SUCCESS
            and queue.is_outdated(entry)
            and _reaction(queue, outcome).hold is not None
        )
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
            age = now - entry.indication.accepted_at
            queue.throughput.deliver(age - queue.gather_seconds, now)
            self._observer.delivered(queue.protocol, age)
            self._settlements.deliver(queue, entry, outcome, began)
        elif is_outdated:
            self._put_back(queue, entry, cancelled=cancelled)
        else:
            self._conclude_failure(queue, entry, outcome, began_at=began, cancelled=cancelled)
        self.arrange(queue)
        if queue.draining:
            self.retire_if_drained(queue)
        if queue.in_flight and queue.waiting.front and queue.most_together == 1:
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
        elif outcome.result is DeliveryResult.FATAL_ERROR and outcome.hold is None:
            # This says nothing of the destination.
            self._settlements.records.attempted(queue, entry, outcome, began_at)
            entry.attempts += 1
            self._settlements.discard(
                queue, entry, DiscardReason.FATAL_ERROR, detail=outcome.detail
            )
            return
        else:
            self._settlements.records.attempted(queue, entry, outcome, began_at)
            reaction = _reaction(queue, outcome)
            if reaction.hold is not None:
                self._hold(queue, entry, outcome, reaction.hold, cancelled=cancelled)
            else:
                self._fail(
                    queue,
                    entry,
                    outcome,
                    discard_after=reaction.discard_after,
                    began_at=began_at,
                    cancelled=cancelled,
                )
        self.shutdown.failed(queue)

    def _recover(self, queue: DestinationQueue, now: float) -> None:
        self._release(queue, now)
        health = queue.health
        if health.failing_since is not None and health.is_failure_told:
            events.delivery_resumed(queue, seconds=now - health.failing_since)
        health.reset()
        health.retry_now()
        # What was late for the trouble says nothing of the listener's pace.
        queue.throughput.catch_up()
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
        cause: HoldCause,
        *,
        cancelled: bool,
    ) -> None:
        """The destination is wrong, or paused: its queue waits, and no attempt is spent (S0.8)."""
        now, before = self._clock.monotonic(), queue.health.hold
        self._put_back(queue, entry, cancelled=cancelled)
        if cause.is_pause and queue.health.begin_failing(now):
            events.delivery_failed(queue, outcome)
        goes_on = before is not None and before.cause is cause and cause.is_pause
        # What paused it, whatever a later attempt has met.
        message = before.message if before is not None and goes_on else outcome.detail
        if cause is HoldCause.DISABLED:
            message = f"{outcome.detail}; by responsePolicy, it is disabled until its spec changes"
        self._stop(queue, outcome, cause, message)
        self._triggers.watch(queue)

    def _stop(
        self, queue: DestinationQueue, outcome: DeliveryOutcome, cause: HoldCause, message: str
    ) -> None:
        now, before = self._clock.monotonic(), queue.health.hold
        hold = queue.health.hold_for(cause, message, now)
        is_known = before is not None and before.cause is cause and before.is_told
        if hold.is_told and not is_known:
            tell = events.destination_paused if cause.is_pause else events.destination_held
            tell(queue, hold)
        queue.pause_or_go_on(now)
        queue.health.wait_until(now + stopped_seconds(queue, outcome, cause))
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
        discard_after: int | None,
        began_at: float,
        cancelled: bool,
    ) -> None:
        now, before = self._clock.monotonic(), entry.attempts
        self._release(queue, now)
        counted = not queue.health.is_brought_forward
        entry.attempts += outcome.spends_attempt and counted
        if discard_after is not None and counted:
            entry.refuse()
            queue.health.note_refusal(discard_after)
        # All entries that return from an unreachable gateway count as one failure.
        if counts := outcome.spends_attempt or queue.health.next_attempt_at is None:
            is_repeated = refuses_indication(outcome, discard_after) and entry.refusals > 1
            self._back_off(queue, outcome, is_repeated=is_repeated, began_at=began_at, now=now)
        reason = _reason_to_give_up(queue, entry, discard_after, cancelled=cancelled)
        if reason is DiscardReason.ATTEMPTS_EXCEEDED and self.shutdown.is_draining:
            # A drain brought this attempt forward, so it is not the last one.
            entry.attempts, reason = before, None
            self.shutdown.wait_no_more(queue)
        if reason is not None:
            self._settlements.discard(queue, entry, reason, detail=outcome.detail)
        else:
            self._return(queue, entry)
        answers_at_once = discard_after == 1 and outcome.no_answer is None
        if reason is DiscardReason.FATAL_ERROR and (entry.attempts > 1 or answers_at_once):
            # Its own attempts have already waited, or a rule wants none: the next entry may be
            # attempted.
            queue.health.retry_now()
        if queue.health.begin_failing(now):
            events.delivery_failed(queue, outcome)
        if not refuses_indication(outcome, discard_after) and opens_breaker(queue):
            failures = queue.health.failures
            told = "an attempt has" if failures == 1 else f"{failures} attempts in a row have"
            message = f"{told} failed: {outcome.detail}"
            self._stop(queue, outcome, HoldCause.CIRCUIT_BREAKER, message)
        self._triggers.watch(queue)
        if counts:
            self._table.note(queue)

    def _return(self, queue: DestinationQueue, entry: QueueEntry) -> None:
        if self.shutdown.is_draining:
            # Nothing new comes, so its place is free.
            queue.waiting.put_back(entry)
        elif not queue.insert_front(entry):
            self._settlements.discard(queue, entry, DiscardReason.QUEUE_FULL)

    def _back_off(
        self,
        queue: DestinationQueue,
        outcome: DeliveryOutcome,
        *,
        is_repeated: bool,
        began_at: float,
        now: float,
    ) -> None:
        """``is_repeated``: this indication was refused before; all its refusals count as one
        failure."""
        if not is_repeated:
            queue.health.count_failure(began_at=began_at, now=now)
        wait = retry_wait(
            queue.retry,
            failures=queue.health.failures,
            retry_after=outcome.retry_after,
            draw=self._draw(),
        )
        queue.health.wait_until(now + wait)


def _reaction(queue: DestinationQueue, outcome: DeliveryOutcome) -> Reaction:
    # What a gateway answers says nothing of the listener.
    rules = queue.destination.response_policy if queue.relay_to is None else ()
    reaction = reaction_to(outcome, rules)
    if queue.draining:
        # Its resource is gone, so nothing would end the hold.
        return reaction._replace(hold=None)
    return (
        reaction
        if reaction.hold is not None
        else reaction._replace(hold=pause_of(queue, outcome, reaction))
    )


def _reason_to_give_up(
    queue: DestinationQueue, entry: QueueEntry, discard_after: int | None, *, cancelled: bool
) -> DiscardReason | None:
    if cancelled:
        return DiscardReason.PURGED
    if not entry.subscription.active and not queue.draining:
        return DiscardReason.SUBSCRIPTION_NOT_ACTIVE
    limit = queue.retry.attempts
    is_last = limit is not None and entry.attempts > limit
    if discard_after is not None and (is_last or entry.refusals >= discard_after):
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
