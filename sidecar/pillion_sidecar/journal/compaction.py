"""Compaction: copies the pending records of the oldest segment to the end of the log, then removes
the segment.

The folder takes at most twice what is pending plus one segment. Each step is bounded and has its
own commit; deliveries, settlements and acceptance continue between steps.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from pillion_sidecar.journal.identities import (
    IdentitiesFile,
    IdentityEnd,
    PackedIdentities,
    surplus,
)
from pillion_sidecar.journal.limits import JournalSettings
from pillion_sidecar.journal.log import Log, Segment
from pillion_sidecar.journal.ports import Place, Result, Worker
from pillion_sidecar.journal.records import copy_indication
from pillion_sidecar.journal.recovery import SegmentState
from pillion_sidecar.journal.segment_reader import SegmentReader
from pillion_sidecar.journal.segment_walk import DIGEST_FROM, PIECE_BYTES, Found, Piece
from pillion_sidecar.journal.segments import Header

logger = logging.getLogger("pillion.journal")

#: Records that may be pending per turn of the event loop.
STEP_RECORDS = 32


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

    def lowest_pending(self, destination: int) -> int:
        """Return a number below which every place of a destination is settled."""

    def ended(self, digests: Sequence[bytes]) -> Sequence[IdentityEnd | None]:
        """Return how each remembered identity ended; None if it is forgotten."""

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
        self._piece_bytes = min(PIECE_BYTES, settings.roll_at // 8)
        self._journal = journal
        self._segment: Segment | None = None
        self._identities = PackedIdentities()
        # By destination: all below was settled when the segment was looked through.
        self._lowest: dict[int, int] = {}
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
        if oldest is None or not self._is_due(oldest) or self._waits(oldest):
            return
        self._segment = oldest
        if not oldest.live and not oldest.identities:
            self._remove()
            return
        look = partial(
            self._segment_reader.look_through, oldest.number, oldest.size, self._piece_bytes
        )
        self._submit(look, self._next)

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

    def _waits(self, oldest: Segment) -> bool:
        """Whether stores are to have the segment first."""
        log, settings = self._log, self._settings
        if log.follower is None:
            return False
        is_crowded = log.total + oldest.live + settings.roll_at > 2 * settings.live_bound
        return log.follower.keeps(oldest.number, is_crowded=is_crowded or log.room.is_full)

    def _next(self, _: None = None) -> None:
        # Of a record with a copy, only the copy counts.
        lowest = {} if self._copies else self._lowest
        self._submit(partial(self._segment_reader.next_piece, lowest, STEP_RECORDS), self._found)

    def _found(self, piece: Piece | None) -> None:
        if self._is_closed:
            return
        if piece is None:
            self._remove()
            return
        copies = [copied for one in piece.found if (copied := self._keep(one, piece)) is not None]
        for destination in {place.destination for one in piece.found for place in one.places}:
            self._lowest[destination] = self._journal.lowest_pending(destination)
        digests = [identity[DIGEST_FROM:] for identity in piece.identities]
        self._identities.add_all(piece.identities, self._journal.ended(digests))
        if copies:
            self._log.barrier(partial(self._copied, copies))
        else:
            self._next()

    def _keep(self, found: Found, piece: Piece) -> Copied | None:
        """Copy a record, or have its identity remembered."""
        assert self._segment is not None
        here = self._segment.number << 32 | found.offset
        if self._copies.get(found.id, here) != here:
            # Removing this segment would leave two copies.
            return None
        self._copies.pop(found.id, None)
        places = self._journal.still_pending(found)
        if places is None:
            if found.identity is not None:
                piece.identities.append(found.identity)
            return None
        record = copy_indication(found.record, places, origin=self._segment.number)
        position = self._log.append(record, has_identity=found.identity is not None)
        return Copied(found, position, len(record))

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
        remembered, self._identities = self._identities, PackedIdentities()
        self._lowest = {}
        self._journal.forget(number)
        if self._log.follower is not None:
            # Before the file goes, so that nobody asks for it afterwards.
            self._log.follower.removed(number, self._log.written)
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
        if self._log.follower is not None:
            self._log.follower.remembered([file.segment for file in self._files])
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
