"""When deliverers are polled: the interval of a namespace, and fair turns among namespaces. Half of
the rate is for deliverers without changes, and the namespaces share it by max-min fairness: many
deliverers stretch only the interval of their own namespace."""

import heapq
import itertools
import math
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

#: Maximum polls a second over all deliverers.
RATE = 100.0
#: Seconds between two polls of one deliverer while they are few.
INTERVAL = 10.0

Item = TypeVar("Item", bound=Hashable)


def fair_share(pods: Iterable[int], *, rate: float = RATE, least: float = INTERVAL) -> float:
    """Maximum polls a second of a namespace; infinity if there is enough for all. ``pods`` are the
    numbers of deliverers by namespace, ``least`` the shortest interval."""
    counts = sorted(pods)
    left = rate / 2
    for number, count in enumerate(counts):
        share = left / (len(counts) - number)
        if count / least > share:
            return share
        left -= count / least
    return math.inf


def poll_interval(pods: int, *, share: float, least: float = INTERVAL) -> float:
    """Seconds between two polls of each of a namespace's deliverers, within its share."""
    return max(least, pods / share)


class Schedule(Generic[Item]):
    """A priority queue of items by due time."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        #: The tie of each item's valid entry; the heap's other entries are outdated.
        self._valid: dict[Item, int] = {}
        self._ties = itertools.count()

    def put(self, item: Item, due: float) -> None:
        """Replaces an earlier due time."""
        tie = next(self._ties)
        self._valid[item] = tie
        heapq.heappush(self._heap, (due, tie, item))
        if len(self._heap) > 2 * len(self._valid) + 64:
            self._heap = [entry for entry in self._heap if self._is_valid(entry)]
            heapq.heapify(self._heap)

    def drop(self, item: Item) -> None:
        self._valid.pop(item, None)

    def next_due(self) -> float:
        """Infinity without an item."""
        while self._heap and not self._is_valid(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def pop(self) -> Item:
        """Raises IndexError without an item."""
        self.next_due()
        _, _, item = heapq.heappop(self._heap)
        del self._valid[item]
        return item

    def _is_valid(self, entry: tuple[float, int, Item]) -> bool:
        return self._valid.get(entry[2]) == entry[1]


class _Group(Generic[Item]):
    __slots__ = ("out", "served", "waiting")

    def __init__(self) -> None:
        self.waiting: Schedule[Item] = Schedule()
        #: Items taken out and not done.
        self.out = 0
        self.served = -math.inf


class Turns(Generic[Item]):
    """Groups with due items take turns, one item at a time; at most ``most`` items of a group are
    out."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._groups: dict[Hashable, _Group[Item]] = {}
        #: The groups that may be served, by when their first item was due or they were last served.
        self._line: Schedule[Hashable] = Schedule()
        self._group_of: dict[Item, Hashable] = {}

    def put(self, item: Item, due: float, *, group: Hashable) -> None:
        """Replaces an earlier group and due time."""
        if self._group_of.get(item, group) != group:
            self.drop(item)
        self._group_of[item] = group
        self._groups.setdefault(group, _Group()).waiting.put(item, due)
        self._line_up(group)

    def drop(self, item: Item) -> None:
        if item in self._group_of:
            group = self._group_of.pop(item)
            self._groups[group].waiting.drop(item)
            self._line_up(group)

    def next_due(self) -> float:
        """From when an item may be taken out; infinity if none may."""
        return self._line.next_due()

    def pop(self, now: float) -> tuple[Item, Hashable]:
        """Take out an item of the next group; raises IndexError without one. Call ``done`` with the
        group afterwards."""
        name = self._line.pop()
        group = self._groups[name]
        item = group.waiting.pop()
        del self._group_of[item]
        group.out += 1
        group.served = now
        self._line_up(name)
        return item, name

    def done(self, group: Hashable) -> None:
        self._groups[group].out -= 1
        self._line_up(group)

    def _line_up(self, name: Hashable) -> None:
        group = self._groups[name]
        first = group.waiting.next_due()
        if first < math.inf and group.out < self._most:
            self._line.put(name, max(first, group.served))
            return
        self._line.drop(name)
        if first == math.inf and not group.out:
            del self._groups[name]
