"""Blocks: outcomes as they lie in a file or in memory.

A block begins with a header, whose numbers and times allow a reader to pass it over, and has a
MessagePack array of outcomes. A block of a later kind is passed over by its length.
"""

from collections.abc import Iterator, Sequence
from os import SEEK_END
from struct import Struct
from typing import BinaryIO, NamedTuple
from zlib import crc32

import msgspec

from pillion_sidecar.history.outcome import FAULTS, Numbered, Outcome

#: Bytes at which the next block begins. Decoding one holds the interpreter for about 0.3 ms.
BLOCK_BYTES = 64 << 10
#: Bytes of a block at most: an outcome has at most one body.
MOST_BYTES = 64 << 20
MAGIC = b"PiOu"
#: No number of an outcome is as great.
LAST_NUMBER = 1 << 62
#: The kind of this version's blocks.
KIND = 1
#: Magic, kind, bytes of the array, count, discards, first number, first and last time, checksum of
#: the array. The checksum of all this follows.
_HEADER = Struct("<4sIIIIQddI")
_CHECK = Struct("<I")
HEADER_BYTES = _HEADER.size + _CHECK.size
#: The MessagePack array of up to 2**32 - 1 items.
_ARRAY = Struct(">BI")
_ARRAY_TYPE = 0xDD
_encode_into = msgspec.msgpack.Encoder().encode_into
_decode = msgspec.msgpack.Decoder(list[Outcome]).decode


class Header(NamedTuple):
    kind: int
    #: Bytes after the header.
    size: int
    outcomes: int
    #: Faults of duplicates too.
    discards: int
    #: The number of the first outcome; the others follow without a gap.
    first: int
    #: Times of the oldest and the newest outcome.
    since: float
    until: float
    checksum: int

    @property
    def following(self) -> int:
        """The number after the last outcome."""
        return self.first + self.outcomes


class Block(NamedTuple):
    #: In its file.
    offset: int
    header: Header
    data: bytes


def encode_blocks(first: int, outcomes: Sequence[Outcome]) -> Iterator[bytes]:
    """Yield blocks of outcomes that are numbered from ``first``."""
    begin, data = 0, bytearray(_ARRAY.size)
    for at, outcome in enumerate(outcomes):
        _encode_into(outcome, data, -1)
        if len(data) >= BLOCK_BYTES:
            yield _block(first + begin, outcomes[begin : at + 1], data)
            begin, data = at + 1, bytearray(_ARRAY.size)
    if begin < len(outcomes):
        yield _block(first + begin, outcomes[begin:], data)


def _block(first: int, outcomes: Sequence[Outcome], data: bytearray) -> bytes:
    _ARRAY.pack_into(data, 0, _ARRAY_TYPE, len(outcomes))
    times = [one.time for one in outcomes]
    header = _HEADER.pack(
        MAGIC,
        KIND,
        len(data),
        len(outcomes),
        sum(one.result in FAULTS for one in outcomes),
        first,
        min(times),
        max(times),
        crc32(data),
    )
    return b"".join((header, _CHECK.pack(crc32(header)), data))


def header_of(data: bytes) -> Header | None:
    """Return the header at the begin of ``data``; None if it is damaged or torn."""
    if len(data) < HEADER_BYTES or not data.startswith(MAGIC):
        return None
    if crc32(data[: _HEADER.size]) != _CHECK.unpack_from(data, _HEADER.size)[0]:
        return None
    header = Header(*_HEADER.unpack_from(data)[1:])
    is_possible = header.size <= MOST_BYTES and 0 < header.first < LAST_NUMBER
    return header if is_possible else None


def decode(header: Header, data: bytes) -> list[Numbered] | None:
    """Return the outcomes of a block; none of a later kind; None if it is damaged."""
    if crc32(data) != header.checksum:
        return None
    if header.kind != KIND:
        return []
    try:
        outcomes = _decode(data)
    except msgspec.MsgspecError:
        return None
    return [Numbered(header.first + at, outcome) for at, outcome in enumerate(outcomes)]


def read_headers(file: BinaryIO, *, offset: int = 0) -> Iterator[tuple[int, Header]]:
    """Yield each block's offset and header. Damage is passed over. The caller may read the block's
    data before the next step. Raises OSError."""
    while True:
        file.seek(offset)
        head = file.read(HEADER_BYTES)
        header = header_of(head)
        if header is not None:
            yield offset, header
            offset += HEADER_BYTES + header.size
        elif len(head) < HEADER_BYTES:
            return
        else:
            found = _find_magic(file, offset + 1)
            if found is None:
                return
            offset = found


def whole_blocks(file: BinaryIO) -> list[tuple[int, Header]]:
    """Return each block's offset and header, without a torn one at the end. Raises OSError."""
    found = list(read_headers(file))
    size = file.seek(0, SEEK_END)
    while found and end_of(found) > size:
        found.pop()
    return found


def end_of(found: Sequence[tuple[int, Header]]) -> int:
    """Return the offset behind the last block."""
    if not found:
        return 0
    offset, header = found[-1]
    return offset + HEADER_BYTES + header.size


def _find_magic(file: BinaryIO, offset: int) -> int | None:
    while True:
        file.seek(offset)
        piece = file.read(BLOCK_BYTES)
        at = piece.find(MAGIC)
        if at >= 0:
            return offset + at
        if len(piece) < BLOCK_BYTES:
            return None
        offset += len(piece) - len(MAGIC) + 1


def read_data(file: BinaryIO, offset: int, header: Header) -> bytes:
    """Return the data of a block; shorter if it is torn. Raises OSError."""
    file.seek(offset + HEADER_BYTES)
    return file.read(header.size)
