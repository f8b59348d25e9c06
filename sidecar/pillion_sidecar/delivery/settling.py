"""The books of what is settled: every entry once, delivered or discarded for a reason (S0.11)."""

import asyncio
from collections.abc import Callable, Container, Iterator, Sequence

from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.discarding import DiscardTurns
from pillion_sidecar.delivery.discards import DiscardReports
from pillion_sidecar.delivery.entry import QueueEntry
from pillion_sidecar.delivery.gaps import run_of
from pillion_sidecar.delivery.keeping import Keeping
from pillion_sidecar.delivery.packed import PackedEntries
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.restoring import queue_state
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.ports import Place


class Settlements:
    """Settles entries: tells the journal, and those who follow their indications."""

    def __init__(
        self,
        *,
        keeping: Keeping,
        call_soon: Callable[[Callable[[], None]], object],
        arrange: Callable[[DestinationQueue], None],
        reports: DiscardReports,
    ) -> None:
        """``call_soon`` is that of the event loop; ``arrange`` sees to the next event of a queue
        whose discards are read."""
        #: (Indication, subscription) pairs that are not settled.
        self.pending = 0
        self._keeping = keeping
        self._turns = DiscardTurns(
            call_soon=call_soon, discard=self.discard, packing=keeping, finished=arrange
        )
        # The queues at which an ordered group has ended, by its run.
        self._gaps: dict[int, set[DestinationQueue]] = {}
        self._reports = reports
        self._emptied: set[asyncio.Event] = set()

    def settle(
        self, queue: DestinationQueue, entry: QueueEntry, reason: DiscardReason | None
    ) -> None:
        """An entry that was taken is delivered, or discarded where there is a reason."""
        indication = entry.indication
        if self._keeping.in_memory:
            left = indication.unsettled - 1
        else:
            left = self._keeping.journal.settle(
                Place(queue.index, entry.subscription.index, entry.number),
                indication,
                reason,
                through=reason is None
                and queue.settles_through(entry)
                and not self._turns.is_busy(queue.index),
            )
        self._tell(queue, indication, reason, left=left)

    def discard(self, queue: DestinationQueue, entry: QueueEntry, reason: DiscardReason) -> None:
        """Discard an entry that was taken: counted, listed, logged, told.

        Listed before it is settled: so the list has it before the journal does.
        """
        if entry.indication.member is not None:
            self.lose(queue, entry.indication)
        queue.discarded[reason] += 1
        self._reports.tell(queue, entry, reason)
        self.settle(queue, entry, reason)

    def discard_evicted(
        self, queue: DestinationQueue, evicted: QueueEntry | PackedEntries, reason: DiscardReason
    ) -> None:
        """Discard what ``DestinationQueue.evict`` gave."""
        if isinstance(evicted, QueueEntry):
            self.discard(queue, evicted, reason)
        else:
            self.discard_many(queue, (), reason, packed=evicted)

    def discard_many(
        self,
        queue: DestinationQueue,
        entries: Sequence[QueueEntry],
        reason: DiscardReason,
        *,
        packed: PackedEntries | None = None,
    ) -> None:
        """Discard entries that were taken, in turns of the event loop."""
        for entry in entries:
            # At once: what is behind them may be taken before their turn.
            if entry.indication.member is not None:
                self.lose(queue, entry.indication)
        self._turns.add(queue, entries, reason, packed=packed)

    # ------------------------------------------------------------------ ordered groups (S1.5)

    def lose(self, queue: DestinationQueue, indication: Indication) -> None:
        """Note that a member of a group, which is or will be discarded, is missing at its
        destination."""
        if not queue.lose(indication):
            return
        run = run_of(indication)
        events.group_ended_at(queue, indication)
        if queue.gaps.shorten():
            events.gap_forgotten(queue)
        self._gaps.setdefault(run, set()).add(queue)
        self._note(queue)

    def adopt_gaps(self, queue: DestinationQueue) -> None:
        """Know the gaps of the run before."""
        for run in queue.gaps.runs():
            self._gaps.setdefault(run, set()).add(queue)

    def end_group(self, run: int) -> None:
        """No further member of a group comes to any queue."""
        for queue in self._gaps.pop(run, ()):
            queue.gaps.group_ended(run, until=queue.sequence.next_number)
            queue.gaps.forget_below(queue.lowest_number)
            self._note(queue)

    def end_other_groups(self, runs: Container[int]) -> None:
        """No further member comes of any group but these."""
        for run in [run for run in self._gaps if run not in runs]:
            self.end_group(run)

    def _note(self, queue: DestinationQueue) -> None:
        journal = self._keeping.journal
        journal.note(queue_state(queue, offset=journal.offset))

    def discard_held(
        self,
        indication: Indication,
        entries: Sequence[tuple[DestinationQueue, QueueEntry]],
        reason: DiscardReason,
    ) -> None:
        """Discard an indication that never came to its queues (S1.6)."""
        self._keeping.journal.end_hold(indication, reason)
        left = len(entries)
        for queue, entry in entries:
            left -= 1
            queue.discarded[reason] += 1
            self._reports.tell(queue, entry, reason)
            self._tell(queue, indication, reason, left=left)

    def _tell(
        self,
        queue: DestinationQueue,
        indication: Indication,
        reason: DiscardReason | None,
        *,
        left: int,
    ) -> None:
        self.pending -= 1
        indication.unsettled = left
        for tracker in indication.trackers:
            tracker.settled(indication, queue.name, reason)
        if not self.pending:
            for emptied in self._emptied:
                emptied.set()

    # ------------------------------------------------------------------ what is being discarded

    def holds(self, index: int, number: int) -> bool:
        """Whether an entry of the queue with this index is being discarded, and not settled yet."""
        return self._turns.holds(index, number)

    def move(self, index: int, number: int, position: int, size: int) -> None:
        """Note that the indication of an entry that is being discarded lies elsewhere."""
        self._turns.move(index, number, position, size)

    def finish(self) -> Iterator[None]:
        """Discard what is being discarded, one entry at each step."""
        return self._turns.finish()

    # ------------------------------------------------------------------ waiting

    def await_empty(self, emptied: asyncio.Event) -> None:
        """Set ``emptied`` whenever nothing is pending."""
        self._emptied.add(emptied)

    def stop_awaiting(self, emptied: asyncio.Event) -> None:
        """Leave ``emptied`` alone."""
        self._emptied.discard(emptied)
