"""The backlog of a queue: loaded entries in front, the rest compact and read back from the
journal."""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from operator import attrgetter

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.compact_entries import CompactEntries, CompactEntry
from pillion_sidecar.delivery.entries import EntryColumns, QueueEntry, Subscription
from pillion_sidecar.indication import Indication, Tracker
from pillion_sidecar.journal.ports import Journal

#: Loaded entries of a queue, and the number below which more are read back.
FRONT_ENTRIES = 64
FRONT_LOW = 24


class TrackerTable:
    """Numbers tuples of trackers; the lines of one request share theirs.

    Number 0 is the tuple that follows every indication; it is never counted.
    """

    def __init__(self) -> None:
        self._tuples: dict[int, tuple[Tracker, ...]] = {0: ()}
        self._numbers: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._counts)

    def follow_all(self, trackers: tuple[Tracker, ...]) -> None:
        self._tuples[0] = trackers

    def number(self, trackers: tuple[Tracker, ...]) -> int:
        """Return the number of a tuple and count one more entry for it."""
        if trackers == self._tuples[0]:
            return 0
        number = self._numbers.get(id(trackers))
        if number is None:
            number = self._next
            self._next = number + 1 if number < 0xFFFF_FFFF else 1
            self._numbers[id(trackers)] = number
            # Keeps the tuple alive, so that its ``id`` is not reused.
            self._tuples[number] = trackers
            self._counts[number] = 0
        self._counts[number] += 1
        return number

    def release(self, number: int) -> tuple[Tracker, ...]:
        """Return a tuple and count one entry less for it."""
        trackers = self._tuples[number]
        if number:
            self._counts[number] -= 1
            if not self._counts[number]:
                del self._counts[number], self._tuples[number], self._numbers[id(trackers)]
        return trackers


class Packing:
    def __init__(
        self,
        journal: Journal,
        *,
        subscription_at: Callable[[int], Subscription],
        followers: tuple[Tracker, ...],
    ) -> None:
        """``subscription_at`` maps a journal index to a subscription; ``followers`` follow every
        indication, recovered ones too."""
        self.packs = journal.durability is Durability.DISK
        self._journal = journal
        self._subscription_at = subscription_at
        self._trackers = TrackerTable()
        self._trackers.follow_all(followers)

    def pack(self, into: CompactEntries, entries: EntryColumns) -> None:
        number, indications, subscriptions = entries
        into.extend(
            ids=[one.id for one in indications],
            positions=[one.position for one in indications],
            numbers=range(number, number + len(indications)),
            subscriptions=[one.index for one in subscriptions],
            trackers=[self._trackers.number(one.trackers) for one in indications],
        )

    def load(
        self, packed: Sequence[CompactEntry], done: Callable[[Sequence[Indication]], None]
    ) -> None:
        """Read indications back and pass them to ``done`` later, in the same order. A damaged one
        has no body."""
        positions = [one.position for one in packed]
        self._journal.load(positions, partial(_replace_damaged, packed, done))

    def unpack(self, packed: CompactEntry, indication: Indication) -> QueueEntry:
        indication.trackers = self._trackers.release(packed.trackers)
        # Compaction may have relocated it during the read.
        indication.position = packed.position
        return QueueEntry(indication, self._subscription_at(packed.subscription), packed.number)


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


class Backlog:
    def __init__(self, *, packing: Packing, loaded: Callable[[], None]) -> None:
        """``loaded`` is called when an empty front has entries again."""
        self.front: deque[QueueEntry] = deque()
        self.back = CompactEntries()
        self.count = 0
        #: Acceptance time (monotonic) of the last entry taken from the front; those behind are
        #: about as old.
        self.last_accepted_at: float | None = None
        self._packing = packing
        self._loaded = loaded
        self._loading = False
        self._limit = FRONT_ENTRIES if packing.packs else sys.maxsize
        # Attempts of the previous run, by number.
        self._attempts: dict[int, int] = {}

    def __len__(self) -> int:
        return self.count

    def restore(self, back: CompactEntries, *, attempts: dict[int, int]) -> None:
        """Begin with the entries of the previous run."""
        self.back = back
        self.count = len(back)
        self._attempts = attempts

    def keep_loaded(self, entries: int) -> None:
        if self._packing.packs:
            self._limit = max(FRONT_ENTRIES, entries)

    def tried(self, *, in_order: bool) -> list[tuple[int, int]]:
        """Return number and failed attempts of the entries that were tried, loaded or not.

        ``in_order``: no tried entry is behind an untried one.
        """
        loaded = takewhile(_attempts_of, self.front) if in_order else self.front
        found = [(entry.number, entry.attempts) for entry in loaded if entry.attempts]
        return [*found, *self._attempts.items()]

    # ------------------------------------------------------------------ in

    def extend(self, entries: EntryColumns) -> None:
        front, (number, indications, subscriptions) = self.front, entries
        room = 0 if self.count > len(front) else max(0, self._limit - len(front))
        if room >= len(indications):
            front.extend(entries.entries)
        else:
            first = EntryColumns(number, indications[:room], subscriptions[:room])
            front.extend(first.entries)
            rest = EntryColumns(number + room, indications[room:], subscriptions[room:])
            self._packing.pack(self.back, rest)
        self.count += len(indications)

    def put_back(self, entry: QueueEntry) -> None:
        """Reinsert an entry by its number."""
        front = self.front
        if front and front[0].number < entry.number:
            front.insert(sum(1 for _ in takewhile(_older_than(entry), front)), entry)
        else:
            front.appendleft(entry)
        self.count += 1

    # ------------------------------------------------------------------ out

    def first(self) -> QueueEntry | None:
        """None if there is no entry, or none is loaded."""
        return self.front[0] if self.front else None

    @property
    def first_number(self) -> int | None:
        if self.front:
            return self.front[0].number
        return self.back.first_number if self.count else None

    def popleft(self) -> QueueEntry:
        """Requires a loaded entry."""
        entry = self.front.popleft()
        self.last_accepted_at = entry.indication.accepted_at
        self.count -= 1
        if self.count > len(self.front):
            self.refill()
        return entry

    def popleft_packed(self) -> CompactEntry | None:
        if self.front or not self.count:
            return None
        self.count -= 1
        return self.back.popleft()

    def take_at(self, index: int) -> QueueEntry:
        entry = self.front[index]
        del self.front[index]
        self.count -= 1
        if self.count > len(self.front):
            self.refill()
        return entry

    def refill(self) -> None:
        loaded = len(self.front)
        if self._loading or loaded > FRONT_LOW or loaded == self.count:
            return
        self._loading = True
        packed = self.back.first(self._limit - loaded)
        self._packing.load(packed, partial(self._take_in, packed))

    def _take_in(self, packed: Sequence[CompactEntry], indications: Sequence[Indication]) -> None:
        self._loading = False
        was_empty = not self.front
        back = self.back
        for one, indication in zip(packed, indications, strict=True):
            # Removed meanwhile; nothing can have come before it.
            if not len(back) or back.first_number != one.number:
                continue
            entry = self._packing.unpack(back.popleft(), indication)
            if self._attempts:
                entry.attempts = self._attempts.pop(entry.number, 0)
            self.front.append(entry)
        if was_empty:
            self._loaded()

    def remove_subscription(
        self, matches: Callable[[QueueEntry], bool], *, subscription: int
    ) -> tuple[list[QueueEntry], CompactEntries]:
        """Remove and return the entries for one subscription; the others keep order."""
        removed: list[QueueEntry] = []
        kept: list[QueueEntry] = []
        for entry in self.front:
            (removed if matches(entry) else kept).append(entry)
        if removed:
            self.front = deque(kept)
        packed = self.back.remove_subscription(subscription)
        self.count -= len(removed) + len(packed)
        return removed, packed

    def surrender(self) -> tuple[list[QueueEntry], CompactEntries]:
        entries = list(self.front)
        self.front.clear()
        self.count = 0
        return entries, self.back.surrender()

    # ------------------------------------------------------------------ the journal's questions

    def contains(self, number: int) -> bool:
        return self._loaded_entry(number) is not None or self.back.contains(number)

    def move(self, number: int, position: int, size: int) -> bool:
        """Relocate an entry's indication; False if the entry is not here."""
        entry = self._loaded_entry(number)
        if entry is not None:
            entry.indication.position, entry.indication.size = position, size
            return True
        return self.back.move(number, position)

    def _loaded_entry(self, number: int) -> QueueEntry | None:
        front = self.front
        if not front or not front[0].number <= number <= front[-1].number:
            return None
        return next((entry for entry in front if entry.number == number), None)


_attempts_of = attrgetter("attempts")


def _older_than(entry: QueueEntry) -> Callable[[QueueEntry], bool]:
    return lambda other: other.number < entry.number
