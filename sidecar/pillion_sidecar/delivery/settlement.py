"""Settlement: each entry once, delivered or discarded for a reason (S0.11).

The history has each one. The log has the first few of a destination and reason and counts
the others, so that a mass expiry does not slow other destinations.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence, Sized
from functools import partial
from typing import Protocol

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.backlog import Packing
from pillion_sidecar.delivery.compact_entries import CompactEntries, CompactEntry
from pillion_sidecar.delivery.dead_letters import DeadLetters
from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.delivery.handler import DeliveryOutcome
from pillion_sidecar.delivery.outcomes import OutcomeRecords
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.sequence import run_of
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.ports import NO_NUMBER, Journal, Place

#: Seconds between two counts.
PERIOD_SECONDS = 10.0
#: Discards logged one by one in a period: of one kind, and of all.
TOLD_OF_KIND = 10
TOLD_IN_ALL = 200
#: Characters of the detail of an attempt that the history and the log have.
DETAIL_LIMIT = 200
#: Discards per turn of the event loop.
DISCARDS_PER_TURN = 128


class DiscardReports:
    def __init__(self, *, clock: Clock, timers: Timers) -> None:
        self._clock = clock
        self._timers = timers
        # This period: its begin, and how many have a line.
        self._began = 0.0
        self._told = 0
        self._told_of: dict[events.DiscardKind, int] = {}
        #: Discards of this period without a line, and the timer, armed while there are any.
        self._counts: dict[events.DiscardKind, int] = {}
        self._timer: Timer | None = None
        # Discards at shutdown by destination, when a list in memory ends with the process.
        self._at_the_end: dict[str, list[str | None]] = {}

    def tell(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        reason: DiscardReason,
        *,
        detail: str,
        forced: bool,
    ) -> None:
        """``detail``: of the attempt that decided it, without secrets; ``forced``: too few stores
        have it."""
        queue.statistics.discard(reason, now=self._clock.monotonic())
        kind = queue.name, reason.value
        number = None if entry.number == NO_NUMBER else entry.number
        sequence_number = None if number is None else queue.sequence.sequence_number(number)
        if self._takes_a_line(kind):
            events.discarded(
                queue, entry, reason, detail=detail, sequence_number=sequence_number, forced=forced
            )
            return
        if reason is DiscardReason.SHUTDOWN:
            self._at_the_end.setdefault(queue.name, []).append(entry.indication.identifier)
            return
        if self._timer is None:
            now = self._clock.monotonic()
            wait = max(0.0, self._began + PERIOD_SECONDS - now)
            self._timer = self._timers.call_later(wait, self.count)
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def _takes_a_line(self, kind: events.DiscardKind) -> bool:
        now = self._clock.monotonic()
        if not self._told or (not self._counts and now - self._began >= PERIOD_SECONDS):
            self._begin(now)
        told_of = self._told_of.get(kind, 0)
        if told_of >= TOLD_OF_KIND or self._told >= TOLD_IN_ALL:
            return False
        self._told += 1
        self._told_of[kind] = told_of + 1
        return True

    def _begin(self, now: float) -> None:
        self._began, self._told = now, 0
        self._told_of.clear()

    def count(self) -> None:
        """Log the number of discards without a line, and begin a new period."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        counts, self._counts = self._counts, {}
        events.discards_counted(counts)
        at_the_end, self._at_the_end = self._at_the_end, {}
        for destination, identifiers in at_the_end.items():
            events.discarded_at_shutdown(destination, identifiers)
        self._begin(self._clock.monotonic())


class _Batch:
    __slots__ = ("entries", "packed", "queue", "reads", "reason")

    def __init__(
        self,
        queue: DestinationQueue,
        entries: Sequence[QueueEntry],
        packed: CompactEntries,
        reason: DiscardReason,
    ) -> None:
        self.queue = queue
        self.entries = deque(entries)
        self.packed = packed
        # Whether the queue knows of an unread batch.
        self.reads = False
        self.reason = reason

    def __len__(self) -> int:
        return len(self.entries) + len(self.packed)

    def will_read(self) -> None:
        if len(self.packed) and not self.reads:
            self.reads = True
            self.queue.begin_reading_discards()


class Pace(Protocol):
    """What a mass discard waits for."""

    @property
    def is_behind(self) -> bool: ...

    def once_written(self, then: Callable[[], None]) -> None:
        """Call ``then`` once more may be discarded."""


class DiscardTurns:
    """Entries being discarded, first come first served: in no queue any more, but not settled.

    In turns, so that a large purge does not block the event loop.
    """

    def __init__(
        self,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        discard: Callable[[DestinationQueue, QueueEntry, DiscardReason], None],
        packing: Packing,
        finished: Callable[[DestinationQueue], None],
        pace: Pace,
    ) -> None:
        """``discard`` settles one entry; ``finished`` is told of each queue without unread
        batches."""
        self._finished = finished
        self._pace = pace
        self._call_soon = call_soon
        self._discard = discard
        self._packing = packing
        self._batches: deque[_Batch] = deque()
        #: The batches by journal index, in the same order.
        self.by_index: dict[int, list[_Batch]] = {}
        # The entries being read back, and their batch.
        self._loading: list[CompactEntry] = []
        self._loading_of: _Batch | None = None

    def add(
        self,
        queue: DestinationQueue,
        entries: Sequence[QueueEntry],
        reason: DiscardReason,
        *,
        packed: CompactEntries | None = None,
        is_later: bool = False,
    ) -> None:
        """Discard ``entries`` and then ``packed``; the first immediately if nothing else is being
        discarded, unless ``is_later``."""
        of_index = self.by_index.setdefault(queue.index, [])
        before = of_index[-1] if of_index else None
        if (
            packed is not None
            and not entries
            and before is not None
            and (before.queue, before.reason) == (queue, reason)
        ):
            # Evictions of a queue form one batch, which is read back in large pieces.
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
        batch = _Batch(queue, entries, CompactEntries() if packed is None else packed, reason)
        batch.will_read()
        self._batches.append(batch)
        of_index.append(batch)
        if len(self._batches) > 1:
            return
        if is_later:
            self._call_soon(self._turn)
        else:
            self._turn()

    def finish(self) -> Iterator[None]:
        """Discard all that is left, one entry at each step; entries that are not loaded stay in the
        journal."""
        while self._batches:
            # A turn of the event loop may have ended the batch of the last step.
            batch = self._batches[0]
            if batch.entries:
                self._discard(batch.queue, batch.entries.popleft(), batch.reason)
                yield
            else:
                self._pop()

    def contains(self, index: int, number: int) -> bool:
        return any(
            batch.packed.contains(number) or any(entry.number == number for entry in batch.entries)
            for batch in self.by_index.get(index, ())
        ) or (self._is_loading(index) and any(one.number == number for one in self._loading))

    def is_at(self, index: int) -> bool:
        """Whether entries of a journal index are being discarded."""
        return index in self.by_index or self._is_loading(index)

    def _is_loading(self, index: int) -> bool:
        return self._loading_of is not None and self._loading_of.queue.index == index

    def move(self, index: int, number: int, position: int, size: int) -> None:
        for batch in self.by_index.get(index, ()):
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
            if self._pace.is_behind:
                self._pace.once_written(self._turn)
                return
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
        of_index = self.by_index[batch.queue.index]
        of_index.remove(batch)
        if not of_index:
            del self.by_index[batch.queue.index]
        if batch.reads and batch.queue.end_reading_discards():
            self._finished(batch.queue)

    def _load(self, batch: _Batch) -> None:
        self._loading_of = batch
        self._loading = [batch.packed.popleft() for _ in range(_some(batch.packed))]
        self._packing.load(self._loading, partial(self._discard_loaded, batch))

    def _discard_loaded(self, batch: _Batch, indications: Sequence[Indication]) -> None:
        loaded, self._loading = self._loading, []
        self._loading_of = None
        entries = [
            self._packing.unpack(packed, indication)
            for packed, indication in zip(loaded, indications, strict=True)
        ]
        if self._batches and self._batches[0] is batch:
            batch.entries.extend(entries)
            self._turn()
        else:
            # The end has come meanwhile.
            for entry in entries:
                self._discard(batch.queue, entry, batch.reason)


def _some(entries: Sized) -> int:
    return min(DISCARDS_PER_TURN, len(entries))


class Settlements:
    #: Set before anything is discarded.
    dead_letters: DeadLetters

    def __init__(
        self,
        *,
        journal: Journal,
        packing: Packing,
        call_soon: Callable[[Callable[[], None]], object],
        arrange: Callable[[DestinationQueue], None],
        reports: DiscardReports,
        records: OutcomeRecords,
    ) -> None:
        #: (Indication, subscription) pairs that are not settled.
        self.pending = 0
        self._journal = journal
        self._in_memory = journal.durability is Durability.MEMORY
        self.turns = DiscardTurns(
            call_soon=call_soon,
            discard=self.discard,
            packing=packing,
            finished=arrange,
            pace=self,
        )
        # The queues at which an ordered group has ended, by run.
        self._gaps: dict[int, set[DestinationQueue]] = {}
        self._reports = reports
        self.records = records
        self._emptied: set[asyncio.Event] = set()

    def settle(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        reason: DiscardReason | None,
        *,
        left: int | None = None,
    ) -> None:
        """Settle a taken entry: delivered, or discarded if there is a reason.

        ``left``: remaining entries of the indication, if the journal already knows.
        """
        indication = entry.indication
        if left is not None:
            indication.unsettled = left
        elif self._in_memory:
            indication.unsettled -= 1
        else:
            indication.unsettled = self._journal.settle(
                Place(queue.index, entry.subscription.index, entry.number),
                indication,
                reason,
                through=reason is None
                and queue.settles_through(entry)
                and queue.index not in self.turns.by_index,
            )
        self.pending -= 1
        for tracker in indication.trackers:
            tracker.settled(indication, queue.name, reason)
        if not self.pending:
            for emptied in self._emptied:
                emptied.set()

    def deliver(
        self, queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome, began_at: float
    ) -> None:
        """Settle a taken entry that its listener has. It is recorded before it is settled, so that
        the history has it before the journal. ``began_at``: of the attempt (monotonic)."""
        self.records.delivered(queue, entry, outcome, began_at)
        self.settle(queue, entry, None)

    def discard(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        reason: DiscardReason,
        *,
        detail: str = "",
    ) -> None:
        """Discard a taken entry: recorded before it is settled. ``detail``: of the attempt that
        decided it."""
        if entry.indication.member is not None:
            self.lose(queue, entry.indication)
        self._tell(queue, entry, reason, detail)
        self.settle(queue, entry, reason)

    def _tell(
        self, queue: DestinationQueue, entry: QueueEntry, reason: DiscardReason, detail: str = ""
    ) -> None:
        """Hand it on as a dead letter, record it and report it, in this order."""
        detail = one_line(detail, DETAIL_LIMIT)
        dead_letter = self.dead_letters.take(queue, entry, reason, detail)
        forced = self._journal.forces(entry.indication, reason)
        self.records.discarded(queue, entry, reason, detail, dead_letter=dead_letter, forced=forced)
        self._reports.tell(queue, entry, reason, detail=detail, forced=forced)

    # ------------------------------------------------------------------ what a mass discard awaits

    @property
    def is_behind(self) -> bool:
        return self.records.history.is_behind or self.dead_letters.is_behind

    def once_written(self, then: Callable[[], None]) -> None:
        behind = self.records.history if self.records.history.is_behind else self.dead_letters
        behind.once_written(then)

    def discard_evicted(
        self, queue: DestinationQueue, evicted: QueueEntry | CompactEntries, reason: DiscardReason
    ) -> None:
        if isinstance(evicted, QueueEntry):
            if queue.index in self.turns.by_index:
                # Behind older ones, which are being read.
                self.discard_many(queue, (evicted,), reason)
            else:
                self.discard(queue, evicted, reason)
        else:
            self.discard_many(queue, (), reason, packed=evicted)

    def discard_many(
        self,
        queue: DestinationQueue,
        entries: Sequence[QueueEntry],
        reason: DiscardReason,
        *,
        packed: CompactEntries | None = None,
    ) -> None:
        """Discard taken entries in turns of the event loop."""
        for entry in entries:
            # Immediately: entries behind them may be taken before their turn.
            if entry.indication.member is not None:
                self.lose(queue, entry.indication)
        # A revision is being applied: where dead letters go is known when it is in force.
        is_later = reason is DiscardReason.DESTINATION_REMOVED and bool(queue.destination.left_to)
        self.turns.add(queue, entries, reason, packed=packed, is_later=is_later)

    # ------------------------------------------------------------------ ordered groups (S1.5)

    def lose(self, queue: DestinationQueue, indication: Indication) -> None:
        """Note that a discarded member of a group is missing at its destination."""
        if not queue.lose(indication):
            return
        run = run_of(indication)
        events.group_ended_at(queue, indication)
        if queue.gaps.shorten():
            events.gap_forgotten(queue)
        self._gaps.setdefault(run, set()).add(queue)
        self._note(queue)

    def adopt_gaps(self, queue: DestinationQueue) -> None:
        for run in queue.gaps.runs():
            self._gaps.setdefault(run, set()).add(queue)

    def end_group(self, run: int) -> None:
        for queue in self._gaps.pop(run, ()):
            queue.gaps.group_ended(run, until=queue.sequence.next_number)
            queue.gaps.forget_below(queue.lowest_number)
            self._note(queue)

    def end_other_groups(self, runs: Container[int]) -> None:
        for run in [run for run in self._gaps if run not in runs]:
            self.end_group(run)

    def _note(self, queue: DestinationQueue) -> None:
        self._journal.note(queue.state(offset=self._journal.offset))

    def discard_held(
        self,
        indication: Indication,
        entries: Sequence[tuple[DestinationQueue, QueueEntry]],
        reason: DiscardReason,
    ) -> None:
        """Discard an indication that never reached its queues (S1.6)."""
        self._journal.end_hold(indication, reason)
        left = len(entries)
        for queue, entry in entries:
            left -= 1
            self._tell(queue, entry, reason)
            self.settle(queue, entry, reason, left=left)

    # ------------------------------------------------------------------ waiting

    def await_empty(self, emptied: asyncio.Event) -> None:
        """Set ``emptied`` whenever nothing is pending."""
        self._emptied.add(emptied)

    def stop_awaiting(self, emptied: asyncio.Event) -> None:
        self._emptied.discard(emptied)
