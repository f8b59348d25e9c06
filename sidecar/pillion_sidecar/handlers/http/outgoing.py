"""How many connections to listeners there may be at a time, over all destinations.

Each destination has connections of its own while there are enough for all. Where there are not,
idle ones are closed first; then attempts wait for their turn, one of each destination, before their
time-out runs. A quarter is kept for listeners that answer, and one that stops answering gives its
connection to another, so listeners that hang cannot hold all of them.
"""

from collections import deque
from typing import Protocol

from pillion_sidecar.clock import Timer, Timers

#: More than a process can have: no bound.
UNBOUNDED = 1 << 30
#: Of all connections, the part that is kept for destinations whose last attempt was answered.
KEPT_FOR_ANSWERING = 4
#: Seconds between two looks for connections that give way, while an attempt waits.
LOOK_SECONDS = 1.0


class Holder(Protocol):
    """The owner of a connection, or one that is to have one."""

    @property
    def owner(self) -> object:
        """What its destination is known by."""

    @property
    def is_idle(self) -> bool:
        """Whether its connection is used for nothing now."""

    @property
    def is_failing(self) -> bool:
        """Whether its destination did not answer the last attempt."""

    @property
    def is_overdue(self) -> bool:
        """Whether the answer takes far longer than its destination has ever taken."""

    def close_idle(self) -> None:
        """Close the connection, and give it back."""

    def give_way(self) -> None:
        """End the attempt under way, and give the connection back."""

    def admitted(self) -> None:
        """It may open a connection."""


class _Turns:
    """Holders that wait. Each owner gets one turn, then the next round begins."""

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
    """Connections that are open or being opened, and those who wait for one."""

    def __init__(self, maximum: int = UNBOUNDED, *, timers: Timers | None = None) -> None:
        """Without ``timers`` no attempt under way gives way to another."""
        self.maximum = maximum
        self._most_failing = max(1, maximum - max(1, maximum // KEPT_FOR_ANSWERING))
        self._timers = timers
        self._timer: Timer | None = None
        # In the order in which they were opened, each with whether it was failing then.
        self._holding: dict[Holder, bool] = {}
        self._failing = 0
        self._turns = _Turns()
        self._turns_of_failing = _Turns()
        #: Whether somebody waits.
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
        """A holder's connection is closed, or it waits for none any more."""
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
        # Its own kind's, where those that fail have their share already.
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
        """Take the holder that may open a connection now, and whether it was failing."""
        found = None
        if self._turns and self._has_room(False):
            found = self._turns.pop(), False
        elif self._turns_of_failing and self._has_room(True):
            found = self._turns_of_failing.pop(), True
        self.is_crowded = bool(self._turns or self._turns_of_failing)
        return found

    def _look(self) -> None:
        """Have connections give way for those who wait, the one that was opened first before the
        others. One that has failed has its share and keeps it."""
        self._timer = None
        overdue = [one for one, failing in self._holding.items() if not failing and one.is_overdue]
        for holder in overdue[: len(self._turns)]:
            holder.give_way()
        if self.is_crowded and self._timers is not None:
            self._timer = self._timers.call_later(LOOK_SECONDS, self._look)
