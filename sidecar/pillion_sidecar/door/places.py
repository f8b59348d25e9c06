"""Who may stay where there are not places for all. Pure: who asks closes the connections.

A connection costs a gateway some 300 kB, token or none (asyncio's buffer for TLS alone is 256 KiB),
so those that have not shown a token that lets them in are few, and have no claim to stay.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, TypeVar

Guest = TypeVar("Guest", bound=Hashable)


#: A gateway's connections in the TLS handshake, these with those that have shown nothing, and all.
MOST_HANDSHAKES = 96
MOST_UNPROVEN = 128
MOST_CONNECTIONS = 1000
#: Of what is free, a principal may have so many times as much: one alone three quarters of all.
OWNER_FACTOR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many connections a listener has, of a gateway by default.

    All of a gateway's take 300 MB where they are idle, those that have shown nothing 40 MB; a
    deliverer's memory limit is 384 MiB by default, and it takes 64 MB
    without any."""

    #: Those whose TLS handshake is not done.
    handshakes: int = MOST_HANDSHAKES
    #: These and those that have not shown a token that lets them in.
    unproven: int = MOST_UNPROVEN
    #: These and those of publishers.
    total: int = MOST_CONNECTIONS
    #: Seconds that one has before another may take its place. Without them, publishers that come
    #: all at once, as after a restart, would push out each other.
    grace_seconds: float = 0.5
    #: Whether one that has proven itself, and asks for nothing now, gives way to a newcomer. Not
    #: where newcomers may be strangers and those who have proven themselves are publishers.
    idle_gives_way: bool = False

    @classmethod
    def of_gateway(cls, connections: int) -> "Limits":
        """Limits of a listener that asks for tokens or TLS, with so many connections."""
        return cls(
            handshakes=min(MOST_HANDSHAKES, max(1, connections // 4)),
            unproven=min(MOST_UNPROVEN, max(1, connections // 3)),
            total=connections,
        )

    @classmethod
    def of_plain(cls, connections: int) -> "Limits":
        """Limits of a listener for anybody: a head comes at once, so there is little grace."""
        half = max(1, connections // 2)
        return cls(
            handshakes=half,
            unproven=half,
            total=connections,
            grace_seconds=0.05,
            idle_gives_way=True,
        )


class Places(Generic[Guest]):
    """Where there is no place left, whoever has shown nothing for longest goes first; whoever has
    proven who it is only while it asks for nothing, where the limits say so."""

    def __init__(
        self, limits: Limits, *, idle_since: Callable[[Guest], float | None] = lambda _: None
    ) -> None:
        """``idle_since``: since when one that has proven itself has asked for nothing, on a clock
        of its own; None while it asks."""
        self._limits = limits
        self._idle_since = idle_since
        # Each in the order in which they came to be there, with the time, on a monotonic clock.
        self._handshakes: OrderedDict[Guest, float] = OrderedDict()
        self._unproven: OrderedDict[Guest, float] = OrderedDict()
        # With whose they are.
        self._proven: dict[Guest, Hashable] = {}

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
            leaving = self._longest_idle(self._proven) if self._limits.idle_gives_way else None
            if leaving is None:
                return guest
            del self._proven[leaving]
        self._handshakes[guest] = now
        return leaving

    def greet(self, guest: Guest, *, now: float) -> None:
        """Its handshake is done."""
        self._handshakes.pop(guest, None)
        self._unproven[guest] = now

    def prove(self, guest: Guest, owner: Hashable = None) -> Guest | None:
        """It has proven whose it is, and keeps its place. Return another of the same owner's that
        goes for it, where the owner has more than its part."""
        self._unproven.pop(guest, None)
        self._proven[guest] = owner
        if owner is None:
            return None
        owned = [one for one, whose in self._proven.items() if whose == owner]
        free = self._limits.total - len(self._proven)
        leaving = self._longest_idle(owned) if len(owned) > OWNER_FACTOR * free else None
        if leaving is not None:
            del self._proven[leaving]
        return leaving

    def leave(self, guest: Guest) -> None:
        """Its place is free again. Asked twice, or of somebody who had none, it is none."""
        self._handshakes.pop(guest, None)
        self._unproven.pop(guest, None)
        self._proven.pop(guest, None)

    def _longest_idle(self, guests: Iterable[Guest]) -> Guest | None:
        idle = [(since, one) for one in guests if (since := self._idle_since(one)) is not None]
        return min(idle, key=itemgetter(0))[1] if idle else None

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
