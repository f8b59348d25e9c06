"""The files of a history: blocks in segments, bounded in bytes and age.

Each write comes before the commit that settles its outcomes, by the same thread. So after
``kill -9`` the history has every outcome of the journal; surplus ones, still pending, are removed
at the start.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from pillion_sidecar.history import blocks
from pillion_sidecar.history.outcome import FAULTS, Numbered, Outcome, OutcomeResult
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
#: Of the discards of a segment that was removed because the disk was full.
_SAVED_SUFFIX = ".discards"
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
    return _segments(_files(folder))


def kept_in(folder: Path) -> list[Segment]:
    """As :func:`segments_of`, with the files of discards that gave way no further."""
    paths = _files(folder)
    segments = _segments(paths)
    whole = {one.first for one in segments}
    saved = (one for one in _segments(paths, _SAVED_SUFFIX) if one.first not in whole)
    return sorted([*segments, *saved])


def _files(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        # No link: it may lead to a file without an end.
        return [Path(entry.path) for entry in entries if entry.is_file(follow_symlinks=False)]


def _segments(paths: Iterable[Path], suffix: str = _SUFFIX) -> list[Segment]:
    return sorted(one for path in paths if (one := _segment(path, suffix)) is not None)


def _segment(path: Path, suffix: str) -> Segment | None:
    digits = path.name.removeprefix(_PREFIX).removesuffix(suffix)
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
    stop the history: the oldest segments are removed sooner, and their discards last.
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
        #: Outcomes that gave way to a full disk since the start.
        self.given_way = 0
        self._most = size
        self.limit(size, seconds)

    def limit(self, size: int, seconds: float) -> None:
        """Change the bounds; what is beyond them is removed with the next segment."""
        self._size, self._seconds = min(size, self._most), seconds
        self._segment_bytes = min(MOST_SEGMENT_BYTES, self._size // (SEGMENTS + 1))

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
        self._most = disk.f_blocks * disk.f_frsize // 4
        self.limit(self._size, self._seconds)
        last = [] if is_closed else self._take_back(is_pending)
        self._continue()
        kept = segments_of(self._folder)
        self.removed_through = kept[0].first - 1 if self.removed_discards else 0
        # Files may have been removed.
        self._following = max(self._following, before.next_number if before is not None else 1)
        self.bytes = sum(one.path.stat().st_size for one in kept_in(self._folder))
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
            data = _encoded(kept)
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

    def append(self, first: int, outcomes: Sequence[Outcome], *, displaces: bool = False) -> None:
        """Append outcomes that are numbered from ``first``. Raises NotKept with those that were
        not written. ``displaces``: on a full disk all earlier segments give way to them."""
        written = 0
        try:
            for block in blocks.encode_blocks(first, outcomes):
                header = blocks.header_of(block)
                assert header is not None
                self._append(header, block, displaced=first if displaces else 0)
                written += header.outcomes
        except OSError as error:
            raise NotKept(error, first + written, outcomes[written:]) from error

    def _append(self, header: blocks.Header, block: bytes, *, displaced: int) -> None:
        """Segments that begin before ``displaced`` give way, if need be."""
        if self._bytes and self._bytes + len(block) > self._segment_bytes:
            self._begin_next(header.first)
        while True:
            try:
                self._write(block)
                break
            except OSError as error:
                if not is_full(error):
                    raise
                if self._bytes:
                    self._begin_next(header.first)
                elif (oldest := segments_of(self._folder)[0]).first < min(displaced, self._first):
                    self._give_way(oldest)
                    self._reserve()
                else:
                    raise
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
        kept = kept_in(self._folder)[:-1]
        sizes = [one.path.stat().st_size for one in kept]
        # The newest may become as long, and as much is reserved.
        room = self._size - 2 * self._segment_bytes
        while kept and sum(sizes) > room:
            self._remove(kept.pop(0))
            sizes.pop(0)
        older = segments_of(self._folder)[:-1]
        while not self._reserve() and len(older) > 1:
            self._give_way(older.pop(0))

    def expire(self, now: float) -> None:
        """Remove the segments whose newest outcome is older than the bound at ``now``, in seconds
        since the epoch."""
        if self._since is not None and now - self._since > self._seconds / AGE_PARTS:
            self._begin_next(self._following)
        before = now - self._seconds
        for segment in kept_in(self._folder)[:-1]:
            with segment.path.open("rb") as file:
                until = max((header.until for _, header in blocks.read_headers(file)), default=0.0)
            if until >= before:
                return
            self._remove(segment)

    def shed(self) -> bool:
        """Remove the oldest segment, since the disk is full; return whether there was one. The
        newest with outcomes stays, and so do discards."""
        older = segments_of(self._folder)[:-1]
        if older and not self._bytes:
            older.pop()
        if older:
            self._give_way(older[0])
        return bool(older)

    def _give_way(self, segment: Segment) -> None:
        """Remove a segment but for its discards, which get a file of their own. All such files
        have the bytes of one segment; the oldest are removed. Most of the segment is freed."""
        headers, found = _outcomes_of(segment)
        older = [one for one in kept_in(self._folder) if one.path.suffix == _SAVED_SUFFIX]
        # Blocks, since most are small.
        sizes = [512 * one.path.stat().st_blocks for one in older]
        room = min(self._segment_bytes, sum(sizes) + segment.path.stat().st_size // 4)
        saved = [one for one in found if outlasts(one.outcome)]
        while len(data := _encoded(saved)) > room:
            saved = saved[len(saved) // 2 + 1 :]
        while older and sum(sizes) + len(data) > room:
            self._remove(older.pop(0))
            sizes.pop(0)
        path = segment.path.with_suffix(_SAVED_SUFFIX)
        is_saved = _save(path, data)
        self._unlink(segment)
        if not is_saved and not _save(path, data):
            saved, data = [], b""
        self.bytes += len(data)
        self.given_way += len(found) - len(saved)
        self._note_removed(_discards_of(found) - _discards_of(saved), headers)

    def _remove(self, segment: Segment) -> None:
        with segment.path.open("rb") as file:
            headers = [header for _, header in blocks.read_headers(file)]
        self._unlink(segment)
        self._note_removed(sum(header.discards for header in headers), headers)

    def _unlink(self, segment: Segment) -> None:
        self.bytes -= segment.path.stat().st_size
        segment.path.unlink(missing_ok=True)

    def _note_removed(self, discards: int, headers: Sequence[blocks.Header]) -> None:
        self.removed_discards += discards
        if discards:
            self.removed_through = headers[-1].following - 1
            self._note(_OPEN)

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


def _outcomes_of(segment: Segment) -> tuple[list[blocks.Header], list[Numbered]]:
    headers: list[blocks.Header] = []
    found: list[Numbered] = []
    with segment.path.open("rb") as file:
        for offset, header in blocks.read_headers(file):
            headers.append(header)
            found += blocks.decode(header, blocks.read_data(file, offset, header)) or ()
    return headers, found


def outlasts(outcome: Outcome) -> bool:
    """Whether it is a discard, or says what became of one later: it goes last."""
    return outcome.result in FAULTS or (outcome.redrives is not None and outcome.replay is None)


def _discards_of(numbered: Iterable[Numbered]) -> int:
    return sum(one.outcome.result in FAULTS for one in numbered)


def _save(path: Path, data: bytes) -> bool:
    """Write a file; return whether the disk had room for it."""
    if not data:
        return True
    try:
        with os.fdopen(os.open(path, _FLAGS | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
    except OSError as error:
        path.unlink(missing_ok=True)
        if not is_full(error):
            raise
        return False
    return True


def _encoded(numbered: Iterable[Numbered]) -> bytes:
    return b"".join(
        block
        for run in _runs(numbered)
        for block in blocks.encode_blocks(run[0].number, [one.outcome for one in run])
    )


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
    import ctypes  # of no use without a folder

    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is not None:
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    return cast(_Fallocate | None, fallocate)


def _allocate(fallocate: _Fallocate | None, descriptor: int, size: int) -> bool:
    """Reserve up to ``size`` bytes of a file without changing its length; return whether the disk
    had them."""
    if fallocate is None:
        return True
    import ctypes

    wanted = size
    while fallocate(descriptor, _FALLOC_FL_KEEP_SIZE, 0, size):
        if not is_full(OSError(ctypes.get_errno(), "")):
            return True
        size -= -(-wanted // 8)
        if size < _LEAST_ROOM:
            return False
    return size == wanted
