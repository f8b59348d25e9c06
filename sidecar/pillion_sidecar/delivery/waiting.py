"""What waits in a destination queue: a front of loaded entries and, with a journal that holds the
indications, a packed rest that is read back before the front is empty."""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import Protocol

from pillion_sidecar.delivery.entry import QueueEntry
from pillion_sidecar.delivery.packed import PackedEntries, PackedEntry
from pillion_sidecar.indication import Indication

#: Loaded entries of a queue, and how few are left when more are read back.
FRONT_ENTRIES = 64
FRONT_LOW = 24


class Packing(Protocol):
    """Takes entries apart, and puts them together again from the journal."""

    @property
    def packs(self) -> bool:
        """Whether indications can be read back."""

    def pack(self, entry: QueueEntry) -> PackedEntry:
        """Return an entry without its indication."""

    def load(
        self,
        packed: Sequence[PackedEntry],
        done: Callable[[Sequence[Indication]], None],
    ) -> None:
        """Read indications back; ``done`` is called later, with as many in the same order."""

    def unpack(self, packed: PackedEntry, indication: Indication) -> QueueEntry:
        """Return the entry that was packed; called once for each."""


class WaitingEntries:
    """The waiting entries of one queue, in the order of their numbers."""

    def __init__(self, *, packing: Packing, loaded: Callable[[], None]) -> None:
        """``loaded`` is called when an empty front has entries again."""
        self.front: deque[QueueEntry] = deque()
        self.back = PackedEntries()
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

    def restore(self, back: PackedEntries, *, attempts: dict[int, int]) -> None:
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
        return self.back.first_number if len(self.back) else None

    def popleft(self) -> QueueEntry:
        """Take the first entry, which must be loaded."""
        entry = self.front.popleft()
        self.last_accepted_at = entry.indication.accepted_at
        self._taken()
        return entry

    def _taken(self) -> None:
        self.count -= 1
        loaded = len(self.front)
        if loaded <= FRONT_LOW and self.count > loaded:
            self.refill()

    def popleft_packed(self) -> PackedEntry | None:
        """Take the first entry where none is loaded; None where there is none."""
        if self.front or not self.count:
            return None
        self.count -= 1
        return self.back.popleft()

    def take_at(self, index: int) -> QueueEntry:
        """Take a loaded entry."""
        entry = self.front[index]
        del self.front[index]
        self._taken()
        return entry

    def refill(self) -> None:
        """See to it that the front has entries, if there are any."""
        if self._loading or not len(self.back):
            return
        room = self._limit - len(self.front)
        if room <= 0:
            return
        self._loading = True
        packed = self.back.first(room)
        self._packing.load(packed, partial(self._take_in, packed))

    def _take_in(self, packed: Sequence[PackedEntry], indications: Sequence[Indication]) -> None:
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
    ) -> tuple[list[QueueEntry], PackedEntries]:
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

    def surrender(self) -> tuple[list[QueueEntry], PackedEntries]:
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
