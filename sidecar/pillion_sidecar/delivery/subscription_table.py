"""The subscriptions of a deliverer: revisions, activity, their end (D.3), and what survives a
restart."""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.config.schema.common import RemovalAction
from pillion_sidecar.config.schema.service import IndicationService
from pillion_sidecar.config.schema.subscription import IndicationSubscription, SubscriptionState
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.entries import Subscription, SubscriptionEnd
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.direct import is_direct
from pillion_sidecar.indication import Selection
from pillion_sidecar.journal.ports import (
    Journal,
    Recovered,
    RecoveredSubscription,
    SubscriptionRecord,
)

#: Minimum seconds between two checks of the subscriptions.
LOOK_SECONDS = 1.0
#: No part of the digest: the API server sets it.
_LEFT_OUT = frozenset(("created_at",))


def record_of(subscription: Subscription) -> SubscriptionRecord | None:
    """Return what the journal keeps of a subscription; None if its resource says everything."""
    resource = subscription.resource
    began_here = resource.duration_seconds is not None and resource.created_at is None
    if subscription.cause is None and not began_here:
        return None
    return SubscriptionRecord(
        uid=resource.uid,
        began_at=subscription.began_at,
        resource=digest_of(resource),
        end=None if subscription.end is None else subscription.end.value,
        cause=None if subscription.cause is None else subscription.cause.value,
    )


def empty_record(resource: IndicationSubscription) -> SubscriptionRecord:
    return SubscriptionRecord(uid=resource.uid)


def resume(subscription: Subscription, record: SubscriptionRecord) -> None:
    """Restore the state of the previous run; an end holds only while the resource is unchanged."""
    if record.began_at is not None:
        subscription.began_at = min(subscription.began_at, record.began_at)
    if record.cause is None or record.end is None or not subscription.active:
        return
    if record.resource == digest_of(subscription.resource):
        subscription.end = SubscriptionEnd(record.end)
        subscription.cause = SubscriptionEnd(record.cause)


def digest_of(resource: IndicationSubscription) -> bytes:
    """Return 16 bytes that identify all that a subscription's resource says.

    Without defaults, so that a later version with more fields gets the same digest.
    """
    return hashlib.sha256(repr(_without_defaults(resource)).encode()).digest()[:16]


def _without_defaults(value: Any) -> Any:
    if not dataclasses.is_dataclass(value):
        return value
    return [
        (field.name, _without_defaults(getattr(value, field.name)))
        for field in sorted(dataclasses.fields(value), key=lambda one: one.name)
        if field.name not in _LEFT_OUT and getattr(value, field.name) != field.default
    ]


class PurgeSubscription(Protocol):
    def __call__(self, queue: DestinationQueue, subscription: Subscription) -> None: ...


class SubscriptionTable:
    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        queue: Callable[[str], DestinationQueue | None],
        purge: PurgeSubscription,
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._queue = queue
        self._purge = purge
        self._subscriptions: dict[str, Subscription] = {}
        # ``apply`` changes this dict in place.
        self.get = self._subscriptions.get
        # With ended ones, since entries may still refer to them.
        self._at: dict[int, Subscription] = {}
        #: Minimum ``failureTriggerTimeIntervalSeconds`` of those with an ``onFatalErrorPolicy``.
        self.least_failure_trigger = math.inf

    def open(self, journal: Journal, recovered: Recovered) -> None:
        """Restore from the journal, before the first revision."""
        self._journal = journal
        self._recovered = recovered.subscriptions
        # Those that the first revision has not adopted.
        self._records = dict(recovered.subscription_records)

    def at(self, index: int) -> Subscription:
        """The one with a journal index; if it is gone, an ended stand-in, which is kept."""
        found = self._at.get(index)
        if found is None:
            # Damage may have taken the name but left entries with the index.
            lost = f"(subscription {index}, whose name is lost)"
            known = self._recovered.get(index) or RecoveredSubscription("", lost, "")
            found = gone_subscription(known, index=index, now=self._clock.time())
            self._at[index] = found
        return found

    def active(self) -> list[Subscription]:
        return [one for one in self._subscriptions.values() if one.active]

    def ended(self) -> list[Subscription]:
        return [one for one in self._subscriptions.values() if one.cause is not None]

    def apply(
        self,
        resources: Mapping[str, IndicationSubscription],
        selections: Mapping[str, Selection],
    ) -> None:
        """Apply a revision. ``selections``: by the names of the filters that list properties."""
        before = dict(self._subscriptions)
        self._subscriptions.clear()
        for name, resource in resources.items():
            known = before.pop(name, None)
            if known is not None and (known.resource is resource or known.resource == resource):
                self._subscriptions[name] = known
                continue
            self._subscriptions[name] = self._replace(known, resource)
        for subscription in self._subscriptions.values():
            subscription.selection = selections.get(subscription.resource.filter_name)
        for subscription in before.values():
            self._forget(subscription)
            self._end(subscription, SubscriptionEnd.REMOVED)
        self._records = {}
        self.least_failure_trigger = min(
            (
                resource.failure_trigger_time_interval_seconds
                for resource in resources.values()
                if resource.on_fatal_error_policy is not RemovalAction.IGNORE
            ),
            default=math.inf,
        )

    def add(self, resource: IndicationSubscription) -> Subscription:
        """Add a new subscription between two revisions, each of which must name it again."""
        added = self._subscriptions[resource.name] = self._replace(None, resource)
        return added

    def _replace(
        self, known: Subscription | None, resource: IndicationSubscription
    ) -> Subscription:
        began_at = self._clock.time()
        if known is not None and known.resource.uid == resource.uid:
            began_at = known.began_at
        index = self._journal.subscription(
            uid=resource.uid, name=resource.name, filter_name=resource.filter_name
        )
        subscription = Subscription(resource, began_at=began_at, index=index)
        if known is None and (record := self._records.pop(resource.uid, None)) is not None:
            resume(subscription, record)
        if known is not None:
            self._forget(known)
            if same_subscription(known.resource, resource) and subscription.active:
                # Queued entries stay: they refer to the running object.
                self._cancel_expiry(known)
                known.resource, known.end, known.repeats = (
                    resource,
                    subscription.end,
                    subscription.repeats,
                )
                known.cause = None
                subscription = known
            else:
                self._end(known, SubscriptionEnd.DISABLED)
        self._at[index] = subscription
        self._start_duration(subscription)
        self._note(subscription)
        return subscription

    def _note(self, subscription: Subscription) -> None:
        record = record_of(subscription)
        if record is not None:
            self._journal.note_subscription(record)

    def _forget(self, subscription: Subscription) -> None:
        if record_of(subscription) is not None:
            self._journal.note_subscription(empty_record(subscription.resource))

    def records(self) -> list[SubscriptionRecord]:
        found = [record_of(one) for one in self._subscriptions.values()]
        return [record for record in found if record is not None]

    def _start_duration(self, subscription: Subscription) -> None:
        resource = subscription.resource
        if resource.duration_seconds is None or not subscription.active:
            return
        began_at = subscription.began_at if resource.created_at is None else resource.created_at
        remaining = resource.duration_seconds - max(0.0, self._clock.time() - began_at)
        if remaining <= 0:
            self.end(subscription, SubscriptionEnd.EXPIRED)
            return
        subscription.expiry = self._timers.call_later(
            remaining, lambda: self.end(subscription, SubscriptionEnd.EXPIRED)
        )

    def end(
        self,
        subscription: Subscription,
        end: SubscriptionEnd,
        *,
        cause: SubscriptionEnd | None = None,
    ) -> None:
        """End a subscription whose resource stays unchanged (D.3), and log it.

        ``cause``: what led to that end, unless the end itself says so.
        """
        if subscription.active:
            subscription.cause = cause or end
            self._end(subscription, end)
            self._note(subscription)
            events.subscription_ended(subscription)

    def act(self, subscription: Subscription, action: RemovalAction, end: SubscriptionEnd) -> None:
        """End a subscription by a removal action of DSP1054 (D.3)."""
        if action is RemovalAction.REMOVE:
            self.end(subscription, SubscriptionEnd.REMOVED, cause=end)
        elif action is RemovalAction.DISABLE:
            self.end(subscription, end)

    def _end(self, subscription: Subscription, end: SubscriptionEnd) -> None:
        self._cancel_expiry(subscription)
        subscription.end = end
        queue = self._queue(subscription.resource.destination_name)
        if queue is not None:
            self._purge(queue, subscription)

    def close(self) -> None:
        for subscription in self._subscriptions.values():
            self._cancel_expiry(subscription)

    def _cancel_expiry(self, subscription: Subscription) -> None:
        if subscription.expiry is not None:
            subscription.expiry.cancel()
            subscription.expiry = None


def same_subscription(before: IndicationSubscription, after: IndicationSubscription) -> bool:
    """Whether a changed resource is still the subscription that entries were queued for."""
    return (before.uid, before.destination_name) == (after.uid, after.destination_name)


def gone_subscription(known: RecoveredSubscription, *, index: int, now: float) -> Subscription:
    """Return a stand-in for a subscription that is gone; ``now`` is in seconds since the epoch."""
    resource = IndicationSubscription(
        name=known.name,
        uid=known.uid,
        filter_name=known.filter_name,
        destination_name="",
        state=SubscriptionState.DISABLED,
    )
    return Subscription(resource, began_at=now, index=index)


class FailureTriggers:
    """Ends subscriptions whose destination has failed, or was held, for their time (D.3): by
    ``onFatalErrorPolicy`` and ``subscriptionRemovalAction``.

    One timer serves all and fires at most once a second, whatever the number of failing listeners.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        subscriptions: SubscriptionTable,
        queue: Callable[[str], DestinationQueue | None],
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._subscriptions = subscriptions
        self._queue = queue
        self._service = IndicationService()
        self._timer: Timer | None = None
        self._due = math.inf
        self._looked_at = -math.inf
        self._removal_seconds = math.inf

    def apply(self, service: IndicationService) -> None:
        """Apply a revision, after the table."""
        self.close()
        self._service = service
        acts = service.subscription_removal_action is not RemovalAction.IGNORE
        self._removal_seconds = (
            service.subscription_removal_time_interval_seconds if acts else math.inf
        )
        self._look()

    def watch(self, queue: DestinationQueue) -> None:
        if queue.relay_to is not None or queue.health.troubled_since is None:
            # An unreachable gateway says nothing of the listener.
            return
        due = queue.health.troubled_since + self._subscriptions.least_failure_trigger
        if queue.health.failing_since is not None:
            due = min(due, queue.health.failing_since + self._removal_seconds)
        self._look_at(due)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_at(self, due: float) -> None:
        """Schedule the next check, no later than ``due``."""
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
        subscriptions, following = self._subscriptions, math.inf
        for subscription in subscriptions.active():
            for due, action, end in self._due_removals(subscription):
                if due > now:
                    following = min(following, due)
                    continue
                subscriptions.act(subscription, action, end)
                break
        self._look_at(following)

    def _due_removals(
        self, subscription: Subscription
    ) -> list[tuple[float, RemovalAction, SubscriptionEnd]]:
        """Return what would end a subscription, and when (monotonic)."""
        resource = subscription.resource
        queue = self._queue(resource.destination_name)
        if queue is None or not _is_tried(queue) or is_direct(resource):
            return []
        ends: list[tuple[float, RemovalAction, SubscriptionEnd]] = []
        policy, service = resource.on_fatal_error_policy, self._service
        if queue.health.troubled_since is not None and policy is not RemovalAction.IGNORE:
            due = queue.health.troubled_since + resource.failure_trigger_time_interval_seconds
            ends.append((due, policy, SubscriptionEnd.FATAL_ERROR))
        action = service.subscription_removal_action
        if queue.health.failing_since is not None and not queue.health.is_held:
            due = queue.health.failing_since + self._removal_seconds
            ends.append((due, action, SubscriptionEnd.REMOVAL_ACTION))
        return ends


def _is_tried(queue: DestinationQueue) -> bool:
    """Whether the known trouble is current: this run has tried to deliver something, or the
    resource itself is wrong."""
    if queue.suspended or queue.draining or queue.relay_to is not None:
        return False
    if queue.destination.fault is not None:
        return True
    return bool(queue.depth) and queue.statistics.is_tried
