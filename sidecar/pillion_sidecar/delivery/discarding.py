"""Discards many entries in turns, so that a large purge does not hold up the event loop."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from functools import partial

from pillion_sidecar.delivery.entry import QueueEntry
from pillion_sidecar.delivery.packed import PackedEntries, PackedEntry
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.waiting import Packing
from pillion_sidecar.indication import DiscardReason, Indication

#: Discards before the event loop gets its turn.
DISCARDS_PER_TURN = 128


class _Batch:
    __slots__ = ("entries", "packed", "queue", "reads", "reason")

    def __init__(
        self,
        queue: DestinationQueue,
        entries: Sequence[QueueEntry],
        packed: PackedEntries,
        reason: DiscardReason,
    ) -> None:
        self.queue = queue
        self.entries = deque(entries)
        self.packed = packed
        # Whether the queue has been told that something of it is unread.
        self.reads = False
        self.reason = reason

    def __len__(self) -> int:
        return len(self.entries) + len(self.packed)

    def will_read(self) -> None:
        if len(self.packed) and not self.reads:
            self.reads = True
            self.queue.unread_discards += 1


class DiscardTurns:
    """What is being discarded, first come first: it is in no queue any more, but not settled."""

    def __init__(
        self,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        discard: Callable[[DestinationQueue, QueueEntry, DiscardReason], None],
        packing: Packing,
        finished: Callable[[DestinationQueue], None],
    ) -> None:
        """``call_soon`` is that of the event loop; ``discard`` settles one entry; ``finished`` is
        told of each queue once nothing of it is unread any more."""
        self._finished = finished
        self._call_soon = call_soon
        self._discard = discard
        self._packing = packing
        self._batches: deque[_Batch] = deque()
        # The same by index, in the same order: asked for each settlement, and of each place that
        # the journal looks at.
        self._of: dict[int, list[_Batch]] = {}
        # What is being read back, and of which batch.
        self._loading: list[PackedEntry] = []
        self._loading_of: _Batch | None = None

    def add(
        self,
        queue: DestinationQueue,
        entries: Sequence[QueueEntry],
        reason: DiscardReason,
        *,
        packed: PackedEntries | None = None,
    ) -> None:
        """Discard ``entries`` and then ``packed``: the first at once where nothing else is being
        discarded."""
        of_index = self._of.setdefault(queue.index, [])
        before = of_index[-1] if of_index else None
        if (
            packed is not None
            and not entries
            and before is not None
            and (before.queue, before.reason) == (queue, reason)
        ):
            # A queue that gives up one after the other makes one batch, which is read back in large
            # pieces.
            for entry in packed:
                before.packed.append(entry)
            before.will_read()
            return
        if (
            packed is None
            and before is not None
            and before is not self._batches[0]
            and (before.queue, before.reason) == (queue, reason)
            and not len(before.packed)
        ):
            before.entries.extend(entries)
            return
        batch = _Batch(queue, entries, PackedEntries() if packed is None else packed, reason)
        batch.will_read()
        self._batches.append(batch)
        of_index.append(batch)
        if len(self._batches) == 1:
            self._turn()

    def finish(self) -> Iterator[None]:
        """Discard all that is left, one entry at each step, but for what would have to be read
        back: the journal keeps it."""
        while self._batches:
            # A turn of the event loop may have ended the batch of the last step.
            batch = self._batches[0]
            if batch.entries:
                self._discard(batch.queue, batch.entries.popleft(), batch.reason)
                yield
            else:
                self._pop()

    def holds(self, index: int, number: int) -> bool:
        """Whether an entry of the queue with this index is being discarded."""
        return any(
            batch.packed.index(number) is not None
            or any(entry.number == number for entry in batch.entries)
            for batch in self._of.get(index, ())
        ) or (self._is_loading(index) and any(one.number == number for one in self._loading))

    def _is_loading(self, index: int) -> bool:
        return self._loading_of is not None and self._loading_of.queue.index == index

    def is_busy(self, index: int) -> bool:
        """Whether any entry of the queue with this index is being discarded."""
        return index in self._of

    def move(self, index: int, number: int, position: int, size: int) -> None:
        """Note that an entry's indication lies elsewhere."""
        for batch in self._of.get(index, ()):
            batch.packed.move(number, position)
            for entry in batch.entries:
                if entry.number == number:
                    entry.indication.position, entry.indication.size = position, size
        if self._is_loading(index):
            self._loading = [
                one._replace(position=position) if one.number == number else one
                for one in self._loading
            ]

    def _turn(self) -> None:
        if not self._batches:
            return
        batch = self._batches[0]
        for _ in range(_some(batch.entries)):
            self._discard(batch.queue, batch.entries.popleft(), batch.reason)
        if not batch.entries and len(batch.packed):
            self._load(batch)
            return
        self._go_on()

    def _go_on(self) -> None:
        if self._batches and not len(self._batches[0]):
            self._pop()
        if self._batches:
            self._call_soon(self._turn)

    def _pop(self) -> None:
        batch = self._batches.popleft()
        of_index = self._of[batch.queue.index]
        of_index.remove(batch)
        if not of_index:
            del self._of[batch.queue.index]
        if batch.reads:
            batch.queue.unread_discards -= 1
            if not batch.queue.unread_discards:
                self._finished(batch.queue)

    def _load(self, batch: _Batch) -> None:
        self._loading_of = batch
        self._loading = [batch.packed.popleft() for _ in range(_some(batch.packed))]
        self._packing.load(self._loading, partial(self._discard_loaded, batch))

    def _discard_loaded(self, batch: _Batch, indications: Sequence[Indication]) -> None:
        loaded, self._loading = self._loading, []
        self._loading_of = None
        for packed, indication in zip(loaded, indications, strict=True):
            entry = self._packing.unpack(packed, indication)
            self._discard(batch.queue, entry, batch.reason)
        self._go_on()


def _some(entries: Sized) -> int:
    return min(DISCARDS_PER_TURN, len(entries))
