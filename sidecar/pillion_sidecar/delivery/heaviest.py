"""Which destination holds most, where the journal has no more room for all."""

from collections.abc import Callable, Iterable

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.queue import DestinationQueue

#: Seconds for which an answer holds: looking through ten thousand queues takes a millisecond.
ANSWER_SECONDS = 0.1


class Heaviest:
    """Remembers the fullest queue for a moment."""

    def __init__(self, *, clock: Clock, queues: Callable[[], Iterable[DestinationQueue]]) -> None:
        self._clock = clock
        self._queues = queues
        self._found: DestinationQueue | None = None
        self._until = float("-inf")

    def queue(self) -> DestinationQueue | None:
        """Return the queue that holds most; None where none holds anything."""
        now = self._clock.monotonic()
        if now >= self._until or self._found is None or not self._found.depth:
            self._until = now + ANSWER_SECONDS
            self._found = max(self._queues(), key=_depth, default=None)
        return self._found if self._found is not None and self._found.depth else None


def _depth(queue: DestinationQueue) -> int:
    return queue.depth
