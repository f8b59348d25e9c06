"""The fakes that the deliverer's own tests, and its users' tests, run on."""

from collections.abc import Callable

from pillion_sidecar.clock import Timer, TimerHeap


class FakeTime:
    """A clock and its timers, moved by hand: both a ``Clock`` and a ``Timers``."""

    def __init__(self, *, now: float = 1000.0, epoch: float = 1_700_000_000.0) -> None:
        self._now = now
        self._epoch = epoch - now
        self._heap = TimerHeap()

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return self._epoch + self._now

    def call_at(self, due: float, callback: Callable[[], None]) -> Timer:
        return self._heap.push(due, callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        return self.call_at(self._now + delay, callback)

    def step(self, seconds: float) -> None:
        """Set the wall clock forward, or back by a negative time; ``monotonic()`` knows nothing."""
        self._epoch += seconds

    def next_due(self) -> float | None:
        """When the next timer is due, on ``monotonic()``; None without one."""
        return self._heap.next_due()

    def advance(self, seconds: float) -> None:
        """Let time pass, making each call at the moment when it is due, in order."""
        end = self._now + seconds
        while (due := self._heap.next_due()) is not None and due <= end:
            self._now = max(self._now, due)
            for timer in self._heap.pop_due(self._now):
                timer.fire()
        self._now = end
