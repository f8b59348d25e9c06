"""Who may stay where there are not places for all. Pure: who asks closes the connections.

A connection costs a gateway some 300 kB, token or none (asyncio's buffer for TLS alone is 256 KiB),
so those that have not shown a token that lets them in are few, and have no claim to stay.
"""

import math
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Guest = TypeVar("Guest", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many connections a gateway has. All of them take 300 MB where they are idle, those that
    have shown nothing 40 MB; a deliverer's memory limit is 384 MiB by default, and it takes 64 MB
    without any."""

    #: Those whose TLS handshake is not done.
    handshakes: int = 96
    #: These and those that have not shown a token that lets them in.
    unproven: int = 128
    #: These and those of publishers.
    total: int = 1000
    #: Seconds that one has before another may take its place. Without them, publishers that come
    #: all at once, as after a restart, would push out each other.
    grace_seconds: float = 0.5


class Places(Generic[Guest]):
    """Where there is no place left, whoever has shown nothing for longest goes first; whoever has
    proven who it is never does."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # Each in the order in which they came to be there, with the time, on a monotonic clock.
        self._handshakes: OrderedDict[Guest, float] = OrderedDict()
        self._unproven: OrderedDict[Guest, float] = OrderedDict()
        self._proven: set[Guest] = set()

    def __len__(self) -> int:
        return len(self._handshakes) + len(self._unproven) + len(self._proven)

    def counts(self) -> tuple[int, int, int]:
        """Return how many are in the handshake, unproven, and proven."""
        return len(self._handshakes), len(self._unproven), len(self._proven)

    def wait(self, *, now: float) -> float:
        """Return how many seconds a newcomer has to wait until it may ask for a place."""
        crowd = self._crowd()
        return max(0.0, _oldest(crowd) + self._limits.grace_seconds - now) if crowd else 0.0

    def arrive(self, guest: Guest, *, now: float) -> Guest | None:
        """Give a newcomer a place. Return who has to go for it: nobody, somebody else, or the
        newcomer, where all places are taken by those who have proven who they are."""
        leaving: Guest | None = None
        crowd = self._crowd()
        if crowd:
            leaving, _ = crowd.popitem(last=False)
        elif crowd is not None:
            return guest
        self._handshakes[guest] = now
        return leaving

    def greet(self, guest: Guest, *, now: float) -> None:
        """Its handshake is done."""
        self._handshakes.pop(guest, None)
        self._unproven[guest] = now

    def prove(self, guest: Guest) -> None:
        """It has proven who it is, and stays as long as it likes."""
        self._unproven.pop(guest, None)
        self._proven.add(guest)

    def leave(self, guest: Guest) -> None:
        """Its place is free again. Asked twice, or of somebody who had none, it is none."""
        self._handshakes.pop(guest, None)
        self._unproven.pop(guest, None)
        self._proven.discard(guest)

    def _crowd(self) -> OrderedDict[Guest, float] | None:
        """Return those whose oldest goes for a newcomer; None where nobody has to."""
        if len(self._handshakes) >= self._limits.handshakes:
            return self._handshakes
        unproven = len(self._handshakes) + len(self._unproven)
        if unproven >= self._limits.unproven or len(self) >= self._limits.total:
            return min(self._handshakes, self._unproven, key=_oldest)
        return None


def _oldest(crowd: OrderedDict[Guest, float]) -> float:
    """Return since when the first of them has been there."""
    return next(iter(crowd.values()), math.inf)
