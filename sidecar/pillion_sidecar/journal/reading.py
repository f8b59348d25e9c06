"""An indication from its record, in one pass: every entry that is read back comes by here."""

from zlib import crc32

from pillion_sidecar.indication import Indication, Relayed
from pillion_sidecar.journal.records import (
    CHECKED_FROM,
    FRAME,
    INDICATION,
    MAGIC,
    PLACE,
    Flag,
    Kind,
    read_envelope,
)

_KIND = int(Kind.INDICATION)
_IDENTITY = int(Flag.IDENTITY)
_BODY_FROM = FRAME.size + INDICATION.size


def read_indication(
    data: bytes | memoryview, at: int, *, position: int, offset: float
) -> Indication | None:
    """Return the indication whose record is at ``at``; None where no sound INDICATION is there
    whole. ``position`` is the record's, ``offset`` is ``Journal.offset``."""
    if len(data) - at < _BODY_FROM:
        return None
    checksum, magic, kind, flags, size, entries, record_id = FRAME.unpack_from(data, at)
    if magic != MAGIC or kind != _KIND or not _BODY_FROM <= size <= len(data) - at:
        return None
    if crc32(data[at + CHECKED_FROM : at + size]) != checksum:
        return None
    accepted_at, expires, digest, _, envelope_size, body_size = INDICATION.unpack_from(
        data, at + FRAME.size
    )
    begin = at + _BODY_FROM + PLACE.size * entries
    middle = begin + envelope_size
    envelope = read_envelope(data[begin:middle])
    relayed = None
    if envelope.relayed is not None:
        relayed = Relayed(accepted_at - offset, expires)
        accepted_at, expires = envelope.relayed
    return Indication(
        body=bytes(data[middle : middle + body_size]),
        class_name=envelope.class_name,
        accepted_at=accepted_at - offset,
        source=envelope.source,
        identifier=envelope.identifier,
        group=envelope.group,
        member=envelope.member,
        group_run=envelope.group_run,
        expires=expires or None,
        digest=digest if flags & _IDENTITY else None,
        languages=envelope.languages,
        unsettled=entries,
        id=record_id,
        position=position,
        size=size,
        relayed=relayed,
    )
