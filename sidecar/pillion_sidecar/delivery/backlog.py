"""The backlog of a destination queue: a front of loaded entries and, with a journal that holds the
indications, a compact rest that is read back before the front is empty."""

import sys
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import compress, islice, takewhile
from operator import attrgetter
from typing import NamedTuple

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.entries import QueueEntry, Subscription
from pillion_sidecar.indication import Indication, Tracker
from pillion_sidecar.journal.ports import Journal

#: Entries taken from the front before the columns are moved up.
_SLACK = 4096
#: Loaded entries of a queue, and how few are left when more are read back.
FRONT_ENTRIES = 64
FRONT_LOW = 24


class TrackerTable:
    """Numbers tuples of trackers. The lines of one request share theirs, so there are few.

    Number 0 is the tuple of those that follow every indication; it is never counted.
    """

    def __init__(self) -> None:
        self._tuples: dict[int, tuple[Tracker, ...]] = {0: ()}
        self._numbers: dict[int, int] = {}
        self._counts: dict[int, int] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._counts)

    def follow_all(self, trackers: tuple[Tracker, ...]) -> None:
        """Name those that follow every indication."""
        self._tuples[0] = trackers

    def number(self, trackers: tuple[Tracker, ...]) -> int:
        """Return the number of a tuple, for one more entry."""
        if trackers == self._tuples[0]:
            return 0
        number = self._numbers.get(id(trackers))
        if number is None:
            number = self._next
            self._next = number + 1 if number < 0xFFFF_FFFF else 1
            self._numbers[id(trackers)] = number
            # Kept here, so that no other tuple can have its ``id`` meanwhile.
            self._tuples[number] = trackers
            self._counts[number] = 0
        self._counts[number] += 1
        return number

    def release(self, number: int) -> tuple[Tracker, ...]:
        """Return a tuple, for an entry that is packed no longer."""
        trackers = self._tuples[number]
        if number:
            self._counts[number] -= 1
            if not self._counts[number]:
                del self._counts[number], self._tuples[number], self._numbers[id(trackers)]
        return trackers


class CompactEntry(NamedTuple):
    """One entry whose indication is in the journal alone."""

    id: int
    position: int
    number: int
    subscription: int
    trackers: int


class CompactEntries:
    """Entries in the order of their numbers. Taking from the front and appending cost O(1), finding
    a number O(log n).

    They are columns: 32 bytes an entry.
    """

    __slots__ = ("_head", "_ids", "_numbers", "_positions", "_subscriptions", "_trackers")

    def __init__(
        self,
        *,
        ids: "array[int] | None" = None,
        positions: "array[int] | None" = None,
        numbers: "array[int] | None" = None,
        subscriptions: "array[int] | None" = None,
    ) -> None:
        """Take columns over that are of one length (``RecoveredQueue``)."""
        self._ids = array("Q") if ids is None else ids
        self._positions = array("Q") if positions is None else positions
        self._numbers = array("Q") if numbers is None else numbers
        self._subscriptions = array("I") if subscriptions is None else subscriptions
        self._trackers = array("I", bytes(4 * len(self._ids)))
        self._head = 0

    def __len__(self) -> int:
        return len(self._ids) - self._head

    def __iter__(self) -> Iterator[CompactEntry]:
        return (self._at(index) for index in range(self._head, len(self._ids)))

    def _at(self, index: int) -> CompactEntry:
        return CompactEntry(
            self._ids[index],
            self._positions[index],
            self._numbers[index],
            self._subscriptions[index],
            self._trackers[index],
        )

    @property
    def first_number(self) -> int:
        """The number of the first entry; there must be one."""
        return self._numbers[self._head]

    def append(self, entry: CompactEntry) -> None:
        """Add an entry whose number is greater than all others."""
        self._ids.append(entry.id)
        self._positions.append(entry.position)
        self._numbers.append(entry.number)
        self._subscriptions.append(entry.subscription)
        self._trackers.append(entry.trackers)

    def first(self, count: int) -> list[CompactEntry]:
        """Return the first entries, ``count`` at most."""
        end = min(self._head + count, len(self._ids))
        return [self._at(index) for index in range(self._head, end)]

    def popleft(self) -> CompactEntry:
        """Take the first entry; there must be one."""
        entry = self._at(self._head)
        self._head += 1
        if self._head >= _SLACK and self._head * 2 >= len(self._ids):
            for column in self._columns():
                del column[: self._head]
            self._head = 0
        return entry

    def _columns(self) -> "tuple[array[int], ...]":
        return self._ids, self._positions, self._numbers, self._subscriptions, self._trackers

    def index(self, number: int) -> int | None:
        """Return where an entry is; None where it is not here."""
        index = bisect_left(self._numbers, number, self._head)
        return index if index < len(self._numbers) and self._numbers[index] == number else None

    def move(self, number: int, position: int) -> bool:
        """Note that an entry's indication lies elsewhere; return whether the entry is here."""
        index = self.index(number)
        if index is None:
            return False
        self._positions[index] = position
        return True

    def subscriptions(self) -> set[int]:
        """Return the subscriptions that entries are for."""
        return set(self._subscriptions[self._head :])

    def remove_subscription(self, subscription: int) -> "CompactEntries":
        """Remove and return the entries for one subscription; the others keep order."""
        subscriptions = self._subscriptions[self._head :]
        if subscription not in subscriptions:
            return CompactEntries()
        # By columns: a million entries are taken apart within one turn of the event loop.
        removed = self._chosen(bytes(map(subscription.__eq__, subscriptions)))
        self._take_over(self._chosen(bytes(map(subscription.__ne__, subscriptions))))
        return removed

    def _chosen(self, chosen: bytes) -> "CompactEntries":
        """Return the entries where ``chosen`` is not 0."""
        entries = CompactEntries()
        for column, into in zip(self._columns(), entries._columns(), strict=True):
            into.extend(compress(islice(column, self._head, None), chosen))
        return entries

    def surrender(self) -> "CompactEntries":
        """Give up and return all entries."""
        given = CompactEntries()
        given._take_over(self)
        self._take_over(CompactEntries())
        return given

    def _take_over(self, other: "CompactEntries") -> None:
        for name in CompactEntries.__slots__:
            setattr(self, name, getattr(other, name))


class Packing:
    """Takes entries apart, and puts them together again from the journal."""

    def __init__(
        self,
        journal: Journal,
        *,
        subscription_at: Callable[[int], Subscription],
        followers: tuple[Tracker, ...],
    ) -> None:
        """``subscription_at`` gives the subscription with one of the journal's indices;
        ``followers`` follow every indication, of the runs before too."""
        #: Whether indications can be read back.
        self.packs = journal.durability is Durability.DISK
        self._journal = journal
        self._subscription_at = subscription_at
        self._trackers = TrackerTable()
        self._trackers.follow_all(followers)

    def pack(self, entry: QueueEntry) -> CompactEntry:
        """Return an entry without its indication."""
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
        """Read indications back; ``done`` is called later, with as many in the same order. One that
        is damaged has no body."""
        positions = [one.position for one in packed]
        self._journal.load(positions, partial(_replace_damaged, packed, done))

    def unpack(self, packed: CompactEntry, indication: Indication) -> QueueEntry:
        """Return the entry that was packed; called once for each."""
        indication.trackers = self._trackers.release(packed.trackers)
        # It may have been copied elsewhere while it was read.
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
    """The waiting entries of one queue, in the order of their numbers."""

    def __init__(self, *, packing: Packing, loaded: Callable[[], None]) -> None:
        """``loaded`` is called when an empty front has entries again."""
        self.front: deque[QueueEntry] = deque()
        self.back = CompactEntries()
        #: Of both together.
        self.count = 0
        #: When (monotonic) the last entry that was taken from the front was accepted: what is
        #: behind it is hardly younger.
        self.last_accepted_at: float | None = None
        self._packing = packing
        self._loaded = loaded
        self._loading = False
        self._limit = FRONT_ENTRIES if packing.packs else sys.maxsize
        # Attempts of the run before, by number.
        self._attempts: dict[int, int] = {}

    def __len__(self) -> int:
        return self.count

    def restore(self, back: CompactEntries, *, attempts: dict[int, int]) -> None:
        """Begin with the entries of the run before."""
        self.back = back
        self.count = len(back)
        self._attempts = attempts

    def keep_loaded(self, entries: int) -> None:
        """Keep at least so many entries loaded."""
        if self._packing.packs:
            self._limit = max(FRONT_ENTRIES, entries)

    def tried(self, *, in_order: bool) -> list[tuple[int, int]]:
        """Return number and failed attempts of the entries that were tried, loaded or not.

        ``in_order``: none of them is behind one that was not.
        """
        loaded = takewhile(_attempts_of, self.front) if in_order else self.front
        found = [(entry.number, entry.attempts) for entry in loaded if entry.attempts]
        return [*found, *self._attempts.items()]

    # ------------------------------------------------------------------ in

    def append(self, entry: QueueEntry) -> None:
        """Add a new entry behind all others."""
        front = self.front
        if self.count > len(front) or len(front) >= self._limit:
            self.back.append(self._packing.pack(entry))
        else:
            front.append(entry)
        self.count += 1

    def put_back(self, entry: QueueEntry) -> None:
        """Add an entry that was taken before, where its number belongs."""
        front = self.front
        if front and front[0].number < entry.number:
            front.insert(sum(1 for _ in takewhile(_older_than(entry), front)), entry)
        else:
            front.appendleft(entry)
        self.count += 1

    # ------------------------------------------------------------------ out

    def first(self) -> QueueEntry | None:
        """Return the first entry; None where there is none, or none is loaded."""
        return self.front[0] if self.front else None

    @property
    def first_number(self) -> int | None:
        """The number of the first entry; None without one."""
        if self.front:
            return self.front[0].number
        return self.back.first_number if self.count else None

    def popleft(self) -> QueueEntry:
        """Take the first entry, which must be loaded."""
        entry = self.front.popleft()
        self.last_accepted_at = entry.indication.accepted_at
        self.count -= 1
        if self.count > len(self.front):
            self.refill()
        return entry

    def popleft_packed(self) -> CompactEntry | None:
        """Take the first entry where none is loaded; None where there is none."""
        if self.front or not self.count:
            return None
        self.count -= 1
        return self.back.popleft()

    def take_at(self, index: int) -> QueueEntry:
        """Take a loaded entry."""
        entry = self.front[index]
        del self.front[index]
        self.count -= 1
        if self.count > len(self.front):
            self.refill()
        return entry

    def refill(self) -> None:
        """Read entries back where few are loaded and others are not."""
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
            # What was removed meanwhile is there no more; nothing can have come before it.
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
        """Give up and return all entries."""
        entries = list(self.front)
        self.front.clear()
        self.count = 0
        return entries, self.back.surrender()

    # ------------------------------------------------------------------ the journal's questions

    def holds(self, number: int) -> bool:
        """Whether an entry is here."""
        return self._loaded_entry(number) is not None or self.back.index(number) is not None

    def move(self, number: int, position: int, size: int) -> bool:
        """Note that an entry's indication lies elsewhere; return whether the entry is here."""
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
