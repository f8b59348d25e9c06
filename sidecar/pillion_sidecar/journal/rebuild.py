"""The second pass of a recovery: which INDICATIONs are still pending.

A settled one costs one ``unpack_from`` and no memory.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import gt
from struct import Struct
from typing import TypeAlias

from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.ports import (
    GroupRecord,
    IdentitySink,
    Place,
    PlainIdentity,
    RecoveredQueue,
)
from pillion_sidecar.journal.records import (
    DELIVERED,
    FRAME,
    INDICATION,
    REASONS,
    Flag,
    Frame,
    Kind,
    decode_envelope,
    decode_indication,
    decode_places,
)
from pillion_sidecar.journal.scan import ScanState
from pillion_sidecar.journal.segment_reader import read_indication
from pillion_sidecar.journal.segments import position_of

#: A FRAME, an INDICATION and its only PLACE.
_ONE = Struct("<IHBBIIQdd16sQIIIIQ")
# Plain integers: a million comparisons with enumeration members take a second.
_INDICATION = int(Kind.INDICATION)
_IDENTITY = int(Flag.IDENTITY)
_COPY = int(Flag.COPY)
_HELD = int(Flag.HELD)
_BODILESS = int(Flag.BODILESS)
_PART = int(Flag.PART)
_REPEAT = int(Flag.REPEAT)
#: A record with one of these flags needs ``_add_any``.
_ODD = _HELD | _BODILESS
#: An identity with one of these flags needs ``_remember``.
_MORE_OF_IDENTITY = _PART | _REPEAT
#: Identities that are restored together, if a commit has no more: they take memory until then.
_TOGETHER = 1024
_NOTHING: dict[int, int] = {}
#: No destination has this index.
_NOBODY = -1

#: Append an id, a position, a number, a subscription.
_Appends: TypeAlias = tuple[
    Callable[[int], None], Callable[[int], None], Callable[[int], None], Callable[[int], None]
]


@dataclass(slots=True, kw_only=True)
class Rebuild:
    """Collects what is pending, segment by segment, oldest first."""

    account: ScanState
    #: ``Journal.offset``.
    offset: float
    sink: IdentitySink
    queues: dict[int, RecoveredQueue] = field(default_factory=dict)
    held: list[tuple[Indication, tuple[Place, ...]]] = field(default_factory=list)
    members: list[GroupRecord] = field(default_factory=list)
    #: By id: pending places, of indications that have more than one.
    shared: dict[int, int] = field(default_factory=dict)
    #: Pending entries without a body, by destination name.
    lost: dict[str, int] = field(default_factory=dict)
    #: The greatest id of those.
    lost_through: int = 0
    #: Those that are pending or delivered; restored together.
    _identities: list[PlainIdentity] = field(default_factory=list)
    _appends: dict[int, _Appends] = field(default_factory=dict)
    #: Ids in ``account.copies`` whose identities have been restored.
    _remembered: set[int] = field(default_factory=set)

    def add(self, number: int, data: bytes, ranges: Sequence[tuple[int, int]]) -> int:
        """Take a segment's sound ranges; return the bytes of records that are still needed."""
        account, identities = self.account, self._identities
        copies, groups_at = account.copies, account.groups_at
        unpack, last = _ONE.unpack_from, len(data) - _ONE.size
        base, live = position_of(number, 0), 0
        # Of the destination of the record before, which most often is the next one's too.
        before, through, how_of = _NOBODY, -1, _NOTHING.get
        for begin, end in ranges:
            at = begin
            while at < end:
                if at > last:
                    # The last records of a segment may be shorter than what is read at once.
                    frame = Frame(*FRAME.unpack_from(data, at)[2:])
                    live += self._add_any(base + at, data, at, frame)
                    at += frame.size
                    continue
                # fmt: off
                (
                    _, _, kind, flags, size, entries, record_id,
                    accepted_at, expires, digest, origin, _, _,
                    destination, subscription, place,
                ) = unpack(data, at)
                # fmt: on
                is_copy = flags & _COPY
                if (
                    kind != _INDICATION
                    or entries != 1
                    or flags & _ODD
                    or (origin and not is_copy)
                    or record_id in copies
                ):
                    frame = Frame(kind, flags, size, entries, record_id)
                    live += self._add_any(base + at, data, at, frame)
                    at += size
                    continue
                if destination != before:
                    before = destination
                    through = account.through.get(destination, -1)
                    how_of = account.settled.get(destination, _NOTHING).get
                how = how_of(place, DELIVERED if place <= through else None)
                if how is None:
                    columns = self._appends.get(destination) or self._columns(destination)
                    ids, positions, numbers, subscriptions = columns
                    ids(record_id)
                    positions(base + at)
                    numbers(place)
                    subscriptions(subscription)
                    live += size
                if flags & _IDENTITY:
                    if how or flags & _MORE_OF_IDENTITY:
                        self._remember(digest, accepted_at, expires, how, destination, flags=flags)
                    else:
                        identities.append((digest, accepted_at, expires, how is None))
                if base + at > groups_at and not is_copy:
                    frame = Frame(kind, flags, size, entries, record_id)
                    self._join(data, at, frame, accepted_at, expires)
                at += size
        self._restore_identities()
        return live

    def _restore_identities(self) -> None:
        self.sink.restore_all(self._identities, offset=self.offset)
        self._identities.clear()

    # ------------------------------------------------------------------ one record, of any kind

    def _add_any(self, position: int, data: bytes, at: int, frame: Frame) -> int:
        """Take any record; return its bytes if it is still needed, else 0."""
        if frame.kind != _INDICATION:
            if len(self._identities) >= _TOGETHER:
                self._restore_identities()
            return 0
        accepted_at, expires, digest, origin, _, _ = INDICATION.unpack_from(data, at + FRAME.size)
        places = decode_places(data, at, frame)
        if frame.flags & _HELD:
            return self._hold(position, data, at, frame)
        through = self._through(frame)
        hows = [self._outcome(place, through) for place in places]
        pending = [place for place, how in zip(places, hows, strict=True) if how is None]
        copy_at = self.account.copies.get(frame.id, position)
        if pending and frame.flags & _BODILESS:
            if copy_at == position:
                self._lose(frame.id, pending)
            return 0
        if frame.flags & _IDENTITY and frame.id not in self._remembered:
            ended, destination = _end(places, hows)
            self._remember(
                digest,
                accepted_at,
                expires,
                ended,
                destination,
                pending=bool(pending),
                delivered=DELIVERED in hows,
                flags=frame.flags,
            )
        if frame.id in self.account.copies:
            self._remembered.add(frame.id)
        if not frame.flags & _COPY and not origin and position > self.account.groups_at:
            self._join(data, at, frame, accepted_at, expires)
        if not pending or copy_at != position:
            return 0
        self._queue(frame, pending, position)
        return frame.size

    def _through(self, frame: Frame) -> dict[int, int]:
        if frame.flags & _BODILESS:
            for record_id, through in self.account.losses:
                if frame.id <= record_id:
                    return through
        return self.account.through

    def _outcome(self, place: Place, through: dict[int, int]) -> int | None:
        how = self.account.settled.get(place.destination, _NOTHING).get(place.number)
        if how is None and place.number <= through.get(place.destination, -1):
            return DELIVERED
        return how

    def _queue(self, frame: Frame, pending: Sequence[Place], position: int) -> None:
        for place in pending:
            columns = self._appends.get(place.destination) or self._columns(place.destination)
            for append, value in zip(
                columns, (frame.id, position, place.number, place.subscription), strict=True
            ):
                append(value)
        if len(pending) > 1:
            self.shared[frame.id] = len(pending)

    def _hold(self, position: int, data: bytes, at: int, frame: Frame) -> int:
        account = self.account
        if frame.id in account.released or account.copies.get(frame.id, position) != position:
            # The record that released it, or its copy, has the rest.
            return 0
        record = decode_indication(data, at, frame)
        ended = account.holds_ended.get(frame.id)
        if ended is None and frame.flags & _BODILESS:
            self._lose(frame.id, record.places)
            return 0
        if record.digest is not None:
            destination = record.places[0].destination if record.places else _NOBODY
            self._remember(record.digest, record.accepted_at, record.expires, ended, destination)
        if not frame.flags & _COPY and position > account.groups_at:
            self._join(data, at, frame, record.accepted_at, record.expires)
        if ended is not None:
            return 0
        indication = read_indication(data, at, position=position, offset=self.offset)
        assert indication is not None
        self.held.append((indication, record.places))
        return frame.size

    def _join(self, data: bytes, at: int, frame: Frame, accepted_at: float, expires: float) -> None:
        envelope = decode_envelope(data, at, frame)
        if envelope.group is None or envelope.member is None:
            return
        relayed_at = None
        if envelope.relayed is not None:
            relayed_at = accepted_at - self.offset
            accepted_at, expires = envelope.relayed
        self.members.append(
            GroupRecord(
                id=frame.id,
                source=envelope.source,
                group=envelope.group,
                member=envelope.member,
                accepted_at=accepted_at - self.offset,
                expires=expires or None,
                relayed_at=relayed_at,
                held=bool(frame.flags & _HELD),
                run=envelope.group_run,
            )
        )

    def _lose(self, record_id: int, pending: Sequence[Place]) -> None:
        if any(record_id <= told for told, _ in self.account.losses):
            # An earlier start has reported it.
            return
        for place in pending:
            name = self.destination_name(place.destination)
            self.lost[name] = self.lost.get(name, 0) + 1
        self.lost_through = max(self.lost_through, record_id)

    def _remember(
        self,
        digest: bytes,
        accepted_at: float,
        expires: float,
        how: int | None,
        destination: int,
        *,
        pending: bool = False,
        delivered: bool = False,
        flags: int = 0,
    ) -> None:
        reason = REASONS.get(how) if how is not None else None
        # Later ones replace earlier ones.
        self._restore_identities()
        self.sink.restore(
            digest,
            accepted_at=accepted_at - self.offset,
            expires=expires or None,
            pending=pending or how is None,
            reason=reason,
            destination="" if reason is None else self.destination_name(destination),
            delivered=delivered or bool(flags & _PART),
            repeat=bool(flags & _REPEAT),
        )

    # ------------------------------------------------------------------ the queues

    def destination_name(self, index: int) -> str:
        _, name = self.account.destinations.get(index, ("", ""))
        return name or f"(destination {index}, whose name is lost)"

    def _columns(self, destination: int) -> _Appends:
        uid, name = self.account.destinations.get(destination, ("", ""))
        queue = self.queues[destination] = RecoveredQueue(uid=uid, name=name, index=destination)
        columns = (
            queue.ids.append,
            queue.positions.append,
            queue.numbers.append,
            queue.subscriptions.append,
        )
        self._appends[destination] = columns
        return columns

    def next_subscription(self) -> int:
        """Return an index above every subscription that is named or pending."""
        used = [max(queue.subscriptions) for queue in self.queues.values() if queue.subscriptions]
        held = [place.subscription for _, places in self.held for place in places]
        return max([-1, *self.account.subscriptions, *used, *held]) + 1

    def finish(self) -> None:
        account = self.account
        for index in {*account.destinations, *account.states}.difference(self.queues):
            self._columns(index)
        for index, queue in self.queues.items():
            _sort(queue)
            above = max(queue.numbers) + 1 if queue.numbers else 0
            queue.next_number = max(account.next_number.get(index, 0), above)
            queue.state = account.states.get(index)
        self.held.sort(key=lambda held: held[0].id)
        self.members.sort(key=lambda member: member.id)


def _end(places: Sequence[Place], hows: Sequence[int | None]) -> tuple[int | None, int]:
    """Return how an indication ended, and for which destination: discarded if anywhere, else
    pending if anywhere, else delivered."""
    ended: int | None = DELIVERED
    destination = _NOBODY
    for place, how in zip(places, hows, strict=True):
        if how in REASONS:
            return how, place.destination
        if how is None:
            ended = None
    return ended, destination


def _sort(queue: RecoveredQueue) -> None:
    numbers = queue.numbers
    if not any(map(gt, numbers, islice(numbers, 1, None))):
        # Sorted already, without copies.
        return
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    for name in ("ids", "positions", "numbers", "subscriptions"):
        column = getattr(queue, name)
        setattr(queue, name, array(column.typecode, map(column.__getitem__, order)))
