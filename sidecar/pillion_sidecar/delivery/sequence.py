"""The order of one destination: its SequenceContext and SequenceNumber (D.2), and the ordered
message groups that have ended there, because a member was lost (S1.5)."""

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


class Gap(NamedTuple):
    """What a destination does not get of one group: every member behind the first that was lost."""

    #: The group sequence of the first that was lost.
    sequence: int
    #: No entry of the group has this number or a greater one; None while the group goes on.
    until: int | None = None


def run_of(indication: Indication) -> int:
    """Return what tells one run of a message group from all others of this journal. The journals of
    the first release do not have it: there the name stands for it, below 0."""
    if indication.group_run:
        return indication.group_run
    name = f"{len(indication.source or '')}:{indication.source or ''}{indication.group}"
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=7).digest()
    return -1 - int.from_bytes(digest)


class GroupGaps:
    """The gaps at one destination, by the run of the group. Bounded."""

    def __init__(self) -> None:
        self._gaps: OrderedDict[int, Gap] = OrderedDict()

    def __len__(self) -> int:
        return len(self._gaps)

    def add(self, run: int, sequence: int) -> bool:
        """Note that a member was lost; return whether that is news."""
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
        """Whether a member of an ordered group is behind a gap."""
        member = indication.member
        if member is None or not member.ordered:
            return False
        gap = self._gaps.get(run_of(indication))
        return gap is not None and member.sequence > gap.sequence

    def group_ended(self, run: int, *, until: int) -> None:
        """No entry with the number ``until`` or a greater one will be of this group."""
        gap = self._gaps.get(run)
        if gap is not None and gap.until is None:
            self._gaps[run] = gap._replace(until=until)

    def forget_below(self, number: int) -> None:
        """Forget the groups that have ended, and of which no entry is left: all of the destination
        have this number or a greater one."""
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
        """Begin with the gaps of the run before."""
        for run, sequence, until in records:
            self._gaps[run] = Gap(sequence, None if until < 0 else until)

    def runs(self) -> list[int]:
        """Return the runs of groups that have a gap."""
        return list(self._gaps)


def _is_over(gap: Gap, number: int) -> bool:
    return gap.until is not None and gap.until <= number
