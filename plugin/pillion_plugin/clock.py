"""Time as a dependency."""

import time
from threading import Condition
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since any moment; never goes back."""

    def wait(self, changed: Condition, seconds: float | None) -> None:
        """Wait until the condition is notified, or for ``seconds``. The caller holds it."""


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def wait(self, changed: Condition, seconds: float | None) -> None:
        changed.wait(seconds)
