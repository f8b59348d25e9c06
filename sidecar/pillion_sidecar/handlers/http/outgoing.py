"""How many connections to listeners there may be at a time, over all destinations.

Each destination has connections of its own while there are enough for all. Where there are not,
idle ones are closed first; then attempts wait for their turn, in order, before their time-out runs.
"""

from typing import Protocol

#: More than a process can have: no bound.
UNBOUNDED = 1 << 30


class Holder(Protocol):
    """Whoever has a connection, or waits for one."""

    @property
    def is_idle(self) -> bool:
        """Whether its connection is used for nothing now."""

    def close_idle(self) -> None:
        """Close the connection, and give it back."""

    def admitted(self) -> None:
        """It may open a connection."""


class OutgoingConnections:
    """Connections that are open or being opened, and those who wait for one."""

    def __init__(self, maximum: int = UNBOUNDED) -> None:
        self.maximum = maximum
        # In the order in which they were opened.
        self._holding: dict[Holder, None] = {}
        self._waiting: dict[Holder, None] = {}

    @property
    def is_crowded(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def take(self, holder: Holder) -> bool:
        """Let a holder open a connection; otherwise return False, and admit it later."""
        if len(self._holding) >= self.maximum:
            idle = next((one for one in self._holding if one.is_idle), None)
            if idle is not None:
                idle.close_idle()
        if self._waiting or len(self._holding) >= self.maximum:
            self._waiting[holder] = None
            return False
        self._holding[holder] = None
        return True

    def give(self, holder: Holder) -> None:
        """A holder's connection is closed, or it waits for none any more."""
        self._waiting.pop(holder, None)
        if holder not in self._holding:
            return
        del self._holding[holder]
        if self._waiting and len(self._holding) < self.maximum:
            first = next(iter(self._waiting))
            del self._waiting[first]
            self._holding[first] = None
            first.admitted()
