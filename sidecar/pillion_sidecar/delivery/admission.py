"""Admission: an indication is taken for all of its targets or for none, given to the journal, and
queued once it is as safe as the journal makes it."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import DeliverThrough
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.entries import QueueEntry, Subscription
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.sequence import run_of
from pillion_sidecar.delivery.settlement import Settlements
from pillion_sidecar.delivery.table import DestinationTable
from pillion_sidecar.indication import DiscardReason, Indication, Refusal, Target, Tracker
from pillion_sidecar.journal.ports import NO_NUMBER, Journal, Place

#: Seconds for which an answer holds: looking through ten thousand queues takes a millisecond.
ANSWER_SECONDS = 0.1
#: Releases before the event loop gets its turn.
RELEASED_PER_TURN = 128
#: What a publisher who met a full queue is told to wait, in seconds.
FULL_QUEUE_RETRY_AFTER = 1.0
#: For a request that was still being read: its publisher is to send the rest elsewhere.
CLOSED = Refusal(FULL_QUEUE_RETRY_AFTER, "the deliverer is stopping")
#: Entries that the fullest queues give up for an indication that the journal has no room for, at
#: least and at most. An indication that several of them hold is gone only with its last entry.
MAKING_ROOM = 2
MOST_GIVEN_UP = 256
#: What a target stands for.
Resolved: TypeAlias = tuple[Target, Subscription, DestinationQueue]
#: An entry and the queue that it belongs to.
Queued: TypeAlias = tuple[DestinationQueue, QueueEntry]


class SplitTracker:
    """Follows both parts of a split indication, and tells its followers of the whole.

    The targets that are relayed go to their gateways at once, the others wait for the predecessors
    (S1.5).
    """

    __slots__ = ("_whole",)

    def __init__(self, whole: Indication) -> None:
        """``whole`` has the followers, and in ``unsettled`` the targets of both parts."""
        self._whole = whole

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        """See ``Tracker``."""
        whole = self._whole
        whole.unsettled -= 1
        for tracker in whole.trackers:
            tracker.settled(whole, destination, discarded)


def split_relayed(indication: Indication, *, held: int, relayed: int) -> Indication:
    """Return the part of an indication that is relayed, to ``relayed`` targets; the indication
    itself becomes the part that is held, for ``held``.

    The identity stays with what is held: after a restart, which knows only the parts, it has not
    been delivered before that has.
    """
    going = msgspec.structs.replace(indication, digest=None, unsettled=relayed)
    # What is told of the whole needs no body, and must not keep one in memory.
    whole = msgspec.structs.replace(indication, body=b"", unsettled=held + relayed)
    going.trackers = indication.trackers = (SplitTracker(whole),)
    # Acceptance asks for how many targets there are; what counts from now on is the whole.
    indication.unsettled = held + relayed
    return going


class FullestQueues:
    """Finds the fullest queues; an answer holds for a moment."""

    def __init__(self, *, clock: Clock, queues: Callable[[], Iterable[DestinationQueue]]) -> None:
        self._clock = clock
        self._queues = queues
        self._found: DestinationQueue | None = None
        self._until = float("-inf")
        # Those that give way, the fullest first, with how many waited when that was looked at.
        self._giving: list[tuple[int, int, DestinationQueue]] = []
        self._giving_until = float("-inf")

    def fullest(self) -> DestinationQueue | None:
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


class Releases:
    """Releases members in the order in which they are added."""

    def __init__(
        self,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        release: Callable[[Indication], None],
        settlements: Settlements,
    ) -> None:
        """``call_soon`` is that of the event loop; ``release`` queues one member."""
        self._call_soon = call_soon
        self._release = release
        self._settlements = settlements
        self._waiting: deque[Indication] = deque()
        # How many of each run of a group wait, and the runs that have ended meanwhile: a gap of
        # theirs must be known until the last of them has its number.
        self._of_run: Counter[int] = Counter()
        self._ended: set[int] = set()
        # How many this turn of the event loop may still release.
        self._left = RELEASED_PER_TURN
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def precede(self, indication: Indication) -> bool:
        """Whether members of its group wait for their turn; of a member."""
        return bool(self._waiting) and run_of(indication) in self._of_run

    def add(self, indication: Indication) -> None:
        """Release a member that is held: at once where this turn has room and none is before it."""
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
        """No further member of a group comes, but for those that wait for their turn."""
        if run in self._of_run:
            self._ended.add(run)
        else:
            self._settlements.end_group(run)

    def end_other_groups(self, runs: Set[int]) -> None:
        """No further member comes of any group but these, and those that wait for their turn."""
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
    """Takes indications over for delivery."""

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
        """``arrange`` sees to the next event of a queue that was empty; ``call_soon`` is that of
        the event loop."""
        self._clock = clock
        self._table = table
        self._journal = journal
        self._settlements = settlements
        self._arrange = arrange
        #: The members of groups that go to their queues.
        self.releases = Releases(
            call_soon=call_soon, release=self._release, settlements=settlements
        )
        self._fullest = FullestQueues(clock=clock, queues=table.all_queues)
        #: Whether nothing has to wait for a disk.
        self._in_memory = journal.durability is Durability.MEMORY
        #: What is taken but not on disk yet, by id, in order.
        self._staged: deque[tuple[int, list[Queued]]] = deque()
        #: Held indications by id, with the entries that places are reserved for, in order.
        self.held: dict[int, tuple[Indication, list[Queued]]] = {}
        #: Set when nothing more is taken.
        self.closed = False

    def offer(
        self, indication: Indication, targets: Sequence[Target], *, completes: bool = False
    ) -> Refusal | None:
        """See ``indication.Queues``.

        A subscription that has ended meanwhile, or whose repeat notification policy suppresses
        this occurrence, is not a target any more. What was relayed for one that has ended is
        discarded for it: it had been accepted before.
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

    def _queue(self, indication: Indication, entries: list[Queued], *, held: int = 0) -> None:
        """Give an indication to the journal, and its entries to their queues once it is on disk.
        ``held``: the id under which it was held."""
        for queue, entry in entries:
            # Where the destination came back while it was held, two queues have its index, or had
            # it: the journal would take one's number for the other's.
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
                queue.stage()
            self._staged.append((indication.id, entries))

    def committed(self, through: int) -> None:
        """Queue all indications with an id up to ``through``, which are on disk; once nothing is
        delivered any more they stay there."""
        staged = self._staged
        while staged and staged[0][0] <= through:
            for queue, entry in staged.popleft()[1]:
                queue.unstage()
                if not self.closed:
                    self._enqueue(queue, entry)

    # ------------------------------------------------------------------ holding (S1.5)

    def hold(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        """See ``indication.Queues``."""
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
        """Hold an indication no longer; return its entries."""
        _, entries = self.held.pop(indication.id)
        for queue, _ in entries:
            queue.free_place(indication)
        return entries

    def _relay_now(self, indication: Indication, relayed: list[Queued]) -> None:
        """Queue what is relayed of an indication that is held."""
        held = indication.unsettled - len(relayed)
        going = split_relayed(indication, held=held, relayed=len(relayed))
        self._queue(
            going,
            [(queue, QueueEntry(going, one.subscription, NO_NUMBER)) for queue, one in relayed],
        )

    def have_ended(self, targets: Sequence[Target]) -> bool:
        """See ``indication.Queues``."""
        return not self._table.resolve(targets)

    def release(self, indication: Indication) -> None:
        """See ``indication.Queues``."""
        if not self.closed:
            self.releases.add(indication)

    def _release(self, indication: Indication) -> None:
        if not self.closed:
            self._queue(indication, self._let_go(indication), held=indication.id)

    def discard_held(self, indication: Indication, reason: DiscardReason) -> None:
        """See ``indication.Queues``."""
        if not self.closed:
            self._settlements.discard_held(indication, self._let_go(indication), reason)

    def adopt_held(
        self, indication: Indication, places: Sequence[Place], *, trackers: tuple[Tracker, ...]
    ) -> None:
        """Know an indication that was held in the run before; a destination that is gone by now
        is no place of it any more."""
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
        """Take nothing more. What is held or waits for its commit stays in the journal, where that
        has it; else :meth:`give_up` discards it, or it is put in its queue."""
        if self._journal.durability is not Durability.DISK:
            self.committed(NO_NUMBER)
        self.closed = True

    def give_up(self) -> Iterator[None]:
        """Discard what is held, one indication at each step."""
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
        """Return why it cannot be taken now. What ``completes`` a group finds room in each queue,
        since it is one of less than are released."""
        if not self._in_memory:
            journal, size = self._journal, len(indication.body)
            full = self._relieve(size, resolved) if journal.is_over_bytes(size) else None
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
            if queue.refuses(places, now=now):
                return _full(queue)
        return None

    def _refusal_to_hold(
        self, indication: Indication, resolved: Sequence[Resolved]
    ) -> Refusal | None:
        for queue, places in _needed(resolved).items():
            # What is relayed goes on at once.
            reason = queue.refuses_to_hold(indication, places) if queue.relay_to is None else None
            if reason is not None:
                return Refusal(FULL_QUEUE_RETRY_AFTER, reason, is_of_group=True)
        return None

    def _relieve(self, size: int, resolved: Sequence[Resolved]) -> DestinationQueue | None:
        """At the journal's byte bound the destination that holds most meets its own full-queue
        policy first, and others still publish. Return its queue, where that is a target and pushes
        back; else make room."""
        fullest, now = self._fullest.fullest(), self._clock.monotonic()
        if (
            fullest is not None
            and not fullest.gives_way(now=now)
            and any(queue is fullest for _, _, queue in resolved)
        ):
            return fullest
        # Before the journal is asked: once it is full to the last, nobody else makes room.
        self._make_room(size)
        return None

    def _make_room(self, size: int) -> None:
        for given_up in range(MOST_GIVEN_UP):
            queue = self._fullest.giving_way()
            evicted = None if queue is None else queue.evict()
            if queue is None or evicted is None:
                return
            self._settlements.discard_evicted(queue, evicted, DiscardReason.QUEUE_FULL)
            # What is not loaded gives its room back a little later.
            is_later = not isinstance(evicted, QueueEntry)
            if given_up + 1 >= MAKING_ROOM and (is_later or not self._journal.is_over_bytes(size)):
                return


def _places(entries: list[Queued]) -> list[Place]:
    return [Place(queue.index, entry.subscription.index, entry.number) for queue, entry in entries]


def _counts_repeats(indication: Indication, queue: DestinationQueue) -> bool:
    """Whether a subscription's RepeatNotificationPolicy is applied here: by the deliverer that
    delivers, so that the repeats of all sidecars count. What is handed over at the end of a sidecar
    has been let through by it."""
    destination = queue.destination
    if indication.relayed is None:
        return destination.relay_to is None
    return destination.deliver_through is DeliverThrough.GATEWAY


def _needed(resolved: Sequence[Resolved]) -> dict[DestinationQueue, int]:
    """Return how many places each queue needs: two subscriptions to one destination need two."""
    if len(resolved) == 1:
        return {resolved[0][2]: 1}
    needed: dict[DestinationQueue, int] = {}
    for _, _, queue in resolved:
        needed[queue] = needed.get(queue, 0) + 1
    return needed


def _full(queue: DestinationQueue) -> Refusal:
    reason = f"the queue of destination {queue.name} is full"
    return Refusal(FULL_QUEUE_RETRY_AFTER, reason, queue.name)
