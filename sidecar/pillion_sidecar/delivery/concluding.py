"""What the outcome of an attempt means for its entry, its queue and its subscription (S0.4, S0.7,
S0.8)."""

from collections.abc import Callable

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.resources import IndicationService, RemovalAction
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.entry import QueueEntry
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.delivery.limits import AttemptObserver
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.reasons import DiscardReason
from pillion_sidecar.delivery.retry import retry_wait
from pillion_sidecar.delivery.settling import Settlements
from pillion_sidecar.delivery.subscriptions import SubscriptionEnd
from pillion_sidecar.delivery.table import DestinationTable


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
        failed: Callable[[DestinationQueue], None],
    ) -> None:
        """``draw`` gives jitter; ``failed`` is told of each attempt that another one may mend."""
        self._clock = clock
        self._table = table
        self._settlements = settlements
        self._observer = observer
        self._draw = draw
        self._tell_failure = failed
        #: Says what becomes of subscriptions whose listener fails for long.
        self.service = IndicationService()

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
            self._tell_failure(queue)

    def _succeed(self, queue: DestinationQueue, entry: QueueEntry) -> None:
        now = self._clock.monotonic()
        if queue.failing_since is not None:
            events.delivery_resumed(queue, seconds=now - queue.failing_since)
            queue.failing_since = None
            queue.failures = 0
            queue.next_attempt_at = None
            self._table.note(queue)
        if queue.hands_over:
            queue.handed_over += 1
        else:
            queue.delivered += 1
        queue.last_success_at = now
        self._observer.delivered(queue.protocol, now - entry.indication.accepted_at)
        self._settlements.settle(queue, entry, None)

    def _fail(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        condemned: bool,
    ) -> None:
        now = self._clock.monotonic()
        entry.attempts += outcome.spends_attempt
        # What comes back from the way to a gateway comes back together, and is one failure.
        if counts := outcome.spends_attempt or queue.next_attempt_at is None:
            self._wait_to_retry(queue, outcome, now)
        reason = DiscardReason.PURGED if condemned else self._reason_to_give_up(queue, entry)
        if reason is not None:
            self._settlements.discard(queue, entry, reason)
        elif not queue.insert_front(entry):
            self._settlements.discard(queue, entry, DiscardReason.QUEUE_FULL)
        self._note_failure(queue, outcome, now)
        if counts:
            self._table.note(queue)

    def _wait_to_retry(self, queue: DestinationQueue, outcome: DeliveryOutcome, now: float) -> None:
        queue.failures += 1
        queue.next_attempt_at = now + retry_wait(
            queue.retry, failures=queue.failures, retry_after=outcome.retry_after, draw=self._draw()
        )

    def _reason_to_give_up(
        self, queue: DestinationQueue, entry: QueueEntry
    ) -> DiscardReason | None:
        if not entry.subscription.active and not queue.draining:
            return DiscardReason.SUBSCRIPTION_NOT_ACTIVE
        if queue.retry.attempts is not None and entry.attempts > queue.retry.attempts:
            return DiscardReason.ATTEMPTS_EXCEEDED
        return None

    def _note_failure(self, queue: DestinationQueue, outcome: DeliveryOutcome, now: float) -> None:
        if queue.failing_since is None:
            queue.failing_since = now
            events.delivery_failed(queue, outcome)
        service = self.service
        action = service.subscription_removal_action
        if (
            outcome.spends_attempt
            and action is not RemovalAction.IGNORE
            and now - queue.failing_since >= service.subscription_removal_time_interval_seconds
        ):
            for subscription in self._table.subscriptions.of(queue):
                self._table.subscriptions.act(subscription, action, SubscriptionEnd.REMOVAL_ACTION)

    def _fail_for_good(
        self, queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome
    ) -> None:
        self._settlements.discard(queue, entry, DiscardReason.FATAL_ERROR)
        self._note_failure(queue, outcome, self._clock.monotonic())
        if queue.relay_to is None:
            # What a gateway refuses says nothing of the listener.
            policy = entry.subscription.resource.on_fatal_error_policy
            self._table.subscriptions.act(entry.subscription, policy, SubscriptionEnd.FATAL_ERROR)
