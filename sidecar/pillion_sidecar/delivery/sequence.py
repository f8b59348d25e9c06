"""SequenceContext and SequenceNumber of one destination queue (D.2)."""

from collections.abc import Iterator

#: SequenceNumber is a sint64 that wraps to 0 (DSP1054; CIM_Indication.SequenceNumber).
SEQUENCE_LIMIT = 2**63


class SequenceIdentifiers:
    """Numbers the indications of one destination under one context.

    Entries are counted once and for all; a context begins at a ``base``, and SequenceNumber is the
    entry's number less that. So it starts at 0 in each context and grows by one for each new
    indication, whether it is ever delivered or not: a listener sees what was discarded as a gap.
    """

    __slots__ = ("_epochs", "_origin", "base", "context", "epoch", "next_number")

    def __init__(
        self, *, service: str, journal_id: str, destination_uid: str, epochs: Iterator[int]
    ) -> None:
        """``journal_id`` is random, since nobody may continue a context that somebody else began.
        ``epochs`` is shared by all queues of one journal, and gives none twice."""
        self._origin = f"{service}#{journal_id}#{destination_uid}"
        self._epochs = epochs
        self.next_number = 0
        self.renew(from_number=0)

    def number(self) -> int:
        """Return the number of a new entry."""
        number = self.next_number
        self.next_number = number + 1
        return number

    def continue_from(self, number: int) -> None:
        """Give no entry a number below this one."""
        self.next_number = number

    def sequence_number(self, number: int) -> int:
        """Return the SequenceNumber of the entry with this number."""
        return (number - self.base) % SEQUENCE_LIMIT

    def renew(self, *, from_number: int) -> None:
        """Begin a new context, for a listener that knows nothing of the present one;
        ``from_number`` is the oldest entry's, which gets SequenceNumber 0."""
        self._begin(next(self._epochs), from_number)

    def resume(self, *, epoch: int, base: int, next_number: int) -> None:
        """Go on with the context of the run before."""
        self.next_number = next_number
        self._begin(epoch, base)

    def _begin(self, epoch: int, base: int) -> None:
        self.epoch = epoch
        self.base = base
        self.context = f"{self._origin}#{epoch}"
