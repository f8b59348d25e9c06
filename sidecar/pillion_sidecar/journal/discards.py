"""The list of discards: every discarded identifier, in bounded files of the journal's folder, or in
bounded memory without one (S0.11).

One JSON object a line, written before the commit that settles the discard, by the same thread. So
after ``kill -9`` the list has every discard of the journal; surplus ones, still pending, are
removed at the start.
"""

import ctypes
import fcntl
import logging
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from pillion_sidecar.clock import Timers
from pillion_sidecar.journal.files import is_full
from pillion_sidecar.journal.ports import Discard, DiscardQuery, Recovered
from pillion_sidecar.journal.workers import Worker

logger = logging.getLogger("pillion.journal")

#: Files of the list, and their default, minimum and maximum bytes in total.
FILES = 4
DEFAULT_BYTES = 64 << 20
MINIMUM_BYTES = 1 << 20
#: Bytes kept in memory without a folder.
MEMORY_BYTES = 4 << 20
#: Bytes that may wait to be written; discards beyond are only counted.
WAITING_BYTES = 4 << 20
#: Seconds after which discards are written if there is no journal.
WRITE_SECONDS = 0.05
#: After a crash, discards of these last seconds are logged again.
TOLD_AGAIN_SECONDS = 60.0

#: Lock of the list's writer: with durability Memory the folder itself is not locked.
LOCK_NAME = "discards.lock"
_PREFIX, _SUFFIX = "discards-", ".ndjson"
#: Space of the next file, reserved in advance.
SPARE_NAME = "discards.spare"
#: Less is not worth reserving.
_LEAST_ROOM = 64 << 10
_FALLOC_FL_KEEP_SIZE = 1
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_CLOSED = b'{"closed":true}'
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Discard).decode


def discards_bytes(maximum_bytes: int) -> int:
    return max(MINIMUM_BYTES, min(DEFAULT_BYTES, maximum_bytes // 16))


def _number(name: str) -> int | None:
    digits = name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
    if not digits.isascii() or not digits.isdecimal() or name != _name(int(digits)):
        return None
    return int(digits)


def _name(number: int) -> str:
    return f"{_PREFIX}{number:08d}{_SUFFIX}"


def _numbers(folder: Path) -> list[int]:
    numbers = [_number(entry.name) for entry in os.scandir(folder)]
    return sorted(number for number in numbers if number is not None)


def _discards_of(lines: Iterable[bytes]) -> Iterator[Discard]:
    for line in lines:
        # Not a discard: the end of a run, a torn line, a line of a later version.
        try:
            yield _decode(line)
        except msgspec.MsgspecError:
            continue


def encode_discard(discard: Discard) -> bytes:
    return _encode(discard) + b"\n"


def lists_discards(folder: Path) -> bool:
    """Blocks; raises OSError."""
    return folder.is_dir() and bool(_numbers(folder))


def read_discards(folder: Path, query: DiscardQuery) -> Iterator[Discard]:
    """Yield the discards of a folder, oldest first. Blocks; raises OSError."""
    for number in _numbers(folder):
        try:
            with (folder / _name(number)).open("rb") as file:
                yield from filter(query.matches, _discards_of(file))
        except FileNotFoundError:
            # The oldest file, replaced meanwhile.
            continue


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    if fallocate is not None:
        fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong)
    return cast(Callable[[int, int, int, int], int] | None, fallocate)


def _reserve(
    fallocate: Callable[[int, int, int, int], int] | None, descriptor: int, size: int
) -> bool:
    """Reserve up to ``size`` bytes of a file without changing its length; return whether the disk
    had less."""
    if fallocate is None:
        return False
    wanted = size
    while fallocate(descriptor, _FALLOC_FL_KEEP_SIZE, 0, size):
        if not is_full(OSError(ctypes.get_errno(), "")):
            return False
        size //= 2
        if size < _LEAST_ROOM:
            return True
    return size < wanted


def _read_count(descriptor: int) -> int:
    digits = os.pread(descriptor, 20, 0)
    return int(digits) if digits.isdigit() else 0


def count_unlisted(folder: Path) -> int:
    """Return how many discards a folder's list had no space for. Blocks; raises OSError."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return _read_count(descriptor)
    finally:
        os.close(descriptor)


class NotListed(OSError):
    def __init__(self, error: OSError, lines: bytes) -> None:
        super().__init__(error.errno, error.strerror or str(error))
        self.lines = lines


class DiscardFiles:
    """The files of the list. Blocks; every call may raise OSError.

    Space for the newest file and the next is reserved, so that a disk filled by others does not
    stop the list: the oldest files are replaced sooner.
    """

    def __init__(self, folder: Path, *, size: int) -> None:
        """``size``: bytes of all files; at most a quarter of a small disk."""
        self._folder = folder
        self._most = size // (FILES + 1)
        self._descriptor = self._lock = -1
        self._size = 0
        self._fallocate = _find_fallocate()
        #: Discards whose file was replaced, in all runs.
        self.dropped = 0
        # Unlisted discards, as noted for the next run.
        self._noted = -1

    def open(self, is_pending: Callable[[Discard], bool]) -> list[Discard]:
        """Continue the newest file, without the entries that ``is_pending``.

        Returns the last discards of a crashed run, to be logged again. Raises OSError if another
        process has the files.
        """
        self._lock = os.open(self._folder / LOCK_NAME, _FLAGS, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.dropped = _read_count(self._lock)
        self._note_count(0)
        disk = os.statvfs(self._folder)
        self._most = min(self._most, disk.f_blocks * disk.f_frsize // 4 // (FILES + 1))
        numbers = _numbers(self._folder) or [1]
        told: list[Discard] = []
        is_closed, left = False, WAITING_BYTES
        for number in reversed(numbers):
            if left > 0 and not is_closed:
                last, size, is_closed = self._take_back(number, left, is_pending)
                told[:0], left = last, left - size
        self._open(numbers[-1])
        self._lacks_room()
        if not told or is_closed:
            return []
        since = told[-1].time - timedelta(seconds=TOLD_AGAIN_SECONDS)
        return [one for one in told if one.time >= since]

    def _take_back(
        self, number: int, most: int, is_pending: Callable[[Discard], bool]
    ) -> tuple[list[Discard], int, bool]:
        """Remove a torn line, and what ``is_pending``, from the last ``most`` bytes of a file.

        Return the remaining discards, the bytes of the file, and whether its run ended in order.
        """
        self._open(number)
        begin = max(0, self._size - most - 1)
        data = os.pread(self._descriptor, self._size - begin, begin)
        if begin:
            begin += data.find(b"\n") + 1
            data = data[data.find(b"\n") + 1 :]
        *whole, torn = data.split(b"\n")
        kept, told = [], []
        for line in whole:
            discard = next(_discards_of((line,)), None)
            if discard is not None and is_pending(discard):
                continue
            kept.append(line)
            if discard is not None:
                told.append(discard)
        if len(kept) < len(whole) or torn:
            lines = b"".join(line + b"\n" for line in kept)
            os.pwrite(self._descriptor, lines, begin)
            os.ftruncate(self._descriptor, begin + len(lines))
        return told, len(data), bool(whole) and whole[-1] == _CLOSED

    def _open(self, number: int) -> None:
        descriptor = os.open(self._folder / _name(number), _FLAGS, 0o600)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._number = descriptor, number
        self._size = os.fstat(descriptor).st_size

    def _lacks_room(self) -> bool:
        """Reserve the space of this file and the next; return whether the disk had less."""
        if _reserve(self._fallocate, self._descriptor, self._most):
            return True
        spare = os.open(self._folder / SPARE_NAME, _FLAGS, 0o600)
        try:
            return _reserve(self._fallocate, spare, self._most)
        finally:
            os.close(spare)

    def _begin_next(self) -> None:
        """Begin the next file in its reserved space.

        Removes the oldest if there are too many, or if the disk is full.
        """
        spare = self._folder / SPARE_NAME
        if spare.exists():
            spare.rename(self._folder / _name(self._number + 1))
        self._open(self._number + 1)
        older = _numbers(self._folder)[:-1]
        while len(older) >= FILES or (self._lacks_room() and len(older) > 1):
            number = older.pop(0)
            file = self._folder / _name(number)
            self.dropped += sum(1 for _ in _discards_of(file.read_bytes().splitlines()))
            self._note_count(0)
            file.unlink(missing_ok=True)

    def _note_count(self, unwritten: int) -> None:
        """Record for the next run how many discards are in no file. The space is already
        reserved."""
        count = self.dropped + unwritten
        if count != self._noted:
            os.pwrite(self._lock, f"{count:020d}\n".encode(), 0)
            self._noted = count

    def append(self, data: bytes) -> None:
        """Append lines. Raises NotListed with those that were not written."""
        try:
            while data:
                piece = self._piece(data)
                self._append(piece)
                data = data[len(piece) :]
        except OSError as error:
            raise NotListed(error, data) from error
        finally:
            self._note_count(data.count(b"\n"))

    def _piece(self, data: bytes) -> bytes:
        """As many lines as fit into the file, at least one."""
        end = len(data) if len(data) <= self._most else data.rfind(b"\n", 0, self._most) + 1
        return data[: end or data.find(b"\n") + 1]

    def _append(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._most:
            self._begin_next()
        try:
            self._write(data)
        except OSError as error:
            if not is_full(error) or not self._size:
                raise
            self._begin_next()
            self._write(data)

    def _write(self, data: bytes) -> None:
        view, at = memoryview(data), self._size
        try:
            while view:
                written = os.pwrite(self._descriptor, view, at)
                view, at = view[written:], at + written
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size = at

    def end(self) -> None:
        """Mark the run as ended in order, and close."""
        if self._size:
            self._append(_CLOSED + b"\n")
        self.close()

    def close(self) -> None:
        """Idempotent."""
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1


def pending_in(recovered: Recovered, *, journal_id: str) -> Callable[[Discard], bool]:
    """Return a predicate: whether the journal still has a discard's indication pending."""
    held = {indication.id for indication, _ in recovered.held}

    def is_pending(discard: Discard) -> bool:
        if journal_id not in (discard.sequence_context or ""):
            # Of a run in memory: its numbers mean nothing here.
            return False
        if discard.number is None:
            return discard.id in held
        queue = recovered.queues.get(discard.queue)
        if queue is None:
            return False
        at = bisect_left(queue.numbers, discard.number)
        return at < len(queue.numbers) and queue.numbers[at] == discard.number

    return is_pending


class DiscardRecorder:
    """The ``DiscardList`` of a running deliverer; in memory until it has files."""

    def __init__(self, *, timers: Timers, memory_bytes: int = MEMORY_BYTES) -> None:
        self._timers = timers
        self._memory_bytes = memory_bytes
        #: What waits to be written; without files the whole list.
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._files: DiscardFiles | None = None
        self._worker: Worker | None = None
        self._folder: Path | None = None
        self._writes_alone = self._is_due = self._is_troubled = False
        #: Discards that were never listed, and how many of them the next write may add.
        self._unlisted = self._unwritten = 0
        #: The count that was logged.
        self._told = 0

    def use(self, files: DiscardFiles, folder: Path, *, worker: Worker, writes_alone: bool) -> None:
        """Write into files from now on, in the thread of ``worker``.

        ``writes_alone``: no journal calls :meth:`write` before each commit. With a journal nothing
        else may be written before the commit, or a crash would leave more than a start checks.
        """
        self._files, self._folder, self._worker = files, folder, worker
        self._writes_alone, self._told = writes_alone, files.dropped

    def add(self, discard: Discard) -> None:
        line = encode_discard(discard)
        if self._files is None:
            self._remember(line)
        elif self._size + len(line) > WAITING_BYTES:
            self._unlisted += 1
        else:
            self._lines.append(line)
            self._size += len(line)
            if self._writes_alone and not self._is_due:
                self._is_due = True
                self._timers.call_later(WRITE_SECONDS, self._write_due)

    def _remember(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        while self._size > self._memory_bytes:
            self._size -= len(self._lines.popleft())
            self._unlisted += 1

    def _write_due(self) -> None:
        self._is_due = False
        self.write()

    def write(self) -> None:
        """Submit what is listed, before anything submitted to the worker later."""
        if self._files is None or self._worker is None or not self._lines:
            return
        data = b"".join(self._lines)
        self._lines.clear()
        again, self._unwritten, self._size = self._unwritten, 0, 0
        self._worker.submit(
            partial(self._files.append, data),
            partial(self._written, again),
            partial(self._not_written, again),
        )

    def _written(self, again: int, _: None) -> None:
        self._unlisted -= again
        self._is_troubled = False
        if self.unlisted > self._told:
            self._told = self.unlisted
            logger.warning(
                "the list of discards is full: %d discards are not in it any more",
                self.unlisted,
                extra={"event": "discards-not-listed", "unlisted": self.unlisted},
            )

    @property
    def unlisted(self) -> int:
        return self._unlisted + (0 if self._files is None else self._files.dropped)

    def _not_written(self, again: int, error: OSError) -> None:
        # Counted now: the journal settles them without the list. A full disk may have space next
        # time.
        data = error.lines if isinstance(error, NotListed) else b""
        count = data.count(b"\n")
        self._unlisted += count - again
        if self._size + len(data) <= WAITING_BYTES:
            self._lines.appendleft(data)
            self._size += len(data)
            self._unwritten += count
        if not self._is_troubled:
            self._is_troubled, self._told = True, self.unlisted
            logger.warning(
                "the list of discards cannot be written: %s; %d discards are not in it",
                error.strerror or error,
                self.unlisted,
                extra={"event": "discards-not-listed", "unlisted": self.unlisted},
            )

    def find(self, query: DiscardQuery, *, limit: int) -> Callable[[], Sequence[Discard]]:
        """Return a function that finds the latest discards of a query, oldest first.

        It blocks, may be called in any thread, and raises OSError.
        """
        lines, folder = list(self._lines), self._folder

        def found() -> Sequence[Discard]:
            listed = (
                filter(query.matches, _discards_of(b"".join(lines).splitlines()))
                if folder is None
                else read_discards(folder, query)
            )
            return deque(listed, maxlen=limit)

        return found

    def close(self) -> None:
        """Write the rest. Blocks; idempotent. The caller closes the worker afterwards."""
        self.write()
        files, worker = self._files, self._worker
        self._files = None
        if files is not None and worker is not None:
            worker.submit(files.end, lambda _: None, partial(self._not_written, 0))
            worker.drain()
            self._unlisted += files.dropped
