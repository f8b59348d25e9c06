"""Compaction: copies the pending records of the oldest segment to the end of the log, then removes
the segment.

The folder takes at most twice what is pending plus one segment. Each step is bounded and has its
own commit; deliveries, settlements and acceptance continue between steps.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.identities import IdentitiesFile, StoredIdentity, surplus
from pillion_sidecar.journal.limits import JournalSettings
from pillion_sidecar.journal.log import Log, Segment
from pillion_sidecar.journal.ports import Place, Result, Worker
from pillion_sidecar.journal.records import DELIVERED, REASON_CODES, copy_indication
from pillion_sidecar.journal.recovery import SegmentState
from pillion_sidecar.journal.segment_reader import Found, Identity, SegmentReader
from pillion_sidecar.journal.segments import Header

logger = logging.getLogger("pillion.journal")

#: Records, and bytes of records, per turn of the event loop.
STEP_RECORDS = 32
STEP_BYTES = 256 << 10


class Copied(NamedTuple):
    found: Found
    position: int
    size: int


class Copying(Protocol):
    def still_pending(self, found: Found) -> Sequence[Place] | None:
        """Return the places of a record that are pending; None if the record is obsolete."""

    def moved(
        self, found: Found, places: Sequence[Place], *, old_position: int, position: int, size: int
    ) -> None: ...

    def ended(self, digest: bytes) -> tuple[DiscardReason | None, str] | None:
        """Return how a remembered identity ended; None if it is forgotten."""

    def header(self, number: int) -> Header: ...

    def time(self) -> float: ...

    def forget(self, number: int) -> None:
        """Close a segment that is removed: its space is free only when no descriptor is open."""

    def failed(self, error: OSError) -> None: ...


def known_segments(states: Sequence[SegmentState]) -> dict[int, Segment]:
    return {
        state.number: Segment(
            number=state.number, size=state.size, live=state.live, overhead=state.overhead
        )
        for state in states
    }


class Compaction:
    """Removes the oldest segment whenever it is due."""

    def __init__(
        self,
        *,
        log: Log,
        segment_reader: SegmentReader,
        reader: Worker,
        settings: JournalSettings,
        journal: Copying,
        identities: Sequence[IdentitiesFile],
        copies: dict[int, int],
    ) -> None:
        """``copies``: by id, the copy's position, if the previous run crashed between copying a
        record and removing its segment."""
        self._log = log
        self._segment_reader = segment_reader
        self._reader = reader
        self._settings = settings
        # The copies of one step go to one segment, which they must not swell.
        self._step_bytes = min(STEP_BYTES, settings.roll_at // 8)
        self._journal = journal
        self._segment: Segment | None = None
        self._remembered: list[StoredIdentity] = []
        self._files = list(identities)
        self._copies = copies
        self._is_closed = False

    @property
    def identity_bytes(self) -> int:
        return sum(file.size for file in self._files)

    def consider(self) -> None:
        """Begin to remove the oldest segment, if that is due and not under way."""
        if self._segment is not None or self._is_closed or self._log.error is not None:
            return
        oldest = self._log.oldest
        if oldest is None or not self._is_due(oldest):
            return
        self._segment = oldest
        if not oldest.live and not oldest.identities:
            self._remove()
            return
        if oldest.live:
            look = partial(self._segment_reader.look_through, oldest.number, oldest.size)
            self._submit(look, self._next)
        else:
            look = partial(self._segment_reader.look_for_identities, oldest.number, oldest.size)
            self._submit(look, self._next_identities)

    def _next_identities(self, _: None = None) -> None:
        self._submit(
            partial(self._segment_reader.next_identities, STEP_RECORDS), self._found_identities
        )

    def _found_identities(self, found: Sequence[Identity]) -> None:
        if self._is_closed:
            return
        for digest, accepted_at, expires in found:
            self._remember(digest, accepted_at, expires)
        if found:
            self._next_identities()
        else:
            self._remove()

    def _is_due(self, oldest: Segment) -> bool:
        if not oldest.live:
            return True
        log, settings, current = self._log, self._settings, self._log.current
        if current is None:
            return False
        if log.room.is_full:
            # Copies need reserved space; a few of them free a whole segment, and without them no
            # later segment is ever removed.
            return 4 * oldest.live <= min(oldest.size, log.room.end - log.end)
        # During the copy the oldest takes its space twice.
        peak = log.total + oldest.live + settings.step
        if peak <= 2 * log.live + settings.roll_at + current.overhead:
            return False
        # Copies need segments too. If no more than that is dead, copying would never end.
        needed = current.overhead * (1 + log.live // settings.roll_at)
        dead = (log.total - current.size) - (log.live - current.live) - needed
        return dead >= oldest.live

    def _next(self, _: None = None) -> None:
        self._submit(
            partial(self._segment_reader.next_found, STEP_RECORDS, self._step_bytes),
            self._found,
        )

    def _found(self, found: Sequence[Found]) -> None:
        if self._is_closed:
            return
        if not found:
            self._remove()
            return
        copies = [copied for one in found if (copied := self._keep(one)) is not None]
        if copies:
            self._log.barrier(partial(self._copied, copies))
        else:
            self._next()

    def _keep(self, found: Found) -> Copied | None:
        """Copy a record, or remember its identity."""
        assert self._segment is not None
        here = self._segment.number << 32 | found.offset
        if self._copies.get(found.id, here) != here:
            # Removing this segment would leave two copies.
            return None
        self._copies.pop(found.id, None)
        places = self._journal.still_pending(found)
        if places is None:
            if found.digest is not None:
                self._remember(found.digest, found.accepted_at, found.expires)
            return None
        record = copy_indication(found.record, places, origin=self._segment.number)
        position = self._log.append(record, has_identity=found.digest is not None)
        return Copied(found, position, len(record))

    def _remember(self, digest: bytes, accepted_at: float, expires: float) -> None:
        ended = self._journal.ended(digest)
        if ended is not None:
            reason, destination = ended
            how = DELIVERED if reason is None else REASON_CODES[reason]
            self._remembered.append(StoredIdentity(digest, accepted_at, expires, how, destination))

    def _copied(self, copies: Sequence[Copied]) -> None:
        """The copies are on disk and replace their originals."""
        segment = self._segment
        assert segment is not None
        for found, position, size in copies:
            places = self._journal.still_pending(found)
            if places is None:
                continue
            new = self._log.segments[position >> 32]
            new.live += size
            segment.live -= len(found.record)
            self._log.live += size - len(found.record)
            self._journal.moved(
                found,
                places,
                old_position=segment.number << 32 | found.offset,
                position=position,
                size=size,
            )
        if not self._is_closed:
            self._next()

    def _remove(self) -> None:
        assert self._segment is not None
        number = self._segment.number
        remembered, self._remembered = self._remembered, []
        self._journal.forget(number)
        self._submit(
            partial(self._segment_reader.remove, number, self._journal.header(number), remembered),
            partial(self._removed, len(remembered)),
        )

    def _removed(self, remembered: int, kept: IdentitiesFile | None) -> None:
        segment, self._segment = self._segment, None
        assert segment is not None
        # A late read may have opened it again.
        self._journal.forget(segment.number)
        self._log.removed(segment)
        if kept is not None:
            self._files.append(kept)
        elif remembered:
            logger.warning(
                "the disk is full: after a restart, %d indications that are settled are not "
                "recognized when they are published again",
                remembered,
                extra={"event": "identities-forgotten", "count": remembered},
            )
        self._forget()
        self.consider()

    def _forget(self) -> None:
        settings = self._settings
        over = surplus(
            self._files,
            capacity=settings.identity_entries,
            window_seconds=settings.identity_seconds,
            now=self._journal.time(),
        )
        if over:
            gone = {file.name for file in over}
            self._files = [file for file in self._files if file.name not in gone]
            self._submit(partial(self._segment_reader.remove_files, sorted(gone)), _removed_files)

    def _submit(self, work: Callable[[], Result], done: Callable[[Result], None]) -> None:
        self._reader.submit(work, done, self._journal.failed)

    def close(self) -> None:
        self._is_closed = True


def _removed_files(_: None) -> None: ...
