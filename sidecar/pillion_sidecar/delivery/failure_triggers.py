"""When subscriptions end because nothing gets through to their listener (D.3): by their own
``onFatalErrorPolicy``, and by the service's ``subscriptionRemovalAction``.

One timer serves all: for the first that is due, and at most once a second, so that ten thousand
listeners that fail in turn cost one look through the subscriptions a second.
"""

import math

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.config.resources import IndicationService, RemovalAction
from pillion_sidecar.delivery.entries import Subscription, SubscriptionEnd
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.table import DestinationTable

#: Seconds between two looks at the subscriptions at least.
LOOK_SECONDS = 1.0


class FailureTriggers:
    """Ends subscriptions once their destination has failed, or was held, for their time."""

    def __init__(self, *, clock: Clock, timers: Timers, table: DestinationTable) -> None:
        self._clock = clock
        self._timers = timers
        self._table = table
        self._service = IndicationService()
        self._timer: Timer | None = None
        self._due = math.inf
        self._looked_at = -math.inf
        self._removal_seconds = math.inf

    def apply(self, service: IndicationService) -> None:
        """Take over a revision, after the table has."""
        self.close()
        self._service = service
        acts = service.subscription_removal_action is not RemovalAction.IGNORE
        self._removal_seconds = (
            service.subscription_removal_time_interval_seconds if acts else math.inf
        )
        self._look()

    def watch(self, queue: DestinationQueue) -> None:
        """An attempt at a destination has failed, or was held."""
        if queue.relay_to is not None or queue.troubled_since is None:
            # A gateway that is away says nothing of the listener.
            return
        due = queue.troubled_since + self._table.subscriptions.least_failure_trigger
        if queue.failing_since is not None:
            due = min(due, queue.failing_since + self._removal_seconds)
        self._look_at(due)

    def close(self) -> None:
        """End nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, due: float) -> None:
        """Look when something is due at the earliest; what is due later is seen to then."""
        if self._timer is not None:
            if due >= self._due:
                return
            self._timer.cancel()
            self._timer = None
        self._due = due
        if due < math.inf:
            wake_at = max(due, self._clock.monotonic(), self._looked_at + LOOK_SECONDS)
            self._timer = self._timers.call_at(wake_at, self._look)

    def _look(self) -> None:
        self._timer = None
        self._looked_at = now = self._clock.monotonic()
        subscriptions, following = self._table.subscriptions, math.inf
        for subscription in subscriptions.active():
            for due, action, end in self._ends(subscription):
                if due > now:
                    following = min(following, due)
                    continue
                subscriptions.act(subscription, action, end)
                break
        self._look_at(following)

    def _ends(
        self, subscription: Subscription
    ) -> list[tuple[float, RemovalAction, SubscriptionEnd]]:
        """Return what would end a subscription, and when (monotonic)."""
        resource = subscription.resource
        queue = self._table.queue(resource.destination_name)
        if queue is None or not _is_tried(queue):
            return []
        ends: list[tuple[float, RemovalAction, SubscriptionEnd]] = []
        policy, service = resource.on_fatal_error_policy, self._service
        if queue.troubled_since is not None and policy is not RemovalAction.IGNORE:
            due = queue.troubled_since + resource.failure_trigger_time_interval_seconds
            ends.append((due, policy, SubscriptionEnd.FATAL_ERROR))
        action = service.subscription_removal_action
        if queue.failing_since is not None and queue.hold is None:
            due = queue.failing_since + self._removal_seconds
            ends.append((due, action, SubscriptionEnd.REMOVAL_ACTION))
        return ends


def _is_tried(queue: DestinationQueue) -> bool:
    """Whether what is known of a destination is true now: there is something to deliver to it, and
    this run has tried to; or its own resource is wrong."""
    if queue.suspended or queue.draining or queue.relay_to is not None:
        return False
    if queue.destination.fault is not None:
        return True
    return bool(queue.depth) and queue.last_outcome is not None
