"""The delivery service: the destination queue table and what becomes of each indication (S0).

One direction: ``offer`` takes indications over, the dispatcher starts attempts, ``conclude``
settles them. All on one event loop, so nothing here is locked.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.resources import Configuration, RemovalAction
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.discarding import DiscardTurns
from pillion_sidecar.delivery.dispatcher import Dispatcher
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.delivery.queue import DestinationQueue, QueueEntry
from pillion_sidecar.delivery.reasons import DiscardReason
from pillion_sidecar.delivery.retry import retry_wait
from pillion_sidecar.delivery.subscriptions import Subscription, SubscriptionEnd
from pillion_sidecar.delivery.table import DestinationTable, HandlerFactory
from pillion_sidecar.indication import Indication
from pillion_sidecar.intake.ports import Refusal, Target

#: What a publisher who met a full queue is told to wait, in seconds.
FULL_QUEUE_RETRY_AFTER = 1.0


class AttemptObserver(Protocol):
    """Measures attempts (telemetry's histograms)."""

    def attempted(self, protocol: str, seconds: float) -> None: ...

    def delivered(self, protocol: str, end_to_end_seconds: float) -> None: ...


class TooManyDestinations(Exception):
    """The configuration has more destinations than the deliverer may keep queues for."""

    def __init__(self, count: int, *, maximum: int) -> None:
        super().__init__(
            f"the configuration has {count} listener destinations, and this deliverer keeps at most"
            f" {maximum} destination queues: remove some, or raise --max-destinations"
        )


class DeliveryService:
    """Queues indications and delivers them, whatever their listeners do."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        call_soon: Callable[[Callable[[], None]], object],
        create_handler: HandlerFactory,
        observer: AttemptObserver,
        deliverer_id: str,
        maximum_destinations: int = 10_000,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """``deliverer_id`` makes this run's sequence contexts its own; ``draw`` gives jitter."""
        self._clock = clock
        self._timers = timers
        self._observer = observer
        self._maximum_destinations = maximum_destinations
        self._draw = draw
        self._dispatcher = Dispatcher(clock=clock, call_soon=call_soon, settling=self)
        self._table = DestinationTable(
            clock=clock,
            timers=timers,
            create_handler=create_handler,
            deliverer_id=deliverer_id,
            actions=self,
        )
        self._pending = 0
        self._emptied: set[asyncio.Event] = set()
        self._discarding = DiscardTurns(call_soon=call_soon, discard=self._discard)
        self._closed = False
        self._configuration = Configuration(revision="")

    # ------------------------------------------------------------------ configuration

    def apply(self, configuration: Configuration) -> None:
        """Take over a revision: what it adds, changes and removes, and nothing else.

        Raises :class:`TooManyDestinations`, and changes nothing, where it has more destinations
        than this deliverer is allowed to keep queues for (S0.17).
        """
        count = len(configuration.destinations)
        if count > self._maximum_destinations:
            raise TooManyDestinations(count, maximum=self._maximum_destinations)
        self._table.apply(configuration)
        self._configuration = configuration
        self._dispatcher.marks_retries = configuration.service.correlated_indications

    # ------------------------------------------------------------------ intake's side

    def offer(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        """Queue an indication for all its targets or, with a Refusal, for none.

        A subscription that has ended meanwhile, or whose repeat notification policy suppresses
        this occurrence, is not a target any more.
        """
        if self._closed and targets:
            # A request that was still being read: its publisher is to send the rest elsewhere.
            return Refusal(FULL_QUEUE_RETRY_AFTER, "the deliverer is stopping")
        now = indication.accepted_at
        resolved = self._table.resolve(targets)
        refusal = self._refusal(resolved, now)
        if refusal is not None:
            return refusal
        number = -1
        for target, subscription, queue in resolved:
            repeats = subscription.repeats
            if repeats is not None and not repeats.admits(target.event, now=now):
                continue
            indication.unsettled += 1
            following = queue.sequence.number()
            if following != number:
                # Destinations of the same indications count alike, and can share one object.
                number = following
            self._enqueue(queue, QueueEntry(indication, subscription, number))
        return None

    def _refusal(
        self, resolved: Sequence[tuple[Target, Subscription, DestinationQueue]], now: float
    ) -> Refusal | None:
        for _, _, queue in resolved:
            # Two subscriptions to one destination need two places.
            places = sum(other is queue for _, _, other in resolved) if len(resolved) > 1 else 1
            if queue.refuses(places, now=now):
                return Refusal(
                    FULL_QUEUE_RETRY_AFTER,
                    f"the queue of destination {queue.name} is full",
                    queue.name,
                )
        return None

    def _enqueue(self, queue: DestinationQueue, entry: QueueEntry) -> None:
        self._pending += 1
        evicted = queue.insert_back(entry)
        if evicted is not None:
            self._discard(queue, evicted, DiscardReason.QUEUE_FULL)
        if len(queue.waiting) == 1 or queue.max_in_flight > 1:
            self.arrange(queue)

    # ------------------------------------------------------------------ attempts

    def arrange(self, queue: DestinationQueue) -> None:
        """Make sure that the queue's next event will happen: an attempt, or a timer for one."""
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        if queue.removed or queue.suspended or not queue.waiting:
            return
        due = queue.next_attempt_at
        if due is None:
            if queue.in_flight < queue.max_in_flight:
                self._dispatcher.ready(queue)
            return
        expiry = queue.expiry()
        wake_at = due if expiry is None else min(due, expiry)
        queue.timer = self._timers.call_at(wake_at, lambda: self._wake(queue))

    def _wake(self, queue: DestinationQueue) -> None:
        queue.timer = None
        now = self._clock.monotonic()
        due = queue.next_attempt_at
        if due is not None and now >= due:
            queue.next_attempt_at = None
        self.expire(queue, now)
        self.arrange(queue)

    def expire(self, queue: DestinationQueue, now: float) -> None:
        """Discard the waiting entries whose lifetime has ended at ``now`` (D.2)."""
        if queue.suspended:
            return
        expired = []
        while (expiry := queue.expiry()) is not None and expiry <= now:
            expired.append(queue.waiting.popleft())
        if expired:
            self._discarding.add(queue, expired, DiscardReason.LIFETIME_EXPIRED)
            self._retire_if_drained(queue)

    def _retire_if_drained(self, queue: DestinationQueue) -> None:
        if queue.draining and not queue.depth:
            self._table.retire(queue)

    def conclude(
        self, queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome, seconds: float
    ) -> None:
        """Settle an entry after its attempt, or put it back for another (S0.4, S0.7)."""
        queue.record(entry, outcome, at=self._clock.time() - seconds, seconds=seconds)
        condemned = entry in queue.condemned
        if condemned:
            queue.condemned.remove(entry)
        self._observer.attempted(queue.protocol, seconds)
        if outcome.result is DeliveryResult.SUCCESS:
            self._succeed(queue, entry)
        elif outcome.result is DeliveryResult.FATAL_ERROR:
            self._fail_for_good(queue, entry, outcome)
        else:
            self._fail(queue, entry, outcome, condemned=condemned)
        self.arrange(queue)
        self._retire_if_drained(queue)

    def _succeed(self, queue: DestinationQueue, entry: QueueEntry) -> None:
        now = self._clock.monotonic()
        if queue.failing_since is not None:
            events.delivery_resumed(queue, seconds=now - queue.failing_since)
            queue.failing_since = None
            queue.failures = 0
            queue.next_attempt_at = None
        queue.delivered += 1
        queue.last_success_at = now
        self._observer.delivered(queue.protocol, now - entry.indication.accepted_at)
        self._settle(queue, entry, None)

    def _fail(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        condemned: bool,
    ) -> None:
        now = self._clock.monotonic()
        retry = queue.destination.retry
        queue.failures += 1
        queue.next_attempt_at = now + retry_wait(
            retry, failures=queue.failures, retry_after=outcome.retry_after, draw=self._draw()
        )
        entry.attempts += 1
        reason = DiscardReason.PURGED if condemned else self._reason_to_give_up(queue, entry)
        if reason is not None:
            self._discard(queue, entry, reason)
        elif not queue.insert_front(entry):
            self._discard(queue, entry, DiscardReason.QUEUE_FULL)
        self._note_failure(queue, outcome, now)

    def _reason_to_give_up(
        self, queue: DestinationQueue, entry: QueueEntry
    ) -> DiscardReason | None:
        if not entry.subscription.active and not queue.draining:
            return DiscardReason.SUBSCRIPTION_NOT_ACTIVE
        if entry.attempts > queue.destination.retry.attempts:
            return DiscardReason.ATTEMPTS_EXCEEDED
        return None

    def _note_failure(self, queue: DestinationQueue, outcome: DeliveryOutcome, now: float) -> None:
        if queue.failing_since is None:
            queue.failing_since = now
            events.delivery_failed(queue, outcome)
        service = self._configuration.service
        action = service.subscription_removal_action
        if (
            action is not RemovalAction.IGNORE
            and now - queue.failing_since >= service.subscription_removal_time_interval_seconds
        ):
            for subscription in self._table.subscriptions_of(queue):
                self._take_action(subscription, action, SubscriptionEnd.REMOVAL_ACTION)

    def _fail_for_good(
        self, queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome
    ) -> None:
        self._discard(queue, entry, DiscardReason.FATAL_ERROR)
        self._note_failure(queue, outcome, self._clock.monotonic())
        policy = entry.subscription.resource.on_fatal_error_policy
        self._take_action(entry.subscription, policy, SubscriptionEnd.FATAL_ERROR)

    def _take_action(
        self, subscription: Subscription, action: RemovalAction, end: SubscriptionEnd
    ) -> None:
        if action is RemovalAction.IGNORE:
            return
        cause = end
        if action is RemovalAction.REMOVE:
            end = SubscriptionEnd.REMOVED
        self._table.end_subscription(subscription, end, cause=cause)

    # ------------------------------------------------------------------ settlement

    def purge_subscription(self, queue: DestinationQueue, subscription: Subscription) -> None:
        """Discard what waits for a subscription that is no longer active (S0.10)."""
        ended = queue.remove_where(lambda entry: entry.subscription is subscription)
        self._discarding.add(queue, ended, DiscardReason.SUBSCRIPTION_NOT_ACTIVE)
        self.arrange(queue)

    def purge_removed(self, queue: DestinationQueue) -> None:
        """Discard everything that the queue of a removed destination holds, in flight too."""
        self._discarding.add(queue, queue.surrender(), DiscardReason.DESTINATION_REMOVED)

    def _discard(self, queue: DestinationQueue, entry: QueueEntry, reason: DiscardReason) -> None:
        queue.discarded[reason] += 1
        events.discarded(queue, entry, reason)
        self._settle(queue, entry, reason)

    def _settle(
        self, queue: DestinationQueue, entry: QueueEntry, reason: DiscardReason | None
    ) -> None:
        self._pending -= 1
        indication = entry.indication
        indication.unsettled -= 1
        for tracker in indication.trackers:
            tracker.settled(indication, queue.name, reason)
        if not self._pending:
            for emptied in self._emptied:
                emptied.set()

    # ------------------------------------------------------------------ administration

    @property
    def pending(self) -> int:
        """(Indication, subscription) pairs that are not settled."""
        return self._pending

    def queues(self) -> Iterable[DestinationQueue]:
        """All destination queues."""
        return self._table.queues()

    def all_queues(self) -> Iterable[DestinationQueue]:
        """All destination queues, those too that drain behind a new one of their name."""
        return self._table.all_queues()

    def ended_subscriptions(self) -> Sequence[Subscription]:
        """The subscriptions that ended while their own resources stayed as they were."""
        return self._table.ended_subscriptions()

    def queue(self, name: str) -> DestinationQueue | None:
        """The queue of one destination; None without one."""
        return self._table.queue(name)

    def skip(self, name: str) -> bool:
        """Give up the first indication of a queue and go on with the next; False without one.

        One that is in flight is let arrive, but not tried again.
        """
        queue = self._table.queue(name)
        if queue is None or not queue.depth:
            return False
        if queue.flying:
            queue.condemned = list(queue.flying)
        else:
            self._discard(queue, queue.waiting.popleft(), DiscardReason.PURGED)
        queue.next_attempt_at = None
        self.arrange(queue)
        self._retire_if_drained(queue)
        return True

    def purge(self, name: str) -> int | None:
        """Discard all that waits in a queue; return how many, None without such a queue."""
        queue = self._table.queue(name)
        if queue is None:
            return None
        queue.condemned = list(queue.flying)
        purged = queue.remove_where(lambda _: True)
        self._discarding.add(queue, purged, DiscardReason.PURGED)
        self.arrange(queue)
        self._retire_if_drained(queue)
        return len(purged)

    def hasten(self) -> None:
        """Attempt at once whatever waits for a retry interval."""
        for queue in self._table.all_queues():
            queue.next_attempt_at = None
            self.arrange(queue)

    # ------------------------------------------------------------------ the end

    async def drain(self, grace_seconds: float) -> int:
        """Deliver for at most ``grace_seconds``; return how many pairs are left (S0.14)."""
        if self._pending and grace_seconds > 0:
            emptied = asyncio.Event()
            self._emptied.add(emptied)
            self.hasten()
            deadline = self._timers.call_later(grace_seconds, emptied.set)
            try:
                await emptied.wait()
            finally:
                deadline.cancel()
                self._emptied.discard(emptied)
        return self._pending

    def close(self) -> None:
        """Stop; discard what is left, each logged, with one line for each destination (S0.14)."""
        self._closed = True
        self._discarding.finish()
        self._table.end_subscriptions()
        for queue in self._table.all_queues():
            self._table.retire(queue)
            entries = queue.surrender()
            for entry in entries:
                self._discard(queue, entry, DiscardReason.SHUTDOWN)
            if entries:
                events.left_at_shutdown(queue, len(entries))
