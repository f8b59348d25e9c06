"""Queue entries as columns: what waits behind a queue's loaded front, at 32 bytes an entry."""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from itertools import compress, islice
from typing import NamedTuple

#: Entries taken from the front before the columns are moved up.
_SLACK = 4096


class PackedEntry(NamedTuple):
    """One entry whose indication is in the journal alone."""

    id: int
    position: int
    number: int
    subscription: int
    trackers: int


class PackedEntries:
    """Entries in the order of their numbers. Taking from the front and appending cost O(1), finding
    a number O(log n)."""

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

    def __iter__(self) -> Iterator[PackedEntry]:
        return (self._at(index) for index in range(self._head, len(self._ids)))

    def _at(self, index: int) -> PackedEntry:
        return PackedEntry(
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

    def append(self, entry: PackedEntry) -> None:
        """Add an entry whose number is greater than all others."""
        self._ids.append(entry.id)
        self._positions.append(entry.position)
        self._numbers.append(entry.number)
        self._subscriptions.append(entry.subscription)
        self._trackers.append(entry.trackers)

    def first(self, count: int) -> list[PackedEntry]:
        """Return the first entries, ``count`` at most."""
        end = min(self._head + count, len(self._ids))
        return [self._at(index) for index in range(self._head, end)]

    def popleft(self) -> PackedEntry:
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

    def remove_subscription(self, subscription: int) -> "PackedEntries":
        """Remove and return the entries for one subscription; the others keep order."""
        subscriptions = self._subscriptions[self._head :]
        if subscription not in subscriptions:
            return PackedEntries()
        # By columns: a million entries are taken apart within one turn of the event loop.
        removed = self._chosen(bytes(map(subscription.__eq__, subscriptions)))
        self._take_over(self._chosen(bytes(map(subscription.__ne__, subscriptions))))
        return removed

    def _chosen(self, chosen: bytes) -> "PackedEntries":
        """Return the entries where ``chosen`` is not 0."""
        entries = PackedEntries()
        for column, into in zip(self._columns(), entries._columns(), strict=True):
            into.extend(compress(islice(column, self._head, None), chosen))
        return entries

    def surrender(self) -> "PackedEntries":
        """Give up and return all entries."""
        given = PackedEntries()
        given._take_over(self)
        self._take_over(PackedEntries())
        return given

    def _take_over(self, other: "PackedEntries") -> None:
        for name in PackedEntries.__slots__:
            setattr(self, name, getattr(other, name))
