"""The journal on disk: durability ``Disk``, and ``StateOnly`` without the bodies."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from secrets import token_bytes
from typing import Protocol

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal.compaction import Compaction, known_segments
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.identities import IdentityEnd
from pillion_sidecar.journal.limits import OVER, JournalSettings
from pillion_sidecar.journal.log import Batch, Log
from pillion_sidecar.journal.marks import MarksFile
from pillion_sidecar.journal.names import recovered_names
from pillion_sidecar.journal.ports import (
    DeliveryLease,
    IdentitySink,
    JournalOwner,
    LogFollower,
    OutcomeStore,
    Place,
    PlainPlace,
    QueueState,
    Recovered,
    SubscriptionRecord,
    Worker,
    is_full,
)
from pillion_sidecar.journal.read_back import PageCacheReader, ReadBack
from pillion_sidecar.journal.records import (
    DELIVERED,
    LOST,
    REASON_CODES,
    SETTLEMENT,
    THROUGH,
    Flag,
    Kind,
    Settlement,
    Snapshot,
    encode_indication,
    encode_names,
    encode_queue,
    encode_settlements,
    encode_subscriptions,
    encode_whole_snapshot,
    seal,
)
from pillion_sidecar.journal.recovery import Recovery, recover
from pillion_sidecar.journal.scan import FindingKind
from pillion_sidecar.journal.segment_reader import SegmentReader
from pillion_sidecar.journal.segment_walk import Found
from pillion_sidecar.journal.segment_writer import SegmentWriter
from pillion_sidecar.journal.segments import Header, encode_header

logger = logging.getLogger("pillion.journal")
#: Seconds after which a settlement is committed if no other commit includes it.
SETTLE_SECONDS = 0.05
_BODILESS = int(Flag.BODILESS)
_HELD = int(Flag.HELD)
#: Bytes of settlements in one record; a large purge makes several.
_STEP = 16_384 * SETTLEMENT.size


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    """In bytes, unless stated otherwise."""

    #: All segments, and their records with something pending.
    total_bytes: int
    live_bytes: int
    #: Maximum bytes of pending records.
    live_bound: int
    #: Files of identities.
    identity_bytes: int
    segments: int
    #: Since the start: bytes written, commits.
    appended_bytes: int
    commits: int
    #: Seconds of the last commit.
    last_commit: float
    #: Damaged stretches found at the start, and damaged records read since.
    damaged: int
    #: Incomplete last writes cut off at the start.
    torn: int
    is_full: bool
    pending_barriers: int


def statistics_of(
    log: Log,
    *,
    identity_bytes: int,
    live_bound: int,
    last_commit: float,
    damaged: int,
    torn: int,
) -> JournalStatistics:
    return JournalStatistics(
        total_bytes=log.total,
        live_bytes=log.live,
        live_bound=live_bound,
        identity_bytes=identity_bytes,
        segments=len(log.segments),
        appended_bytes=log.appended_bytes,
        commits=log.commits,
        last_commit=last_commit,
        damaged=damaged,
        torn=torn,
        is_full=log.room.is_full,
        pending_barriers=log.pending_barriers,
    )


class CommitObserver(Protocol):
    def journal_committed(self, seconds: float) -> None:
        """A commit, written and synced, took ``seconds``."""


def open_journal(
    files: Files,
    *,
    clock: Clock,
    worker: Worker,
    reader: Worker,
    call_soon: Callable[[Callable[[], None]], object],
    timers: Timers,
    settings: JournalSettings,
    identities: IdentitySink,
    observer: CommitObserver | None = None,
    journal_id: bytes | None = None,
    outcomes: OutcomeStore | None = None,
    lacks_end: bool = False,
    is_copied: bool = False,
) -> tuple["DiskJournal", Recovered]:
    """Recover the folder, whose lock the caller holds. Blocks; may be called in any thread, since
    nothing of the event loop is used before ``attach``.

    ``worker`` commits, ``reader`` reads; the caller closes both after the journal. ``journal_id``:
    16 bytes for a new journal, random by default. ``outcomes`` writes the outcomes before each
    are submitted to ``worker``. ``lacks_end``, ``is_copied``: see :func:`recover`.

    Raises JournalError: the folder cannot be used as it is. OSError: the next segment cannot be
    prepared.
    """
    recovery = recover(
        files,
        clock=clock,
        identities=identities,
        new_journal_id=journal_id or token_bytes(16),
        lacks_end=lacks_end,
        is_copied=is_copied,
    )
    marks = MarksFile(files, journal_id=recovery.journal_id, oldest=recovery.oldest)
    writer = SegmentWriter(files, marks)
    try:
        spare = writer.prepare(settings.step)
    except OSError as error:
        if not is_full(error):
            raise
        spare = 0
    journal = DiskJournal(
        recovery=recovery,
        writer=writer,
        spare=spare,
        segment_reader=SegmentReader(files, marks),
        page_cache=PageCacheReader(files, offset=recovery.offset),
        clock=clock,
        worker=worker,
        reader=reader,
        call_soon=call_soon,
        timers=timers,
        settings=settings,
        observer=observer,
    )
    journal.outcomes = outcomes
    return journal, recovery.recovered


class SettlementBatch:
    """Settlements, ended holds and queue states since the last commit.

    Deliveries become one THROUGH for each destination if possible; a discard is always explicit, so
    that no later THROUGH hides its reason.
    """

    __slots__ = (
        "_ended", "_explicit", "_states", "_subscriptions", "_through", "is_empty",
    )  # fmt: skip

    def __init__(self) -> None:
        self.is_empty = True
        self._through: dict[int, int] = {}
        self._explicit = bytearray()
        self._ended = bytearray()
        self._states: dict[int, QueueState] = {}
        self._subscriptions: dict[str, SubscriptionRecord] = {}

    def settle(self, place: Place, reason: DiscardReason | None, through: bool) -> None:
        self.is_empty = False
        destination, _, number = place
        if reason is not None:
            self._explicit += SETTLEMENT.pack(destination, REASON_CODES[reason], number)
        elif through:
            self._through[destination] = number
        else:
            self._explicit += SETTLEMENT.pack(destination, DELIVERED, number)

    def end_hold(self, indication_id: int, reason: DiscardReason) -> None:
        self.is_empty = False
        self._ended += SETTLEMENT.pack(0, REASON_CODES[reason], indication_id)

    def note(self, state: QueueState) -> None:
        self.is_empty = False
        self._states[state.destination] = state

    def note_subscription(self, record: SubscriptionRecord) -> None:
        self.is_empty = False
        self._subscriptions[record.uid] = record

    def take(self) -> list[bytes]:
        """Return the records of all that was gathered, and start again."""
        records = list(map(encode_queue, self._states.values()))
        if self._subscriptions:
            records.append(encode_subscriptions([*self._subscriptions.values()]))
        # A THROUGH does not cover discards, in either order.
        for where, number in self._through.items():
            self._explicit += SETTLEMENT.pack(where, THROUGH, number)
        for kind, packed in ((Kind.HOLD_ENDED, self._ended), (Kind.SETTLED, self._explicit)):
            for begin in range(0, len(packed), _STEP):
                part = bytes(packed[begin : begin + _STEP])
                records.append(seal(kind, part, count=len(part) // SETTLEMENT.size))
        self.is_empty = True
        self._through, self._explicit = {}, bytearray()
        self._ended, self._states, self._subscriptions = bytearray(), {}, {}
        return records


class DiskJournal:
    outcomes: OutcomeStore | None = None
    lease: DeliveryLease | None = None

    def __init__(
        self,
        *,
        recovery: Recovery,
        writer: SegmentWriter,
        spare: int,
        segment_reader: SegmentReader,
        page_cache: PageCacheReader,
        clock: Clock,
        worker: Worker,
        reader: Worker,
        call_soon: Callable[[Callable[[], None]], object],
        timers: Timers,
        settings: JournalSettings,
        observer: CommitObserver | None,
    ) -> None:
        self._journal_id = recovery.journal_id
        self.id, self.offset = recovery.journal_id.hex(), recovery.offset
        self.durability = settings.durability
        self._flags = 0 if settings.durability is Durability.DISK else _BODILESS
        self._clock, self._timers, self._call_soon = clock, timers, call_soon
        self._reader, self._segment_reader, self._observer = reader, segment_reader, observer
        self._owner: JournalOwner | None = None
        self.last_id = self._told_id = recovery.next_id - 1
        self._next_epoch, self._shared = recovery.recovered.next_epoch, recovery.shared
        #: By id; they stay in memory, wherever their records are.
        self._held = {indication.id: indication for indication, _ in recovery.recovered.held}
        self._naming, self._settling = recovered_names(recovery), SettlementBatch()
        self._lost_through, self._is_settle_due = recovery.lost_through, False
        self._last_commit, self._found = 0.0, _count(recovery)
        self._settings, self._over = settings, int(OVER * settings.live_bound)
        self._log = Log(
            writer=writer,
            worker=worker,
            clock=clock,
            offset=recovery.offset,
            call_soon=call_soon,
            timers=timers,
            settings=settings,
            owner=self,
            segments=known_segments(recovery.segments),
            next_number=recovery.next_segment,
            commit=recovery.next_commit - 1,
            spare=spare,
        )
        self._loading = ReadBack(
            log=self._log,
            segment_reader=segment_reader,
            reader=reader,
            offset=recovery.offset,
            shared=recovery.shared,
            failed=self.failed,
            page_cache=page_cache,
            call_soon=call_soon,
        )
        self._compaction = self._make_compaction(recovery)
        # Parts of ``Journal`` that one component implements.
        self.destination, self.subscription = self._naming.destination, self._naming.subscription
        self.refusal, self.barrier = self._log.refusal, self._log.barrier
        self.forces, self.load = self._log.forces, self._loading.load

    def _make_compaction(self, recovery: Recovery) -> Compaction:
        return Compaction(
            log=self._log,
            segment_reader=self._segment_reader,
            reader=self._reader,
            settings=self._settings,
            journal=self,
            identities=recovery.identities,
            copies=recovery.copies,
        )

    def follow(self, follower: LogFollower, *, lease: DeliveryLease | None = None) -> None:
        """Tell it of the log from now on; before ``attach``, which begins the first segment."""
        self._log.follower, self.lease = follower, lease

    @property
    def written(self) -> int:
        """All before this position is on disk."""
        return self._log.written

    def attach(self, owner: JournalOwner) -> None:
        """Begin the first segment with the owner's state; what was recovered must be restored by
        then."""
        self._owner = owner
        self._log.begin()
        self._call_soon(self._log.flush)

    # ------------------------------------------------------------------ what is accepted

    def is_over_bytes(self, size: int) -> bool:
        return self._log.live + size > self._over

    @property
    def is_half_full(self) -> bool:
        return 2 * self._log.live > self._over

    def append(self, indication: Indication, places: Sequence[Place], *, held: int = 0) -> None:
        if held and self._held.pop(held, None) is not None:
            self._log.remove_live(indication.position, indication.size)
        self._write(indication, places, self._flags, origin=held)
        if len(places) > 1:
            self._shared[indication.id] = len(places)

    def append_all(
        self, indications: Sequence[Indication], places: Sequence[Sequence[PlainPlace]]
    ) -> bool:
        if not indications:
            return True
        self._append_new_names()
        log, offset, flags = self._log, self.offset, self._flags
        records = []
        live = 0
        for number, indication, of_one in zip(
            count(self.last_id + 1), indications, places, strict=False
        ):
            indication.id = number
            at = indication.accepted_at + offset
            record = encode_indication(indication, of_one, accepted_at=at, flags=flags)
            indication.size = len(record)
            records.append(record)
            if of_one:
                live += len(record)
        # The size of a body counts even if it is not written.
        size = sum(map(len, records))
        size += sum(len(one.body) for one in indications) if flags & _BODILESS else 0
        if self.is_over_bytes(size) or not log.has_room(size):
            for indication in indications:
                indication.id = indication.size = 0
            return False
        self.last_id += len(records)
        has_identity = any(one.digest is not None for one in indications)
        position = log.append_all(records, live=live, has_identity=has_identity)
        for indication, of_one in zip(indications, places, strict=True):
            indication.position = position
            position += indication.size
            if len(of_one) > 1:
                self._shared[indication.id] = len(of_one)
        return True

    def hold(self, indication: Indication, places: Sequence[Place]) -> None:
        self._write(indication, places, self._flags | _HELD)
        self._held[indication.id] = indication

    def _write(
        self, indication: Indication, places: Sequence[Place], flags: int, *, origin: int = 0
    ) -> None:
        self.last_id = indication.id = self.last_id + 1
        self._append_new_names()
        log = self._log
        record = encode_indication(
            indication,
            places,
            accepted_at=indication.accepted_at + self.offset,
            flags=flags,
            origin=origin,
        )
        indication.size = size = len(record)
        live = size if places or flags & _HELD else 0
        indication.position = log.append(
            record, live=live, has_identity=indication.digest is not None
        )

    def _append_new_names(self) -> None:
        if self._naming.has_new:
            for names in self._new_names():
                self._log.append(names)

    def end_hold(self, indication: Indication, reason: DiscardReason) -> None:
        if self._held.pop(indication.id, None) is not None:
            self._log.remove_live(indication.position, indication.size)
        self._settling.end_hold(indication.id, reason)
        self._flush_soon()

    # ------------------------------------------------------------------ what becomes of it

    def settle(
        self, place: Place, indication: Indication, reason: DiscardReason | None, *, through: bool
    ) -> int:
        self._settling.settle(place, reason, through)
        if not self._is_settle_due:
            self._flush_soon()
        left = self._shared.get(indication.id, 1) - 1
        if not left:
            self._log.remove_live(indication.position, indication.size)
        elif left == 1:
            del self._shared[indication.id]
        else:
            self._shared[indication.id] = left
        return left

    def reconsider(self) -> None:
        """Remove what need not be kept any more. Not within a call of this journal."""
        if len(self._log.segments) > 1:
            self._compaction.consider()

    def commit(self) -> None:
        """Commit soon, even if nothing was taken, so that outcomes are written."""
        # An empty part begins a write, which has a commit record alone.
        self._log.append(b"")

    def note(self, state: QueueState) -> None:
        self._next_epoch = max(self._next_epoch, state.epoch + 1)
        self._settling.note(state)
        self._flush_soon()

    def note_subscription(self, record: SubscriptionRecord) -> None:
        self._settling.note_subscription(record)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._is_settle_due:
            self._is_settle_due = True
            self._timers.call_at(self._clock.monotonic() + SETTLE_SECONDS, self._flush)

    def _flush(self) -> None:
        # Not cancelled when a commit included everything: cancelling a timer per commit costs more.
        self._is_settle_due = False
        if not self._settling.is_empty:
            self._log.flush()

    def close(self) -> None:
        """Commit and close the files. Blocks; the caller then closes the workers and releases the
        lock."""
        self._compaction.close()
        self._reader.drain()
        if not self._log.close():
            logger.error(
                "the journal's disk took not all that was accepted: %d bytes are lost",
                self._log.waiting,
                extra={"event": "journal-incomplete", "bytes": self._log.waiting},
            )
        self._reader.drain()
        self._segment_reader.close()
        self._loading.close()

    @property
    def statistics(self) -> JournalStatistics:
        return statistics_of(
            self._log,
            identity_bytes=self._compaction.identity_bytes,
            live_bound=self._settings.live_bound,
            last_commit=self._last_commit,
            damaged=self._found[0] + self._loading.damaged,
            torn=self._found[1],
        )

    # ------------------------------------------------------------------ what the log asks

    @property
    def owner(self) -> JournalOwner:
        assert self._owner is not None, "attach an owner first"
        return self._owner

    def trailing(self) -> list[bytes]:
        if self._owner is None:
            # A start that was interrupted leaves the folder as recovered.
            return []
        settled = None if self.outcomes is None else self.outcomes.write()
        if settled is not None:
            self._log.after_write(settled)
        records = [] if self._settling.is_empty else self._settling.take()
        if self._naming.has_new:
            records[:0] = self._new_names()
        if self._lost_through:
            lost, self._lost_through = self._lost_through, 0
            # Before later deliveries, which say nothing of what was lost.
            records.insert(0, encode_settlements([Settlement(0, LOST, lost)]))
        return records

    def opening(self, number: int, commit: int) -> bytes:
        states = tuple(self.owner.queue_states())
        self._next_epoch = max((self._next_epoch, *(state.epoch + 1 for state in states)))
        names = self._naming.take_all()
        snapshot = Snapshot(
            time=self.time(),
            next_id=self.last_id + 1,
            next_epoch=self._next_epoch,
            commit=commit,
            names=names,
            queues=states,
            groups=self.owner.groups(),
            subscriptions=tuple(self.owner.subscription_records()),
        )
        header, records = encode_header(self.header(number)), encode_whole_snapshot(snapshot)
        # Twice: if the first is damaged, the owners of all pending entries would be unknown.
        return b"".join((header, *records, encode_names(names)))

    def _new_names(self) -> list[bytes]:
        """The record of new names, twice: one may be damaged."""
        return [encode_names(self._naming.take_new())] * 2

    def time(self) -> float:
        return self._clock.monotonic() + self.offset

    def disk_full(self) -> None:
        if self.outcomes is not None:
            self.outcomes.shed()

    def opened(self) -> None:
        self._compaction.consider()

    def committed(self, batch: Batch, seconds: float) -> None:
        self._last_commit = seconds
        if self._observer is not None:
            self._observer.journal_committed(seconds)
        if batch.last_id > self._told_id:
            assert self._owner is not None
            self._told_id = batch.last_id
            self._owner.committed(batch.last_id)
        for done in batch.barriers:
            done()
        self.reconsider()

    def failed(self, error: OSError) -> None:
        self._log.stop(error)
        self.owner.failed(error)

    # ------------------------------------------------------------------ what compaction asks

    def header(self, number: int) -> Header:
        return Header(number, self._journal_id, self.time())

    def still_pending(self, found: Found) -> Sequence[Place] | None:
        if found.flags & _HELD:
            return found.places if found.id in self._held else None
        return (found.places and self.owner.unsettled(found.id, found.places)) or None

    def moved(
        self, found: Found, places: Sequence[Place], *, old_position: int, position: int, size: int
    ) -> None:
        if found.flags & _HELD:
            held = self._held[found.id]
            held.position, held.size = position, size
        self._loading.moved(old_position, position, size)
        self.owner.moved(found.id, places, position, size)

    def forget(self, number: int) -> None:
        self._loading.forget(number)

    def lowest_pending(self, destination: int) -> int:
        return self.owner.lowest_pending(destination)

    def ended(self, digests: Sequence[bytes]) -> Sequence[IdentityEnd | None]:
        return self.owner.identities(digests)


def _count(recovery: Recovery) -> tuple[int, int]:
    """Return the number of damaged stretches, and of cut-off writes that may have been
    acknowledged."""
    kinds = [finding.kind for finding in recovery.findings]
    torn, unfinished = kinds.count(FindingKind.TORN), kinds.count(FindingKind.UNFINISHED)
    return len(kinds) - torn - unfinished, torn
