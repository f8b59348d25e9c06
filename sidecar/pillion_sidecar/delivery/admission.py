"""Admission: takes an indication for all of its targets or for none, journals it, and queues it
after the commit."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import DeliverThrough
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.entries import EntryColumns, QueueEntry, Subscription
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.sequence import run_of
from pillion_sidecar.delivery.settlement import Settlements
from pillion_sidecar.delivery.table import DestinationTable
from pillion_sidecar.indication import DiscardReason, Indication, Refusal, Target, Tracker
from pillion_sidecar.journal.ports import NO_NUMBER, Journal, Place, PlainPlace

#: Seconds for which an answer is reused: a search of ten thousand queues takes a millisecond.
ANSWER_SECONDS = 0.1
#: Releases per turn of the event loop.
RELEASED_PER_TURN = 128
#: Retry-After of a full queue, in seconds.
FULL_QUEUE_RETRY_AFTER = 1.0
#: For a request whose body was still being read.
CLOSED = Refusal(FULL_QUEUE_RETRY_AFTER, "the deliverer is stopping")
#: Entries that the fullest queues give up, minimum and maximum, when the journal is full. An
#: indication that several queues hold is freed only with its last entry.
MAKING_ROOM = 2
MOST_GIVEN_UP = 256
#: Room that the journal needs for the dead letter of an evicted entry: bytes, and so many times its
#: size.
LEAST_ROOM, ROOM_OF_SIZES = 256 << 10, 4
Resolved: TypeAlias = tuple[Target, Subscription, DestinationQueue]
Queued: TypeAlias = tuple[DestinationQueue, QueueEntry]
Run: TypeAlias = tuple[DestinationQueue, EntryColumns]


class SplitTracker:
    """Follows both parts of a split indication and reports the whole to its trackers (S1.5)."""

    __slots__ = ("_whole",)

    def __init__(self, whole: Indication) -> None:
        """``whole`` carries the trackers, and in ``unsettled`` the targets of both parts."""
        self._whole = whole

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        whole = self._whole
        whole.unsettled -= 1
        for tracker in whole.trackers:
            tracker.settled(whole, destination, discarded)


def split_relayed(indication: Indication, *, held: int, relayed: int) -> Indication:
    """Split off the part that is relayed; the indication itself becomes the held part.

    The held part keeps the identity: a restart knows only the parts, and must not count the
    indication as delivered before the held part is.
    """
    going = msgspec.structs.replace(indication, digest=None, unsettled=relayed)
    # The tracker needs no body and must not keep one in memory.
    whole = msgspec.structs.replace(indication, body=b"", unsettled=held + relayed)
    going.trackers = indication.trackers = (SplitTracker(whole),)
    # From now on the whole counts; acceptance asks for its number of targets.
    indication.unsettled = held + relayed
    return going


class FullestQueues:
    """Finds the fullest queues; caches the answer for ``ANSWER_SECONDS``."""

    def __init__(self, *, clock: Clock, queues: Callable[[], Iterable[DestinationQueue]]) -> None:
        self._clock = clock
        self._queues = queues
        self._found: DestinationQueue | None = None
        self._until = float("-inf")
        # The queues that evict their oldest, fullest first, with their depth at the last search.
        self._giving: list[tuple[int, int, DestinationQueue]] = []
        self._giving_until = float("-inf")

    def fullest(self) -> DestinationQueue | None:
        now = self._clock.monotonic()
        if now >= self._until or self._found is None or not self._found.depth:
            self._until = now + ANSWER_SECONDS
            self._found = max(self._queues(), key=_depth, default=None)
        return self._found if self._found is not None and self._found.depth else None

    def giving_way(self) -> DestinationQueue | None:
        """Return the queue with most waiting entries among those that evict their oldest.

        Ask again after each eviction, so that queues that hold the same indications evict evenly.
        """
        now = self._clock.monotonic()
        if now >= self._giving_until:
            self._giving_until = now + ANSWER_SECONDS
            self._giving = [
                (-queue.waiting.count, number, queue)
                for number, queue in enumerate(self._queues())
                if queue.waiting.count and queue.evicts_oldest(now=now)
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


class Releases:
    def __init__(
        self,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        release: Callable[[Indication], None],
        settlements: Settlements,
    ) -> None:
        self._call_soon = call_soon
        self._release = release
        self._settlements = settlements
        self._waiting: deque[Indication] = deque()
        # How many of each run wait, and the runs that have ended meanwhile: a gap of a run must be
        # known until its last member has its number.
        self._of_run: Counter[int] = Counter()
        self._ended: set[int] = set()
        # Releases left in this turn of the event loop.
        self._left = RELEASED_PER_TURN
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def precede(self, indication: Indication) -> bool:
        return bool(self._waiting) and run_of(indication) in self._of_run

    def add(self, indication: Indication) -> None:
        """Release a held member: immediately if nothing waits and this turn has room."""
        if not self._waiting and self._left:
            self._left -= 1
            self._release(indication)
        else:
            self._waiting.append(indication)
            self._of_run[run_of(indication)] += 1
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    def end_group(self, run: int) -> None:
        """No further member of a group comes, except those that wait here."""
        if run in self._of_run:
            self._ended.add(run)
        else:
            self._settlements.end_group(run)

    def end_other_groups(self, runs: Set[int]) -> None:
        """End every group except ``runs`` and those that wait here."""
        going_on = self._of_run.keys() - runs
        self._ended |= going_on
        self._settlements.end_other_groups(runs | going_on)

    def _turn(self) -> None:
        self._scheduled = False
        self._left = RELEASED_PER_TURN
        while self._waiting and self._left:
            self._left -= 1
            self._release_first()
        if self._waiting:
            self._scheduled = True
            self._call_soon(self._turn)

    def _release_first(self) -> None:
        indication = self._waiting.popleft()
        run = run_of(indication)
        self._of_run[run] -= 1
        self._release(indication)
        if not self._of_run[run]:
            del self._of_run[run]
            if run in self._ended:
                self._ended.remove(run)
                self._settlements.end_group(run)


class Admission:
    """Takes indications for delivery; the delivery side of ``indication.Queues``."""

    def __init__(
        self,
        *,
        clock: Clock,
        table: DestinationTable,
        journal: Journal,
        settlements: Settlements,
        arrange: Callable[[DestinationQueue], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._clock = clock
        self._table = table
        self._journal = journal
        self._settlements = settlements
        self._arrange = arrange
        self.releases = Releases(
            call_soon=call_soon, release=self._release, settlements=settlements
        )
        self._fullest = FullestQueues(clock=clock, queues=table.all_queues)
        self._in_memory = journal.durability is Durability.MEMORY
        #: Taken but not on disk yet, by id, in order.
        self._staged: deque[tuple[int, Sequence[Run]]] = deque()
        #: Held indications by id, with the entries that places are reserved for.
        self.held: dict[int, tuple[Indication, list[Queued]]] = {}
        self.closed = False

    def offer(
        self, indication: Indication, targets: Sequence[Target], *, completes: bool = False
    ) -> Refusal | None:
        """Skips targets whose subscription has ended or suppresses this occurrence.

        A relayed indication for an ended subscription is discarded: it had been accepted before.
        """
        if self.closed:
            return CLOSED
        if indication.member is not None and self.releases.precede(indication):
            refusal = self.hold(indication, targets)
            if refusal is None:
                self.releases.add(indication)
            return refusal
        resolved = self._table.resolve(targets, ended=indication.relayed is not None)
        refusal = self._refusal(indication, resolved, completes=completes)
        if refusal is None:
            self._queue(indication, self._entries(indication, resolved))
        return refusal

    def offer_all(
        self, indications: Sequence[Indication], targets: Sequence[Sequence[Target]]
    ) -> bool:
        """See ``Queues``."""
        runs: dict[DestinationQueue, EntryColumns] = {}
        places = self._lay_out(indications, targets, runs)
        if self.closed or len(places) < len(indications):
            return False
        if any(queue.free_places < len(one.indications) for queue, one in runs.items()):
            return False
        if not self._journal.append_all(indications, places):
            return False
        self._settlements.pending += sum(map(len, places))
        for queue, one in runs.items():
            queue.sequence.continue_from(one.number + len(one.indications))
            if self._in_memory:
                self._enqueue_all(queue, one)
            else:
                queue.stage(len(one.indications))
        if runs and not self._in_memory:
            self._staged.append((indications[-1].id, [*runs.items()]))
        return True

    def _lay_out(
        self,
        indications: Sequence[Indication],
        targets: Sequence[Sequence[Target]],
        runs: dict[DestinationQueue, EntryColumns],
    ) -> list[list[PlainPlace]]:
        """Add the entries of indications to ``runs``; return their places, up to the first that
        needs a closer look."""
        places: list[list[PlainPlace]] = []
        before: Sequence[Target] | None = None
        found: list[tuple[int, Subscription, EntryColumns]] | None = None
        for indication, given in zip(indications, targets, strict=True):
            if given is not before:
                before, found = given, self._runs_of(given, runs)
            if found is None:
                break
            of_one = []
            for index, subscription, (number, queued, subscriptions) in found:
                of_one.append((index, subscription.index, number + len(queued)))
                queued.append(indication)
                subscriptions.append(subscription)
            places.append(of_one)
        return places

    def _runs_of(
        self, targets: Sequence[Target], runs: dict[DestinationQueue, EntryColumns]
    ) -> list[tuple[int, Subscription, EntryColumns]] | None:
        """Return where an indication for these targets goes, with the index of each queue; None if
        it needs a closer look."""
        found = []
        for _, subscription, queue in self._table.resolve(targets):
            if subscription.repeats is not None:
                return None
            run = runs.get(queue)
            if run is None:
                run = runs[queue] = EntryColumns(queue.sequence.next_number, [], [])
            found.append((queue.index, subscription, run))
        return found if len(found) == len(targets) else None

    def offer_dead_letter(
        self, indication: Indication, target: Target, *, evicted: bool
    ) -> Refusal | None:
        """See ``DeadLetterQueues``. While it closes, a journal on disk still takes them."""
        if self.closed and self._journal.durability is not Durability.DISK:
            return CLOSED
        journal, size = self._journal, len(indication.body)
        reason = journal.refusal(size)
        # What gives way to others at the journal's bound would push them out again.
        room = max(LEAST_ROOM, ROOM_OF_SIZES * size)
        if reason is None and evicted and journal.is_over_bytes(room):
            reason = "the journal is nearly full"
        if reason is not None:
            return Refusal(FULL_QUEUE_RETRY_AFTER, reason)
        resolved = self._table.resolve((target,))
        if not resolved:
            return Refusal(FULL_QUEUE_RETRY_AFTER, "its subscription has ended")
        for queue, places in _needed(resolved).items():
            if queue.refuses(places, now=indication.accepted_at):
                return _full(queue)
        self._queue(indication, self._entries(indication, resolved))
        return None

    def _queue(self, indication: Indication, entries: list[Queued], *, held: int = 0) -> None:
        """Journal an indication, and queue its entries once it is on disk. ``held``: its former
        id."""
        for queue, entry in entries:
            # If the destination came back meanwhile, two queues have had its index, and the journal
            # would confuse their numbers.
            newest = queue if not held else self._table.queue_at(queue.index) or queue
            entry.number = newest.sequence.number()
        if self._in_memory:
            self._journal.append(indication, (), held=held)
            for queue, entry in entries:
                self._enqueue(queue, entry)
            return
        self._journal.append(indication, _places(entries), held=held)
        if entries:
            for queue, _ in entries:
                queue.stage(1)
            runs = [
                (queue, EntryColumns(one.number, [indication], [one.subscription]))
                for queue, one in entries
            ]
            self._staged.append((indication.id, runs))

    def committed(self, through: int) -> None:
        """Queue all indications up to id ``through``; after the close they stay on disk."""
        staged = self._staged
        while staged and staged[0][0] <= through:
            for queue, columns in staged.popleft()[1]:
                queue.stage(-len(columns.indications))
                if not self.closed:
                    self._enqueue_all(queue, columns)

    # ------------------------------------------------------------------ holding (S1.5)

    def hold(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        if self.closed:
            return CLOSED
        resolved = self._table.resolve(targets, ended=indication.relayed is not None)
        refusal = self._refusal_to_hold(indication, resolved) or self._refusal(indication, resolved)
        if refusal is None:
            entries = self._entries(indication, resolved)
            relayed = [entry for entry in entries if entry[0].relay_to is not None]
            if relayed:
                self._relay_now(indication, relayed)
                entries = [entry for entry in entries if entry[0].relay_to is None]
            self._journal.hold(indication, _places(entries))
            self._reserve(indication, entries)
        return refusal

    def _reserve(self, indication: Indication, entries: list[Queued]) -> None:
        for queue, _ in entries:
            queue.hold_place(indication)
        self.held[indication.id] = indication, entries

    def _let_go(self, indication: Indication) -> list[Queued]:
        _, entries = self.held.pop(indication.id)
        for queue, _ in entries:
            queue.free_place(indication)
        return entries

    def _relay_now(self, indication: Indication, relayed: list[Queued]) -> None:
        held = indication.unsettled - len(relayed)
        going = split_relayed(indication, held=held, relayed=len(relayed))
        self._queue(
            going,
            [(queue, QueueEntry(going, one.subscription, NO_NUMBER)) for queue, one in relayed],
        )

    def have_ended(self, targets: Sequence[Target]) -> bool:
        return not self._table.resolve(targets)

    def release(self, indication: Indication) -> None:
        if not self.closed:
            self.releases.add(indication)

    def _release(self, indication: Indication) -> None:
        if not self.closed:
            self._queue(indication, self._let_go(indication), held=indication.id)

    def discard_held(self, indication: Indication, reason: DiscardReason) -> None:
        if not self.closed:
            self._settlements.discard_held(indication, self._let_go(indication), reason)

    def adopt_held(
        self, indication: Indication, places: Sequence[Place], *, trackers: tuple[Tracker, ...]
    ) -> None:
        """Restore an indication held by the previous run, without destinations that are gone."""
        entries: list[Queued] = []
        for place in places:
            queue = self._table.queue_at(place.destination)
            if queue is not None:
                subscription = self._table.subscriptions.at(place.subscription)
                entries.append((queue, QueueEntry(indication, subscription, NO_NUMBER)))
        indication.trackers = trackers
        indication.unsettled = len(entries)
        self._settlements.pending += len(entries)
        self._reserve(indication, entries)

    def close(self) -> None:
        """Take nothing more. What is held or uncommitted stays in the journal, if that is durable;
        :meth:`give_up` discards the rest."""
        if self._journal.durability is not Durability.DISK:
            # Every id is lower.
            self.committed(NO_NUMBER)
        self.closed = True

    def give_up(self) -> Iterator[None]:
        for indication, _ in list(self.held.values()):
            entries = self._let_go(indication)
            self._settlements.discard_held(indication, entries, DiscardReason.SHUTDOWN)
            yield

    # ------------------------------------------------------------------ queueing

    def _entries(self, indication: Indication, resolved: Sequence[Resolved]) -> list[Queued]:
        entries: list[Queued] = []
        for target, subscription, queue in resolved:
            repeats = subscription.repeats
            if (
                repeats is None
                or not _counts_repeats(indication, queue)
                or repeats.admits(target.event, now=indication.accepted_at)
            ):
                entries.append((queue, QueueEntry(indication, subscription, NO_NUMBER)))
            else:
                queue.statistics.suppress()
        indication.unsettled = len(entries)
        self._settlements.pending += len(entries)
        return entries

    def _enqueue_all(self, queue: DestinationQueue, columns: EntryColumns) -> None:
        waiting = queue.waiting.count
        has_ended = queue.removed or any(one.end is not None for one in {*columns.subscriptions})
        if has_ended or waiting + len(columns.indications) > queue.capacity:
            for entry in columns.entries:
                self._enqueue(queue, entry)
            return
        queue.extend_back(columns, now=self._clock.monotonic())
        if not waiting or queue.max_in_flight > 1:
            self._arrange(queue)

    def _enqueue(self, queue: DestinationQueue, entry: QueueEntry) -> None:
        if queue.removed:
            self._settlements.discard(queue, entry, DiscardReason.DESTINATION_REMOVED)
            return
        if entry.subscription.end is not None and not queue.draining:
            self._settlements.discard(queue, entry, DiscardReason.SUBSCRIPTION_NOT_ACTIVE)
            return
        evicted = queue.insert_back(entry, now=self._clock.monotonic())
        if evicted is not None:
            self._settlements.discard_evicted(queue, evicted, DiscardReason.QUEUE_FULL)
        if queue.waiting.count == 1 or queue.max_in_flight > 1:
            self._arrange(queue)

    # ------------------------------------------------------------------ refusing

    def _refusal(
        self, indication: Indication, resolved: Sequence[Resolved], *, completes: bool = False
    ) -> Refusal | None:
        """Return why it cannot be taken now. An indication that ``completes`` a group always fits:
        it frees more places than it takes."""
        if not self._in_memory:
            journal, size = self._journal, len(indication.body)
            full = None
            if journal.is_over_bytes(size):
                if indication.redrives:
                    # What is repeated discards nothing.
                    return Refusal(FULL_QUEUE_RETRY_AFTER, "the journal is nearly full")
                full = self._relieve(size, resolved)
            reason = journal.refusal(size)
            if reason is not None:
                return Refusal(FULL_QUEUE_RETRY_AFTER, reason)
            if full is not None:
                reason = f"the journal is nearly full, and destination {full.name} holds most of it"
                return Refusal(FULL_QUEUE_RETRY_AFTER, reason, full.name)
        if completes:
            return None
        relayed = indication.relayed
        now = indication.accepted_at if relayed is None else relayed.at
        for queue, places in _needed(resolved).items():
            # What is redriven discards nothing, or a dead listener would lose it again.
            if queue.refuses(places, now=now, evicts=not indication.redrives):
                return _full(queue)
        return None

    def _refusal_to_hold(
        self, indication: Indication, resolved: Sequence[Resolved]
    ) -> Refusal | None:
        for queue, places in _needed(resolved).items():
            # A relayed indication goes on immediately.
            reason = queue.refuses_to_hold(indication, places) if queue.relay_to is None else None
            if reason is not None:
                return Refusal(FULL_QUEUE_RETRY_AFTER, reason, is_of_group=True)
        return None

    def _relieve(self, size: int, resolved: Sequence[Resolved]) -> DestinationQueue | None:
        """At the journal's byte bound the fullest destination applies its own full-queue policy
        first, so that others can still publish. Return it if it is a target and pushes back."""
        fullest, now = self._fullest.fullest(), self._clock.monotonic()
        if (
            fullest is not None
            and not fullest.evicts_oldest(now=now)
            and any(queue is fullest for _, _, queue in resolved)
        ):
            return fullest
        # Before asking the journal: nobody else frees space once it is full.
        self._make_room(size)
        return None

    def _make_room(self, size: int) -> None:
        for given_up in range(MOST_GIVEN_UP):
            queue = self._fullest.giving_way()
            evicted = None if queue is None else queue.evict()
            if queue is None or evicted is None:
                return
            self._settlements.discard_evicted(queue, evicted, DiscardReason.QUEUE_FULL)
            # An entry that is not loaded frees its space later.
            is_later = not isinstance(evicted, QueueEntry)
            if given_up + 1 >= MAKING_ROOM and (is_later or not self._journal.is_over_bytes(size)):
                return


def _places(entries: list[Queued]) -> list[Place]:
    return [Place(queue.index, entry.subscription.index, entry.number) for queue, entry in entries]


def _counts_repeats(indication: Indication, queue: DestinationQueue) -> bool:
    """Whether this deliverer applies RepeatNotificationPolicy: the one that delivers does, so that
    the repeats of all sidecars count. A sidecar that hands over at its end has already applied
    it."""
    destination = queue.destination
    if indication.redrives:
        # It was admitted before.
        return False
    if indication.relayed is None:
        return destination.relay_to is None
    return destination.deliver_through is DeliverThrough.GATEWAY


def _needed(resolved: Sequence[Resolved]) -> dict[DestinationQueue, int]:
    """Two subscriptions to one destination need two places."""
    if len(resolved) == 1:
        return {resolved[0][2]: 1}
    needed: dict[DestinationQueue, int] = {}
    for _, _, queue in resolved:
        needed[queue] = needed.get(queue, 0) + 1
    return needed


def _full(queue: DestinationQueue) -> Refusal:
    reason = f"the queue of destination {queue.name} is full"
    return Refusal(FULL_QUEUE_RETRY_AFTER, reason, queue.name)
