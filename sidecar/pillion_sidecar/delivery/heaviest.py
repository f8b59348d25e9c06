"""Which destination holds most, where the journal has no more room for all."""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heapreplace

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.queue import DestinationQueue

#: Seconds for which an answer holds: looking through ten thousand queues takes a millisecond.
ANSWER_SECONDS = 0.1


class Heaviest:
    """Remembers for a moment which queues are the fullest."""

    def __init__(self, *, clock: Clock, queues: Callable[[], Iterable[DestinationQueue]]) -> None:
        self._clock = clock
        self._queues = queues
        self._found: DestinationQueue | None = None
        self._until = float("-inf")
        # Those that give way, the fullest first, with how many waited when that was looked at.
        self._giving: list[tuple[int, int, DestinationQueue]] = []
        self._giving_until = float("-inf")

    def queue(self) -> DestinationQueue | None:
        """Return the queue that holds most; None where none holds anything."""
        now = self._clock.monotonic()
        if now >= self._until or self._found is None or not self._found.depth:
            self._until = now + ANSWER_SECONDS
            self._found = max(self._queues(), key=_depth, default=None)
        return self._found if self._found is not None and self._found.depth else None

    def giving_way(self) -> DestinationQueue | None:
        """Return the queue with most waiting entries of those whose oldest give way; None where
        none does. Asked again after each that gave way, so that queues which hold the same
        indications give up the same."""
        now = self._clock.monotonic()
        if now >= self._giving_until:
            self._giving_until = now + ANSWER_SECONDS
            self._giving = [
                (-queue.waiting.count, number, queue)
                for number, queue in enumerate(self._queues())
                if queue.waiting.count and queue.gives_way(now=now)
            ]
            heapify(self._giving)
        giving = self._giving
        while giving:
            noted, number, queue = giving[0]
            if not queue.waiting.count or queue.removed:
                heappop(giving)
            elif noted == -queue.waiting.count:
                return queue
            else:
                heapreplace(giving, (-queue.waiting.count, number, queue))
        return None


def _depth(queue: DestinationQueue) -> int:
    return queue.depth
