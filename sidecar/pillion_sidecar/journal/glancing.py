"""Records that lie in the machine's page cache, read on the event loop without a wait.

A thread would have to take the interpreter from the event loop and give it back for each of them,
which costs more than the reading. What needs the disk is left to the thread that reads.
"""

from collections.abc import Sequence

from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.opened import OpenSegments
from pillion_sidecar.journal.reading import read_indication
from pillion_sidecar.journal.records import FRAME, MAXIMUM_RECORD
from pillion_sidecar.journal.segments import segment_of

#: Bytes read at once; most records are shorter.
_GLANCE = 8192


class Glances:
    """Reads records of any segment; used on the event loop alone."""

    def __init__(self, files: Files, *, offset: float) -> None:
        """``offset`` is ``Journal.offset``."""
        self._segments = OpenSegments(files)
        self._offset = offset
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
            file = self._segments.get(number)
            buffer = self._buffer
            size = file.read_cached(at, buffer)
            if size == _GLANCE and FRAME.unpack_from(buffer)[4] > size:
                buffer = bytearray(min(FRAME.unpack_from(buffer)[4], MAXIMUM_RECORD))
                size = file.read_cached(at, buffer)
        except OSError:
            # The thread that reads finds out what this is.
            return None
        data = memoryview(buffer)[:size]
        return read_indication(data, 0, position=position, offset=self._offset)

    def forget(self, number: int) -> None:
        """A segment is removed."""
        self._segments.forget(number)

    def close(self) -> None:
        """Close all files."""
        self._segments.close()
