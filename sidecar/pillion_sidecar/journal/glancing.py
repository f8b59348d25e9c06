"""Records that lie in the machine's page cache, read on the event loop without a wait.

A thread would have to take the interpreter from the event loop and give it back for each of them,
which costs more than the reading. What needs the disk is left to the thread that reads.
"""

from collections import OrderedDict
from collections.abc import Sequence
from zlib import crc32

from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.files import File, Files
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
from pillion_sidecar.journal.segments import segment_name, segment_of

#: Bytes read at once; most records are shorter.
_GLANCE = 8192
_OPEN_FILES = 32
_KIND = int(Kind.INDICATION)
_IDENTITY = int(Flag.IDENTITY)
_BODY_FROM = FRAME.size + INDICATION.size


class Glances:
    """Reads records of any segment; used on the event loop alone."""

    def __init__(self, files: Files, *, offset: float) -> None:
        """``offset`` is ``Journal.offset``."""
        self._files = files
        self._offset = offset
        self._open: OrderedDict[int, File] = OrderedDict()
        self._buffer = bytearray(_GLANCE)

    def load(self, positions: Sequence[int]) -> list[Indication] | None:
        """Return the indications at ``positions``; None where one of them needs the disk, or is
        not sound."""
        found = []
        for position in positions:
            indication = self._read(position)
            if indication is None:
                return None
            found.append(indication)
        return found

    def _read(self, position: int) -> Indication | None:
        number, at = segment_of(position)
        try:
            file = self._open.get(number) or self._open_file(number)
            buffer = self._buffer
            size = file.read_cached(at, buffer)
            if size == _GLANCE and FRAME.unpack_from(buffer)[4] > size:
                buffer = bytearray(min(FRAME.unpack_from(buffer)[4], MAXIMUM_RECORD))
                size = file.read_cached(at, buffer)
        except OSError:
            # The thread that reads finds out what this is.
            return None
        return _decode(memoryview(buffer)[:size], position=position, offset=self._offset)

    def _open_file(self, number: int) -> File:
        file = self._open[number] = self._files.open(segment_name(number))
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)[1].close()
        return file

    def forget(self, number: int) -> None:
        """A segment is removed: its room is free only when nobody has it open."""
        file = self._open.pop(number, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close all files."""
        for number in list(self._open):
            self.forget(number)


def _decode(data: memoryview, *, position: int, offset: float) -> Indication | None:
    if len(data) < _BODY_FROM:
        return None
    checksum, magic, kind, flags, size, entries, record_id = FRAME.unpack_from(data)
    if magic != MAGIC or kind != _KIND or not _BODY_FROM <= size <= len(data):
        return None
    if crc32(data[CHECKED_FROM:size]) != checksum:
        return None
    accepted_at, expires, digest, _, envelope_size, body_size = INDICATION.unpack_from(
        data, FRAME.size
    )
    begin = _BODY_FROM + PLACE.size * entries
    middle = begin + envelope_size
    envelope = read_envelope(data[begin:middle])
    return Indication(
        body=bytes(data[middle : middle + body_size]),
        class_name=envelope.class_name,
        accepted_at=accepted_at - offset,
        source=envelope.source,
        identifier=envelope.identifier,
        group=envelope.group,
        member=envelope.member,
        expires=expires or None,
        digest=digest if flags & _IDENTITY else None,
        languages=envelope.languages,
        unsettled=entries,
        id=record_id,
        position=position,
        size=size,
    )
