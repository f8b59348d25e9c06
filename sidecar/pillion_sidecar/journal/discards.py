"""The list of discards: every discarded identifier, in bounded files of the journal's folder, or in
bounded memory where there is no folder (S0.11).

The files hold one JSON object a line. With a journal a discard is written before the commit that
settles it, by the same thread: so after ``kill -9`` the list has every discard that the journal
has. It may have a few more, which a start takes back, since they are pending still.
"""

import fcntl
import logging
import os
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

import msgspec

from pillion_sidecar.clock import Timers
from pillion_sidecar.journal.ports import Discard, DiscardQuery, Recovered
from pillion_sidecar.journal.workers import Worker

logger = logging.getLogger("pillion.journal")

#: Files in which the list is kept, and bytes of all of them by default, at least and at most.
FILES = 4
DEFAULT_BYTES = 64 << 20
MINIMUM_BYTES = 1 << 20
#: Bytes kept in memory where there is no folder.
MEMORY_BYTES = 4 << 20
#: Bytes that may wait to be written: what more is discarded meanwhile is counted only.
WAITING_BYTES = 4 << 20
#: Seconds after which discards are written where there is no journal.
WRITE_SECONDS = 0.05
#: After a crash the discards of so many seconds before it are told in the log again.
TOLD_AGAIN_SECONDS = 60.0

#: Locked by the process that writes the list: with durability Memory the folder itself is not.
LOCK_NAME = "discards.lock"
_PREFIX, _SUFFIX = "discards-", ".ndjson"
_CLOSED = b'{"closed":true}'
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Discard).decode


def discards_bytes(maximum_bytes: int) -> int:
    """Return how many bytes the list may take beside a journal of ``maximum_bytes``."""
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
        # What is no discard: the end of a run, a torn line, a line of a later version.
        try:
            yield _decode(line)
        except msgspec.MsgspecError:
            continue


def encode_discard(discard: Discard) -> bytes:
    """Return a discard as a line of the list."""
    return _encode(discard) + b"\n"


def lists_discards(folder: Path) -> bool:
    """Whether a folder has a list of discards. Blocks."""
    return folder.is_dir() and bool(_numbers(folder))


def read_discards(folder: Path, query: DiscardQuery) -> Iterator[Discard]:
    """Give the discards that a folder lists, oldest first. Blocks; raises OSError."""
    for number in _numbers(folder):
        try:
            with (folder / _name(number)).open("rb") as file:
                yield from filter(query.matches, _discards_of(file))
        except FileNotFoundError:
            # It was the oldest, and gave way to a new one meanwhile.
            continue


class DiscardFiles:
    """The files. Blocks; every call may raise OSError."""

    def __init__(self, folder: Path, *, size: int) -> None:
        """``size``: bytes of all files."""
        self._folder = folder
        self._most = size // FILES
        self._descriptor = self._lock = -1
        self._size = 0

    def open(self, is_pending: Callable[[Discard], bool]) -> list[Discard]:
        """Go on with the newest file. Takes back what ``is_pending``; returns the last discards of
        a run that crashed, so that they can be told again. Raises OSError where another process
        has them."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._lock = os.open(self._folder / LOCK_NAME, flags, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        numbers = _numbers(self._folder)
        self._open(numbers[-1] if numbers else 1)
        begin = max(0, self._size - WAITING_BYTES - 1)
        data = os.pread(self._descriptor, self._size - begin, begin)
        if begin:
            begin += data.find(b"\n") + 1
            data = data[data.find(b"\n") + 1 :]
        lines = data.split(b"\n")
        whole = lines[:-1]
        kept, told = [], []
        for line in whole:
            discard = next(_discards_of((line,)), None)
            if discard is not None and is_pending(discard):
                continue
            kept.append(line)
            if discard is not None:
                told.append(discard)
        if len(kept) < len(whole) or lines[-1]:
            self._replace(begin, b"".join(line + b"\n" for line in kept))
        if not told or whole[-1] == _CLOSED:
            return []
        since = told[-1].time - timedelta(seconds=TOLD_AGAIN_SECONDS)
        return [one for one in told if one.time >= since]

    def _replace(self, begin: int, data: bytes) -> None:
        os.pwrite(self._descriptor, data, begin)
        os.ftruncate(self._descriptor, begin + len(data))
        self._size = begin + len(data)

    def _open(self, number: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(self._folder / _name(number), flags, 0o600)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._number = descriptor, number
        self._size = os.fstat(descriptor).st_size

    def append(self, data: bytes) -> None:
        """Append lines: all of them, or none."""
        if self._size and self._size + len(data) > self._most:
            self._open(self._number + 1)
            for number in _numbers(self._folder)[:-FILES]:
                (self._folder / _name(number)).unlink(missing_ok=True)
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
        """Note that this run has ended in order, and close."""
        if self._size:
            self.append(_CLOSED + b"\n")
        self.close()

    def close(self) -> None:
        """Release the files. Idempotent."""
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._lock = -1


def pending_in(recovered: Recovered, *, journal_id: str) -> Callable[[Discard], bool]:
    """Return what says of a discard whether the journal has its indication pending still."""
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
    """The list of a running deliverer: a ``DiscardList``. In memory until it is given files."""

    def __init__(self, *, timers: Timers, memory_bytes: int = MEMORY_BYTES) -> None:
        self._timers = timers
        self._memory_bytes = memory_bytes
        #: What waits to be written; without files all that is listed.
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._files: DiscardFiles | None = None
        self._worker: Worker | None = None
        self._folder: Path | None = None
        self._writes_alone = self._is_due = self._is_troubled = False
        #: Discards that are in no list.
        self.unlisted = 0

    def use(self, files: DiscardFiles, folder: Path, *, worker: Worker, writes_alone: bool) -> None:
        """Write into files from now on, in the thread of ``worker``.

        ``writes_alone``: there is no journal that calls :meth:`write` before each commit. Where
        there is one nothing else may be written before the commit, or a crash would leave more
        than a start looks at.
        """
        self._files, self._folder, self._worker = files, folder, worker
        self._writes_alone = writes_alone

    def add(self, discard: Discard) -> None:
        """See ``DiscardList``."""
        line = encode_discard(discard)
        if self._files is None:
            self._remember(line)
        elif self._size + len(line) > WAITING_BYTES:
            self.unlisted += 1
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
            self.unlisted += 1

    def _write_due(self) -> None:
        self._is_due = False
        self.write()

    def write(self) -> None:
        """Have written what is listed, before whatever is submitted to the worker after this."""
        if self._files is None or self._worker is None or not self._lines:
            return
        data = b"".join(self._lines)
        self._lines.clear()
        self._size = 0
        work = partial(self._files.append, data)
        self._worker.submit(work, self._written, partial(self._not_written, data))

    def _written(self, _: None) -> None:
        self._is_troubled = False

    def _not_written(self, data: bytes, error: OSError) -> None:
        # Again with what is discarded next: a full disk may have room by then.
        if self._size + len(data) <= WAITING_BYTES:
            self._lines.appendleft(data)
            self._size += len(data)
        else:
            self.unlisted += data.count(b"\n")
        if not self._is_troubled:
            self._is_troubled = True
            logger.warning(
                "the list of discards cannot be written: %s",
                error.strerror or error,
                extra={"event": "discards-not-listed", "unlisted": self.unlisted},
            )

    def find(self, query: DiscardQuery, *, limit: int) -> Callable[[], Sequence[Discard]]:
        """Return what finds the latest discards of a query, oldest first. That blocks, and may be
        called in any thread; raises OSError."""
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
        """Write what is left. Blocks; the caller closes the worker after that. Idempotent."""
        self.write()
        files, worker = self._files, self._worker
        self._files = None
        if files is not None and worker is not None:
            worker.submit(files.end, self._written, partial(self._not_written, b""))
            worker.drain()
