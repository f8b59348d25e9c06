"""What a destination queue holds: an indication for a subscription, which suppresses repeats."""

from collections import OrderedDict, deque
from collections.abc import Hashable
from enum import StrEnum

import msgspec

from pillion_sidecar.clock import Timer
from pillion_sidecar.config.schema.subscription import (
    IndicationSubscription,
    RepeatNotification,
    RepeatPolicy,
    SubscriptionState,
)
from pillion_sidecar.indication import Indication

#: Events remembered for each subscription; beyond it the least recent is forgotten, which can
#: only let a repeat through that would have been suppressed.
REMEMBERED_EVENTS = 10_000
#: Times of occurrences remembered for each subscription by ``Delay``, all its events together.
REMEMBERED_TIMES = 1_000_000
#: Attempts at an indication that its listener refuses, whatever the retry policy.
MOST_REFUSALS = 3
#: Numbers of refusals that are told apart.
_REFUSALS = MOST_REFUSALS + 1


class _Event:
    __slots__ = ("began", "ignored_until", "latest", "seen", "sent")

    def __init__(self) -> None:
        self.latest = float("-inf")
        # Suppress: when its interval began, and how many were sent in it.
        self.began = float("-inf")
        self.sent = 0
        # Delay: when it occurred lately, and until when it is ignored.
        self.seen: deque[float] = deque()
        self.ignored_until = float("-inf")


class RepeatNotifications:
    """Decides for each occurrence of an event whether it is sent.

    * Suppress: the first ``count`` occurrences inside an interval are sent, the others are not; the
      next occurrence after the interval opens a new one.
    * Delay: nothing is sent until more than ``count`` occurrences fall inside an interval; that
      one is sent, and then all are ignored for the gap.
    """

    def __init__(self, policy: RepeatNotification) -> None:
        self._policy = policy
        self._events: OrderedDict[Hashable, _Event] = OrderedDict()
        self._times = 0

    def admits(self, event: Hashable, *, now: float) -> bool:
        """Count one occurrence of ``event`` at ``now`` (monotonic) and say whether it is sent."""
        known = self._events.get(event)
        if known is None:
            known = self._events[event] = _Event()
            if len(self._events) > REMEMBERED_EVENTS:
                self._forget()
        else:
            self._events.move_to_end(event)
        # What several sidecars relay does not come in order: a late one counts with the last.
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
    """Why a subscription is no longer active. The user's resource is never changed by it."""

    DISABLED = "Disabled"
    EXPIRED = "Expired"
    FATAL_ERROR = "FatalError"
    REMOVAL_ACTION = "RemovalAction"
    REMOVED = "Removed"


class Subscription:
    """The running form of an IndicationSubscription."""

    __slots__ = ("began_at", "cause", "end", "expiry", "index", "repeats", "resource")

    def __init__(
        self, resource: IndicationSubscription, *, began_at: float, index: int = 0
    ) -> None:
        """``began_at``: when it was first loaded, in seconds since the epoch; ``index`` is the
        journal's."""
        self.resource = resource
        self.index = index
        self.began_at = began_at
        self.end: SubscriptionEnd | None = (
            None if resource.state is SubscriptionState.ENABLED else SubscriptionEnd.DISABLED
        )
        #: What ended it while its own resource stayed as it was; None otherwise.
        self.cause: SubscriptionEnd | None = None
        policy = resource.repeat_notification
        self.repeats = None if policy.policy is RepeatPolicy.NONE else RepeatNotifications(policy)
        #: The timer of subscriptionDurationSeconds.
        self.expiry: Timer | None = None

    @property
    def active(self) -> bool:
        """Whether indications are delivered for it."""
        return self.end is None

    def delivers_to(self, destination: str) -> bool:
        """Whether indications are delivered for it, and to that destination."""
        return self.active and self.resource.destination_name == destination


class QueueEntry(msgspec.Struct, eq=False, gc=False):
    """One (indication, subscription) that waits for its listener."""

    indication: Indication
    subscription: Subscription
    #: Counts the queue's entries; its SequenceNumber, the same for every attempt, is told from it
    #: (D.2).
    number: int
    #: What is counted of it, in one number: another would take 16 bytes more of each entry.
    counted: int = 0

    @property
    def attempts(self) -> int:
        """Failed attempts so far."""
        return self.counted // _REFUSALS

    @attempts.setter
    def attempts(self, number: int) -> None:
        self.counted = number * _REFUSALS + self.refusals

    @property
    def refusals(self) -> int:
        """Those of them, in this run, in which the listener refused the indication itself; at most
        MOST_REFUSALS."""
        return self.counted % _REFUSALS

    def refuse(self) -> None:
        """Count one of these; none beyond MOST_REFUSALS."""
        self.counted += self.refusals < MOST_REFUSALS
