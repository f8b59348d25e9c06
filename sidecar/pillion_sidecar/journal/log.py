"""The log on the event loop: what is gathered, being written, and reserved.

One write is under way at a time; what arrives meanwhile is written in the next. Each begins with a
commit record, which proves that all before it was on disk.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.limits import MARGIN, MAXIMUM_WAITING, MIB, JournalSettings
from pillion_sidecar.journal.ports import LogFollower, Worker, is_full
from pillion_sidecar.journal.records import COMMIT, FRAME, encode_commit
from pillion_sidecar.journal.segment_writer import Preallocation, SegmentWriter, Written
from pillion_sidecar.journal.segments import read_header

#: Bytes of the commit record that begins each write.
COMMIT_SIZE = FRAME.size + COMMIT.size


@dataclass(slots=True, kw_only=True)
class Segment:
    number: int
    size: int
    #: Bytes of pending records.
    live: int = 0
    #: Bytes of its header and snapshot.
    overhead: int = 0
    identities: bool = True


@dataclass(slots=True, kw_only=True)
class Batch:
    number: int
    offset: int
    data: bytes
    #: The greatest id in this batch or before it.
    last_id: int
    barriers: list[Callable[[], None]] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SegmentHeaderWrite:
    number: int
    data: bytes
    sealed_at: int


class LogOwner(Protocol):
    """Gives the log its contents, and learns of its progress."""

    #: The id of the last appended indication.
    last_id: int

    def trailing(self) -> list[bytes]:
        """Return the records that end the next batch; the log writes them."""

    def opening(self, number: int, commit: int) -> bytes: ...

    def opened(self) -> None:
        """A segment is begun on disk, and the one before it complete."""

    def committed(self, batch: Batch, seconds: float) -> None: ...

    def disk_full(self) -> None:
        """Something else than the log may give room."""

    def failed(self, error: OSError) -> None: ...


class Log:
    #: Set before the first segment begins.
    follower: LogFollower | None = None

    def __init__(
        self,
        *,
        writer: SegmentWriter,
        worker: Worker,
        clock: Clock,
        offset: float,
        call_soon: Callable[[Callable[[], None]], object],
        timers: Timers,
        settings: JournalSettings,
        owner: LogOwner,
        segments: dict[int, Segment],
        next_number: int,
        commit: int,
        spare: int,
    ) -> None:
        """``offset``: journal time less ``Clock.monotonic()``; ``commit``: the number of the last
        one; ``spare``: bytes reserved for the first segment, 0 if the disk is full."""
        self._writer, self._worker = writer, worker
        self._clock, self._offset = clock, offset
        self._call_soon, self._timers = call_soon, timers
        self._settings = settings
        self._bound = settings.live_bound
        self._roll_at = settings.roll_at
        self._owner = owner
        #: By number, oldest first.
        self.segments = segments
        self.current: Segment | None = None
        self._next_number = next_number
        self.commits = 0
        self._commit = commit
        self.total = sum(segment.size for segment in segments.values())
        self.live = sum(segment.live for segment in segments.values())
        self.appended_bytes = 0
        self._parts: list[bytes] = []
        self._barriers: list[Callable[[], None]] = []
        #: End of the current segment, without and with what is gathered; its first position.
        self._start = self.end = self._base = 0
        self._queue: deque[Batch | SegmentHeaderWrite] = deque()
        self._is_writing = self._is_scheduled = self._is_blocked = False
        # Whether something may be gathered that no flush has taken.
        self._is_due = False
        # Whether the current segment is not on disk yet.
        self._is_opening = False
        self._age: Timer | None = None
        self._is_old = False
        #: Positions below it are on disk.
        self.written = next_number << 32
        self.error: OSError | None = None
        self.room = Preallocation(
            writer=writer,
            worker=worker,
            timers=timers,
            settings=settings,
            spare=spare,
            freed=self._unblock,
            prepared=self._roll_between,
            failed=self._fail,
            met_full=owner.disk_full,
        )

    # ------------------------------------------------------------------ what is gathered

    def append(self, record: bytes, *, live: int = 0, has_identity: bool = False) -> int:
        """Take a record, of which ``live`` bytes are pending; return its position."""
        if self.current is None:
            self._begin()
        assert self.current is not None
        self.current.live += live
        self.live += live
        self.current.identities |= has_identity
        end = self.end
        self._parts.append(record)
        self.end = end + len(record)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self.flush)
        return self._base | end

    def append_all(self, records: Sequence[bytes], *, live: int, has_identity: bool) -> int:
        """Take records that follow each other; return the position of the first."""
        position = self.append(records[0], live=live, has_identity=has_identity)
        self._parts += records[1:]
        self.end += sum(map(len, records)) - len(records[0])
        return position

    def remove_live(self, position: int, size: int) -> None:
        """The record at ``position`` is no longer pending."""
        if (segment := self.segments.get(position >> 32)) is not None:
            # Without a segment the record was damaged, and removed uncopied.
            segment.live -= size
            self.live -= size

    def barrier(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all that was taken is on disk; immediately if it is."""
        if self._parts:
            self._barriers.append(done)
            return
        for one in reversed(self._queue):
            if isinstance(one, Batch):
                one.barriers.append(done)
                return
        done()

    def after_write(self, done: Callable[[], None]) -> None:
        """Call ``done`` once the next write is on disk."""
        self._barriers.append(done)

    @property
    def pending_barriers(self) -> int:
        batches = [one for one in self._queue if isinstance(one, Batch)]
        return len(self._barriers) + sum(len(batch.barriers) for batch in batches)

    @property
    def waiting(self) -> int:
        """Bytes that are not on disk yet."""
        return self.end - self._start + sum(len(one.data) for one in self._queue)

    def has_room(self, size: int) -> bool:
        """Whether records of ``size`` bytes fit, and none of them would be refused."""
        return (
            self.error is None
            and not self.room.is_full
            and self.end - self._start + size <= MAXIMUM_WAITING
            and self.live + size <= self._bound
            and (self.follower is None or self.follower.refusal() is None)
        )

    def refusal(self, size: int) -> str | None:
        if self.error is not None:
            return f"the journal's disk failed: {self.error.strerror or self.error}"
        if self.room.is_full and self.room.end - self.end < size + MARGIN:
            return (
                f"the journal's disk is full: {max(0, self.room.end - self.end)} bytes are "
                f"reserved, and {size + MARGIN} are needed"
            )
        if self.end - self._start > MAXIMUM_WAITING:
            return f"the journal's disk is slow: {self.waiting // MIB} MiB wait to be written"
        if self.live + size > self._bound:
            return f"the journal is full: {self.live} bytes are pending, and {self._bound} may be"
        return None if self.follower is None else self.follower.refusal()

    def forces(self, indication: Indication, reason: DiscardReason) -> bool:
        return self.follower is not None and self.follower.forces(indication.id, reason.value)

    # ------------------------------------------------------------------ what is written

    def begin(self) -> None:
        if self.current is None:
            self._begin()
            self.flush()

    def flush(self) -> None:
        """Write what was gathered, now or after the current write."""
        self._is_scheduled = False
        if self._is_writing or self._is_blocked or self.error is not None:
            self._is_due = True
            return
        if not self._queue:
            self._gather()
        if self._queue:
            self._is_writing = True
            one = self._queue[0]
            if isinstance(one, Batch):
                work = partial(self._writer.write, one.offset, one.data)
                self._worker.submit(work, partial(self._written, one), self._not_written)
            else:
                opening = partial(self._writer.begin, one.number, one.data, one.sealed_at)
                self._worker.submit(opening, partial(self._opened, one), self._not_written)

    def _gather(self) -> None:
        self._is_due = False
        trailing = self._owner.trailing()
        if self._parts or trailing:
            if self.current is None:
                self._begin()
            assert self.current is not None
            self._commit += 1
            commit = encode_commit(self._commit, self._clock.monotonic() + self._offset)
            data = b"".join((commit, *self._parts, *trailing))
            batch = Batch(
                number=self.current.number,
                offset=self._start,
                data=data,
                last_id=self._owner.last_id,
                barriers=self._barriers,
            )
            self._queue.append(batch)
            if self.follower is not None:
                self.follower.append(data)
            self._parts, self._barriers = [], []
            self._start += len(data)
            self.end = self._start + COMMIT_SIZE
            self.current.size = self._start
            self.total += len(data)
            self.appended_bytes += len(data)
        # Without space for the next segment, this one grows.
        if self.current is None or self._is_opening or not self.room.spare:
            return
        # Only here, between calls of other packages: the snapshot must match the records before it.
        held = self._start - self.current.overhead
        if held >= self._roll_at or (self._is_old and held > 0):
            self._begin()

    def _written(self, batch: Batch, written: Written) -> None:
        self._queue.popleft()
        self._is_writing = False
        self.commits += 1
        self.written = batch.number << 32 | batch.offset + len(batch.data)
        if self.current is not None and batch.number == self.current.number:
            self.room.end = max(self.room.end, written.reserved)
        # The disk works while barriers are notified.
        if self._is_due or self._queue:
            self.flush()
        self._reserve()
        if self.follower is not None:
            self.follower.on_disk(self.written, batch.last_id)
        self._owner.committed(batch, written.seconds)

    def _opened(self, opening: SegmentHeaderWrite, written: Written) -> None:
        self._queue.popleft()
        self._is_writing = self._is_opening = False
        self.written = opening.number << 32 | len(opening.data)
        self.room.end = written.reserved
        self.flush()
        self._reserve()
        self._owner.opened()

    def _not_written(self, error: OSError) -> None:
        self._is_writing = False
        if is_full(error):
            # The same bytes at the same place, later.
            self._is_blocked = True
            self.room.met_full(error)
        else:
            self._fail(error)

    def stop(self, error: OSError) -> None:
        self.error = error

    def _fail(self, error: OSError) -> None:
        if self.error is None:
            self._owner.failed(error)

    def _unblock(self) -> None:
        self._is_blocked = False
        self.flush()
        self._reserve()

    def _reserve(self) -> None:
        if self.error is None and self.current is not None and not self._is_opening:
            self.room.reserve(self.end, spare=self._is_old or self._start > self._roll_at // 2)

    # ------------------------------------------------------------------ segments

    @property
    def oldest(self) -> Segment | None:
        segment = next(iter(self.segments.values()), None)
        return segment if segment is not None and segment.number < self.written >> 32 else None

    def removed(self, segment: Segment) -> None:
        del self.segments[segment.number]
        self.total -= segment.size
        self.live -= segment.live
        segment.live = 0
        self.room.retry()

    def _roll_between(self) -> None:
        # Otherwise a flush is due already.
        if not self._parts:
            self.flush()

    def _begin(self) -> None:
        number, before = self._next_number, self.current
        self._next_number += 1
        data = self._owner.opening(number, self._commit)
        size = len(data)
        self.current = self.segments[number] = Segment(
            number=number, size=size, overhead=size, identities=False
        )
        self.total += size
        self._base, self._start, self.end = number << 32, size, size + COMMIT_SIZE
        self.room.begin()
        self._is_opening = True
        self._queue.append(
            SegmentHeaderWrite(
                number=number, data=data, sealed_at=before.size if before is not None else 0
            )
        )
        if self.follower is not None:
            header = read_header(data)
            assert header is not None
            self.follower.begin(number, header.created, data)
        if self._age is not None:
            self._age.cancel()
        self._is_old = False
        self._age = self._timers.call_later(self._settings.segment_seconds, self._aged)

    def _aged(self) -> None:
        self._age = self._timers.call_later(self._settings.segment_seconds, self._aged)
        self._is_old = self._start > (self.current.overhead if self.current is not None else 0)
        self._reserve()
        self._roll_between()

    # ------------------------------------------------------------------ the end

    def close(self) -> bool:
        """Write what was gathered; return whether all is on disk. Blocks."""
        self._worker.drain()
        self._unblock()
        self._worker.drain()
        # What was gathered during the last write.
        self.flush()
        self._worker.drain()
        complete = not self._queue and not self._parts and self.error is None
        if self._age is not None:
            self._age.cancel()
        self.room.close()
        if self.error is None:
            self._worker.submit(
                partial(self._writer.close, self.written & 0xFFFFFFFF), _done, _done
            )
        self._worker.drain()
        return complete


def _done(_: object) -> None:
    """Releasing the folder cuts off only reserved space."""
