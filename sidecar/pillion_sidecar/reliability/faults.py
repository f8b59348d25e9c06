"""What was discarded after it had been accepted, kept for its publisher to ask (S1.4, S1.9): the
reliable messaging faults that a sender polls for.

Bounded for each publisher and over all; the oldest give way, and a publisher is told how many.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Self

from pillion_sidecar.indication import DiscardReason, Indication

#: Faults kept for one publisher, and for all together.
MAXIMUM_FAULTS = 5_000
MAXIMUM_FAULTS_OF_ALL = 50_000
#: Characters of a text that a fault repeats.
_MAXIMUM_TEXT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One target of an accepted indication was discarded."""

    destination: str
    reason: DiscardReason
    source: str | None = None
    #: IndicationIdentifier.
    identifier: str | None = None
    group: str | None = None
    #: The group sequence.
    sequence: int | None = None
    #: The original of a duplicate, which another publisher had published: all that is known of it
    #: is how it ended.
    is_of_duplicate: bool = False

    @classmethod
    def of(cls, indication: Indication, destination: str, reason: DiscardReason) -> Self:
        """Return the fault of an indication at one destination."""
        member = indication.member
        return cls(
            destination=destination,
            reason=reason,
            source=_shortened(indication.source),
            identifier=_shortened(indication.identifier),
            group=_shortened(indication.group),
            sequence=None if member is None else member.sequence,
        )


def _shortened(text: str | None) -> str | None:
    return text if text is None else text[:_MAXIMUM_TEXT]


class Faults:
    """The faults of all publishers, in the order in which they happened."""

    def __init__(
        self, *, maximum: int = MAXIMUM_FAULTS, maximum_of_all: int = MAXIMUM_FAULTS_OF_ALL
    ) -> None:
        self._maximum = maximum
        self._maximum_of_all = maximum_of_all
        # By publisher and the number of the fault there.
        self._logs: OrderedDict[tuple[int, int], FaultLog] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logs)

    def added(self, log: "FaultLog", number: int) -> None:
        """A log has one more; the oldest of it, or of all, gives way where there are too many."""
        if len(log) > self._maximum:
            del self._logs[log.publisher, log.drop_oldest()]
        self._logs[log.publisher, number] = log
        if len(self._logs) > self._maximum_of_all:
            (_, oldest), other = self._logs.popitem(last=False)
            assert other.drop_oldest() == oldest

    def removed(self, log: "FaultLog", numbers: range) -> None:
        """A log is kept no longer."""
        for number in numbers:
            del self._logs[log.publisher, number]


class FaultLog:
    """The faults of one publisher, numbered from 1 in the order in which they happened."""

    def __init__(self, faults: Faults, publisher: int) -> None:
        #: Tells the publisher apart among those that share ``faults``.
        self.publisher = publisher
        self._all = faults
        self._faults: OrderedDict[int, Fault] = OrderedDict()
        #: The number of the last fault; 0 before the first.
        self.last = 0

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, fault: Fault) -> None:
        """Keep a fault until it is the oldest of too many."""
        self.last += 1
        self._faults[self.last] = fault
        self._all.added(self, self.last)

    def drop_oldest(self) -> int:
        """Keep the oldest no longer; return its number."""
        return self._faults.popitem(last=False)[0]

    def after(self, number: int, *, limit: int) -> list[tuple[int, Fault]]:
        """Return the faults behind a number, ``limit`` at most, each with its own."""
        first = max(number, self.last - len(self._faults)) + 1
        return [
            (at, self._faults[at]) for at in range(first, min(self.last, first + limit - 1) + 1)
        ]

    def dropped_after(self, number: int) -> int:
        """Return how many faults behind a number are kept no longer."""
        return max(0, self.last - len(self._faults) - number)

    def close(self) -> None:
        """Keep none any more."""
        self._all.removed(self, range(self.last - len(self._faults) + 1, self.last + 1))
        self._faults.clear()
