"""The first pass of a recovery: which parts of the segments are sound, and what their records say
of names, queues, settlements and held indications. Pure."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from struct import Struct
from typing import NamedTuple

import msgspec

from pillion_sidecar.journal.ports import (
    QueueState,
    RecoveredSubscription,
    SubscriptionRecord,
)
from pillion_sidecar.journal.records import (
    FRAME,
    LOST,
    THROUGH,
    Flag,
    Frame,
    Kind,
    Names,
    Snapshot,
    decode_commit,
    decode_names,
    decode_queue,
    decode_settlements,
    decode_snapshot,
    decode_subscriptions,
    named_subscriptions,
)
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    UNSOUND,
    Header,
    claimed_size,
    is_zero,
    position_of,
    read_header,
    walk,
)

#: ``origin`` of an INDICATION, from the beginning of its record.
ORIGIN = Struct("<Q")
ORIGIN_AT = FRAME.size + 32
#: Records named in the description of a damaged stretch.
_MAXIMUM_NAMED = 8
# Plain integers: a million comparisons with enumeration members take a second.
_INDICATION = int(Kind.INDICATION)
_COMMIT = int(Kind.COMMIT)
_COPY = int(Flag.COPY)
_KIND_NAMES = {kind.value: kind.name for kind in Kind}


class FindingKind(StrEnum):
    #: Records that were on disk are unreadable; acknowledged ones may be lost.
    DAMAGED = "damaged"
    #: Damaged header of a segment: no record is lost.
    HEADER = "header"
    MISSING = "missing"
    #: A damaged end of the log: an interrupted write, or later damage.
    TORN = "torn"
    #: The interrupted last write: nothing of it was acknowledged.
    UNFINISHED = "unfinished"
    #: The first and last segments are unknown: no record is lost.
    MARKS = "marks"
    #: Identities are forgotten, so their repeats are delivered again.
    IDENTITIES = "identities"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    kind: FindingKind
    file: str
    #: Offsets in the file.
    begin: int
    end: int
    #: What is lost, as far as known.
    lost: str


class Layout(NamedTuple):
    """The sound parts of a segment."""

    header: Header | None
    #: End of the log in it; the rest is torn, or never written.
    end: int
    #: Whether anything was written behind the end.
    torn: bool
    #: Damaged stretches before the end: offset, size.
    damaged: tuple[tuple[int, int], ...]
    #: Offsets of the records before the end that are no INDICATION.
    others: tuple[int, ...]
    #: Offsets of the INDICATIONs before the end that were held, or are copies of existing records.
    derived: tuple[int, ...]
    #: The greatest id of an INDICATION.
    last_id: int


def survey(data: bytes, *, newest: bool, oldest: int) -> Layout:
    """Check a whole segment; ``oldest``: the number of the oldest there is.

    The log of the ``newest`` ends before the first unsound stretch that no COMMIT follows; an older
    one was complete on disk before the next was created.
    """
    header = read_header(data)
    stretches: list[tuple[int, int]] = []
    others: list[int] = []
    derived: list[int] = []
    last_commit = -1
    last_id = 0
    origin = ORIGIN.unpack_from
    for at, kind, flags, size, _, record_id in walk(data, HEADER_SIZE, len(data)):
        if kind == _INDICATION:
            if record_id > last_id:
                last_id = record_id
            # With one dead listener, most records are copies of removed ones.
            if origin(data, at + ORIGIN_AT)[0] >= (oldest if flags & _COPY else 1):
                derived.append(at)
        elif kind == UNSOUND:
            stretches.append((at, size))
        else:
            others.append(at)
            if kind == _COMMIT:
                last_commit = at
    end = max(len(data), HEADER_SIZE)
    if newest:
        end = next((at for at, _ in stretches if at > last_commit), end)
        if header is None and last_commit < 0:
            end = 0
    return Layout(
        header,
        end,
        torn=not is_zero(data, end, len(data)),
        damaged=tuple(stretch for stretch in stretches if stretch[0] < end),
        others=tuple(at for at in others if at < end),
        derived=tuple(at for at in derived if at < end),
        last_id=last_id,
    )


def sound_ranges(layout: Layout) -> list[tuple[int, int]]:
    begin = HEADER_SIZE
    ranges = []
    for at, size in layout.damaged:
        ranges.append((begin, at))
        begin = at + size
    ranges.append((begin, layout.end))
    return [(begin, end) for begin, end in ranges if begin < end]


def describe(data: bytes, begin: int, end: int) -> str:
    """Return the likely content of a damaged stretch, from its readable frames."""
    found: list[str] = []
    at = begin
    while len(found) < _MAXIMUM_NAMED and (size := claimed_size(data, at, end)) is not None:
        _, _, kind, _, _, _, record_id = FRAME.unpack_from(data, at)
        name = _KIND_NAMES.get(kind, f"kind {kind}")
        found.append(f"{name} {record_id}" if kind == Kind.INDICATION else name)
        at += size
    if at < end:
        found.append(f"{end - at} bytes in which no record can be told")
    return ", ".join(found)


@dataclass(slots=True)
class ScanState:
    """What the records of all segments say together, oldest first."""

    #: By destination: the number up to which all is delivered, and numbers with how they ended.
    through: dict[int, int] = field(default_factory=dict)
    settled: dict[int, dict[int, int]] = field(default_factory=dict)
    #: By destination: above every number known to be used.
    next_number: dict[int, int] = field(default_factory=dict)
    #: Ids of held indications: how they were discarded; which were released.
    holds_ended: dict[int, int] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    #: By id: the position of the copy of a record that is there as well.
    copies: dict[int, int] = field(default_factory=dict)
    #: Bodiless indications up to an id are lost: the id, and ``through`` at that time; later
    #: deliveries say nothing of them.
    losses: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    destinations: dict[int, tuple[str, str]] = field(default_factory=dict)
    subscriptions: dict[int, RecoveredSubscription] = field(default_factory=dict)
    states: dict[int, QueueState] = field(default_factory=dict)
    #: By uid.
    subscription_records: dict[str, SubscriptionRecord] = field(default_factory=dict)
    groups: bytes | None = None
    #: Members of groups at later positions are not in ``groups``.
    groups_at: int = -1
    #: Damage was quarantined before this segment was begun.
    mended_until: int = 0
    last_id: int = 0
    last_commit: int = 0
    last_time: float = 0.0
    next_epoch: int = 0

    def add(self, number: int, data: bytes, layout: Layout) -> list[tuple[int, int]]:
        """Take the records of a segment.

        Returns sound records that cannot be understood: offset, size.
        """
        self.last_id = max(self.last_id, layout.last_id)
        if layout.header is not None:
            self.last_time = max(self.last_time, layout.header.created)
        for at in layout.derived:
            frame = Frame(*FRAME.unpack_from(data, at)[2:])
            (origin,) = ORIGIN.unpack_from(data, at + ORIGIN_AT)
            if not frame.flags & Flag.COPY:
                self.released.add(origin)
                self.last_id = max(self.last_id, origin)
            else:
                self.copies[frame.id] = position_of(number, at)
        senseless = []
        for at in layout.others:
            frame = Frame(*FRAME.unpack_from(data, at)[2:])
            try:
                self._take(number, data, at, frame)
            except (msgspec.MsgspecError, struct.error):
                senseless.append((at, frame.size))
        return senseless

    def _take(self, number: int, data: bytes, at: int, frame: Frame) -> None:
        match frame.kind:
            case Kind.COMMIT:
                commit, time = decode_commit(data, at)
                self.last_commit = max(self.last_commit, commit)
                self.last_time = max(self.last_time, time)
            case Kind.SETTLED:
                self._settle(decode_settlements(data, at, frame))
            case Kind.HOLD_ENDED:
                self._end_holds(decode_settlements(data, at, frame))
            case Kind.NAMES:
                self._name(decode_names(data, at, frame))
            case Kind.QUEUE:
                self._state(decode_queue(data, at, frame))
            case Kind.SUBSCRIPTIONS:
                records = decode_subscriptions(data, at, frame)
                self.subscription_records.update({one.uid: one for one in records})
            case Kind.FILLER:
                self.mended_until = max(self.mended_until, frame.id)
            case Kind.SNAPSHOT:
                self._snapshot(decode_snapshot(data, at, frame), position_of(number, at))

    def _end_holds(self, ended: Iterable[tuple[int, int, int]]) -> None:
        for _, how, record_id in ended:
            self.holds_ended[record_id] = how
            self.last_id = max(self.last_id, record_id)

    def _settle(self, settlements: Iterable[tuple[int, int, int]]) -> None:
        for destination, how, number in settlements:
            if how == LOST:
                self.losses.append((number, dict(self.through)))
                self.last_id = max(self.last_id, number)
                continue
            if number >= self.next_number.get(destination, 0):
                self.next_number[destination] = number + 1
            if how != THROUGH:
                self.settled.setdefault(destination, {})[number] = how
            elif number > self.through.get(destination, -1):
                self.through[destination] = number

    def _name(self, names: Names) -> None:
        for index, uid, name in names.destinations:
            self.destinations[index] = (uid, name)
        self.subscriptions.update(named_subscriptions(names))

    def _state(self, state: QueueState) -> None:
        self.states[state.destination] = state
        self.next_epoch = max(self.next_epoch, state.epoch + 1)
        known = self.next_number.get(state.destination, 0)
        self.next_number[state.destination] = max(known, state.next_number)

    def _snapshot(self, snapshot: Snapshot, position: int) -> None:
        self.last_time = max(self.last_time, snapshot.time)
        self.last_id = max(self.last_id, snapshot.next_id - 1)
        self.last_commit = max(self.last_commit, snapshot.commit)
        self.next_epoch = max(self.next_epoch, snapshot.next_epoch)
        self._name(snapshot.names)
        for state in snapshot.queues:
            self._state(state)
        # Complete: an absent one is no longer known.
        self.subscription_records = {one.uid: one for one in snapshot.subscriptions}
        self.groups, self.groups_at = snapshot.groups, position
