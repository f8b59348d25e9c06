"""The note of a receipt in the history, and the receipt of an earlier run, made of its note and of
the outcomes after it.

A line is delivered only if there is a delivery of each of its targets: what the history lost stays
pending.
"""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import msgspec

from pillion_sidecar.clock import Timers
from pillion_sidecar.history.outcome import Numbered, Outcome, OutcomeResult
from pillion_sidecar.indication import DiscardReason, Unreached
from pillion_sidecar.reliability.duplicates import DuplicateMemory, Original
from pillion_sidecar.reliability.receipts import (
    MAXIMUM_DISCARDS_DETAILED,
    GroupPlace,
    PendingLines,
    Receipt,
    Signal,
)
from pillion_sidecar.wire.submission import DiscardedLine

#: Runs of lines, lines of members and lines of duplicates in one note. A receipt with more lives in
#: its process alone.
MOST_RUNS = 10_000


class LineRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive lines, with consecutive journal sequences."""

    first: int
    count: int
    line: int
    #: Unsettled targets of each line.
    targets: int
    #: Whether each was discarded at a target before.
    failed: bool


class MemberLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    place: GroupPlace
    line: int
    targets: int
    failed: bool


class ReceiptNote(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """A receipt at one moment. A later version may add fields at the end."""

    id: str
    namespace: str | None
    #: The ID of the journal that has its lines.
    journal: str
    #: The number of the last outcome that it covers; all up to it are on disk.
    after: int
    is_for_durable: bool
    delivered: int
    unreached: dict[str, int]
    #: Line, destination, reason.
    discarded: list[tuple[int, str, str]]
    discarded_beyond: int
    runs: list[LineRun]
    members: list[MemberLine]
    originals: list[tuple[bytes, tuple[int, ...]]]
    #: URL, and the end of the time-out in seconds since the epoch; None without a callback.
    callback: tuple[str, float] | None = None
    is_for_stable: bool = False


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ReceiptNote).decode
_first = attrgetter("first")


def note_of(
    receipt: Receipt, *, journal: str, after: int, callback: tuple[str, float] | None
) -> tuple[ReceiptNote, PendingLines]:
    """Return a note without the pending lines, and these: see :func:`encode_note`."""
    note = ReceiptNote(
        id=receipt.id,
        namespace=receipt.namespace,
        journal=journal,
        after=after,
        is_for_durable=receipt.is_for_durable,
        delivered=receipt.delivered,
        unreached={reason.value: count for reason, count in receipt.unreached_lines.items()},
        discarded=[(one.line, one.destination, one.reason) for one in receipt.discarded],
        discarded_beyond=receipt.discarded_beyond,
        runs=[],
        members=[],
        originals=[],
        callback=callback,
        is_for_stable=receipt.is_for_stable,
    )
    return note, receipt.pending_lines()


def encode_note(note: ReceiptNote, pending: PendingLines) -> bytes | None:
    """Return the bytes of a note; None if it would have too many parts. For any thread."""
    runs: list[LineRun] = []
    members: list[MemberLine] = []
    # In the order of the lines.
    for key, line in pending.lines.items():
        targets, failed = pending.targets.get(key, 1), key in pending.failed
        if isinstance(key, int):
            _extend(runs, LineRun(key, 1, line, targets, failed))
        else:
            members.append(MemberLine(pending.places[key], line, targets, failed))
        if len(runs) > MOST_RUNS or len(members) > MOST_RUNS:
            return None
    repeats = sum(len(lines) for lines in pending.originals.values())
    if repeats > MOST_RUNS or (runs and min(runs, key=_first).first < 0):
        # Below 0: of an indication without a journal sequence.
        return None
    return _encode(
        msgspec.structs.replace(
            note, runs=runs, members=members, originals=list(pending.originals.items())
        )
    )


def _extend(runs: list[LineRun], one: LineRun) -> None:
    last = runs[-1] if runs else None
    if last is not None and one == LineRun(
        last.first + last.count, 1, last.line + last.count, last.targets, last.failed
    ):
        runs[-1] = msgspec.structs.replace(last, count=last.count + 1)
    else:
        runs.append(one)


def read_note(outcome: Outcome) -> ReceiptNote | None:
    """None if it is damaged."""
    try:
        return _decode(outcome.note or b"")
    except msgspec.MsgspecError:
        return None


def _unreached(note: ReceiptNote) -> Counter[Unreached]:
    found = Counter[Unreached]()
    for reason, count in note.unreached.items():
        # A later version may know others.
        found[Unreached(reason) if reason in list(Unreached) else Unreached.UNROUTED] += count
    return found


class EarlierReceipt:
    """The receipt of an earlier run, as far as it was followed.

    It takes outcomes in any thread; only one may feed it at a time.
    """

    def __init__(self, note: ReceiptNote, *, memory: DuplicateMemory, timers: Timers) -> None:
        self.note = note
        self.id = note.id
        self.namespace = note.namespace
        self.delivered = note.delivered
        self.unreached_lines = _unreached(note)
        self.discarded = [DiscardedLine(*one) for one in note.discarded]
        self.discarded_beyond = note.discarded_beyond
        self.is_for_durable = note.is_for_durable
        self.settled_all, self.secured = Signal(timers), Signal(timers)
        # What is stable is not noted: it is asked for anew.
        self.is_for_stable, self.stable = note.is_for_stable, Signal(timers)
        # The note is written after the lines.
        self.secured.given = True
        #: Whether outcomes of its lines have left the history.
        self.is_gone = False
        #: The number of the last outcome that it has seen.
        self.through = note.after
        self.runs = sorted(note.runs, key=_first)
        # By run: the unsettled targets of each line, and whether it was discarded at one.
        self._left = [array("H", [min(run.targets, 0xFFFF)]) * run.count for run in self.runs]
        self._failed = [bytearray([run.failed]) * run.count for run in self.runs]
        self._members = {one.place: one for one in note.members}
        self._waiting_lines = sum(run.count for run in self.runs) + len(self._members)
        self._memory = memory
        self._originals = dict(note.originals)

    @property
    def reached(self) -> Signal:
        if self.is_for_stable:
            return self.stable
        return self.secured if self.is_for_durable else self.settled_all

    @property
    def pending(self) -> int:
        return self._waiting_lines + sum(len(lines) for lines in self._originals.values())

    @property
    def waits_for_outcomes(self) -> bool:
        return self._waiting_lines > 0

    @property
    def places(self) -> Iterable[GroupPlace]:
        return self._members

    def look(self) -> None:
        """Ask for the originals of its duplicates. On the event loop."""
        for digest in list(self._originals):
            original = self._memory.find(digest)
            # A forgotten one stays pending: how it ended is not known.
            if original is not None and not original.pending:
                for line in self._originals.pop(digest):
                    self._conclude(original, line)
        if not self.pending:
            self.settled_all.give()

    def _conclude(self, original: Original, line: int) -> None:
        if original.reason is None or original.destination is None:
            self.delivered += 1
        else:
            self._discard(line, original.destination, original.reason)

    def take(self, run: int, outcome: Outcome) -> None:
        """Take the outcome of a line of its run number ``run``."""
        at = outcome.id - self.runs[run].first
        left, failed = self._left[run], self._failed[run]
        if not left[at]:
            return
        left[at] -= 1
        line = self.runs[run].line + at
        failed[at] = self._settle(line, outcome, failed=bool(failed[at]), left=left[at])

    def take_member(self, place: GroupPlace, outcome: Outcome) -> None:
        member = self._members.get(place)
        if member is None:
            return
        left = member.targets - 1
        failed = self._settle(member.line, outcome, failed=member.failed, left=left)
        if left:
            self._members[place] = MemberLine(place, member.line, left, failed)
        else:
            del self._members[place]

    def _settle(self, line: int, outcome: Outcome, *, failed: bool, left: int) -> bool:
        if outcome.result == OutcomeResult.DISCARDED:
            failed = True
            self._discard(line, outcome.destination, outcome.reason or "")
        if not left:
            self._waiting_lines -= 1
            self.delivered += not failed
        return failed

    def _discard(self, line: int, destination: str, reason: DiscardReason | str) -> None:
        if len(self.discarded) < MAXIMUM_DISCARDS_DETAILED:
            self.discarded.append(DiscardedLine(line, destination, str(reason)))
        else:
            self.discarded_beyond += 1


#: Results that settle a target.
_SETTLES = frozenset(OutcomeResult) - {OutcomeResult.REDRIVEN}


class Followed:
    """Hands outcomes to the receipts of an earlier run that wait for them."""

    def __init__(self, receipts: Sequence[EarlierReceipt]) -> None:
        self._receipts = receipts
        # Within a journal no sequence is in two runs.
        self._runs: dict[str, list[tuple[int, EarlierReceipt, int]]] = {}
        self._places: Mapping[tuple[str, GroupPlace], EarlierReceipt]
        places: dict[tuple[str, GroupPlace], EarlierReceipt] = {}
        for receipt in receipts:
            runs = self._runs.setdefault(receipt.note.journal, [])
            runs += [(run.first, receipt, at) for at, run in enumerate(receipt.runs)]
            places |= {(receipt.note.journal, place): receipt for place in receipt.places}
        for found in self._runs.values():
            found.sort(key=lambda one: one[0])
        self._places = places
        self._firsts = {
            journal: [first for first, _, _ in runs] for journal, runs in self._runs.items()
        }

    def feed(self, outcomes: Iterable[Numbered], *, through: int) -> None:
        """Take the outcomes after what was seen, in order, up to the number ``through``."""
        for number, outcome in outcomes:
            if outcome.result not in _SETTLES:
                continue
            context = outcome.sequence_context or ""
            for journal in self._firsts:
                if journal in context:
                    self._take(journal, number, outcome)
        for receipt in self._receipts:
            receipt.through = max(receipt.through, through)

    def _take(self, journal: str, number: int, outcome: Outcome) -> None:
        at = bisect_right(self._firsts[journal], outcome.id) - 1
        if at >= 0:
            first, receipt, run = self._runs[journal][at]
            if outcome.id < first + receipt.runs[run].count and number > receipt.through:
                receipt.take(run, outcome)
                return
        if outcome.group is not None and outcome.group_sequence is not None:
            place = GroupPlace(outcome.source, outcome.group, outcome.group_sequence)
            of_group = self._places.get((journal, place))
            if of_group is not None and number > of_group.through:
                of_group.take_member(place, outcome)
