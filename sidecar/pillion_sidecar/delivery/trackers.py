"""Who follows entries that are packed: tuples of trackers by number, kept while an entry has it."""

from pillion_sidecar.indication import Tracker


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
