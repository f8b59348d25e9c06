"""RepeatNotificationPolicy of one subscription (D.3): which repeats of an event are sent."""

from collections import OrderedDict, deque
from collections.abc import Hashable

from pillion_sidecar.config.resources import RepeatNotification, RepeatPolicy

#: Events remembered for each subscription; beyond it the least recent is forgotten, which can
#: only let a repeat through that would have been suppressed.
REMEMBERED_EVENTS = 10_000
#: Times of occurrences remembered for each subscription by ``Delay``, all its events together.
REMEMBERED_TIMES = 1_000_000


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
