"""How often a deliverer is asked. Pure; seconds.

Half of the rate is for deliverers in calm, and is shared by namespaces (max-min fairness): those
that would take less than an equal part have all that they ask for, and the others have equal parts
of the rest. So many deliverers stretch the calm interval of their own namespace, not of all.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: Askings a second, over all deliverers, at most.
RATE = 100.0
#: Between two askings of one deliverer in calm, as long as they are few.
CALM = 10.0
#: While a new configuration rolls out: at first, at most, and for how long.
HURRY_FIRST = 0.25
HURRY_MOST = 1.0
HURRY_FOR = 120.0
#: After askings in vain: at first, and at most.
LOST_FIRST = 1.0
LOST_MOST = 60.0
#: The share of a wait by which it is shortened at random, so that pods spread over time.
JITTER = 0.2


def fair_share(pods: Iterable[int], *, rate: float = RATE, least: float = CALM) -> float:
    """The askings a second that a namespace may take up in calm, at most. ``pods`` are the
    deliverers of each namespace; infinity where there is enough for all of them."""
    counts = sorted(pods)
    left = rate / 2
    for number, count in enumerate(counts):
        share = left / (len(counts) - number)
        if count / least > share:
            return share
        left -= count / least
    return math.inf


def calm(pods: int, *, share: float, least: float = CALM) -> float:
    """The calm interval in a namespace with so many deliverers: ``least``, stretched so that they
    take up no more than its ``share``."""
    return max(least, pods / share)


@dataclass(slots=True)
class Pace:
    """The waits of one deliverer."""

    #: While it is behind the wanted configuration: until when (monotonic) that is hurried after.
    hurry_until: float
    _wait: float = 0.0

    def hurry(self, now: float) -> None:
        """A new configuration is out."""
        self.hurry_until = now + HURRY_FOR
        self._wait = 0.0

    def after_report(self, *, behind: bool, now: float, calm: float) -> float:
        """The wait after an answer; ``behind`` if it was not the wanted configuration."""
        if not behind or now >= self.hurry_until:
            self._wait = 0.0
            return calm
        self._wait = min(HURRY_MOST, max(HURRY_FIRST, 2 * self._wait))
        return self._wait

    def after_silence(self, *, calm: float) -> float:
        """The wait after none."""
        self._wait = min(max(LOST_MOST, calm), max(LOST_FIRST, 2 * self._wait))
        return self._wait


def jittered(wait: float, draw: Callable[[], float]) -> float:
    """``wait``, somewhat shortened; ``draw`` gives a number in [0, 1)."""
    return wait * (1 - JITTER * draw())
