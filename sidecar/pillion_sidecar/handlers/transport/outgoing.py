"""Limits the connections to all listeners together.

At the limit, idle connections are closed first; then attempts wait, one destination after the
other, before their time-out starts. A quarter is reserved for listeners that answer, so listeners
that hang cannot hold all; an eighth is for those that do not, since one may have recovered. A
listener whose answer is overdue loses its connection to one that waits. Each time it has more time,
so that a slow one gets its answer through.
"""

import math
from collections import deque
from typing import Protocol

from pillion_sidecar.clock import Timer, Timers

#: Unlimited: more than a process can have.
UNBOUNDED = 1 << 30
#: The reserved fraction (one in so many) for destinations whose last attempt was answered.
KEPT_FOR_ANSWERING = 4
#: The fraction that all others have, also while destinations that answer wait.
KEPT_FOR_FAILING = 8
#: Seconds between two checks for overdue connections while an attempt waits.
LOOK_SECONDS = 1.0
#: An answer is overdue after so many times the destination's longest, and so many seconds, which
#: double with each attempt without an answer, so many times at most.
OVERDUE_TIMES = 10
LEAST_OVERDUE_SECONDS = 5.0
MOST_DOUBLINGS = 4


class AnswerTimes:
    """Answers of a destination, over all of its slots. Times are ``Clock.monotonic()``."""

    __slots__ = ("_failed_at", "failures", "longest")

    def __init__(self) -> None:
        #: Attempts without an answer since the last one.
        self.failures = 0
        # The end of the last of them.
        self._failed_at = -math.inf
        #: Longest answer in seconds.
        self.longest = 0.0

    @property
    def overdue(self) -> float:
        """Return the seconds after which an answer is overdue."""
        patience = LEAST_OVERDUE_SECONDS * (1 << min(self.failures, MOST_DOUBLINGS))
        return max(patience, OVERDUE_TIMES * self.longest)

    def answered(self, seconds: float) -> None:
        self.failures = 0
        if seconds > self.longest:
            self.longest = seconds

    def failed(self, *, began_at: float, now: float) -> None:
        """Attempts beside each other count as one."""
        if began_at >= self._failed_at:
            self.failures += 1
            self._failed_at = now


class Holder(Protocol):
    """The owner of a connection, or of an attempt that waits for one."""

    @property
    def owner(self) -> object:
        """The destination's key."""

    @property
    def is_idle(self) -> bool: ...

    @property
    def failures(self) -> int:
        """See :class:`AnswerTimes`."""

    @property
    def is_overdue(self) -> bool:
        """The answer takes far longer than the destination's longest."""

    def close_idle(self) -> None:
        """Close the connection, and give it back."""

    def give_way(self) -> None:
        """End the attempt under way, and give the connection back."""

    def admitted(self) -> None:
        """It may open a connection."""


class _Turns:
    """Waiting holders, round robin by owner."""

    def __init__(self) -> None:
        self._of: dict[object, deque[Holder]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def add(self, holder: Holder) -> None:
        self._of.setdefault(holder.owner, deque()).append(holder)

    def remove(self, holder: Holder) -> None:
        waiting = self._of.get(holder.owner)
        if waiting is not None and holder in waiting:
            waiting.remove(holder)
            if not waiting:
                del self._of[holder.owner]

    def pop(self) -> Holder:
        owner = next(iter(self._of))
        waiting = self._of.pop(owner)
        holder = waiting.popleft()
        if waiting:
            self._of[owner] = waiting
        return holder


class OutgoingConnections:
    def __init__(self, maximum: int = UNBOUNDED, *, timers: Timers | None = None) -> None:
        """Without ``timers`` no attempt under way gives way to another."""
        self.maximum = maximum
        self._most_failing = max(1, maximum - max(1, maximum // KEPT_FOR_ANSWERING))
        self._least_failing = maximum // KEPT_FOR_FAILING
        self._timers = timers
        self._timer: Timer | None = None
        self._holding: dict[Holder, bool] = {}
        self._failing = 0
        self._answering, self._failed_once, self._failed_often = _Turns(), _Turns(), _Turns()
        self.is_crowded = False

    def take(self, holder: Holder) -> bool:
        """Let a holder open a connection; otherwise return False, and admit it later."""
        failing = holder.failures > 0
        turns = self._turns_of(holder)
        if not (self._failed if failing else turns):
            if not self._has_room(failing):
                self._close_idle(failing)
            if self._has_room(failing):
                self._hold(holder, failing)
                return True
        turns.add(holder)
        self.is_crowded = True
        if self._timers is not None and self._timer is None:
            self._timer = self._timers.call_later(LOOK_SECONDS, self._look)
        return False

    def give(self, holder: Holder) -> None:
        """A holder's connection is closed, or it waits no more."""
        for turns in (self._answering, self._failed_once, self._failed_often):
            turns.remove(holder)
        if holder in self._holding:
            self._failing -= self._holding.pop(holder)
        self._admit()

    def _turns_of(self, holder: Holder) -> _Turns:
        match holder.failures:
            case 0:
                return self._answering
            case 1:
                # It may answer again, unlike one that hangs.
                return self._failed_once
            case _:
                return self._failed_often

    @property
    def _failed(self) -> _Turns:
        return self._failed_once or self._failed_often

    def _has_room(self, failing: bool) -> bool:
        if len(self._holding) >= self.maximum:
            return False
        share = self._least_failing if self._answering else self._most_failing
        return not failing or self._failing < share

    def _close_idle(self, failing: bool) -> None:
        # Only of its own kind, if failing destinations have their share already.
        full = len(self._holding) >= self.maximum
        own = failing and self._failing >= self._most_failing
        for holder, was_failing in self._holding.items():
            if holder.is_idle and (was_failing if own else full):
                holder.close_idle()
                return

    def _hold(self, holder: Holder, failing: bool) -> None:
        self._holding[holder] = failing
        self._failing += failing

    def _admit(self) -> None:
        while (first := self._first_in_turn()) is not None:
            holder, failing = first
            self._hold(holder, failing)
            holder.admitted()

    def _first_in_turn(self) -> tuple[Holder, bool] | None:
        """Take the next holder to admit, and whether it was failing."""
        found = None
        if self._failed and self._has_room(True):
            found = self._failed.pop(), True
        elif self._answering and self._has_room(False):
            found = self._answering.pop(), False
        self.is_crowded = bool(self._answering or self._failed)
        return found

    def _look(self) -> None:
        """Make connections give way to waiting ones, the oldest first: those of destinations that
        were failing to such alone."""
        self._timer = None
        self._give_way(len(self._answering) + self._failed_waiting, was_failing=False)
        self._give_way(self._failed_waiting, was_failing=True)
        if self.is_crowded and self._timers is not None:
            self._timer = self._timers.call_later(LOOK_SECONDS, self._look)

    @property
    def _failed_waiting(self) -> int:
        return len(self._failed_once) + len(self._failed_often)

    def _give_way(self, waiting: int, *, was_failing: bool) -> None:
        overdue = [
            one
            for one, failing in self._holding.items()
            if failing is was_failing and one.is_overdue
        ]
        for holder in overdue[:waiting]:
            holder.give_way()
