"""Copying forward: what is pending in the oldest segment is written again at the end of the log,
and the segment removed. So the folder takes at most twice what is pending and one segment, however
long one listener is dead.

In steps of bounded size, each behind a commit of its own; deliveries, settlements and acceptance go
on between them.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.identities import IdentitiesFile, StoredIdentity, surplus
from pillion_sidecar.journal.limits import JournalSettings
from pillion_sidecar.journal.log import Log, Segment
from pillion_sidecar.journal.ports import Place
from pillion_sidecar.journal.records import DELIVERED, REASON_CODES, copy_indication
from pillion_sidecar.journal.recovery import SegmentState
from pillion_sidecar.journal.segment_reader import Found, Identity, SegmentReader
from pillion_sidecar.journal.segments import Header
from pillion_sidecar.journal.workers import Result, Worker

#: Records, and bytes of records, that are looked at in one turn of the event loop.
STEP_RECORDS = 32
STEP_BYTES = 256 << 10


class Copied(NamedTuple):
    """A record that was written again."""

    found: Found
    position: int
    size: int


class Copying(Protocol):
    """What compaction asks of the journal that it is a part of."""

    def still_pending(self, found: Found) -> Sequence[Place] | None:
        """Return the places of a record that are pending; None where the record is needed no
        more."""

    def moved(
        self, found: Found, places: Sequence[Place], *, old_position: int, position: int, size: int
    ) -> None:
        """A pending record lies somewhere else from now on."""

    def ended(self, digest: bytes) -> tuple[DiscardReason | None, str] | None:
        """Return how a remembered identity ended, None for one that is forgotten."""

    def header(self, number: int) -> Header:
        """Return the header of a file of identities."""

    def time(self) -> float:
        """Return the journal time."""

    def removed(self, number: int) -> None:
        """A segment is gone from the disk."""

    def failed(self, error: OSError) -> None:
        """The disk failed for good."""


def known_segments(states: Sequence[SegmentState]) -> dict[int, Segment]:
    """Return the segments of earlier runs, oldest first."""
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
        shelf: SegmentReader,
        reader: Worker,
        settings: JournalSettings,
        journal: Copying,
        identities: Sequence[IdentitiesFile],
        copies: dict[int, int],
    ) -> None:
        """``copies``: by id, where the copy lies that a run before made of a record which is still
        there as well, since a crash came before its segment was removed."""
        self._log = log
        self._shelf = shelf
        self._reader = reader
        self._settings = settings
        # Copies of one step go to one segment, which they must not swell.
        self._step_bytes = min(STEP_BYTES, settings.roll_at // 8)
        self._journal = journal
        self._segment: Segment | None = None
        self._remembered: list[StoredIdentity] = []
        self._files = list(identities)
        self._copies = copies
        self._is_closed = False

    @property
    def identity_bytes(self) -> int:
        """Bytes of all files of identities."""
        return sum(file.size for file in self._files)

    def consider(self) -> None:
        """Begin to remove the oldest segment, where that is due and not under way."""
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
            look = partial(self._shelf.look_through, oldest.number, oldest.size)
            self._submit(look, self._next)
        else:
            look = partial(self._shelf.look_for_identities, oldest.number, oldest.size)
            self._submit(look, self._next_identities)

    def _next_identities(self, _: None = None) -> None:
        self._submit(partial(self._shelf.next_identities, STEP_RECORDS), self._found_identities)

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
            # Copies need room, of which little is reserved; a few of them free a whole segment, and
            # without them nothing behind it is ever removed.
            return 4 * oldest.live <= min(oldest.size, log.room.end - log.end)
        # While the oldest is copied, it takes its room twice.
        peak = log.total + oldest.live + settings.step
        if peak <= 2 * log.live + settings.roll_at + current.overhead:
            return False
        # Copies need segments too. Where no more than the rest is dead, all this copying would go
        # round in a circle.
        needed = current.overhead * (1 + log.live // settings.roll_at)
        dead = (log.total - current.size) - (log.live - current.live) - needed
        return dead >= oldest.live

    def _next(self, _: None = None) -> None:
        self._submit(
            partial(self._shelf.next_found, STEP_RECORDS, self._step_bytes),
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
        """Write a record again, or remember its identity."""
        assert self._segment is not None
        here = self._segment.number << 32 | found.offset
        if self._copies.get(found.id, here) != here:
            # A second copy would stand beside the first once this segment is gone.
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
        """Copies are on disk: from now on they are the ones that count."""
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
        self._submit(
            partial(self._shelf.remove, number, self._journal.header(number), remembered),
            self._removed,
        )

    def _removed(self, kept: IdentitiesFile | None) -> None:
        segment, self._segment = self._segment, None
        assert segment is not None
        self._journal.removed(segment.number)
        self._log.removed(segment)
        if kept is not None:
            self._files.append(kept)
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
            self._submit(partial(self._shelf.remove_files, sorted(gone)), _removed_files)

    def _submit(self, work: Callable[[], Result], done: Callable[[Result], None]) -> None:
        self._reader.submit(work, done, self._journal.failed)

    def close(self) -> None:
        """Begin nothing any more."""
        self._is_closed = True


def _removed_files(_: None) -> None:
    """Nobody waits for these."""
