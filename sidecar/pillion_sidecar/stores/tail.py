"""The end of a log in memory, for the stores that keep up with it. Pure."""

from bisect import bisect_right

from pillion_sidecar.journal.segments import HEADER_SIZE, UNSOUND, segment_of, walk


class Tail:
    """Parts of the log as they were written, each whole records of one segment."""

    def __init__(self, *, maximum: int) -> None:
        """``maximum``: bytes that are kept although they are on disk."""
        self._maximum = maximum
        self._positions: list[int] = []
        self._parts: list[bytes] = []
        self._size = 0
        self._on_disk = 0

    def add(self, position: int, data: bytes) -> None:
        self._positions.append(position)
        self._parts.append(data)
        self._size += len(data)
        self._shorten()

    def on_disk(self, position: int) -> None:
        """What is before ``position`` can be read from the disk."""
        self._on_disk = position
        self._shorten()

    def take(self, position: int, size: int) -> bytes | None:
        """Return whole records of one segment from ``position`` on: at most ``size`` bytes, or one
        record. None: they are not in memory any more."""
        at = bisect_right(self._positions, position) - 1
        if at < 0:
            return None
        first = self._parts[at][position - self._positions[at] :]
        if not first:
            return None
        if len(first) > size:
            return first[: whole_records(position, first, size)]
        taken, end = [first], position + len(first)
        for following in range(at + 1, len(self._parts)):
            part = self._parts[following]
            if self._positions[following] != end or end + len(part) - position > size:
                break
            taken.append(part)
            end += len(part)
        return b"".join(taken)

    def _shorten(self) -> None:
        gone, size = 0, self._size
        for at, part in zip(self._positions, self._parts, strict=True):
            if size <= self._maximum or at + len(part) > self._on_disk:
                break
            size -= len(part)
            gone += 1
        if gone:
            del self._positions[:gone], self._parts[:gone]
            self._size = size


def whole_records(position: int, data: bytes, size: int) -> int:
    """Return the end of the last record that ends within ``size`` bytes, or of the first record,
    with which a segment's header goes; 0 if there is no whole one."""
    begin = 0 if segment_of(position)[1] else HEADER_SIZE
    end = begin if len(data) == begin else 0
    for at, kind, _, length, *_ in walk(data, begin, len(data)):
        if kind == UNSOUND or (end and at + length > size):
            break
        end = at + length
    return end
