"""How long to wait before trying again, and when to give up."""

import random
import time
from typing import Protocol

from pyspark_pillion.errors import DelivererUnavailable

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0


class Pace(Protocol):
    """Time and chance, as a dependency: tests move both by hand."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""

    def sleep(self, seconds: float) -> None:
        """Let seconds pass."""

    def jitter(self) -> float:
        """A number from 0 up to 1."""


class SystemPace:
    """The machine's own."""

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def jitter(self) -> float:
        return random.random()


class Patience:
    """Pauses that double, with jitter, until nothing has got better for ``seconds``."""

    def __init__(self, *, seconds: float, pace: Pace) -> None:
        self._seconds = seconds
        self._pace = pace
        self._pause = FIRST_PAUSE
        self._since: float | None = None
        #: How many pauses there were.
        self.pauses = 0

    def progress(self) -> None:
        """Something was taken: start afresh at the next trouble."""
        self._since = None
        self._pause = FIRST_PAUSE

    def pause(self, trouble: str, *, at_least: float = 0.0) -> None:
        """Wait before trying again: a doubling pause, or as long as the deliverer asked for.

        Raises DelivererUnavailable, naming the trouble, where patience would end before the pause.
        """
        now = self._pace.monotonic()
        if self._since is None:
            self._since = now
        left = self._since + self._seconds - now
        pause = max(self._pause * (0.5 + self._pace.jitter() / 2), at_least)
        if left <= 0 or at_least > left:
            raise DelivererUnavailable(
                f"the deliverer took nothing for {now - self._since:.0f} of {self._seconds:g} s"
                f" (option retrySeconds): {trouble}"
            )
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self.pauses += 1
        self._pace.sleep(min(pause, left))
