"""Backoff of the repairs of an object that others keep changing. Pure: time is passed in."""

from dataclasses import dataclass

#: Seconds between the first two repairs, and at most.
FIRST_WAIT = 5.0
MOST_WAIT = 300.0
#: Seconds without a repair that reset the backoff; longer than the longest wait.
FORGOTTEN_AFTER = 900.0


@dataclass(frozen=True, slots=True)
class Repairs:
    """The first repair is immediate; each further wait doubles."""

    times: int = 0
    #: Monotonic.
    last: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next repair; 0: now."""
        if not self._counted(now):
            return 0.0
        wait = min(MOST_WAIT, FIRST_WAIT * 2.0 ** min(self.times - 1, 20))
        return max(0.0, self.last + wait - now)

    def repaired(self, now: float) -> "Repairs":
        return Repairs(self._counted(now) + 1, now)

    def _counted(self, now: float) -> int:
        return self.times if now - self.last < FORGOTTEN_AFTER else 0
