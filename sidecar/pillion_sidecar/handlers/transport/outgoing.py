"""Limits the connections to all listeners together.

At the limit, idle connections are closed first; then attempts wait, one destination after the
other, before their time-out starts. A quarter is reserved for listeners that answer, and one that
stops answering loses its connection, so listeners that hang cannot hold all.
"""

from collections import deque
from typing import Protocol

from pillion_sidecar.clock import Timer, Timers

#: Unlimited: more than a process can have.
UNBOUNDED = 1 << 30
#: The reserved fraction (one in so many) for destinations whose last attempt was answered.
KEPT_FOR_ANSWERING = 4
#: Seconds between two checks for overdue connections while an attempt waits.
LOOK_SECONDS = 1.0


class Holder(Protocol):
    """The owner of a connection, or of an attempt that waits for one."""

    @property
    def owner(self) -> object:
        """The destination's key."""

    @property
    def is_idle(self) -> bool: ...

    @property
    def is_failing(self) -> bool: ...

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
        self._timers = timers
        self._timer: Timer | None = None
        self._holding: dict[Holder, bool] = {}
        self._failing = 0
        self._turns = _Turns()
        self._turns_of_failing = _Turns()
        self.is_crowded = False

    def take(self, holder: Holder) -> bool:
        """Let a holder open a connection; otherwise return False, and admit it later."""
        failing = holder.is_failing
        turns = self._turns_of_failing if failing else self._turns
        if not turns:
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
        self._turns.remove(holder)
        self._turns_of_failing.remove(holder)
        if holder in self._holding:
            self._failing -= self._holding.pop(holder)
        self._admit()

    def _has_room(self, failing: bool) -> bool:
        if len(self._holding) >= self.maximum:
            return False
        return not failing or (not self._turns and self._failing < self._most_failing)

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
        if self._turns and self._has_room(False):
            found = self._turns.pop(), False
        elif self._turns_of_failing and self._has_room(True):
            found = self._turns_of_failing.pop(), True
        self.is_crowded = bool(self._turns or self._turns_of_failing)
        return found

    def _look(self) -> None:
        """Make connections give way to waiting ones, the oldest first. A destination that was
        failing keeps its share."""
        self._timer = None
        overdue = [one for one, failing in self._holding.items() if not failing and one.is_overdue]
        for holder in overdue[: len(self._turns)]:
            holder.give_way()
        if self.is_crowded and self._timers is not None:
            self._timer = self._timers.call_later(LOOK_SECONDS, self._look)
