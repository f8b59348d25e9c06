"""Reads indications back while compaction may relocate their records.

Records in the page cache are read on the event loop: passing the interpreter lock to a thread and
back costs more than the read. The rest is read by the reader thread.
"""

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.log import Log
from pillion_sidecar.journal.ports import Worker
from pillion_sidecar.journal.records import FRAME, MAXIMUM_RECORD
from pillion_sidecar.journal.segment_reader import SegmentFileCache, SegmentReader, read_indication
from pillion_sidecar.journal.segments import segment_name, segment_of

#: Bytes read at once; most records are shorter.
_GLANCE = 8192
logger = logging.getLogger("pillion.journal")
#: Recently read indications with several places, and bytes of their bodies.
RECENT = 512
RECENT_BYTES = 64 << 20
#: Takes what was read, None for a damaged record.
Loaded: TypeAlias = Callable[[Sequence[Indication | None]], None]


class RelocationEpoch:
    """Overlapping loads, and the relocations since the first of them."""

    __slots__ = ("loads", "moved")

    def __init__(self) -> None:
        self.loads = 0
        #: By old position: new position, size.
        self.moved: dict[int, tuple[int, int]] = {}


class Relocations:
    """Remembers relocations while a load that began before them is under way.

    In two epochs: loads may overlap without end, and yet no relocation is kept for ever.
    """

    def __init__(self) -> None:
        self._spells = deque([RelocationEpoch()])

    def __len__(self) -> int:
        return sum(len(spell.moved) for spell in self._spells)

    def begin(self) -> RelocationEpoch:
        """Begin a load; pass the result to :meth:`end`."""
        spell = self._spells[-1]
        spell.loads += 1
        return spell

    def end(self, spell: RelocationEpoch) -> None:
        spell.loads -= 1
        spells = self._spells
        while len(spells) > 1 and not spells[0].loads:
            spells.popleft()
        if len(spells) == 1:
            if spells[0].loads:
                spells.append(RelocationEpoch())
            else:
                spells[0].moved.clear()

    def note(self, old_position: int, position: int, size: int) -> None:
        if len(self._spells) > 1 or self._spells[0].loads:
            self._spells[-1].moved[old_position] = position, size

    def find(self, position: int) -> tuple[int, int] | None:
        for spell in self._spells:
            found = spell.moved.get(position)
            if found is not None:
                return found
        return None


class PageCacheReader:
    """Reads records of any segment; used only on the event loop."""

    def __init__(self, files: Files, *, offset: float) -> None:
        self._segments = SegmentFileCache(files)
        self._offset = offset
        self._buffer = bytearray(_GLANCE)

    def load(self, positions: Sequence[int]) -> list[Indication] | None:
        """Return the indications at ``positions``; None if one needs the disk, or is unsound."""
        found = []
        for position in positions:
            indication = self._read(position)
            if indication is None:
                return None
            found.append(indication)
        return found

    def _read(self, position: int) -> Indication | None:
        number, at = segment_of(position)
        try:
            file = self._segments.get(number)
            buffer = self._buffer
            size = file.read_cached(at, buffer)
            if size == _GLANCE and FRAME.unpack_from(buffer)[4] > size:
                buffer = bytearray(min(FRAME.unpack_from(buffer)[4], MAXIMUM_RECORD))
                size = file.read_cached(at, buffer)
        except OSError:
            # The reader thread diagnoses it.
            return None
        data = memoryview(buffer)[:size]
        return read_indication(data, 0, position=position, offset=self._offset)

    def forget(self, number: int) -> None:
        self._segments.forget(number)

    def close(self) -> None:
        self._segments.close()


class ReadBack:
    def __init__(
        self,
        *,
        log: Log,
        segment_reader: SegmentReader,
        reader: Worker,
        offset: float,
        shared: Mapping[int, int],
        failed: Callable[[OSError], None],
        page_cache: PageCacheReader,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """``shared``: by id, unsettled places of indications that have more than one."""
        self._page_cache = page_cache
        self._call_soon = call_soon
        # By position, for several queues: each takes it once.
        self._recent: OrderedDict[int, Indication] = OrderedDict()
        self._recent_bytes = 0
        self._log = log
        self._segment_reader = segment_reader
        self._reader = reader
        self._offset = offset
        self._shared = shared
        self._failed = failed
        self._moves = Relocations()
        #: Records that could not be read.
        self.damaged = 0

    def load(self, positions: Sequence[int], done: Loaded) -> None:
        """Read indications back; ``done`` is called later."""
        spell = self._moves.begin()
        found = self._load_cached(positions)
        if found is not None:
            self._call_soon(partial(self._loaded, spell, positions, done, found))
            return
        written = self._log.written
        early = [position for position in positions if position < written]
        late = [position for position in positions if position >= written]
        if not late:
            self._read(early, partial(self._loaded, spell, early, done))
            return
        # Read what is on disk now: later it could be settled, and its segment removed.
        parts: list[Sequence[Indication | None]] = []

        def join(part: Sequence[Indication | None]) -> None:
            parts.append(part)
            if len(parts) == 2:
                found = dict(zip([*early, *late], [*parts[0], *parts[1]], strict=True))
                self._loaded(spell, positions, done, [found[position] for position in positions])

        self._read(early, join)
        self._log.barrier(partial(self._read, late, join))

    def _load_cached(self, positions: Sequence[int]) -> list[Indication] | None:
        """Return what is on disk and in the page cache; None if any is not."""
        if max(positions, default=0) >= self._log.written:
            return None
        recent = self._recent
        missing = [position for position in positions if position not in recent]
        read = self._page_cache.load(missing)
        if read is None:
            return None
        fresh = dict(zip(missing, read, strict=True))
        found = [fresh.get(position) or recent[position] for position in positions]
        for position, indication in fresh.items():
            self._share(position, indication)
        return found

    def _share(self, position: int, indication: Indication) -> Indication:
        """Return the one object for an indication in all queues; otherwise each would have its own
        body."""
        if indication.id not in self._shared:
            return indication
        recent = self._recent
        known = recent.get(position)
        if known is not None:
            return known
        recent[position] = indication
        self._recent_bytes += len(indication.body)
        while len(recent) > RECENT or self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= len(recent.popitem(last=False)[1].body)
        return indication

    def _read(self, positions: Sequence[int], done: Loaded) -> None:
        self._reader.submit(
            partial(self._segment_reader.load, positions, self._offset), done, self._failed
        )

    def moved(self, old_position: int, position: int, size: int) -> None:
        gone = self._recent.pop(old_position, None)
        if gone is not None:
            self._recent_bytes -= len(gone.body)
        self._moves.note(old_position, position, size)

    def forget(self, number: int) -> None:
        self._page_cache.forget(number)

    def close(self) -> None:
        self._page_cache.close()

    def _loaded(
        self,
        spell: RelocationEpoch,
        positions: Sequence[int],
        done: Loaded,
        loaded: Sequence[Indication | None],
    ) -> None:
        told: list[Indication | None] = []
        for position, read in zip(positions, loaded, strict=True):
            if read is None:
                self._say_damaged(position)
                told.append(None)
                continue
            indication = self._share(position, read) if self._moves.find(position) is None else read
            indication.unsettled = self._shared.get(indication.id, 1)
            # It may have been relocated during the read.
            while (moved := self._moves.find(indication.position)) is not None:
                indication.position, indication.size = moved
            told.append(indication)
        self._moves.end(spell)
        done(told)

    def _say_damaged(self, position: int) -> None:
        self.damaged += 1
        number, offset = segment_of(position)
        name = segment_name(number)
        logger.error(
            "a record of the journal cannot be read any more: what it held is lost",
            extra={
                "event": "journal-damaged",
                "damage": "record",
                "file": name,
                "begin": offset,
                "end": offset,
                "lost": "the indication",
            },
        )
