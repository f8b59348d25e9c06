"""How often an object is repaired that somebody else keeps changing. Pure: time is passed in."""

from dataclasses import dataclass

#: Seconds between the first two repairs of an object, and the most between any two.
FIRST_WAIT = 5.0
MOST_WAIT = 300.0
#: Seconds without a repair after which the fight is over. Longer than the longest wait.
FORGOTTEN_AFTER = 900.0


@dataclass(frozen=True, slots=True)
class Repairs:
    """The repairs of one object: the first at once, each further one after twice the wait."""

    times: int = 0
    #: When the last one was, on a monotonic clock.
    last: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the object may be repaired again; 0: now."""
        if not self._counted(now):
            return 0.0
        wait = min(MOST_WAIT, FIRST_WAIT * 2.0 ** min(self.times - 1, 20))
        return max(0.0, self.last + wait - now)

    def repaired(self, now: float) -> "Repairs":
        """The same with one more repair."""
        return Repairs(self._counted(now) + 1, now)

    def _counted(self, now: float) -> int:
        return self.times if now - self.last < FORGOTTEN_AFTER else 0
