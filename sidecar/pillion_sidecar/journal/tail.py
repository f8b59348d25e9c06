"""The end of the log, as the thread that commits has it: the segment that is written, and the file
that becomes the next one. Nothing else touches these files."""

import errno
import time
from collections.abc import Hashable
from contextlib import suppress
from typing import NamedTuple

from pillion_sidecar.journal.files import File, Files
from pillion_sidecar.journal.marks import MarksFile
from pillion_sidecar.journal.segments import PARTIAL_SUFFIX, segment_name

#: The file that becomes the next segment: room that is reserved before it is needed.
SPARE = "next" + PARTIAL_SUFFIX
#: What a file system answers that can reserve nothing.
_NO_RESERVATION = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))


class Written(NamedTuple):
    """A write that is on disk."""

    #: How long write and sync took.
    seconds: float
    #: Where what is reserved ends.
    reserved: int


class Tail:
    """Blocks. Each call may be made again after it failed, with the same effect."""

    def __init__(self, files: Files, marks: MarksFile) -> None:
        self._files = files
        self._marks = marks
        self._file: File | None = None
        self._identity: Hashable = None
        self._number = -1
        self._reserved = 0
        self._spare: File | None = None
        self._spare_reserved = 0
        self._renamed = False

    def prepare(self, size: int) -> int:
        """Reserve ``size`` bytes for the next segment; return how many are."""
        if self._spare is None:
            if SPARE in self._files.names():
                self._files.remove(SPARE)
            self._spare = self._files.create(SPARE)
            self._spare_reserved = 0
        if size > self._spare_reserved:
            _allocate(self._spare, self._spare_reserved, size - self._spare_reserved)
            self._spare_reserved = size
        return self._spare_reserved

    def begin(self, number: int, data: bytes, sealed_at: int) -> Written:
        """Cut the segment before at ``sealed_at``, and begin segment ``number`` with ``data``."""
        began = time.perf_counter()
        if self._number != number:
            self._seal(sealed_at)
            self.prepare(max(len(data), self._spare_reserved))
            assert self._spare is not None
            self._spare.write(0, data)
            self._spare.sync()
            if not self._renamed:
                self._files.rename(SPARE, segment_name(number))
                self._renamed = True
            self._files.sync_folder()
            # Before anything in it is acknowledged.
            self._marks.begun(number)
            self._marks.written(number, len(data))
            self._file, self._reserved = self._spare, self._spare_reserved
            self._identity = self._file.identity()
            self._number, self._spare, self._renamed = number, None, False
        return Written(time.perf_counter() - began, self._reserved)

    def _seal(self, size: int) -> None:
        if self._file is not None:
            # On disk before the next segment is: so a gap behind it can only be damage.
            self._file.truncate(size)
            self._file.sync()
            self._file.close()
            self._file = None

    def write(self, offset: int, data: bytes) -> Written:
        """Write at ``offset`` of the segment, and return once it is on disk."""
        began = time.perf_counter()
        assert self._file is not None
        end = offset + len(data)
        if end > self._reserved:
            self.reserve(end)
        self._file.write_through(offset, data)
        self._check_place()
        self._marks.written(self._number, end)
        return Written(time.perf_counter() - began, self._reserved)

    def _check_place(self) -> None:
        """A file that was deleted or moved takes every write, and no start would find it."""
        with suppress(FileNotFoundError):
            if self._files.identity(segment_name(self._number)) == self._identity:
                return
        name = segment_name(self._number)
        raise OSError(errno.ENOENT, f"the newest segment was deleted or moved: {name}")

    def reserve(self, end: int) -> int:
        """Reserve the segment's room up to ``end``; return where it ends."""
        assert self._file is not None
        if end > self._reserved:
            _allocate(self._file, self._reserved, end - self._reserved)
            self._reserved = end
        return self._reserved

    def close(self, size: int) -> None:
        """Cut the segment, and give back what is reserved."""
        self._seal(size)
        self._marks.close()
        if self._spare is not None:
            self._spare.close()
            self._spare = None
            if not self._renamed:
                self._files.remove(SPARE)


def _allocate(file: File, offset: int, size: int) -> None:
    try:
        file.allocate(offset, size)
    except OSError as error:
        # Then a full disk is met by a write, which is made again once there is room.
        if error.errno not in _NO_RESERVATION:
            raise
