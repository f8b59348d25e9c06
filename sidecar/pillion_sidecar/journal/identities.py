"""Files of identities that outlive their segments (S1.2): the settled, remembered identities of a
segment are written to one before the segment is removed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

import msgspec

from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.records import FRAME, Kind, seal
from pillion_sidecar.journal.repair import write_whole
from pillion_sidecar.journal.segments import (
    Header,
    Stretch,
    encode_header,
    numbered,
    scan,
)

SUFFIX = ".identities"
#: Identities in one record, which bounds the loss from a damaged byte.
PER_RECORD = 4096

#: digest, accepted at, expires (0: none), how it ended, index of the destination's name.
_IDENTITY = Struct("<16sddBH")
_SIZE = Struct("<I")
_encode = msgspec.msgpack.Encoder().encode
_destinations = msgspec.msgpack.Decoder(list[str]).decode


class StoredIdentity(NamedTuple):
    digest: bytes
    #: Journal time.
    accepted_at: float
    #: Seconds since the epoch; 0.0 for none.
    expires: float
    #: ``records.DELIVERED``, or one of ``records.REASON_CODES``.
    how: int
    #: The destination that it was discarded for, or "".
    destination: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentitiesFile:
    """Summary of a file of identities, for bounding them."""

    #: The segment that they come from.
    segment: int
    entries: int
    size: int
    #: The latest ``expires`` in it, and the latest acceptance of one without.
    last_expires: float
    last_accepted_at: float

    @property
    def name(self) -> str:
        return identities_name(self.segment)


def identities_name(segment: int) -> str:
    return f"{segment:016x}{SUFFIX}"


def identities_numbers(names: Sequence[str]) -> list[int]:
    numbers = [numbered(name, SUFFIX) for name in names]
    return sorted(number for number in numbers if number is not None)


def write_identities(
    files: Files, header: Header, identities: Sequence[StoredIdentity]
) -> IdentitiesFile:
    """Write the identities of segment ``header.number``; on disk when this returns."""
    parts = [encode_header(header)]
    for begin in range(0, len(identities), PER_RECORD):
        parts.append(_encode_record(identities[begin : begin + PER_RECORD]))
    data = b"".join(parts)
    write_whole(files, identities_name(header.number), data)
    return summary(header.number, len(data), identities)


def read_identities(data: bytes) -> tuple[list[StoredIdentity], list[tuple[int, Stretch]]]:
    """Return the identities of a file in order, and where it is damaged."""
    found: list[StoredIdentity] = []
    damaged: list[tuple[int, Stretch]] = []
    for at, step in scan(data):
        if isinstance(step, Stretch):
            damaged.append((at, step))
        elif step.kind == Kind.IDENTITIES:
            found += _decode_record(data, at + FRAME.size, at + step.size)
    return found, damaged


def summary(segment: int, size: int, identities: Iterable[StoredIdentity]) -> IdentitiesFile:
    entries, last_expires, last_accepted_at = 0, 0.0, 0.0
    for identity in identities:
        entries += 1
        if identity.expires:
            last_expires = max(last_expires, identity.expires)
        else:
            last_accepted_at = max(last_accepted_at, identity.accepted_at)
    return IdentitiesFile(
        segment=segment,
        entries=entries,
        size=size,
        last_expires=last_expires,
        last_accepted_at=last_accepted_at,
    )


def surplus(
    known: Sequence[IdentitiesFile], *, capacity: int, window_seconds: float, now: float
) -> list[IdentitiesFile]:
    """Return the files to remove: expired ones, and the oldest beyond ``capacity`` identities.

    ``known`` is oldest first, ``now`` journal time.
    """
    held = 0
    full = False
    removed = []
    for file in reversed(known):
        over = file.last_expires <= now and (
            not file.last_accepted_at or file.last_accepted_at + window_seconds <= now
        )
        # The newest always stays whole.
        full = full or (held > 0 and held + file.entries > capacity)
        if over or full:
            removed.append(file)
        else:
            held += file.entries
    removed.reverse()
    return removed


def _encode_record(identities: Sequence[StoredIdentity]) -> bytes:
    indices: dict[str, int] = {}
    packed = [
        _IDENTITY.pack(*identity[:4], indices.setdefault(identity.destination, len(indices)))
        for identity in identities
    ]
    names = _encode(list(indices))
    payload = b"".join((_SIZE.pack(len(names)), names, *packed))
    return seal(Kind.IDENTITIES, payload, count=len(identities))


def _decode_record(data: bytes, begin: int, end: int) -> list[StoredIdentity]:
    (size,) = _SIZE.unpack_from(data, begin)
    names_end = begin + _SIZE.size + size
    names = _destinations(data[begin + _SIZE.size : names_end])
    return [
        StoredIdentity(digest, accepted_at, expires, how, names[index])
        for digest, accepted_at, expires, how, index in _IDENTITY.iter_unpack(data[names_end:end])
    ]
