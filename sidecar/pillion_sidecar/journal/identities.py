"""Files of identities that outlive their segments (S1.2): the settled, remembered identities of a
segment are written to one before the segment is removed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple, TypeAlias

import msgspec

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.records import DELIVERED, FRAME, REASON_CODES, REASONS, Kind, seal
from pillion_sidecar.journal.repair import write_whole
from pillion_sidecar.journal.segment_walk import DIGEST_FROM, IDENTITY_HEAD
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
#: How it ended, and the index of the destination's name.
_END = Struct("<BH")
_SIZE = Struct("<I")
#: ``JournalOwner.identities``.
IdentityEnd: TypeAlias = tuple[DiscardReason | None, str]
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
    files: Files, header: Header, identities: "PackedIdentities"
) -> IdentitiesFile:
    """Write the identities of segment ``header.number``; on disk when this returns."""
    data = b"".join((encode_header(header), *identities.records()))
    write_whole(files, identities_name(header.number), data)
    return IdentitiesFile(
        segment=header.number,
        entries=len(identities),
        size=len(data),
        last_expires=identities.last_expires,
        last_accepted_at=identities.last_accepted_at,
    )


class PackedIdentities:
    """Identities as they lie in a file, gathered in small steps."""

    def __init__(self) -> None:
        self.last_expires = self.last_accepted_at = 0.0
        self._count = 0
        # What each record of the file has: names by index, packed identities.
        self._parts: list[tuple[dict[str, int], bytearray]] = []
        # The end of an identity by how it ended, in the last part.
        self._ends: dict[IdentityEnd, bytes] = {}

    def __len__(self) -> int:
        return self._count

    def add_all(self, heads: Iterable[bytes], ends: Iterable[IdentityEnd | None]) -> None:
        """Add identities by their ``IDENTITY_HEAD``, and how each ended; None: it is forgotten."""
        for head, end in zip(heads, ends, strict=True):
            if end is None:
                continue
            if not self._count % PER_RECORD:
                self._parts.append(({}, bytearray()))
                self._ends = {}
            self._count += 1
            packed = self._parts[-1][1]
            packed += head[DIGEST_FROM:]
            packed += head[:DIGEST_FROM]
            packed += self._ends.get(end) or self._pack_end(end)
            accepted_at, expires, _ = IDENTITY_HEAD.unpack(head)
            if expires > self.last_expires:
                self.last_expires = expires
            elif not expires and accepted_at > self.last_accepted_at:
                self.last_accepted_at = accepted_at

    def _pack_end(self, end: IdentityEnd) -> bytes:
        reason, destination = end
        names = self._parts[-1][0]
        how = DELIVERED if reason is None else REASON_CODES[reason]
        packed = self._ends[end] = _END.pack(how, names.setdefault(destination, len(names)))
        return packed

    def records(self) -> list[bytes]:
        """Return the records of the file."""
        found = []
        for indices, packed in self._parts:
            names = _encode(list(indices))
            payload = b"".join((_SIZE.pack(len(names)), names, packed))
            found.append(seal(Kind.IDENTITIES, payload, count=len(packed) // _IDENTITY.size))
        return found


def pack_identities(identities: Iterable[StoredIdentity]) -> PackedIdentities:
    packed = PackedIdentities()
    for digest, accepted_at, expires, how, destination in identities:
        head = IDENTITY_HEAD.pack(accepted_at, expires, digest)
        packed.add_all([head], [(REASONS.get(how), destination)])
    return packed


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


def _decode_record(data: bytes, begin: int, end: int) -> list[StoredIdentity]:
    (size,) = _SIZE.unpack_from(data, begin)
    names_end = begin + _SIZE.size + size
    names = _destinations(data[begin + _SIZE.size : names_end])
    return [
        StoredIdentity(digest, accepted_at, expires, how, names[index])
        for digest, accepted_at, expires, how, index in _IDENTITY.iter_unpack(data[names_end:end])
    ]
