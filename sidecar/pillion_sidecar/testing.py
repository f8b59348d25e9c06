"""The fakes that the deliverer's own tests, and its users' tests, run on."""

from pillion_sidecar.clock import Timers


class FakeTime(Timers):
    """A clock and its timers, moved by hand: both a ``Clock`` and a ``Timers``."""

    def __init__(self, *, now: float = 1000.0, epoch: float = 1_700_000_000.0) -> None:
        super().__init__(self.monotonic)
        self._now = now
        self._epoch = epoch - now

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._epoch + self._now

    def step(self, seconds: float) -> None:
        """Set the wall clock forward, or back by a negative time; ``monotonic()`` knows nothing."""
        self._epoch += seconds

    def advance(self, seconds: float) -> None:
        """Let time pass, making each call at the moment when it is due, in order."""
        end = self._now + seconds
        while (due := self.next_due()) is not None and due <= end:
            self._now = max(self._now, due)
            self._fire(self._now)
        self._now = end
