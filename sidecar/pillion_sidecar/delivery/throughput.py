"""How many indications a queue gets and delivers per second, and whether it falls behind. A few
numbers for each queue, whatever happens; times are ``Clock.monotonic()``."""

import math
from typing import NamedTuple

#: Seconds over which rates are counted.
WINDOW = 20.0
#: Seconds after acceptance from which a delivery is late, and the share of them below which a queue
#: is behind no more.
LATE_SECONDS, LATE_NO_MORE = 10.0, 0.5
#: Seconds between two looks at late deliveries.
JUDGED_SECONDS = 1.0
#: How many times the deliveries the arrivals are when a queue falls behind. It does so until fewer
#: arrive than are delivered.
FALLING_BEHIND = 1.1


class Rates(NamedTuple):
    """Indications per second."""

    accepted: float = 0.0
    delivered: float = 0.0


class Throughput:
    """Counts in a window, of which the one before counts in part.

    A queue is behind from its first late delivery to one that is not late, or until it is empty.
    Late deliveries alone say little: those after an outage are late too.
    """

    __slots__ = (
        "_at_begin",
        "_before",
        "_ends",
        "_judged_at",
        "_since",
        "accepted",
        "accepted_at",
        "behind_since",
        "delivered",
        "is_slow",
    )

    def __init__(self) -> None:
        #: Since the start.
        self.accepted = 0
        self.delivered = 0
        #: When the last was accepted; None: in an earlier run.
        self.accepted_at: float | None = None
        # Both at the begin of the window, and of the one before.
        self._at_begin = self._before = (0, 0)
        # When counting began, and the end of the window.
        self._since = self._ends = -math.inf
        # Of late deliveries one in a second is looked at: it costs more than to count them.
        self._judged_at = -math.inf
        self.behind_since: float | None = None
        #: Whether it is behind and falls further behind.
        self.is_slow = False

    def accept(self, now: float, count: int = 1, *, is_first: bool) -> None:
        """``is_first``: the queue was empty."""
        if now >= self._ends:
            self._turn(now)
        self.accepted += count
        self.accepted_at = now
        if is_first:
            self.catch_up()

    def deliver(self, age: float, now: float) -> None:
        """``age``: seconds since the acceptance, without those in which a batch gathered."""
        if now >= self._ends:
            self._turn(now)
        self.delivered += 1
        is_late = age >= LATE_SECONDS or self.behind_since is not None
        if is_late and now - self._judged_at >= JUDGED_SECONDS:
            self._judge(age, now)

    def catch_up(self) -> None:
        """It is not behind: it is empty, or nothing was attempted meanwhile."""
        self.behind_since, self.is_slow = None, False

    def rates(self, now: float) -> Rates:
        """Over the last ``WINDOW`` seconds, or since the first indication after a longer silence;
        at least over one second, so that two are no flood."""
        ends, before = self._ends, self._before
        (accepted, delivered), seconds = self._at_begin, WINDOW
        if now < ends:
            share = (ends - now) / WINDOW
            seconds = min(WINDOW, max(1.0, now - self._since))
            return Rates(
                (self.accepted - accepted + (accepted - before[0]) * share) / seconds,
                (self.delivered - delivered + (delivered - before[1]) * share) / seconds,
            )
        # Nothing has come since the window has ended.
        share = max(0.0, (ends + WINDOW - now) / WINDOW)
        return Rates(
            (self.accepted - accepted) * share / seconds,
            (self.delivered - delivered) * share / seconds,
        )

    def _turn(self, now: float) -> None:
        counts = self.accepted, self.delivered
        if now < self._ends + WINDOW:
            self._before, self._ends = self._at_begin, self._ends + WINDOW
        else:
            self._before, self._since, self._ends = counts, now, now + WINDOW
        self._at_begin = counts

    def _judge(self, age: float, now: float) -> None:
        self._judged_at = now
        if age < LATE_SECONDS * LATE_NO_MORE:
            self.catch_up()
            return
        if self.behind_since is None:
            self.behind_since = now
        accepted, delivered = self.rates(now)
        if accepted > FALLING_BEHIND * delivered:
            self.is_slow = True
        elif accepted < delivered:
            self.is_slow = False
