"""Delivery's side of the journal: which entries wait for their commit, how entries are packed and
read back, and what the journal asks of delivery (``JournalOwner``)."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.backlog import CompactEntry, TrackerTable
from pillion_sidecar.delivery.entries import QueueEntry, Subscription
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.indication import Indication, Tracker
from pillion_sidecar.journal.ports import NO_NUMBER, Journal, Place

#: An entry and the queue that it belongs to.
Queued = tuple[DestinationQueue, QueueEntry]


class CommitStaging:
    """Hands indications to the journal, and entries on once their indication is on disk."""

    def __init__(
        self,
        journal: Journal,
        *,
        subscription_at: Callable[[int], Subscription],
        followers: tuple[Tracker, ...],
    ) -> None:
        """``subscription_at`` gives the subscription with one of the journal's indices;
        ``followers`` follow every indication, of the runs before too."""
        self.journal = journal
        #: Whether indications can be read back, and whether nothing has to wait for a disk.
        self.packs = journal.durability is Durability.DISK
        self.in_memory = journal.durability is Durability.MEMORY
        #: Whether the journal has failed, so that it is not known what it keeps.
        self.failed = False
        self._subscription_at = subscription_at
        self._trackers = TrackerTable()
        self._trackers.follow_all(followers)
        #: What is taken but not on disk yet, by id, in order.
        self._staged: deque[tuple[int, list[Queued]]] = deque()
        #: Held indications, by id, with the places that are reserved for them.
        self._held: dict[int, tuple[Indication, list[Queued]]] = {}

    # ------------------------------------------------------------------ taking

    def stage(self, indication: Indication, entries: list[Queued], *, held: int = 0) -> None:
        """Give an indication to the journal; its entries come back by :meth:`committed`."""
        places = [_place(queue, entry) for queue, entry in entries]
        self.journal.append(indication, places, held=held)
        if entries:
            for queue, _ in entries:
                queue.stage()
            self._staged.append((indication.id, entries))

    def committed(self, through: int) -> list[Queued]:
        """Return the entries of all indications with an id up to ``through``, in order."""
        staged, ready = self._staged, []
        while staged and staged[0][0] <= through:
            for queue, entry in staged.popleft()[1]:
                queue.unstage()
                ready.append((queue, entry))
        return ready

    # ------------------------------------------------------------------ holding (S1.5)

    def hold(self, indication: Indication, entries: list[Queued]) -> None:
        """Keep an indication without queueing its entries."""
        places = [_place(queue, entry) for queue, entry in entries]
        self.journal.hold(indication, places)
        self.keep_held(indication, entries)

    def keep_held(self, indication: Indication, entries: list[Queued]) -> None:
        """Know an indication that the journal holds."""
        for queue, _ in entries:
            queue.hold_place(indication)
        self._held[indication.id] = indication, entries

    def held(self) -> list[Indication]:
        """All that is held, in order."""
        return [indication for indication, _ in self._held.values()]

    def let_go(self, indication: Indication) -> list[Queued]:
        """Hold an indication no longer; return its entries."""
        _, entries = self._held.pop(indication.id)
        for queue, _ in entries:
            queue.free_place(indication)
        return entries

    # ------------------------------------------------------------------ packing

    def pack(self, entry: QueueEntry) -> CompactEntry:
        """See ``Packing``."""
        indication = entry.indication
        return CompactEntry(
            indication.id,
            indication.position,
            entry.number,
            entry.subscription.index,
            self._trackers.number(indication.trackers),
        )

    def load(
        self, packed: Sequence[CompactEntry], done: Callable[[Sequence[Indication]], None]
    ) -> None:
        """See ``Packing``."""
        positions = [one.position for one in packed]
        self.journal.load(positions, partial(_replace_damaged, packed, done))

    def unpack(self, packed: CompactEntry, indication: Indication) -> QueueEntry:
        """See ``Packing``."""
        indication.trackers = self._trackers.release(packed.trackers)
        # It may have been copied elsewhere while it was read.
        indication.position = packed.position
        return QueueEntry(indication, self._subscription_at(packed.subscription), packed.number)

    # ------------------------------------------------------------------ the journal's questions

    def pending(
        self,
        indication_id: int,
        places: Sequence[Place],
        *,
        holds: Callable[[Place], bool],
    ) -> Sequence[Place]:
        """Return the places that are not settled; ``holds`` looks into queues."""
        if indication_id in self._held:
            return places
        return [place for place in places if place.number != NO_NUMBER and holds(place)]

    def move_held(self, indication_id: int, position: int, size: int) -> bool:
        """Note that a held indication lies elsewhere; return whether it is held."""
        held = self._held.get(indication_id)
        if held is None:
            return False
        held[0].position, held[0].size = position, size
        return True


def _place(queue: DestinationQueue, entry: QueueEntry) -> Place:
    return Place(queue.index, entry.subscription.index, entry.number)


def _replace_damaged(
    packed: Sequence[CompactEntry],
    done: Callable[[Sequence[Indication]], None],
    indications: Sequence[Indication | None],
) -> None:
    done(
        [
            Indication(body=b"", class_name="", accepted_at=0.0, id=one.id)
            if indication is None
            else indication
            for one, indication in zip(packed, indications, strict=True)
        ]
    )
