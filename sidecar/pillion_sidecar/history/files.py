"""The files of a history: blocks in segments, bounded in bytes and age.

Each write comes before the commit that settles its outcomes, by the same thread. So after
``kill -9`` the history has every outcome of the journal; surplus ones, still pending, are removed
at the start.
"""

import ctypes
import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from pillion_sidecar.history import blocks
from pillion_sidecar.history.outcome import Numbered, Outcome, OutcomeResult
from pillion_sidecar.journal.ports import is_full

#: Segments of a history of full size.
SEGMENTS = 16
MOST_SEGMENT_BYTES = 16 << 20
MINIMUM_BYTES = 1 << 20
#: Bytes at the end of a history that a start compares with the journal: as many as one commit adds.
CHECKED_BYTES = 8 << 20
#: Numbers that a run leaves out after one that did not end in order: outcomes of that one may be
#: lost with the machine, and no number names two outcomes.
LEFT_OUT = 1 << 20
#: A segment is ended after this fraction of the age (one in so many): outcomes are removed by
#: segments.
AGE_PARTS = 8
#: After a crash, discards of these last seconds are logged again.
TOLD_AGAIN_SECONDS = 60.0

#: Locked by the writer: with durability Memory the folder itself is not. It has the history's id
#: and the number of discards that were removed.
LOCK_NAME = "history.lock"
#: Space of the next segment, reserved in advance.
SPARE_NAME = "history.spare"
_PREFIX, _SUFFIX = "history-", ".outcomes"
_DIGITS = 20
_ID = re.compile(r"[0-9a-f]{16}")
#: Less is not worth reserving.
_LEAST_ROOM = 64 << 10
_FALLOC_FL_KEEP_SIZE = 1
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_OPEN, _CLOSED = "open", "shut"


class Segment(NamedTuple):
    #: The number of its first outcome.
    first: int
    path: Path


def segments_of(folder: Path) -> list[Segment]:
    """Return the segments, oldest first. Blocks; raises OSError."""
    with os.scandir(folder) as entries:
        # No link: it may lead to a file without an end.
        paths = [Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False)]
    return sorted(segment for path in paths if (segment := _segment(path)) is not None)


def _segment(path: Path) -> Segment | None:
    digits = path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    if not digits.isascii() or not digits.isdecimal() or len(digits) != _DIGITS:
        return None
    first = int(digits)
    return Segment(first, path) if first < blocks.LAST_NUMBER else None


def _name(first: int) -> str:
    return f"{_PREFIX}{first:0{_DIGITS}d}{_SUFFIX}"


class LockText(NamedTuple):
    """The content of ``history.lock``."""

    id: str
    removed_discards: int
    #: Whether the last run ended in order, and if so the number of the next outcome.
    is_closed: bool
    next_number: int = 1


def read_lock(folder: Path) -> LockText | None:
    """Return None without a history. Blocks; raises OSError."""
    try:
        return _parsed((folder / LOCK_NAME).read_bytes())
    except FileNotFoundError:
        return None


def _parsed(data: bytes) -> LockText | None:
    try:
        identity, removed, state, following = data.decode("ascii").split()
        found = LockText(identity, int(removed), state == _CLOSED, int(following))
    except ValueError:
        return None
    is_valid = _ID.fullmatch(identity) and 0 < found.next_number < blocks.LAST_NUMBER
    return found if is_valid else None


class NotKept(OSError):
    """Outcomes that were not written."""

    def __init__(self, error: OSError, first: int, outcomes: Sequence[Outcome]) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.first = first
        self.outcomes = outcomes


@dataclass(slots=True, kw_only=True)
class Opened:
    id: str
    next_number: int
    #: The last discards of a run that crashed, to be logged again.
    told: list[Outcome] = field(default_factory=list)


class HistoryFiles:
    """Blocks; every call may raise OSError.

    Space for the newest segment and the next is reserved, so that a disk filled by others does not
    stop the history: the oldest segments are removed sooner.
    """

    def __init__(self, folder: Path, *, size: int, seconds: float) -> None:
        """``size``: bytes of all segments; at most a quarter of a small disk. ``seconds``: an
        outcome is kept for this long, and up to a segment longer."""
        self._folder = folder
        self._seconds = seconds
        self._descriptor = self._lock = -1
        #: Of the newest segment: its bytes, the time of its first outcome, and the number after its
        #: last one.
        self._bytes = 0
        self._since: float | None = None
        self._following = 1
        self._fallocate = _find_fallocate()
        self._id = ""
        #: Of all segments.
        self.bytes = 0
        #: Discards that were removed, in all runs.
        self.removed_discards = 0
        #: None of them has a greater number.
        self.removed_through = 0
        self.limit(size, seconds)

    def limit(self, size: int, seconds: float) -> None:
        """Change the bounds; what is beyond them is removed with the next segment."""
        self._size, self._seconds = size, seconds
        self._segment_bytes = min(MOST_SEGMENT_BYTES, size // (SEGMENTS + 1))

    # ------------------------------------------------------------------ the start

    def open(self, is_pending: Callable[[Outcome], bool]) -> Opened:
        """Continue the newest segment, without the outcomes that ``is_pending``.

        Raises OSError if another process has the files.
        """
        self._lock = os.open(self._folder / LOCK_NAME, _FLAGS, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        before = _parsed(os.pread(self._lock, 100, 0))
        is_closed = before is None or before.is_closed
        self._id = before.id if before is not None else secrets.token_hex(8)
        self.removed_discards = before.removed_discards if before is not None else 0
        disk = os.statvfs(self._folder)
        self.limit(min(self._size, disk.f_blocks * disk.f_frsize // 4), self._seconds)
        last = [] if is_closed else self._take_back(is_pending)
        self._continue()
        kept = segments_of(self._folder)
        self.removed_through = kept[0].first - 1 if self.removed_discards else 0
        # Files may have been removed.
        self._following = max(self._following, before.next_number if before is not None else 1)
        self.bytes = sum(one.path.stat().st_size for one in segments_of(self._folder))
        self._note(_OPEN)
        self._reserve()
        if is_closed:
            return Opened(id=self._id, next_number=self._following)
        told = [one for one in last if one.result == OutcomeResult.DISCARDED]
        since = max((one.time for one in told), default=0.0) - TOLD_AGAIN_SECONDS
        return Opened(
            id=self._id,
            next_number=self._following + LEFT_OUT,
            told=[one for one in told if one.time >= since],
        )

    def _take_back(self, is_pending: Callable[[Outcome], bool]) -> list[Outcome]:
        """Remove what ``is_pending`` from the end, and a torn block; return the outcomes there."""
        left, last = CHECKED_BYTES, list[Outcome]()
        for segment in reversed(segments_of(self._folder)):
            if left <= 0:
                break
            with segment.path.open("r+b") as file:
                whole = blocks.whole_blocks(file)
                begin = len(whole)
                while begin and left > 0:
                    begin -= 1
                    left -= whole[begin][1].size
                kept = self._write_again(file, whole, begin, is_pending)
            last[:0] = [one.outcome for one in kept]
        return last

    def _write_again(
        self,
        file: BinaryIO,
        whole: Sequence[tuple[int, blocks.Header]],
        begin: int,
        is_pending: Callable[[Outcome], bool],
    ) -> list[Numbered]:
        """Replace the blocks from ``begin`` on by what is not pending of them."""
        found: list[Numbered] = []
        for offset, header in whole[begin:]:
            found += blocks.decode(header, blocks.read_data(file, offset, header)) or []
        kept = [one for one in found if not is_pending(one.outcome)]
        end = blocks.end_of(whole)
        if len(kept) < len(found):
            data = b"".join(
                block
                for run in _runs(kept)
                for block in blocks.encode_blocks(run[0].number, [one.outcome for one in run])
            )
            end = whole[begin][0]
            file.seek(end)
            file.write(data)
            end += len(data)
        file.truncate(end)
        return kept

    def _continue(self) -> None:
        segments = segments_of(self._folder)
        if not segments:
            self._open(1)
            return
        self._open(segments[-1].first)
        with segments[-1].path.open("rb") as file:
            whole = blocks.whole_blocks(file)
        for _, header in whole:
            self._following = max(self._following, header.following)
            self._since = header.since if self._since is None else self._since
        # Behind a torn block nothing would be found.
        self._bytes = blocks.end_of(whole)
        os.ftruncate(self._descriptor, self._bytes)

    def _open(self, first: int) -> None:
        descriptor = os.open(self._folder / _name(first), _FLAGS, 0o600)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._first, self._following = descriptor, first, first
        self._since = None
        self._bytes = os.fstat(descriptor).st_size

    def _note(self, state: str) -> None:
        # The space is already reserved.
        text = f"{self._id} {self.removed_discards:020d} {state} {self._following:020d}\n"
        os.pwrite(self._lock, text.encode(), 0)

    # ------------------------------------------------------------------ writing

    def append(self, first: int, outcomes: Sequence[Outcome]) -> None:
        """Append outcomes that are numbered from ``first``. Raises NotKept with those that were
        not written."""
        written = 0
        try:
            for block in blocks.encode_blocks(first, outcomes):
                header = blocks.header_of(block)
                assert header is not None
                self._append(header, block)
                written += header.outcomes
        except OSError as error:
            raise NotKept(error, first + written, outcomes[written:]) from error

    def _append(self, header: blocks.Header, block: bytes) -> None:
        if self._bytes and self._bytes + len(block) > self._segment_bytes:
            self._begin_next(header.first)
        try:
            self._write(block)
        except OSError as error:
            if not is_full(error) or not self._bytes:
                raise
            self._begin_next(header.first)
            self._write(block)
        self._following = header.following
        self._since = header.since if self._since is None else self._since

    def _write(self, data: bytes) -> None:
        view, at = memoryview(data), self._bytes
        try:
            while view:
                written = os.pwrite(self._descriptor, view, at)
                view, at = view[written:], at + written
        except OSError:
            os.ftruncate(self._descriptor, self._bytes)
            raise
        self.bytes += at - self._bytes
        self._bytes = at

    def _begin_next(self, first: int) -> None:
        """Begin the next segment in its reserved space; remove the oldest beyond the bound, or
        while the disk is full."""
        if first == self._first:
            return
        spare = self._folder / SPARE_NAME
        if spare.exists():
            spare.rename(self._folder / _name(first))
        self._open(first)
        older = segments_of(self._folder)[:-1]
        sizes = [segment.path.stat().st_size for segment in older]
        # The newest may become as long, and as much is reserved.
        room = self._size - 2 * self._segment_bytes
        while older and (sum(sizes) > room or (not self._reserve() and len(older) > 1)):
            self._remove(older.pop(0))
            sizes.pop(0)
        self._reserve()

    def expire(self, now: float) -> None:
        """Remove the segments whose newest outcome is older than the bound at ``now``, in seconds
        since the epoch."""
        if self._since is not None and now - self._since > self._seconds / AGE_PARTS:
            self._begin_next(self._following)
        before = now - self._seconds
        for segment in segments_of(self._folder)[:-1]:
            with segment.path.open("rb") as file:
                until = max((header.until for _, header in blocks.read_headers(file)), default=0.0)
            if until >= before:
                return
            self._remove(segment)

    def shed(self) -> bool:
        """Remove the oldest segment but the newest, since the disk is full; return whether there
        was one."""
        older = segments_of(self._folder)[:-1]
        if older:
            self._remove(older[0])
        return bool(older)

    def _remove(self, segment: Segment) -> None:
        with segment.path.open("rb") as file:
            headers = [header for _, header in blocks.read_headers(file)]
        discards = sum(header.discards for header in headers)
        self.removed_discards += discards
        if discards:
            self.removed_through = headers[-1].following - 1
            self._note(_OPEN)
        self.bytes -= segment.path.stat().st_size
        segment.path.unlink(missing_ok=True)

    # ------------------------------------------------------------------ room

    def _reserve(self) -> bool:
        """Reserve the space of this segment and the next; return whether the disk had it."""
        if not _allocate(self._fallocate, self._descriptor, self._segment_bytes):
            return False
        spare = os.open(self._folder / SPARE_NAME, _FLAGS, 0o600)
        try:
            return _allocate(self._fallocate, spare, self._segment_bytes)
        finally:
            os.close(spare)

    # ------------------------------------------------------------------ the end

    def end(self) -> None:
        """Mark the run as ended in order, and close."""
        if self._lock >= 0:
            self._note(_CLOSED)
        self.close()

    def close(self) -> None:
        """Idempotent."""
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1


def _runs(numbered: Iterable[Numbered]) -> list[list[Numbered]]:
    """Part outcomes where their numbers have a gap."""
    runs: list[list[Numbered]] = []
    for one in numbered:
        if runs and runs[-1][-1].number + 1 == one.number:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


_Fallocate = Callable[[int, int, int, int], int]


def _find_fallocate() -> _Fallocate | None:
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is not None:
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    return cast(_Fallocate | None, fallocate)


def _allocate(fallocate: _Fallocate | None, descriptor: int, size: int) -> bool:
    """Reserve up to ``size`` bytes of a file without changing its length; return whether the disk
    had them."""
    if fallocate is None:
        return True
    wanted = size
    while fallocate(descriptor, _FALLOC_FL_KEEP_SIZE, 0, size):
        if not is_full(OSError(ctypes.get_errno(), "")):
            return True
        size //= 2
        if size < _LEAST_ROOM:
            return False
    return size == wanted
