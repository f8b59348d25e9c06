"""The records of the journal: layout, encoding, decoding. Pure; described in ``docs/journal.md``.

Every record is a frame and a payload, little-endian. The checksum covers all that follows it.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum, IntFlag
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import msgspec

from pillion_sidecar.indication import DeadLetter, DiscardReason, GroupMember, Indication
from pillion_sidecar.journal.ports import (
    Place,
    PlainPlace,
    QueueState,
    RecoveredSubscription,
    SubscriptionRecord,
)
from pillion_sidecar.trace_context import TraceContext

#: Follows the checksum of every record; a search behind damage looks for it.
MAGIC = 0x8FD1
MAGIC_BYTES = MAGIC.to_bytes(2, "little")

#: checksum, magic, kind, flags, length of the whole record, count, id.
FRAME = Struct("<IHBBIIQ")
#: Offset of ``MAGIC`` in a frame, and begin of what the checksum covers.
CHECKED_FROM = 4
#: accepted at, expires (0: none), digest, origin, length of the envelope, length of the body.
INDICATION = Struct("<dd16sQII")
#: destination, subscription, number.
PLACE = Struct("<IIQ")
#: destination, how it ended, number (of the place; in a HOLD_ENDED the id).
SETTLEMENT = Struct("<IBQ")
#: number of the commit, journal time.
COMMIT = Struct("<Qd")

#: Maximum length: a line, its envelope and 10,000 places; or a SNAPSHOT with the states of all
#: message groups.
MAXIMUM_RECORD = 32 << 20
_NO_DIGEST = bytes(16)


class Kind(IntEnum):
    #: Begins each write: all before it was on disk by then.
    COMMIT = 1
    INDICATION = 2
    SETTLED = 3
    #: Held indications that were discarded.
    HOLD_ENDED = 4
    #: Destinations and subscriptions, by index.
    NAMES = 5
    QUEUE = 6
    #: Begins a segment: names, queues and groups of all segments before it.
    SNAPSHOT = 7
    #: Replaces damage or missing segments; has no content.
    FILLER = 8
    #: Identities of a removed segment, in files of their own.
    IDENTITIES = 9
    #: States of subscriptions. The first release ignores it.
    SUBSCRIPTIONS = 10


class Flag(IntFlag):
    """How to read an INDICATION."""

    IDENTITY = 1
    #: Relocated; ``origin`` is the number of its original segment.
    COPY = 2
    #: Waits for its predecessors. Without HELD and COPY, ``origin`` is its former id while held; 0
    #: for none.
    HELD = 4
    #: Its body was not kept (``StateOnly``).
    BODILESS = 8
    #: A copy without settled places. The first release writes none, and ignores it.
    PART = 16
    #: Offered again from the history: its identity is that of its original. Earlier versions ignore
    #: it.
    REPEAT = 32


#: How a place ended, as in SETTLEMENT; identified by number, since an indication may have two
#: places at one destination. THROUGH: delivered, with all lesser numbers there that have no record
#: of their own.
DELIVERED = 0
THROUGH = 1
#: Bodiless indications with an id up to this ``number`` were lost with their run, and their
#: identities are forgotten, unless all their places are settled. The destination means nothing.
LOST = 2
REASON_CODES = {
    DiscardReason.QUEUE_FULL: 16,
    DiscardReason.ATTEMPTS_EXCEEDED: 17,
    DiscardReason.LIFETIME_EXPIRED: 18,
    DiscardReason.SUBSCRIPTION_NOT_ACTIVE: 19,
    DiscardReason.DESTINATION_REMOVED: 20,
    DiscardReason.FATAL_ERROR: 21,
    DiscardReason.SHUTDOWN: 22,
    DiscardReason.PURGED: 23,
    DiscardReason.OUT_OF_ORDER: 24,
    DiscardReason.DAMAGED: 25,
}
REASONS = {code: reason for reason, code in REASON_CODES.items()}


class Envelope(msgspec.Struct, frozen=True, gc=False, array_like=True):
    class_name: str
    source: str | None
    identifier: str | None
    languages: tuple[str, ...] = ()
    group: str | None = None
    member: GroupMember | None = None
    # What follows is written of a relayed, redriven or replayed indication, a dead letter, a member
    # of a group, or one with a publisher or a trace.
    #: Journal time of acceptance by the sidecar, and its ``expires`` (0.0: none). The record's own
    #: times are those of arrival here and of the end of its identity.
    relayed: tuple[float, float] | None = None
    #: ``Indication.group_run``. The first release omits and ignores it.
    group_run: int = 0
    #: ``Indication.redrives``. Earlier versions omit and ignore it.
    redrives: int = 0
    #: ``Indication.dead_letter``. Earlier versions omit and ignore it.
    dead_letter: DeadLetter | None = None
    #: ``Indication.replay``. Earlier versions omit and ignore it.
    replay: str = ""
    #: ``Indication.publisher``. Earlier versions omit and ignore it.
    publisher: str | None = None
    #: ``Indication.trace``. Earlier versions omit and ignore it.
    trace: TraceContext | None = None


class Names(msgspec.Struct, frozen=True, array_like=True):
    """Destinations (index, uid, name) and subscriptions (index, uid, name, name of the filter)."""

    destinations: tuple[tuple[int, str, str], ...] = ()
    subscriptions: tuple[tuple[int, str, str, str], ...] = ()


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """Begins a segment."""

    time: float
    next_id: int
    next_epoch: int
    commit: int
    names: Names
    queues: tuple[QueueState, ...]
    groups: bytes
    #: The first release omits and ignores it.
    subscriptions: tuple[SubscriptionRecord, ...] = ()


class Settlement(NamedTuple):
    destination: int
    #: DELIVERED, THROUGH or one of ``REASON_CODES``.
    how: int
    number: int


_encode = msgspec.msgpack.Encoder().encode
_envelope = msgspec.msgpack.Decoder(Envelope).decode
_names = msgspec.msgpack.Decoder(Names).decode
_queue = msgspec.msgpack.Decoder(QueueState).decode
_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
_subscriptions = msgspec.msgpack.Decoder(tuple[SubscriptionRecord, ...]).decode
_frame_end = FRAME.size
_fixed_end = FRAME.size + INDICATION.size
#: What the checksum covers of a FRAME, an INDICATION and its only PLACE.
_ONE = Struct("<HBBIIQdd16sQIIIIQ")
_one_end = CHECKED_FROM + _ONE.size
_INDICATION = int(Kind.INDICATION)
_IDENTITY = int(Flag.IDENTITY)
_BODILESS = int(Flag.BODILESS)
_REPEAT = int(Flag.REPEAT)


def seal(kind: int, payload: bytes, *, flags: int = 0, count: int = 0, record_id: int = 0) -> bytes:
    size = _frame_end + len(payload)
    checked = FRAME.pack(0, MAGIC, kind, flags, size, count, record_id)[CHECKED_FROM:] + payload
    return crc32(checked).to_bytes(4, "little") + checked


def _envelope_of(indication: Indication, *, accepted_at: float) -> tuple[object, ...]:
    """Return the fields of the :class:`Envelope`: a struct would take as long as its encoding."""
    beside = (
        indication.class_name,
        indication.source,
        indication.identifier,
        indication.languages,
        indication.group,
        indication.member,
    )
    relayed, run, redrives = indication.relayed, indication.group_run, indication.redrives
    dead_letter, publisher = indication.dead_letter, indication.publisher
    plain = relayed is None and dead_letter is None and publisher is None
    if plain and not (run or redrives) and indication.trace is None:
        return beside
    times = None if relayed is None else (accepted_at, indication.expires or 0.0)
    replay, trace = indication.replay, indication.trace
    return (*beside, times, run, redrives, dead_letter, replay, publisher, trace)


def encode_indication(
    indication: Indication,
    places: Sequence[PlainPlace],
    *,
    accepted_at: float,
    flags: int = 0,
    origin: int = 0,
) -> bytes:
    """``accepted_at`` is journal time."""
    envelope = _encode(_envelope_of(indication, accepted_at=accepted_at))
    expires = indication.expires or 0.0
    if (relayed := indication.relayed) is not None:
        accepted_at += relayed.at - indication.accepted_at
        expires = relayed.remembered_until
    digest = indication.digest
    # Plain integers: an IntFlag costs as much as all the rest.
    if digest is not None:
        flags |= _IDENTITY
        if indication.redrives > 0:
            flags |= _REPEAT
    body = b"" if flags & _BODILESS else indication.body
    if len(places) == 1:
        checked = _ONE.pack(
            MAGIC,
            _INDICATION,
            flags,
            _one_end + len(envelope) + len(body),
            1,
            indication.id,
            accepted_at,
            expires,
            digest or _NO_DIGEST,
            origin,
            len(envelope),
            len(body),
            *places[0],
        )
        checked = b"".join((checked, envelope, body))
        return crc32(checked).to_bytes(4, "little") + checked
    fixed = INDICATION.pack(
        accepted_at,
        expires,
        digest or _NO_DIGEST,
        origin,
        len(envelope),
        len(body),
    )
    packed = [PLACE.pack(*place) for place in places]
    payload = b"".join((fixed, *packed, envelope, body))
    return seal(_INDICATION, payload, flags=flags, count=len(places), record_id=indication.id)


def copy_indication(record: bytes, places: Sequence[Place], *, origin: int) -> bytes:
    """Return a sound INDICATION relocated from segment ``origin``, with these of its places."""
    _, _, kind, flags, _, entries, record_id = FRAME.unpack_from(record)
    accepted_at, expires, digest, _, envelope_size, body_size = INDICATION.unpack_from(
        record, _frame_end
    )
    fixed = INDICATION.pack(accepted_at, expires, digest, origin, envelope_size, body_size)
    packed = [PLACE.pack(*place) for place in places]
    payload = b"".join((fixed, *packed, record[_fixed_end + PLACE.size * entries :]))
    flags |= int(Flag.COPY) | (int(Flag.PART) if len(places) < entries else 0)
    return seal(kind, payload, flags=flags, count=len(places), record_id=record_id)


def encode_settlements(settlements: Sequence[Settlement]) -> bytes:
    payload = b"".join([SETTLEMENT.pack(*one) for one in settlements])
    return seal(Kind.SETTLED, payload, count=len(settlements))


def encode_holds_ended(ended: Sequence[tuple[int, int]]) -> bytes:
    """``ended``: how, id."""
    payload = b"".join([SETTLEMENT.pack(0, how, record_id) for how, record_id in ended])
    return seal(Kind.HOLD_ENDED, payload, count=len(ended))


def encode_commit(number: int, time: float) -> bytes:
    return seal(Kind.COMMIT, COMMIT.pack(number, time))


def encode_names(names: Names) -> bytes:
    return seal(Kind.NAMES, _encode(names))


def encode_queue(state: QueueState) -> bytes:
    return seal(Kind.QUEUE, _encode(state))


def encode_subscriptions(records: Sequence[SubscriptionRecord]) -> bytes:
    return seal(Kind.SUBSCRIPTIONS, _encode(records), count=len(records))


def decode_subscriptions(
    data: bytes | memoryview, at: int, frame: "Frame"
) -> tuple[SubscriptionRecord, ...]:
    return _subscriptions(data[at + _frame_end : at + frame.size])


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return seal(Kind.SNAPSHOT, _encode(snapshot))


def encode_whole_snapshot(snapshot: Snapshot) -> list[bytes]:
    """Return the snapshot that begins a segment, as several records if one would be too long."""
    record = encode_snapshot(snapshot)
    if len(record) <= MAXIMUM_RECORD:
        return [record]
    head = msgspec.structs.replace(snapshot, names=Names(), queues=(), subscriptions=())
    queues = [encode_queue(state) for state in snapshot.queues]
    records = [encode_snapshot(head), encode_names(snapshot.names), *queues]
    if snapshot.subscriptions:
        records.append(encode_subscriptions(snapshot.subscriptions))
    return records


class Frame(NamedTuple):
    kind: int
    flags: int
    size: int
    #: Places or settlements.
    entries: int
    id: int


def read_frame(data: bytes | memoryview, at: int, end: int) -> Frame | None:
    """Return the checked frame of the record at ``at``; None if that is unsound."""
    if at + _frame_end > end:
        return None
    checksum, magic, kind, flags, size, count, record_id = FRAME.unpack_from(data, at)
    if magic != MAGIC or not _frame_end <= size <= MAXIMUM_RECORD or at + size > end:
        return None
    if crc32(data[at + CHECKED_FROM : at + size]) != checksum:
        return None
    return Frame(kind, flags, size, count, record_id)


class IndicationRecord(NamedTuple):
    accepted_at: float
    #: 0.0 for none.
    expires: float
    digest: bytes | None
    origin: int
    places: tuple[Place, ...]
    envelope: Envelope
    body: bytes


def decode_indication(data: bytes | memoryview, at: int, frame: Frame) -> IndicationRecord:
    accepted_at, expires, digest, origin, envelope_size, body_size = INDICATION.unpack_from(
        data, at + _frame_end
    )
    begin = at + _fixed_end + PLACE.size * frame.entries
    middle = begin + envelope_size
    return IndicationRecord(
        accepted_at,
        expires,
        digest if frame.flags & _IDENTITY else None,
        origin,
        decode_places(data, at, frame),
        _envelope(data[begin:middle]),
        bytes(data[middle : middle + body_size]),
    )


def read_envelope(data: bytes | memoryview) -> Envelope:
    return _envelope(data)


def decode_envelope(data: bytes | memoryview, at: int, frame: Frame) -> Envelope:
    """Return the data of an INDICATION beside its body and its times."""
    *_, size, _ = INDICATION.unpack_from(data, at + _frame_end)
    begin = at + _fixed_end + PLACE.size * frame.entries
    return _envelope(data[begin : begin + size])


def decode_places(data: bytes | memoryview, at: int, frame: Frame) -> tuple[Place, ...]:
    begin = at + _fixed_end
    packed = data[begin : begin + PLACE.size * frame.entries]
    return tuple(Place(*place) for place in PLACE.iter_unpack(packed))


def decode_settlements(
    data: bytes | memoryview, at: int, frame: Frame
) -> Iterable[tuple[int, int, int]]:
    """Return (destination, how, number or id) of each settlement of a SETTLED or HOLD_ENDED."""
    return SETTLEMENT.iter_unpack(data[at + _frame_end : at + frame.size])


def decode_commit(data: bytes | memoryview, at: int) -> tuple[int, float]:
    number, time = COMMIT.unpack_from(data, at + _frame_end)
    return number, time


def decode_names(data: bytes | memoryview, at: int, frame: Frame) -> Names:
    return _names(data[at + _frame_end : at + frame.size])


def decode_queue(data: bytes | memoryview, at: int, frame: Frame) -> QueueState:
    return _queue(data[at + _frame_end : at + frame.size])


def decode_snapshot(data: bytes | memoryview, at: int, frame: Frame) -> Snapshot:
    return _snapshot(data[at + _frame_end : at + frame.size])


def named_subscriptions(names: Names) -> dict[int, RecoveredSubscription]:
    return {
        index: RecoveredSubscription(uid, name, filter_name)
        for index, uid, name, filter_name in names.subscriptions
    }
