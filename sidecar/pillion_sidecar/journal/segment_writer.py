"""Writes the end of the log, and reserves disk space in advance, so that a full disk is met before
intake acknowledges anything."""

import errno
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.journal.files import File, Files
from pillion_sidecar.journal.limits import MARGIN, MINIMUM_STEP, JournalSettings
from pillion_sidecar.journal.marks import MarksFile
from pillion_sidecar.journal.ports import Worker, is_full
from pillion_sidecar.journal.segments import PARTIAL_SUFFIX, segment_name

#: The reserved file that becomes the next segment.
SPARE = "next" + PARTIAL_SUFFIX
#: Errors of a file system that cannot reserve space.
_NO_RESERVATION = frozenset((errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
logger = logging.getLogger("pillion.journal")
#: Seconds between retries on a full disk.
RETRY_SECONDS = 1.0


class Written(NamedTuple):
    #: Duration of write and sync.
    seconds: float
    #: End of the reserved space.
    reserved: int


class SegmentWriter:
    """Writes the current segment and the reserved next one; nothing else touches them. Blocks.

    Each call may be repeated after a failure, with the same effect.
    """

    def __init__(self, files: Files, marks: MarksFile) -> None:
        self._files = files
        self._marks = marks
        self._file: File | None = None
        self._number, self._name = -1, ""
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
        """Cut the previous segment at ``sealed_at``, and begin segment ``number`` with ``data``."""
        began = time.perf_counter()
        if self._number != number:
            self._seal(sealed_at)
            self.prepare(max(len(data), self._spare_reserved))
            assert self._spare is not None
            self._spare.write(0, data)
            self._spare.sync()
            name = segment_name(number)
            if not self._renamed:
                self._files.rename(SPARE, name)
                self._renamed = True
            self._files.sync_folder()
            # Before anything in it is acknowledged.
            self._marks.begun(number)
            self._marks.written(number, len(data))
            self._file, self._reserved = self._spare, self._spare_reserved
            self._number, self._name = number, name
            self._spare, self._renamed = None, False
        return Written(time.perf_counter() - began, self._reserved)

    def _seal(self, size: int) -> None:
        if self._file is not None:
            # On disk before the next segment is, so that a later gap can only be damage.
            self._file.truncate(size)
            self._file.sync()
            self._file.close()
            self._file = None

    def write(self, offset: int, data: bytes) -> Written:
        """Return once the data is on disk."""
        began = time.perf_counter()
        assert self._file is not None
        end = offset + len(data)
        if end > self._reserved:
            self.reserve(end)
        self._file.write_through(offset, data)
        if not self._file.is_named(self._name):
            # A deleted or moved file accepts every write, and no start would find it.
            raise OSError(errno.ENOENT, f"the newest segment was deleted or moved: {self._name}")
        self._marks.written(self._number, end)
        return Written(time.perf_counter() - began, self._reserved)

    def reserve(self, end: int) -> int:
        """Reserve the segment's space up to ``end``; return where it ends."""
        assert self._file is not None
        if end > self._reserved:
            _allocate(self._file, self._reserved, end - self._reserved)
            self._reserved = end
        return self._reserved

    def close(self, size: int) -> None:
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
        # A write then meets the full disk, and is repeated once there is space.
        if error.errno not in _NO_RESERVATION:
            raise


class Preallocation:
    """The space reserved in the current segment, and for the next."""

    def __init__(
        self,
        *,
        writer: SegmentWriter,
        worker: Worker,
        timers: Timers,
        settings: JournalSettings,
        spare: int,
        freed: Callable[[], None],
        prepared: Callable[[], None],
        failed: Callable[[OSError], None],
        met_full: Callable[[], None],
    ) -> None:
        """``freed`` is called when a retry is worthwhile; ``prepared`` when the next segment has
        its space; ``met_full`` while the disk is full, before each retry."""
        self._writer = writer
        self._worker = worker
        self._timers = timers
        self._step = self._full_step = settings.step
        self._freed = freed
        self._prepared = prepared
        self._failed = failed
        self._met_full = met_full
        #: End of the reserved space in the current segment, and bytes reserved for the next.
        self.end = spare
        self.spare = spare
        self.is_full = not spare
        self._is_told = False
        self._is_reserving = False
        self._retry: Timer | None = None
        self._wanted = 0

    def begin(self) -> None:
        self.end, self.spare = self.spare, 0

    def reserve(self, end: int, *, spare: bool) -> None:
        """Ensure that a step is reserved behind ``end``, and, with ``spare``, for the next
        segment."""
        self._wanted = end
        if self._is_reserving or self._retry is not None:
            return
        # After a full disk, intake reopens with this much, which may be several steps.
        least = max(self._full_step, 2 * MARGIN) if self.is_full else self._full_step
        if self.end - end < least:
            self._is_reserving = True
            target = max(end, self.end) + self._step
            work = partial(self._writer.reserve, target)
            self._worker.submit(work, self._reserved, self._not_reserved)
        elif spare and not self.spare:
            self._is_reserving = True
            self._worker.submit(
                partial(self._writer.prepare, self._step), self._ready, self._not_reserved
            )

    def _reserved(self, end: int) -> None:
        self._is_reserving = False
        self.end = end
        if self.is_full and end - self._wanted >= 2 * MARGIN:
            self._writable()
        self._freed()

    def _ready(self, size: int) -> None:
        self._is_reserving = False
        self.spare = size
        self._prepared()

    def _not_reserved(self, error: OSError) -> None:
        self._is_reserving = False
        if not is_full(error):
            self._failed(error)
        elif self._step > MINIMUM_STEP:
            self._step = max(MINIMUM_STEP, self._step // 2)
            self._freed()
        else:
            self.met_full(error)

    def met_full(self, error: OSError) -> None:
        """The disk is full: retry each second."""
        self.is_full = True
        self._met_full()
        if not self._is_told:
            self._is_told = True
            logger.error(
                "the journal's disk is full: %s; what is pending is delivered, new indications are"
                " refused once they would need the last of %d reserved bytes",
                error.strerror or error,
                max(0, self.end - self._wanted),
                extra={"event": "journal-full", "reserved": max(0, self.end - self._wanted)},
            )
        if self._retry is None:
            self._retry = self._timers.call_later(RETRY_SECONDS, self.retry)

    def _writable(self) -> None:
        self.is_full = self._is_told = False
        logger.info(
            "the journal's disk has room again",
            extra={"event": "journal-writable", "reserved": self.end - self._wanted},
        )

    def retry(self) -> None:
        self._step = self._full_step
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
            self._freed()

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
