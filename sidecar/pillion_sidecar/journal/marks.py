"""The marks of a journal: its newest segment, its oldest needed segment, and the end of the log.

They reveal missing segments, and tell an interrupted write from damage. The file has five
one-sector slots: two for the newest segment, two for the oldest, one for the end. A mark only grows
and is written to its two slots in turn, so that a torn write leaves the previous one. The end is
written after each write without sync: it counts only until the machine boots again.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from struct import Struct
from threading import Lock
from typing import NamedTuple
from zlib import crc32

from pillion_sidecar.journal.files import File, Files
from pillion_sidecar.journal.ports import is_full
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    PARTIAL_SUFFIX,
    Header,
    encode_header,
    read_header,
)

MARKS_NAME = "marks"
#: Bytes that a disk writes atomically.
SLOT_SIZE = 512
_NEWEST = (0, SLOT_SIZE)
_OLDEST = (2 * SLOT_SIZE, 3 * SLOT_SIZE)
#: Bytes of the slots that change only with segments.
SEGMENT_MARKS_SIZE = 4 * SLOT_SIZE
_END = SEGMENT_MARKS_SIZE
MARKS_SIZE = _END + SLOT_SIZE
#: Number of the segment, offset, boot id; followed by a checksum.
_END_FIELDS = Struct("<QQ16s")
_CHECKSUM = Struct("<I")


class End(NamedTuple):
    """The end of the log: all before it may have been acknowledged, nothing behind."""

    number: int
    offset: int
    boot_id: bytes


class Marks(NamedTuple):
    journal_id: bytes
    #: A segment that was on disk; later ones may exist.
    newest: int
    #: Segments before this one may have been removed.
    oldest: int
    #: None if the slot is unsound, or an older version wrote the file.
    end: End | None


def read_marks(data: bytes) -> Marks | None:
    """Return the marks; None if a pair has no sound slot, or the slots are of several journals."""
    pairs = [_sound(data, pair) for pair in (_NEWEST, _OLDEST)]
    ids = {header.journal_id for pair in pairs for header in pair}
    if len(ids) != 1 or not all(pairs):
        return None
    newest, oldest = (max(header.number for header in pair) for pair in pairs)
    return Marks(ids.pop(), newest, oldest, _read_end(data))


def _read_end(data: bytes) -> End | None:
    checked = data[_END : _END + _END_FIELDS.size]
    stored = data[_END + _END_FIELDS.size :][: _CHECKSUM.size]
    if len(stored) < _CHECKSUM.size or _CHECKSUM.pack(crc32(checked)) != stored:
        return None
    return End(*_END_FIELDS.unpack(checked))


def _sound(data: bytes, slots: Iterable[int]) -> Sequence[Header]:
    headers = [read_header(data[at : at + HEADER_SIZE]) for at in slots]
    return [header for header in headers if header is not None]


class MarksFile:
    """Writes the marks. Blocks; used by the threads that commit and that remove segments.

    If the disk has no space for the file, the journal has no marks until a later segment.
    """

    def __init__(self, files: Files, *, journal_id: bytes, oldest: int) -> None:
        self._files = files
        self._journal_id = journal_id
        self._newest = 0
        self._oldest = oldest
        self._file: File | None = None
        self._boot_id = files.boot_id()
        #: By pair: the slot to write next.
        self._turns = {_NEWEST: 0, _OLDEST: 0}
        self._lock = Lock()

    def begun(self, number: int) -> None:
        """Segment ``number`` is the newest and on disk; nothing in it was acknowledged."""
        with self._lock:
            self._newest = number
            if self._file is None:
                self._create()
            else:
                self._write(self._file, _NEWEST, number)

    def written(self, number: int, offset: int) -> None:
        """Segment ``number`` is written up to ``offset``; that is not acknowledged yet."""
        if not self._boot_id:
            return
        checked = _END_FIELDS.pack(number, offset, self._boot_id)
        with self._lock:
            if self._file is not None:
                try:
                    self._file.write(_END, checked + _CHECKSUM.pack(crc32(checked)))
                except OSError as error:
                    self._give_up(self._file, error)

    def needed(self, oldest: int) -> None:
        """Segments before ``oldest`` are about to be removed."""
        with self._lock:
            self._oldest = oldest
            if self._file is not None:
                self._write(self._file, _OLDEST, oldest)

    def _create(self) -> None:
        # New in each run: the previous one may have been of a version without marks.
        partial = MARKS_NAME + PARTIAL_SUFFIX
        data = bytearray(MARKS_SIZE)
        for pair, number in ((_NEWEST, self._newest), (_OLDEST, self._oldest)):
            data[pair[0] : pair[0] + HEADER_SIZE] = self._header(number)
        if partial in self._files.names():
            self._files.remove(partial)
        file: File | None = None
        try:
            file = self._files.create(partial)
            file.write(0, data)
            file.sync()
            self._files.rename(partial, MARKS_NAME)
            self._files.sync_folder()
        except OSError as error:
            if file is not None:
                file.close()
            if not is_full(error):
                raise
            self._leave(partial)
            return
        self._file, self._turns = file, {_NEWEST: 1, _OLDEST: 1}

    def _write(self, file: File, pair: tuple[int, int], number: int) -> None:
        try:
            file.write_through(pair[self._turns[pair]], self._header(number))
        except OSError as error:
            self._give_up(file, error)
        self._turns[pair] ^= 1

    def _give_up(self, file: File, error: OSError) -> None:
        """Keep no marks on a full disk: an outdated mark reports removed segments as missing."""
        if not is_full(error):
            raise error
        self._file = None
        file.close()
        self._leave(MARKS_NAME)

    def _leave(self, name: str) -> None:
        with suppress(FileNotFoundError):
            self._files.remove(name)
        self._files.sync_folder()

    def _header(self, number: int) -> bytes:
        return encode_header(Header(number, self._journal_id, 0.0))

    def close(self) -> None:
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                file.close()
