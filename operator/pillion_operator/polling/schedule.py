"""Items by due time, and fair turns among groups of them."""

import heapq
import itertools
import math
from collections.abc import Hashable
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class Schedule(Generic[Item]):
    """Items by the moment at which each is due; one moment to an item."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        #: The tie of each item's entry that counts; others are left over from before.
        self._valid: dict[Item, int] = {}
        self._ties = itertools.count()

    def put(self, item: Item, due: float) -> None:
        """Schedule an item, instead of its earlier due time."""
        tie = next(self._ties)
        self._valid[item] = tie
        heapq.heappush(self._heap, (due, tie, item))
        if len(self._heap) > 2 * len(self._valid) + 64:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapq.heapify(self._heap)

    def drop(self, item: Item) -> None:
        """Forget an item; one that is not there is no error."""
        self._valid.pop(item, None)

    def next_due(self) -> float:
        """When the first item is due; infinity without one."""
        while self._heap and not self._counts(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> Item:
        """Take out the item that is due first; raises IndexError without one."""
        self.next_due()
        _, _, item = heapq.heappop(self._heap)
        del self._valid[item]
        return item

    def _counts(self, entry: tuple[float, int, Item]) -> bool:
        return self._valid.get(entry[2]) == entry[1]


class _Group(Generic[Item]):
    __slots__ = ("out", "served", "waiting")

    def __init__(self) -> None:
        self.waiting: Schedule[Item] = Schedule()
        #: Items that were taken out and are not done with.
        self.out = 0
        #: When one was last taken out.
        self.served = -math.inf


class Turns(Generic[Item]):
    """Items in groups, each item due at one moment. Groups with items that are due are served in
    turn, one item at a time, however many are due in any of them, and no group has more than
    ``most`` out at once.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._groups: dict[Hashable, _Group[Item]] = {}
        #: The groups that may be served, by when each came to wait: when its first item was due,
        #: or when it was last served.
        self._line: Schedule[Hashable] = Schedule()
        #: The group in which each item waits.
        self._where: dict[Item, Hashable] = {}

    def put(self, item: Item, due: float, *, group: Hashable) -> None:
        """Schedule an item in a group, instead of its earlier group and due time."""
        if self._where.get(item, group) != group:
            self.drop(item)
        self._where[item] = group
        self._groups.setdefault(group, _Group()).waiting.put(item, due)
        self._line_up(group)

    def drop(self, item: Item) -> None:
        """Forget an item that waits; one that does not is no error."""
        if item in self._where:
            group = self._where.pop(item)
            self._groups[group].waiting.drop(item)
            self._line_up(group)

    def next_due(self) -> float:
        """From when on an item may be taken out; infinity where none may."""
        return self._line.next_due()

    def pop(self, now: float) -> tuple[Item, Hashable]:
        """Take out an item of the group whose turn it is; raises IndexError without one. The
        group's name is for ``done``."""
        group = self._line.pop()
        known = self._groups[group]
        item = known.waiting.pop()
        del self._where[item]
        known.out += 1
        known.served = now
        self._line_up(group)
        return item, group

    def done(self, group: Hashable) -> None:
        """An item of a group that was taken out is done with."""
        self._groups[group].out -= 1
        self._line_up(group)

    def _line_up(self, group: Hashable) -> None:
        known = self._groups[group]
        first = known.waiting.next_due()
        if first < math.inf and known.out < self._most:
            self._line.put(group, max(first, known.served))
            return
        self._line.drop(group)
        if first == math.inf and not known.out:
            del self._groups[group]
