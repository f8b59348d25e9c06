"""A walk over a segment before its removal, in small pieces: no thread holds the interpreter for
long. What is settled costs one ``unpack_from`` and is never read as a whole."""

from collections.abc import Mapping
from struct import Struct
from typing import NamedTuple

from pillion_sidecar.journal.files import ReadableFile
from pillion_sidecar.journal.ports import Place
from pillion_sidecar.journal.records import (
    FRAME,
    MAGIC,
    MAXIMUM_RECORD,
    Flag,
    Frame,
    Kind,
    decode_places,
    read_frame,
)
from pillion_sidecar.journal.segments import HEADER_SIZE, next_sound

#: Bytes read at once.
PIECE_BYTES = 128 << 10
#: Journal time of the acceptance, ``expires`` (0.0 for none) and digest of an identity, as they lie
#: in an INDICATION.
IDENTITY_HEAD = Struct("<dd16s")
#: Offset of the digest in it.
DIGEST_FROM = 16
#: A FRAME, an INDICATION and its only PLACE.
_ONE = Struct("<IHBBIIQdd16sQIIIIQ")
_INDICATION = int(Kind.INDICATION)
_IDENTITY = int(Flag.IDENTITY)
_HELD = int(Flag.HELD)
_HEAD_END = FRAME.size + IDENTITY_HEAD.size


class Found(NamedTuple):
    id: int
    flags: int
    offset: int
    record: bytes
    places: tuple[Place, ...]
    #: Its ``IDENTITY_HEAD``; None without an identity.
    identity: bytes | None


class Piece(NamedTuple):
    """The indications of a part of a segment."""

    #: The ``IDENTITY_HEAD`` of each settled one that has an identity.
    identities: list[bytes]
    #: The others, which may be pending.
    found: list[Found]


class SegmentWalk:
    """Blocks. A damaged record is passed over."""

    def __init__(self, file: ReadableFile, size: int, *, piece_bytes: int = PIECE_BYTES) -> None:
        self._file = file
        self._size = size
        self._piece_bytes = max(piece_bytes, _ONE.size)
        #: Where the next piece begins.
        self._at = HEADER_SIZE

    def next(self, lowest: Mapping[int, int], most: int) -> Piece | None:
        """Return the next piece, None at the end. ``lowest``: by destination, a number below which
        every place is settled. ``most``: indications in ``Piece.found``."""
        if self._at >= self._size:
            return None
        piece = Piece([], [])
        self._walk(self._read(self._piece_bytes), piece, lowest, most)
        return piece

    def _read(self, size: int) -> bytes:
        size = min(size, self._size - self._at)
        data = self._file.read(self._at, size)
        if len(data) < size:
            # Somebody has cut it.
            self._size = self._at + len(data)
        return data

    def _walk(self, data: bytes, piece: Piece, lowest: Mapping[int, int], most: int) -> None:
        unpack, identities, begin = _ONE.unpack_from, piece.identities, self._at
        at, end, last = 0, len(data), len(data) - _ONE.size
        while at < end and len(piece.found) < most:
            if at <= last:
                # fmt: off
                (
                    _, magic, kind, flags, size, entries, _, _, _, _, _,
                    envelope, body, destination, _, number,
                ) = unpack(data, at)
                # fmt: on
                # Unchecked but for its sizes, which agree in no damaged record.
                if (
                    number < lowest.get(destination, 0)
                    and kind == _INDICATION
                    and entries == 1
                    and magic == MAGIC
                    and size == _ONE.size + envelope + body
                    and not flags & _HELD
                ):
                    if flags & _IDENTITY:
                        identities.append(data[at + FRAME.size : at + _HEAD_END])
                    at += size
                    continue
            frame = read_frame(data, at, end)
            if frame is None:
                at = self._pass_over(data, at)
                if at:
                    break
                data = self._read(_claimed(data))
                end, last = len(data), len(data) - _ONE.size
                continue
            if frame.kind == _INDICATION:
                _look_at(data, at, begin + at, frame, piece, lowest)
            at += frame.size
        self._at = begin + at

    def _pass_over(self, data: bytes, at: int) -> int:
        """Return where to go on from ``at``, where no sound record is in ``data``: there, if it may
        be read as a whole from there; 0 if it is longer than a piece."""
        begin, end = self._at, len(data)
        rest = self._size - begin - at
        if end - at < min(FRAME.size, rest):
            return at
        if end - at < _claimed(data[at:]) <= rest:
            return at
        # Rare: a damaged one. The search for the next needs all that follows.
        following = self._file.read(begin + at, rest)
        return at + max(1, next_sound(following, 0, len(following)))


def _claimed(data: bytes) -> int:
    """Return the length that the first record states; 0 if it is impossible."""
    if len(data) < FRAME.size:
        return 0
    _, magic, _, _, size, _, _ = FRAME.unpack_from(data)
    return int(size) if magic == MAGIC and FRAME.size <= size <= MAXIMUM_RECORD else 0


def _look_at(
    data: bytes, at: int, offset: int, frame: Frame, piece: Piece, lowest: Mapping[int, int]
) -> None:
    places = decode_places(data, at, frame)
    identity = data[at + FRAME.size : at + _HEAD_END] if frame.flags & _IDENTITY else None
    is_settled = not frame.flags & _HELD and all(
        place.number < lowest.get(place.destination, 0) for place in places
    )
    if not is_settled:
        record = data[at : at + frame.size]
        piece.found.append(Found(frame.id, frame.flags, offset, record, places, identity))
    elif identity is not None:
        piece.identities.append(identity)
