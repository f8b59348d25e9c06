"""What the records of a journal say together of names, queues, settlements and held indications:
all that must be known before its INDICATIONs can be judged."""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

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
from pillion_sidecar.journal.segments import position_of
from pillion_sidecar.journal.survey import ORIGIN, ORIGIN_AT, Layout


@dataclass(slots=True)
class Account:
    """What the records of all segments say together, oldest first."""

    #: By destination: the number up to which all is delivered, and numbers with how they ended.
    through: dict[int, int] = field(default_factory=dict)
    settled: dict[int, dict[int, int]] = field(default_factory=dict)
    #: By destination: above every number that is known to have been used.
    next_number: dict[int, int] = field(default_factory=dict)
    #: Ids of held indications: how they were discarded; which were released.
    holds_ended: dict[int, int] = field(default_factory=dict)
    released: set[int] = field(default_factory=set)
    #: By id: the position of the copy that stands for a record which is there as well.
    copies: dict[int, int] = field(default_factory=dict)
    #: Indications without a body up to an id are lost: the id, and ``through`` as it was when that
    #: was written; what is delivered through later says nothing of them.
    losses: list[tuple[int, dict[int, int]]] = field(default_factory=list)
    destinations: dict[int, tuple[str, str]] = field(default_factory=dict)
    subscriptions: dict[int, RecoveredSubscription] = field(default_factory=dict)
    states: dict[int, QueueState] = field(default_factory=dict)
    #: By uid.
    subscription_records: dict[str, SubscriptionRecord] = field(default_factory=dict)
    groups: bytes | None = None
    #: Members of groups at later positions are not in ``groups``.
    groups_at: int = -1
    #: Damage was put aside before the segment with this number was begun.
    mended_until: int = 0
    last_id: int = 0
    last_commit: int = 0
    last_time: float = 0.0
    next_epoch: int = 0

    def add(self, number: int, data: bytes, layout: Layout) -> list[tuple[int, int]]:
        """Take what a segment says.

        Returns sound records that say nothing which can be understood: offset, size.
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
        # All of them: one that is not there is known of no more.
        self.subscription_records = {one.uid: one for one in snapshot.subscriptions}
        self.groups, self.groups_at = snapshot.groups, position
