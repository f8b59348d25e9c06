"""Who is due when."""

import heapq
import itertools
import math
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Agenda(Generic[Item]):
    """Items by the moment at which each is due; one moment to an item."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Item]] = []
        #: The tie of each item's entry that counts; others are left over from before.
        self._valid: dict[Item, int] = {}
        self._ties = itertools.count()

    def put(self, item: Item, due: float) -> None:
        """Make an item due, instead of whenever it was."""
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
