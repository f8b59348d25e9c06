"""SequenceContext and SequenceNumber of one destination (D.2), and its ordered groups that ended
with a lost member (S1.5)."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple

from pillion_sidecar.indication import Indication

#: SequenceNumber is a sint64 that wraps to 0 (DSP1054; CIM_Indication.SequenceNumber).
SEQUENCE_LIMIT = 2**63
#: Gaps kept for one destination; beyond, the oldest is forgotten.
MAXIMUM_GAPS = 1024


class SequenceIdentifiers:
    """Numbers the indications of one destination under one context.

    Entry numbers never restart; SequenceNumber is the entry's number less the context's ``base``.
    It grows by one for each new indication, delivered or not, so that a listener sees discards as
    gaps.
    """

    __slots__ = ("_epochs", "_origin", "base", "context", "epoch", "next_number")

    def __init__(
        self, *, service: str, journal_id: str, destination_uid: str, epochs: Iterator[int]
    ) -> None:
        """``journal_id`` is random, so that nobody continues another's context. ``epochs`` is
        shared by all queues of one journal and never repeats."""
        self._origin = f"{service}#{journal_id}#{destination_uid}"
        self._epochs = epochs
        self.next_number = 0
        self.renew(from_number=0)

    def number(self) -> int:
        number = self.next_number
        self.next_number = number + 1
        return number

    def continue_from(self, number: int) -> None:
        self.next_number = number

    def sequence_number(self, number: int) -> int:
        return (number - self.base) % SEQUENCE_LIMIT

    def renew(self, *, from_number: int) -> None:
        """Begin a new context for a new listener; ``from_number``, the oldest entry's, gets
        SequenceNumber 0."""
        self._begin(next(self._epochs), from_number)

    def resume(self, *, epoch: int, base: int, next_number: int) -> None:
        self.next_number = next_number
        self._begin(epoch, base)

    def _begin(self, epoch: int, base: int) -> None:
        self.epoch = epoch
        self.base = base
        self.context = f"{self._origin}#{epoch}"


class Gap(NamedTuple):
    """Every member of a group behind its first lost one is not delivered to a destination."""

    #: The group sequence of the first that was lost.
    sequence: int
    #: All entries of the group have lesser numbers; None while the group continues.
    until: int | None = None


def run_of(indication: Indication) -> int:
    """Return the identifier of one run of a message group. The journals of the first release lack
    it; there the name gives a negative number."""
    if indication.group_run:
        return indication.group_run
    name = f"{len(indication.source or '')}:{indication.source or ''}{indication.group}"
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=7).digest()
    return -1 - int.from_bytes(digest)


def is_ordered(indication: Indication) -> bool:
    member = indication.member
    return member is not None and member.ordered


class GroupGaps:
    """The gaps at one destination, by run. Bounded."""

    def __init__(self) -> None:
        self._gaps: OrderedDict[int, Gap] = OrderedDict()

    def __len__(self) -> int:
        return len(self._gaps)

    def add(self, run: int, sequence: int) -> bool:
        """Note a lost member; return whether that is new."""
        known = self._gaps.get(run)
        if known is not None and known.sequence <= sequence:
            return False
        self._gaps[run] = Gap(sequence, None if known is None else known.until)
        return True

    def shorten(self) -> bool:
        """Forget the oldest gap if there are too many; return whether there were."""
        if len(self._gaps) <= MAXIMUM_GAPS:
            return False
        self._gaps.popitem(last=False)
        return True

    def is_behind(self, indication: Indication) -> bool:
        member = indication.member
        if member is None or not member.ordered:
            return False
        gap = self._gaps.get(run_of(indication))
        return gap is not None and member.sequence > gap.sequence

    def group_ended(self, run: int, *, until: int) -> None:
        """No entry numbered ``until`` or greater will be of this group."""
        gap = self._gaps.get(run)
        if gap is not None and gap.until is None:
            self._gaps[run] = gap._replace(until=until)

    def forget_below(self, number: int) -> None:
        """Forget ended groups without entries: all of the destination are numbered ``number`` or
        greater."""
        for run in [run for run, gap in self._gaps.items() if _is_over(gap, number)]:
            del self._gaps[run]

    # ------------------------------------------------------------------ over restarts

    def records(self) -> tuple[tuple[int, int, int], ...]:
        """Return run, sequence and ``until`` (-1: none) of each gap, oldest first."""
        return tuple(
            (run, gap.sequence, -1 if gap.until is None else gap.until)
            for run, gap in self._gaps.items()
        )

    def restore(self, records: Iterable[tuple[int, int, int]]) -> None:
        for run, sequence, until in records:
            self._gaps[run] = Gap(sequence, None if until < 0 else until)

    def runs(self) -> list[int]:
        return list(self._gaps)


def _is_over(gap: Gap, number: int) -> bool:
    return gap.until is not None and gap.until <= number
