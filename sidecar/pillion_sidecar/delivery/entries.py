"""Queue entries: an indication for a subscription, and the subscription's repeat suppression."""

from collections import OrderedDict, deque
from collections.abc import Hashable
from enum import StrEnum
from itertools import count
from typing import NamedTuple

import msgspec

from pillion_sidecar.clock import Timer
from pillion_sidecar.config.schema.response_policy import MOST_REFUSALS
from pillion_sidecar.config.schema.subscription import (
    IndicationSubscription,
    RepeatNotification,
    RepeatPolicy,
    SubscriptionState,
)
from pillion_sidecar.indication import Indication, Selection

#: Events remembered for each subscription. Forgetting the least recent can only let a repeat
#: through.
REMEMBERED_EVENTS = 10_000
#: Times of occurrences remembered for each subscription by ``Delay``, over all its events.
REMEMBERED_TIMES = 1_000_000
#: Base of the refusal count in ``QueueEntry.counted``.
_REFUSALS = MOST_REFUSALS + 1


class _Event:
    __slots__ = ("began", "ignored_until", "latest", "seen", "sent")

    def __init__(self) -> None:
        self.latest = float("-inf")
        # Suppress: begin of the interval, and how many were sent in it.
        self.began = float("-inf")
        self.sent = 0
        # Delay: recent occurrences, and the end of the gap.
        self.seen: deque[float] = deque()
        self.ignored_until = float("-inf")


class RepeatNotifications:
    """Decides for each occurrence of an event whether it is sent.

    * Suppress: the first ``count`` occurrences of an interval are sent; the next occurrence after
      the interval opens a new one.

    * Delay: an occurrence is sent if more than ``count`` fall inside an interval; then all are
      ignored for the gap.
    """

    def __init__(self, policy: RepeatNotification) -> None:
        self._policy = policy
        self._events: OrderedDict[Hashable, _Event] = OrderedDict()
        self._times = 0

    def admits(self, event: Hashable, *, now: float) -> bool:
        """Count one occurrence at ``now`` (monotonic) and return whether it is sent."""
        known = self._events.get(event)
        if known is None:
            known = self._events[event] = _Event()
            if len(self._events) > REMEMBERED_EVENTS:
                self._forget()
        else:
            self._events.move_to_end(event)
        # Sidecars relay out of order: a late occurrence counts with the last one.
        now = known.latest = max(known.latest, now)
        suppresses = self._policy.policy is RepeatPolicy.SUPPRESS
        sent = self._suppress(known, now) if suppresses else self._delay(known, now)
        while self._times > REMEMBERED_TIMES and len(self._events) > 1:
            self._forget()
        return sent

    def _forget(self) -> None:
        _, event = self._events.popitem(last=False)
        self._times -= len(event.seen)

    def _suppress(self, event: _Event, now: float) -> bool:
        if now - event.began >= self._policy.interval_seconds:
            event.began, event.sent = now, 0
        if event.sent >= self._policy.count:
            return False
        event.sent += 1
        return True

    def _delay(self, event: _Event, now: float) -> bool:
        if now < event.ignored_until:
            return False
        event.seen.append(now)
        self._times += 1
        while now - event.seen[0] > self._policy.interval_seconds:
            event.seen.popleft()
            self._times -= 1
        if len(event.seen) <= self._policy.count:
            return False
        self._times -= len(event.seen)
        event.seen.clear()
        event.ignored_until = now + self._policy.gap_seconds
        return True


class SubscriptionEnd(StrEnum):
    """Why a subscription is inactive. The user's resource is never changed."""

    DISABLED = "Disabled"
    EXPIRED = "Expired"
    FATAL_ERROR = "FatalError"
    REMOVAL_ACTION = "RemovalAction"
    REMOVED = "Removed"


class Subscription:
    __slots__ = (
        "began_at",
        "cause",
        "end",
        "expiry",
        "index",
        "repeats",
        "resource",
        "selection",
    )

    def __init__(
        self, resource: IndicationSubscription, *, began_at: float, index: int = 0
    ) -> None:
        """``began_at``: first loaded, in seconds since the epoch; ``index`` is the journal's."""
        self.resource = resource
        #: The properties that its filter lists; None: all.
        self.selection: Selection | None = None
        self.index = index
        self.began_at = began_at
        self.end: SubscriptionEnd | None = (
            None if resource.state is SubscriptionState.ENABLED else SubscriptionEnd.DISABLED
        )
        #: What ended it while its resource stayed unchanged.
        self.cause: SubscriptionEnd | None = None
        policy = resource.repeat_notification
        self.repeats = None if policy.policy is RepeatPolicy.NONE else RepeatNotifications(policy)
        #: Timer of subscriptionDurationSeconds.
        self.expiry: Timer | None = None

    @property
    def active(self) -> bool:
        return self.end is None

    def delivers_to(self, destination: str) -> bool:
        return self.active and self.resource.destination_name == destination


class QueueEntry(msgspec.Struct, eq=False, gc=False):
    """One (indication, subscription) pair that waits for its listener."""

    indication: Indication
    subscription: Subscription
    #: Position in the queue's count; SequenceNumber, equal for every attempt, derives from it
    #: (D.2).
    number: int
    #: Attempts and refusals in one integer: a second field costs 16 bytes an entry.
    counted: int = 0

    @property
    def attempts(self) -> int:
        return self.counted // _REFUSALS

    @attempts.setter
    def attempts(self, number: int) -> None:
        self.counted = number * _REFUSALS + self.refusals

    @property
    def refusals(self) -> int:
        """Failed attempts of this run in which the listener refused the indication; at most
        MOST_REFUSALS."""
        return self.counted % _REFUSALS

    def refuse(self) -> None:
        self.counted += self.refusals < MOST_REFUSALS


class EntryColumns(NamedTuple):
    """Entries of one queue, numbered from ``number`` on."""

    number: int
    indications: list[Indication]
    subscriptions: list[Subscription]

    @property
    def entries(self) -> list[QueueEntry]:
        return list(map(QueueEntry, self.indications, self.subscriptions, count(self.number)))
