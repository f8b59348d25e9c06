"""Reads records, and whole segments before their removal, in one thread: so nothing is removed
during a read."""

import errno
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from zlib import crc32

from pillion_sidecar.indication import Indication, Relayed
from pillion_sidecar.journal.files import File, Files
from pillion_sidecar.journal.identities import IdentitiesFile, PackedIdentities, write_identities
from pillion_sidecar.journal.marks import MarksFile
from pillion_sidecar.journal.ports import is_full
from pillion_sidecar.journal.records import (
    CHECKED_FROM,
    FRAME,
    INDICATION,
    MAGIC,
    MAXIMUM_RECORD,
    PLACE,
    Flag,
    Kind,
    read_envelope,
)
from pillion_sidecar.journal.segment_walk import Piece, SegmentWalk
from pillion_sidecar.journal.segments import Header, segment_name, segment_of

_IDENTITY = int(Flag.IDENTITY)
_BODY_FROM = FRAME.size + INDICATION.size
#: Open files.
_MOST = 32
_INDICATION = int(Kind.INDICATION)
_NOT_THERE = (errno.EIO, errno.ENOENT)
#: Bytes read for a lone record, and for neighbours.
_ONE_READ = 4096
_LONG_READ = 256 << 10


def read_indication(
    data: bytes | memoryview, at: int, *, position: int, offset: float
) -> Indication | None:
    """Return the indication whose record is at ``at``; None if it is unsound or incomplete.

    ``position`` is the record's, ``offset`` is ``Journal.offset``.
    """
    if len(data) - at < _BODY_FROM:
        return None
    checksum, magic, kind, flags, size, entries, record_id = FRAME.unpack_from(data, at)
    if magic != MAGIC or kind != _INDICATION or not _BODY_FROM <= size <= len(data) - at:
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
        redrives=envelope.redrives,
        dead_letter=envelope.dead_letter,
        replay=envelope.replay,
        publisher=envelope.publisher,
        trace=envelope.trace,
    )


class SegmentFileCache:
    """The open files of segments, least recently used closed first."""

    __slots__ = ("_files", "_open")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._open: OrderedDict[int, File] = OrderedDict()

    def get(self, number: int) -> File:
        """Raises OSError."""
        file = self._open.get(number)
        if file is not None:
            self._open.move_to_end(number)
            return file
        file = self._open[number] = self._files.open(segment_name(number))
        if len(self._open) > _MOST:
            self._open.popitem(last=False)[1].close()
        return file

    def forget(self, number: int) -> None:
        """Close a removed segment: its space is free only when no descriptor is open."""
        file = self._open.pop(number, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        for number in list(self._open):
            self.forget(number)


class IndicationReader:
    """Reads records back. Blocks. Used by one thread at a time."""

    def __init__(self, files: Files) -> None:
        self._segments = SegmentFileCache(files)

    def load(self, positions: Sequence[int], offset: float) -> list[Indication | None]:
        """Return the indications at ``positions``, None for a damaged one; ``offset`` is
        ``Journal.offset``."""
        found: dict[int, Indication | None] = {}
        order = sorted(set(positions))
        data, begin = b"", 0
        for index, position in enumerate(order):
            number, at = segment_of(position)
            following = order[index + 1] if index + 1 < len(order) else 0
            is_near = 0 < following - position < _LONG_READ
            indication = read_indication(data, position - begin, position=position, offset=offset)
            if indication is None:
                data = self._read(number, at, _LONG_READ if is_near else _ONE_READ)
                begin = position
                if (size := _claimed(data, 0)) > len(data):
                    data = self._read(number, at, size)
                indication = read_indication(data, 0, position=position, offset=offset)
            found[position] = indication
        return [found[position] for position in positions]

    def _read(self, number: int, at: int, size: int) -> bytes:
        try:
            return self._segments.get(number).read(at, size)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            # An unreadable sector counts as damage; damaged records are not copied before a
            # removal.
            return b""

    def close(self) -> None:
        self._segments.close()


class SegmentReader(IndicationReader):
    """Blocks. Used by one thread."""

    def __init__(self, files: Files, marks: MarksFile) -> None:
        super().__init__(files)
        self._files = files
        self._marks = marks
        self._walk: SegmentWalk | None = None

    def look_through(self, number: int, size: int, piece_bytes: int) -> None:
        self._walk = SegmentWalk(self._segments.get(number), size, piece_bytes=piece_bytes)

    def next_piece(self, lowest: Mapping[int, int], most: int) -> Piece | None:
        """See ``SegmentWalk.next``."""
        assert self._walk is not None
        return self._walk.next(lowest, most)

    def remove(
        self, number: int, header: Header, identities: PackedIdentities
    ) -> IdentitiesFile | None:
        """Remove a segment, after its remembered identities are in a file; return that file's
        summary, None if the disk had no room for it."""
        self._walk = None
        kept = self._write(header, identities)
        self._segments.forget(number)
        self._marks.needed(number + 1)
        self._files.remove(segment_name(number))
        if kept is None:
            # In the space that is free now; only a crash at this point forgets them.
            kept = self._write(header, identities)
        self._files.sync_folder()
        return kept

    def _write(self, header: Header, identities: PackedIdentities) -> IdentitiesFile | None:
        """Return None without identities, or if the disk is full."""
        if not len(identities):
            return None
        try:
            return write_identities(self._files, header, identities)
        except OSError as error:
            if not is_full(error):
                raise
            return None

    def remove_files(self, names: Sequence[str]) -> None:
        for name in names:
            self._files.remove(name)


def _claimed(data: bytes, at: int) -> int:
    if len(data) - at < FRAME.size:
        return 0
    size = FRAME.unpack_from(data, at)[4]
    return size if size <= MAXIMUM_RECORD else 0
