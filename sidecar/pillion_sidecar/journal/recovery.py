"""Recovers what earlier runs left: finds what is pending, and repairs damage from a crash or the
disk.

Two passes over each segment, oldest first (:mod:`.scan`, :mod:`.rebuild`), so that a restart takes
the memory of one segment and the columns of pending entries.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pillion_sidecar.clock import Clock
from pillion_sidecar.journal.files import (
    Files,
    ReadableFiles,
    misnamed_error,
    mixed_error,
    telling,
    version_error,
)
from pillion_sidecar.journal.identities import (
    IdentitiesFile,
    StoredIdentity,
    identities_name,
    identities_numbers,
    pack_identities,
    read_identities,
    summary,
    write_identities,
)
from pillion_sidecar.journal.marks import MARKS_NAME, Marks, read_marks
from pillion_sidecar.journal.ports import IdentitySink, Recovered, is_full
from pillion_sidecar.journal.rebuild import Rebuild
from pillion_sidecar.journal.records import FRAME, REASONS, Kind, read_frame
from pillion_sidecar.journal.repair import (
    cut,
    mend_header,
    quarantine,
    remove_partial,
    stand_in,
)
from pillion_sidecar.journal.scan import (
    Finding,
    FindingKind,
    Layout,
    ScanState,
    describe,
    sound_ranges,
    survey,
)
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    PARTIAL_SUFFIX,
    VERSION,
    Header,
    header_version,
    read_header,
    segment_name,
    segment_numbers,
)

#: Enough for the header of any version.
_LONGEST_HEADER = 4096
#: Assumed size of a segment that is lost completely.
_SEGMENT_SIZE = 64 << 20
logger = logging.getLogger("pillion.journal")
#: Difference between the clock and the last record at which a start warns.
CLOCK_WARNING_SECONDS = 86_400.0
#: Added to the counters that others have seen, if the folder lacks what they were used for: more
#: than one run uses.
_UNKNOWN = 1 << 40
_LOSSES = (FindingKind.DAMAGED, FindingKind.MISSING, FindingKind.TORN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    number: int
    size: int
    overhead: int
    ranges: list[tuple[int, int]]


class FolderScan:
    def __init__(
        self,
        files: ReadableFiles,
        *,
        writable: Files | None,
        new_journal_id: bytes,
        copied_at: float | None = None,
    ) -> None:
        """``writable`` are the same files, to repair them; None to change nothing. ``copied_at``:
        the time, if others have copies of the journal."""
        self._copied_at = copied_at
        self._files = files
        self._writable = writable
        self._new_journal_id = new_journal_id
        self.journal_id: bytes | None = None
        self.account = ScanState()
        self.surveyed: list[Surveyed] = []
        self.identities: list[IdentitiesFile] = []
        self.findings: list[Finding] = []
        #: Bytes in which records may have been.
        self.lost_bytes = 0
        with telling("."):
            names = files.names()
        self._numbers = segment_numbers(names)
        data = self.read(MARKS_NAME) if MARKS_NAME in names else b""
        #: None if an older version wrote the folder.
        self._marks = self._marks_of(data)
        self.next_segment = self._first_free(self._numbers)

    @property
    def id(self) -> bytes:
        """The journal's id, a new one if no file has it."""
        return self.journal_id or self._new_journal_id

    def read(self, name: str, size: int | None = None) -> bytes:
        with telling(name):
            file = self._files.open(name)
            try:
                return file.read(0, self._files.size(name) if size is None else size)
            finally:
                file.close()

    def check_headers(self) -> None:
        """Reject what cannot be opened, before anything is changed."""
        for number in self._numbers:
            self._check(segment_name(number), number)
        for number in identities_numbers(self._files.names()):
            self._check(identities_name(number), number)

        if self._marks is not None and self.journal_id is None:
            self.journal_id = self._marks.journal_id

    def _check(self, name: str, number: int) -> None:
        begin = self.read(name, _LONGEST_HEADER)
        version = header_version(begin)
        if version is not None and version != VERSION:
            raise version_error(name, version, VERSION)
        header = read_header(begin)
        if header is None:
            return
        if header.number != number:
            raise misnamed_error(name, segment_name(header.number))
        if self.journal_id is None:
            self.journal_id = header.journal_id
        elif header.journal_id != self.journal_id:
            raise mixed_error(name, header.journal_id.hex(), self.journal_id.hex())

    # ------------------------------------------------------------------ segments

    def look_at_segments(self) -> None:
        """Survey all segments, oldest first, and repair each."""
        marks = self._trusted_marks()
        before = None if marks is None else marks.oldest - 1
        for number in self._numbers:
            data = self.read(segment_name(number))
            if before is not None and number > before + 1:
                self._miss(before, number, data)
            before = number if before is None else max(before, number)
            self._look_at_segment(number, data)
            # Before the next is read: a segment is a large part of a restart's memory.
            del data
        if marks is not None and before is not None and before < marks.newest:
            self._miss(before, marks.newest + 1, b"")
        if self._numbers and not self.surveyed:
            self.next_segment = self._numbers[-1]
        else:
            self.next_segment = self._first_free([one.number for one in self.surveyed])

    def _first_free(self, numbers: Sequence[int]) -> int:
        marked = 0 if self._marks is None else self._marks.newest
        return max([marked, *numbers]) + 1

    def _marks_of(self, data: bytes) -> Marks | None:
        marks = read_marks(data)
        if marks is None and data:
            lost = "which segments are the first and the last; no record"
            self._find(FindingKind.MARKS, MARKS_NAME, 0, len(data), lost)
        return marks

    def _trusted_marks(self) -> Marks | None:
        """The marks, unless an older version has written since."""
        marks = self._marks
        if marks is None or marks.journal_id != self.id:
            return None
        return None if self._numbers and self._numbers[-1] > marks.newest else marks

    def _end_of(self, number: int) -> int:
        """The known end of a segment; 0 if unknown."""
        end = None if self._marks is None else self._marks.end
        if end is None or self._trusted_marks() is None or end.number != number:
            return 0
        # After a boot, unsynced content is undefined.
        return end.offset if end.boot_id == self._files.boot_id() else 0

    def _is_complete(self, number: int) -> bool:
        """Whether a segment was on disk whole: a later one was, or it is marked and begun."""
        newest = max(self._numbers[-1], 0 if self._marks is None else self._marks.newest)
        return number < newest

    def _look_at_segment(self, number: int, data: bytes) -> None:
        oldest = self._numbers[0]
        layout = survey(data, newest=not self._is_complete(number), oldest=oldest)
        marked = 0 if self._marks is None else self._marks.newest
        if layout.end < HEADER_SIZE and number <= marked:
            # Its header was on disk, so this is no interrupted write.
            layout = survey(data, newest=False, oldest=oldest)
        size_on_disk, written = len(data), self._end_of(number)
        if layout.end < written:
            # Unsound bytes before the end are damage, however the log ends.
            data = data[:written].ljust(written, b"\0")
            layout = survey(data, newest=False, oldest=oldest)
        senseless = self.account.add(number, data, layout)
        layout = layout._replace(damaged=tuple(sorted((*layout.damaged, *senseless))))
        self._note(number, data, layout, acknowledged=not written)
        is_lost = layout.torn and not written
        if self._writable is not None:
            is_noted = is_lost and self._copied_at is None
            size = self._mend(
                self._writable,
                number,
                data,
                layout,
                size_on_disk,
                next_segment=self.next_segment if is_noted else 0,
            )
        else:
            size = layout.end
        if size >= HEADER_SIZE:
            self.surveyed.append(
                Surveyed(
                    number=number,
                    size=size,
                    overhead=HEADER_SIZE + _snapshot_size(data, layout),
                    ranges=sound_ranges(layout),
                )
            )
        if self._writable is not None and is_lost and self._copied_at is not None:
            self._note_apart(self._writable, self._copied_at)

    def _note_apart(self, files: Files, now: float) -> None:
        """Note a lost end in a segment of its own: a copy may have the end itself."""
        number = self.next_segment
        header = Header(number, self.id, max(now, self.account.last_time))
        with telling(segment_name(number)):
            size = stand_in(files, header, missing=0, next_segment=number + 1)
        if size:
            self.surveyed.append(Surveyed(number=number, size=size, overhead=size, ranges=[]))

    def _miss(self, before: int, number: int, data: bytes) -> None:
        missing = number - before - 1
        frame = read_frame(data, HEADER_SIZE, len(data))
        if frame is not None and frame.kind == Kind.FILLER and frame.entries > missing:
            # An earlier start reported it, and this segment is the substitute.
            return
        first, last = segment_name(before + 1), segment_name(number - 1)
        lost = f"{missing} segments with all their records, to {last}"
        self._find(FindingKind.MISSING, first, 0, 0, lost)
        self.lost_bytes += missing * _SEGMENT_SIZE
        if self._writable is not None:
            header = Header(number - 1, self.id, self.account.last_time)
            with telling(last):
                size = stand_in(
                    self._writable,
                    header,
                    missing=missing,
                    next_segment=self.next_segment,
                )
            # Removed in its turn like any other, so that no gap remains.
            if size:
                one = Surveyed(number=number - 1, size=size, overhead=size, ranges=[])
                self.surveyed.append(one)

    def _note(self, number: int, data: bytes, layout: Layout, *, acknowledged: bool) -> None:
        """``acknowledged``: the torn write may have been."""
        name = segment_name(number)
        if _is_beheaded(data, layout):
            lost = "all that the segment held: it is shorter than its header"
            self._find(FindingKind.DAMAGED, name, 0, len(data), lost)
            self.lost_bytes += _SEGMENT_SIZE
        elif layout.header is None and layout.end >= HEADER_SIZE:
            lost = "the header of the segment, which is made anew; no record"
            self._find(FindingKind.HEADER, name, 0, HEADER_SIZE, lost)
        for at, size in layout.damaged:
            self._find(FindingKind.DAMAGED, name, at, at + size, describe(data, at, at + size))
            self.lost_bytes += size
        if layout.torn:
            end = layout.end + len(data[layout.end :].rstrip(b"\0"))
            if acknowledged:
                lost = "the last write, which may have been acknowledged"
                self._find(FindingKind.TORN, name, layout.end, end, lost)
                self.lost_bytes += end - layout.end
            else:
                lost = "the last write, of which nothing was acknowledged"
                self._find(FindingKind.UNFINISHED, name, layout.end, end, lost)

    def _mend(
        self,
        files: Files,
        number: int,
        data: bytes,
        layout: Layout,
        size_on_disk: int,
        *,
        next_segment: int,
    ) -> int:
        """Return the repaired length of the segment. ``next_segment``: see :func:`cut`."""
        size = layout.end
        header = Header(number, self.id, self.account.last_time)
        with telling(segment_name(number)):
            if _is_beheaded(data, layout) or (layout.torn and layout.end < HEADER_SIZE):
                return stand_in(files, header, missing=0, next_segment=self.next_segment)
            if layout.header is None and layout.end >= HEADER_SIZE:
                mend_header(files, header, data)
            if layout.damaged:
                quarantine(files, number, data, layout.damaged, next_segment=self.next_segment)
                last, length = layout.damaged[-1]
                if length < FRAME.size:
                    size = last
            if layout.end < max(size_on_disk, HEADER_SIZE):
                size = cut(files, number, layout.end, next_segment=next_segment)
        return size

    # ------------------------------------------------------------------ identities

    def look_at_identities(self) -> Iterator[StoredIdentity]:
        """Yield the stored identities, oldest first; damaged files are rewritten."""
        for number in identities_numbers(self._files.names()):
            if number in self._numbers:
                # Its segment still exists and has the same.
                continue
            name = identities_name(number)
            data = self.read(name)
            stored, damaged = read_identities(data)
            for at, stretch in damaged:
                lost = "identities: what repeats them is delivered again"
                self._find(FindingKind.IDENTITIES, name, at, at + stretch.size, lost)
            file = summary(number, len(data), stored)
            if damaged and self._writable is not None:
                file = self._write_anew(self._writable, file, number, stored)
            self.identities.append(file)
            yield from stored

    def _write_anew(
        self, files: Files, file: IdentitiesFile, number: int, stored: list[StoredIdentity]
    ) -> IdentitiesFile:
        with telling(file.name):
            try:
                packed = pack_identities(stored)
                return write_identities(files, Header(number, self.id, 0.0), packed)
            except OSError as error:
                # Its sound part remains readable at the next start.
                if not is_full(error):
                    raise
                remove_partial(files)
                return file

    def _find(self, kind: FindingKind, file: str, begin: int, end: int, lost: str) -> None:
        self.findings.append(Finding(kind=kind, file=file, begin=begin, end=end, lost=lost))


def _is_beheaded(data: bytes, layout: Layout) -> bool:
    return len(data) < HEADER_SIZE <= layout.end


def _snapshot_size(data: bytes, layout: Layout) -> int:
    if not layout.others or layout.others[0] != HEADER_SIZE:
        return 0
    frame = read_frame(memoryview(data), HEADER_SIZE, layout.end)
    return frame.size if frame is not None and frame.kind == Kind.SNAPSHOT else 0


def examine(files: ReadableFiles) -> FolderScan:
    """Scan a folder like a start, without changes.

    Raises JournalError: what no deliverer would open.
    """
    opening = FolderScan(files, writable=None, new_journal_id=bytes(16))
    opening.check_headers()
    opening.look_at_segments()
    for _ in opening.look_at_identities():
        # Only the findings and the count are needed.
        pass
    return opening


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    number: int
    #: Bytes, and bytes of pending records.
    size: int
    live: int
    #: Bytes of its header and its snapshot.
    overhead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The state from which a journal continues."""

    recovered: Recovered
    journal_id: bytes
    #: ``Journal.offset``.
    offset: float
    #: Greater than every id, segment number and commit number used before.
    next_id: int
    next_segment: int
    next_commit: int
    #: Greater than every index used before.
    next_destination: int
    next_subscription: int
    #: By index: uid and name.
    destinations: dict[int, tuple[str, str]]
    #: Oldest first.
    segments: tuple[SegmentState, ...]
    #: By id: pending places, of indications that have more than one.
    shared: dict[int, int]
    #: By id: the position of the copy of a record that is still there as well.
    copies: dict[int, int]
    #: Oldest first.
    identities: tuple[IdentitiesFile, ...]
    #: For the settlement ``(0, LOST, this)`` of the first commit, so that no later start reports
    #: the loss again; 0 for none.
    lost_through: int
    oldest: int
    findings: tuple[Finding, ...]


def recover(
    files: Files,
    *,
    clock: Clock,
    identities: IdentitySink,
    new_journal_id: bytes,
    lacks_end: bool = False,
    is_copied: bool = False,
) -> Recovery:
    """Repair the folder, whose lock the caller holds, and return its content.

    ``new_journal_id``: 16 random bytes, for a new journal. ``lacks_end``: the folder lacks the end
    of what the run before has written, such as one that is restored from a copy. ``is_copied``:
    others have copies, which may end behind the folder's.

    Raises JournalError: a newer version, files of several journals, or a failing disk.
    """
    opening = FolderScan(
        files,
        writable=files,
        new_journal_id=new_journal_id,
        copied_at=clock.time() if is_copied else None,
    )
    opening.check_headers()
    with telling(f"*{PARTIAL_SUFFIX}"):
        remove_partial(files)
    opening.look_at_segments()
    account = opening.account
    _warn_of_clock(clock.time(), account.last_time)
    offset = max(clock.time(), account.last_time) - clock.monotonic()
    rebuild = Rebuild(account=account, offset=offset, sink=identities)
    for identity in opening.look_at_identities():
        _restore(identity, identities, offset=offset)
    segments = []
    for one in opening.surveyed:
        live = rebuild.add(one.number, opening.read(segment_name(one.number)), one.ranges)
        segments.append(
            SegmentState(number=one.number, size=one.size, live=live, overhead=one.overhead)
        )
    rebuild.finish()
    now = offset + clock.monotonic()
    return _result(opening, rebuild, segments, now=now, lacks_end=lacks_end)


def _warn_of_clock(now: float, last: float) -> None:
    """Warn if the clock is far from the last record: it was set, or the deliverer was stopped that
    long."""
    if not last or abs(now - last) < CLOCK_WARNING_SECONDS:
        return
    days = abs(now - last) / 86_400
    if now > last:
        text = (
            "the clock is %.1f days ahead of the journal's last record: the deliverer was stopped "
            "for so long, or the clock was set; lifetimes and remembered identities count that time"
        )
    else:
        text = (
            "the clock is %.1f days behind the journal's last record: it was set back; the journal "
            "goes on from the time of that record"
        )
    logger.warning(text, days, extra={"event": "journal-clock", "seconds": round(now - last)})


def _restore(stored: StoredIdentity, sink: IdentitySink, *, offset: float) -> None:
    sink.restore(
        stored.digest,
        accepted_at=stored.accepted_at - offset,
        expires=stored.expires or None,
        pending=False,
        reason=REASONS.get(stored.how),
        destination=stored.destination,
        # Identities discarded everywhere are in no such file.
        delivered=True,
    )


def _result(
    opening: FolderScan,
    rebuild: Rebuild,
    segments: list[SegmentState],
    *,
    now: float,
    lacks_end: bool,
) -> Recovery:
    account = opening.account
    unknown = _UNKNOWN if lacks_end else 0
    newest = segments[-1].number if segments else 0
    lost_records = any(finding.kind in _LOSSES for finding in opening.findings)
    # Never reuse an epoch of a lost record; each took a record.
    next_epoch = account.next_epoch + -(-opening.lost_bytes // FRAME.size)
    if any(finding.kind is FindingKind.MISSING for finding in opening.findings):
        # A missing segment may have recorded a loss; journal time grows faster than both.
        next_epoch = max(next_epoch, int(1000 * now))
    recovered = Recovered(
        queues=rebuild.queues,
        subscriptions=account.subscriptions,
        subscription_records=account.subscription_records,
        held=rebuild.held,
        groups=account.groups,
        members=rebuild.members,
        next_epoch=next_epoch + unknown,
        damaged=lost_records or account.mended_until > newest or bool(rebuild.lost) or lacks_end,
        lost=rebuild.lost,
    )
    log_findings(opening.findings)
    return Recovery(
        recovered=recovered,
        journal_id=opening.id,
        offset=rebuild.offset,
        next_id=account.last_id + 1 + unknown,
        next_segment=opening.next_segment,
        next_commit=account.last_commit + 1,
        next_destination=max([-1, *account.destinations, *rebuild.queues, *account.next_number])
        + 1,
        next_subscription=rebuild.next_subscription(),
        destinations=account.destinations,
        segments=tuple(segments),
        shared=rebuild.shared,
        copies=account.copies,
        identities=tuple(opening.identities),
        lost_through=rebuild.lost_through,
        oldest=segments[0].number if segments else opening.next_segment,
        findings=tuple(opening.findings),
    )


def log_findings(findings: Sequence[Finding]) -> None:
    for finding in findings:
        if finding.kind == FindingKind.UNFINISHED:
            logger.info(
                "cut off the last write of the journal, which the end of the process broke off; "
                "nothing of it was acknowledged",
                extra={
                    "event": "journal-unfinished",
                    "file": finding.file,
                    "begin": finding.begin,
                    "end": finding.end,
                },
            )
        elif finding.kind == FindingKind.TORN:
            logger.warning(
                "cut off the end of the journal, which is not what was written: a crash broke the "
                "last write off, or it is damaged and may have been acknowledged",
                extra={
                    "event": "journal-torn",
                    "file": finding.file,
                    "begin": finding.begin,
                    "end": finding.end,
                    "lost": finding.lost,
                },
            )
        else:
            logger.error(
                "the journal is damaged; what can be read of it is used",
                extra={
                    "event": "journal-damaged",
                    "damage": finding.kind.value,
                    "file": finding.file,
                    "begin": finding.begin,
                    "end": finding.end,
                    "lost": finding.lost,
                },
            )
