"""Discards many entries in turns, so that a large purge does not hold up the event loop."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from pillion_sidecar.delivery.queue import DestinationQueue, QueueEntry
from pillion_sidecar.delivery.reasons import DiscardReason

#: Discards, each with its log line, before the event loop gets its turn.
DISCARDS_PER_TURN = 128


class DiscardTurns:
    """What is being discarded, first come first: it is in no queue any more, but not settled."""

    def __init__(
        self,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        discard: Callable[[DestinationQueue, QueueEntry, DiscardReason], None],
    ) -> None:
        """``call_soon`` is that of the event loop; ``discard`` settles one entry."""
        self._call_soon = call_soon
        self._discard = discard
        self._batches: deque[tuple[DestinationQueue, Iterator[QueueEntry], DiscardReason]] = deque()

    def add(
        self, queue: DestinationQueue, entries: Sequence[QueueEntry], reason: DiscardReason
    ) -> None:
        """Discard ``entries``: the first at once where nothing else is being discarded."""
        self._batches.append((queue, iter(entries), reason))
        if len(self._batches) == 1:
            self._turn()

    def finish(self) -> None:
        """Discard at once all that is left."""
        while self._batches:
            queue, entries, reason = self._batches[0]
            for entry in entries:
                self._discard(queue, entry, reason)
            self._batches.popleft()

    def _turn(self) -> None:
        if not self._batches:
            return
        queue, entries, reason = self._batches[0]
        some = list(islice(entries, DISCARDS_PER_TURN))
        for entry in some:
            self._discard(queue, entry, reason)
        if len(some) < DISCARDS_PER_TURN:
            self._batches.popleft()
        if self._batches:
            self._call_soon(self._turn)
