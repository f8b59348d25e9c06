"""What intake and the message groups hand over: taken for all targets or for none, given to the
journal, and queued once it is as safe as the journal makes it."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.resources import DeliverThrough
from pillion_sidecar.delivery.entry import QueueEntry
from pillion_sidecar.delivery.heaviest import Heaviest
from pillion_sidecar.delivery.keeping import Keeping, Queued
from pillion_sidecar.delivery.parting import part
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.releasing import Releases
from pillion_sidecar.delivery.settling import Settlements
from pillion_sidecar.delivery.subscriptions import Subscription
from pillion_sidecar.delivery.table import DestinationTable
from pillion_sidecar.indication import DiscardReason, Indication, Refusal, Target, Tracker
from pillion_sidecar.journal.ports import NO_NUMBER, Place

#: What a publisher who met a full queue is told to wait, in seconds.
FULL_QUEUE_RETRY_AFTER = 1.0
#: For a request that was still being read: its publisher is to send the rest elsewhere.
CLOSED = Refusal(FULL_QUEUE_RETRY_AFTER, "the deliverer is stopping")
#: Entries that the heaviest queues give up for an indication that the journal has no room for, at
#: least and at most. An indication that several of them hold is gone only with its last entry.
MAKING_ROOM = 2
MOST_GIVEN_UP = 256

#: What a target stands for.
Resolved: TypeAlias = tuple[Target, Subscription, DestinationQueue]


class Taking:
    """Takes indications over for delivery."""

    def __init__(
        self,
        *,
        clock: Clock,
        table: DestinationTable,
        keeping: Keeping,
        settlements: Settlements,
        arrange: Callable[[DestinationQueue], None],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """``arrange`` sees to the next event of a queue that was empty; ``call_soon`` is that of
        the event loop."""
        self._clock = clock
        self._table = table
        self._keeping = keeping
        self._settlements = settlements
        self._arrange = arrange
        #: The members of groups that go to their queues.
        self.releases = Releases(
            call_soon=call_soon, release=self._release, settlements=settlements
        )
        self._heaviest = Heaviest(clock=clock, queues=table.all_queues)
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

    def _queue(self, indication: Indication, entries: list[Queued]) -> None:
        for queue, entry in entries:
            entry.number = queue.sequence.number()
        if self._keeping.in_memory:
            self._keeping.journal.append(indication, ())
            for queue, entry in entries:
                self._enqueue_or_discard(queue, entry)
        else:
            self._keeping.stage(indication, entries)

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
            self._keeping.hold(indication, entries)
        return refusal

    def _relay_now(self, indication: Indication, relayed: list[Queued]) -> None:
        """Queue what is relayed of an indication that is held."""
        held = indication.unsettled - len(relayed)
        going = part(indication, held=held, relayed=len(relayed))
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
        if self.closed:
            return
        held = indication.id
        entries = self._keeping.let_go(indication)
        for queue, entry in entries:
            # Where the destination came back meanwhile, two queues have its index, or had it: the
            # journal would take one's number for the other's.
            newest = self._table.queue_at(queue.index) or queue
            entry.number = newest.sequence.number()
        self._keeping.stage(indication, entries, held=held)
        if self._keeping.in_memory:
            self.committed(indication.id)

    def discard_held(self, indication: Indication, reason: DiscardReason) -> None:
        """See ``indication.Queues``."""
        if self.closed:
            return
        entries = self._keeping.let_go(indication)
        self._settlements.discard_held(indication, entries, reason)

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
        self._keeping.keep_held(indication, entries)

    def close(self) -> None:
        """Take nothing more. What is held or waits for its commit stays in the journal, where that
        has it; else :meth:`give_up` discards it, or it is put in its queue."""
        if not self._keeping.packs:
            self.committed(NO_NUMBER)
        self.closed = True

    def give_up(self) -> Iterator[None]:
        """Discard what is held, one indication at each step."""
        for indication in self._keeping.held():
            entries = self._keeping.let_go(indication)
            self._settlements.discard_held(indication, entries, DiscardReason.SHUTDOWN)
            yield

    def committed(self, through: int) -> None:
        """Queue what is on disk; once nothing is delivered any more it stays there."""
        ready = self._keeping.committed(through)
        if self.closed:
            return
        for queue, entry in ready:
            self._enqueue_or_discard(queue, entry)

    def _enqueue_or_discard(self, queue: DestinationQueue, entry: QueueEntry) -> None:
        if queue.removed:
            self._settlements.discard(queue, entry, DiscardReason.DESTINATION_REMOVED)
        elif not entry.subscription.active and not queue.draining:
            self._settlements.discard(queue, entry, DiscardReason.SUBSCRIPTION_NOT_ACTIVE)
        else:
            self._enqueue(queue, entry)

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
                queue.suppressed += 1
        indication.unsettled = len(entries)
        self._settlements.pending += len(entries)
        return entries

    def _enqueue(self, queue: DestinationQueue, entry: QueueEntry) -> None:
        evicted = queue.insert_back(entry, clock=self._clock)
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
        if not self._keeping.in_memory:
            refusal = self._refusal_of_journal(len(indication.body), resolved)
            if refusal is not None:
                return refusal
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

    def _refusal_of_journal(self, size: int, resolved: Sequence[Resolved]) -> Refusal | None:
        """Ask the journal. At its byte bound the destination that holds most meets its own
        full-queue policy first, and others still publish."""
        journal, full = self._keeping.journal, None
        if journal.is_over_bytes(size):
            full = self._pushing_back(resolved)
            if full is None:
                # Before the journal is asked: once it is full to the last, nobody else makes room.
                self._make_room(size)
        reason = journal.refusal(size)
        if reason is not None:
            return Refusal(FULL_QUEUE_RETRY_AFTER, reason)
        if full is None:
            return None
        reason = f"the journal is nearly full, and destination {full.name} holds most of it"
        return Refusal(FULL_QUEUE_RETRY_AFTER, reason, full.name)

    def _pushing_back(self, resolved: Sequence[Resolved]) -> DestinationQueue | None:
        """Return the heaviest queue where it is a target, and does not give way."""
        heaviest = self._heaviest.queue()
        if heaviest is None or heaviest.gives_way(now=self._clock.monotonic()):
            return None
        return heaviest if any(queue is heaviest for _, _, queue in resolved) else None

    def _make_room(self, size: int) -> None:
        journal = self._keeping.journal
        for given_up in range(MOST_GIVEN_UP):
            heaviest = self._heaviest.giving_way()
            evicted = None if heaviest is None else heaviest.evict()
            if heaviest is None or evicted is None:
                return
            self._settlements.discard_evicted(heaviest, evicted, DiscardReason.QUEUE_FULL)
            # What is not loaded gives its room back a little later.
            is_later = not isinstance(evicted, QueueEntry)
            if given_up + 1 >= MAKING_ROOM and (is_later or not journal.is_over_bytes(size)):
                return


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
