"""Entries whose indications are only in the journal, in columns no wider than they need to be."""

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from typing import NamedTuple, TypeAlias

#: Entries of a block.
BLOCK_ENTRIES = 1024
#: Entries at the end that are in no block: a short backlog has none.
LOOSE_ENTRIES = 2 * BLOCK_ENTRIES
#: Types of arrays of unsigned integers: bytes of each.
_WIDTHS = tuple((array(code).itemsize, code) for code in "BHIQ")
_LOW = (1 << 32) - 1


class CompactEntry(NamedTuple):
    """An entry whose indication is only in the journal."""

    id: int
    position: int
    number: int
    subscription: int
    trackers: int


class _Narrow:
    """Integers, as their distance from a base if that is narrower."""

    __slots__ = ("base", "values")

    def __init__(self, values: Sequence[int]) -> None:
        least, greatest = min(values), max(values)
        code = _code_of(greatest - least)
        self.base = base = 0 if code == _code_of(greatest) else least
        if least == greatest:
            self.values = array(code, [least - base]) * len(values)
        else:
            self.values = array(code, [value - base for value in values] if base else values)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> int:
        return self.base + self.values[index]

    def __iter__(self) -> Iterator[int]:
        return map(self.base.__add__, self.values)

    def set(self, index: int, value: int) -> None:
        if 0 <= value - self.base < 1 << 8 * self.values.itemsize:
            self.values[index] = value - self.base
        else:
            values = list(self)
            values[index] = value
            _Narrow.__init__(self, values)


def _code_of(most: int) -> str:
    return next(code for size, code in _WIDTHS if not most >> 8 * size)


_Column: TypeAlias = "_Narrow | range"


def _column(values: "array[int]") -> _Column:
    first = values[0]
    consecutive = range(first, first + len(values))
    is_consecutive = values[-1] == consecutive[-1] and values == array("Q", consecutive)
    return consecutive if is_consecutive else _Narrow(values)


class _Block:
    """Entries of a queue, ascending by number; those before ``head`` are taken."""

    __slots__ = ("head", "ids", "numbers", "offsets", "segments", "subscriptions", "trackers")

    def __init__(
        self,
        ids: "array[int]",
        positions: "array[int]",
        numbers: "array[int]",
        subscriptions: "array[int]",
        trackers: "array[int]",
    ) -> None:
        self.head = 0
        self.ids, self.numbers = _column(ids), _column(numbers)
        # Few segments are next to each other, and each is short.
        self.segments = _Narrow([position >> 32 for position in positions])
        self.offsets = _Narrow([position & _LOW for position in positions])
        self.subscriptions, self.trackers = _Narrow(subscriptions), _Narrow(trackers)

    def at(self, index: int) -> CompactEntry:
        return CompactEntry(
            self.ids[index],
            self.segments[index] << 32 | self.offsets[index],
            self.numbers[index],
            self.subscriptions[index],
            self.trackers[index],
        )

    def move(self, index: int, position: int) -> None:
        self.segments.set(index, position >> 32)
        self.offsets.set(index, position & _LOW)

    def columns(self) -> tuple[Iterable[int], ...]:
        """As the constructor takes them."""
        both = zip(self.segments, self.offsets, strict=True)
        positions = (segment << 32 | offset for segment, offset in both)
        return self.ids, positions, self.numbers, self.subscriptions, self.trackers


class _Loose:
    """The last entries of a queue, in columns of 32 bytes an entry that may grow."""

    __slots__ = ("head", "ids", "numbers", "positions", "subscriptions", "trackers")

    def __init__(
        self,
        ids: "array[int]",
        positions: "array[int]",
        numbers: "array[int]",
        subscriptions: "array[int]",
        trackers: "array[int]",
    ) -> None:
        self.head = 0
        self.ids, self.positions, self.numbers = ids, positions, numbers
        self.subscriptions, self.trackers = subscriptions, trackers

    def at(self, index: int) -> CompactEntry:
        return CompactEntry(
            self.ids[index],
            self.positions[index],
            self.numbers[index],
            self.subscriptions[index],
            self.trackers[index],
        )

    def move(self, index: int, position: int) -> None:
        self.positions[index] = position

    def columns(self) -> "tuple[array[int], ...]":
        return self.ids, self.positions, self.numbers, self.subscriptions, self.trackers

    def blocks(self) -> "Iterator[_Block]":
        """Move all but a few entries to blocks."""
        begin = self.head
        while len(self.ids) - begin >= LOOSE_ENTRIES:
            end = begin + BLOCK_ENTRIES
            yield _Block(*(column[begin:end] for column in self.columns()))
            begin = end
        self.drop(begin)

    def drop(self, count: int) -> None:
        for column in self.columns():
            del column[:count]
        self.head = 0


_Part: TypeAlias = _Block | _Loose


def _loose() -> _Loose:
    return _Loose(array("Q"), array("Q"), array("Q"), array("I"), array("I"))


def _len(part: _Part) -> int:
    return len(part.ids) - part.head


def _first_number(part: _Part) -> int:
    return part.numbers[part.head]


class CompactEntries:
    """Compact entries by number; ``popleft`` and ``append`` cost O(1), finding a number O(log n).

    In blocks, and the last ones loose. An entry takes 7 bytes where a queue has all indications,
    and at most 32.
    """

    __slots__ = ("_blocks", "_in_blocks", "_last")

    def __init__(
        self,
        *,
        ids: "array[int] | None" = None,
        positions: "array[int] | None" = None,
        numbers: "array[int] | None" = None,
        subscriptions: "array[int] | None" = None,
    ) -> None:
        """Take over columns of equal length (``RecoveredQueue``)."""
        self._blocks: deque[_Block] = deque()
        # Entries in them.
        self._in_blocks = 0
        self._last = _loose()
        if ids and positions and numbers and subscriptions:
            trackers = array("I", bytes(4 * len(ids)))
            self._last = _Loose(ids, positions, numbers, subscriptions, trackers)
            self._pack()

    def _pack(self) -> None:
        for block in self._last.blocks():
            self._blocks.append(block)
            self._in_blocks += BLOCK_ENTRIES

    def _parts(self) -> Iterator[_Part]:
        yield from self._blocks
        yield self._last

    def __len__(self) -> int:
        return self._in_blocks + _len(self._last)

    def __iter__(self) -> Iterator[CompactEntry]:
        for part in self._parts():
            yield from map(part.at, range(part.head, len(part.ids)))

    @property
    def first_number(self) -> int:
        return _first_number(self._blocks[0] if self._blocks else self._last)

    def append(self, entry: CompactEntry) -> None:
        """The number must be greater than all others."""
        for column, value in zip(self._last.columns(), entry, strict=True):
            column.append(value)
        if _len(self._last) >= LOOSE_ENTRIES:
            self._pack()

    def extend(
        self,
        *,
        ids: Iterable[int],
        positions: Iterable[int],
        numbers: Iterable[int],
        subscriptions: Iterable[int],
        trackers: Iterable[int],
    ) -> None:
        """Append columns of equal length, with numbers greater than all others."""
        last = self._last
        last.ids.extend(ids)
        last.positions.extend(positions)
        last.numbers.extend(numbers)
        last.subscriptions.extend(subscriptions)
        last.trackers.extend(trackers)
        if _len(last) >= LOOSE_ENTRIES:
            self._pack()

    def first(self, count: int) -> list[CompactEntry]:
        return list(islice(self, count))

    def behind(self, number: int, count: int) -> list[CompactEntry]:
        """Return the first entries whose numbers are greater, at most ``count``."""
        return list(islice(self._behind(number), count))

    def _behind(self, number: int) -> Iterator[CompactEntry]:
        for part in islice(self._parts(), max(0, self._part_of(number)), None):
            begin = bisect_right(part.numbers, number, part.head)
            yield from map(part.at, range(begin, len(part.ids)))

    def count_behind(self, number: int) -> int:
        """Return how many entries have greater numbers."""
        return sum(
            len(part.ids) - bisect_right(part.numbers, number, part.head)
            for part in islice(self._parts(), max(0, self._part_of(number)), None)
        )

    def popleft(self) -> CompactEntry:
        """Requires an entry."""
        if not self._blocks:
            last = self._last
            entry = last.at(last.head)
            last.head += 1
            if last.head >= LOOSE_ENTRIES and last.head * 2 >= len(last.ids):
                last.drop(last.head)
            return entry
        block = self._blocks[0]
        entry = block.at(block.head)
        block.head += 1
        self._in_blocks -= 1
        if not _len(block):
            self._blocks.popleft()
        return entry

    def _part_of(self, number: int) -> int:
        """Return the index of the last part that begins at or below a number; -1 if none does."""
        last = self._last
        if _len(last) and _first_number(last) <= number:
            return len(self._blocks)
        return bisect_right(self._blocks, number, key=_first_number) - 1

    def _find(self, number: int) -> tuple[_Part, int] | None:
        at = self._part_of(number)
        if at < 0:
            return None
        part = self._last if at == len(self._blocks) else self._blocks[at]
        index = bisect_left(part.numbers, number, part.head)
        is_found = index < len(part.numbers) and part.numbers[index] == number
        return (part, index) if is_found else None

    def contains(self, number: int) -> bool:
        return self._find(number) is not None

    def move(self, number: int, position: int) -> bool:
        """Relocate an entry's indication; False if the entry is not here."""
        found = self._find(number)
        if found is None:
            return False
        part, index = found
        part.move(index, position)
        return True

    def subscriptions(self) -> set[int]:
        found: set[int] = set()
        for part in self._parts():
            found.update(islice(part.subscriptions, part.head, None))
        return found

    def remove_subscription(self, subscription: int) -> "CompactEntries":
        removed, kept = CompactEntries(), CompactEntries()
        for part in self._parts():
            # By columns: a million entries fit into one turn of the event loop.
            subscriptions = list(islice(part.subscriptions, part.head, None))
            removed._choose(part, bytes(map(subscription.__eq__, subscriptions)))
            kept._choose(part, bytes(map(subscription.__ne__, subscriptions)))
        self._take_over(kept)
        return removed

    def _choose(self, part: _Part, chosen: bytes) -> None:
        """Append some of the entries of a part; the parts of a queue one after the other."""
        if 1 not in chosen:
            return
        if 0 not in chosen:
            self._add(part)
            return
        columns = [
            array(code, compress(islice(column, part.head, None), chosen))
            for code, column in zip("QQQII", part.columns(), strict=True)
        ]
        self._add(_Block(*columns) if isinstance(part, _Block) else _Loose(*columns))

    def _add(self, part: _Part) -> None:
        if isinstance(part, _Block):
            self._blocks.append(part)
            self._in_blocks += _len(part)
        else:
            self._last = part

    def surrender(self) -> "CompactEntries":
        given = CompactEntries()
        given._take_over(self)
        self._take_over(CompactEntries())
        return given

    def _take_over(self, other: "CompactEntries") -> None:
        for name in CompactEntries.__slots__:
            setattr(self, name, getattr(other, name))
