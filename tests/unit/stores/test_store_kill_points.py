"""A store is cut at each operation of a copy's folder, by kills and by power cuts, and opened
again: the copy is always a beginning of its writer's log, which is whole without the segments that
were removed, and has all that was told.

``PILLION_KILL_SEED`` is the first seed, to replay a run.
"""

import os
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import pytest

from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    UNSOUND,
    position_of,
    segment_name,
    segment_numbers,
    walk,
)
from pillion_sidecar.stores.copies import (
    NO_REMOVAL,
    Copy,
    Epoch,
    FencedError,
    Piece,
    Removal,
    common_end,
    next_change,
)
from pillion_sidecar.stores.store import Store, StoreLimits
from pillion_sidecar.testing import FakeTime
from support.core import Core
from support.crashing_files import Disk, RecordingFiles
from support.kill_points import Script
from support.stores import SESSION, RecordingFolders, ShippedLog

SEED = int(os.environ.get("PILLION_KILL_SEED", Random().randrange(1_000_000)))
LIMITS = StoreLimits(maximum_bytes=1 << 20, maximum_sessions=3)
STEPS = 60
POWER_CUTS = 4


class Told(NamedTuple):
    """An answer of the store."""

    #: Operations that the folder had seen by then.
    after: int
    copy: Copy
    #: The segments of its writer's log then, and those that were removed.
    segments: dict[int, bytes]
    #: What was removed, oldest first.
    removals: tuple[Removal, ...]

    @property
    def log(self) -> ShippedLog:
        first = self.removals[-1].first if self.removals else 0
        return ShippedLog(
            segments={one: data for one, data in self.segments.items() if one >= first}
        )


@dataclass(slots=True)
class Run:
    """Writers ship their logs to a store, one after the other."""

    draw: Random
    folders: RecordingFolders = field(default_factory=RecordingFolders)
    #: With all segments that were ever removed.
    whole: ShippedLog = field(default_factory=ShippedLog)
    removals: list[Removal] = field(default_factory=list)
    #: No later writer goes on from before it.
    stable: int = 0
    told: list[Told] = field(default_factory=list)
    copy: Copy = field(default_factory=Copy)
    epoch: Epoch = field(default_factory=lambda: Epoch(1, "x"))
    base: int = 0
    begun: int = 0

    def run(self, steps: int) -> None:
        store = Store(self.folders, LIMITS)
        self._tell(store.claim(SESSION, self.epoch))
        self._begin()
        kinds = (self._write, self._begin, self._remove, None)
        for step in self.draw.choices(kinds, (8, 2, 2, 1), k=steps):
            if step is None:
                self._claim(store)
            else:
                step()
            if self.draw.random() < 0.6:
                self._ship(store)

    def _tell(self, copy: Copy) -> None:
        self.copy = copy
        files = self.folders.files[SESSION]
        self.told.append(
            Told(len(files.operations), copy, dict(self.whole.segments), tuple(self.removals))
        )

    def _begin(self) -> None:
        self.begun += 1
        number = max(self.whole.segments, default=0) + 1
        self.whole.begin(number, created=float(self.begun))
        self._write()

    def _remove(self) -> None:
        segments = (
            self.told[-1]
            ._replace(segments=self.whole.segments, removals=tuple(self.removals))
            .log.segments
        )
        if len(segments) > 2:
            self.removals.append(Removal(min(segments) + 1, self.whole.end))

    def _write(self) -> None:
        for _ in range(self.draw.choice((1, 1, 3))):
            self.whole.write(self.draw.randrange(700))

    def _ship(self, store: Store) -> None:
        log = Told(0, self.copy, self.whole.segments, tuple(self.removals)).log
        stable = [one for one in self.removals if one.through <= self.stable]
        change = next_change(
            self.copy,
            self.epoch,
            log.extents,
            stable=self.stable,
            removal=stable[-1] if stable else NO_REMOVAL,
        )
        if change is not None:
            base = self.base
            if isinstance(change, Piece) and not change.after and self.removals:
                base = max(base, self.removals[-1].through)
            self._tell(log.change(store, change, self.epoch, base=base))
        if self.copy.written == self.epoch and self.draw.random() < 0.3:
            self.stable = self.copy.end

    def _claim(self, store: Store) -> None:
        """Another writer, which may not know of the last segments and records."""
        self.epoch = Epoch(self.epoch.number + 1, "x")
        segments = self.whole.segments
        for number in sorted(segments)[-self.draw.choice((1, 1, 2)) :]:
            if position_of(number, 0) > self.stable and number > 1:
                del segments[number]
        last, data = max(segments.items())
        ends = [at + size for at, _, _, size, *_ in walk(data, HEADER_SIZE, len(data))]
        end = self.draw.choice([one for one in ends if position_of(last, one) >= self.stable])
        segments[last] = data[:end]
        self.base = self.whole.end
        # It goes on from a store that has removed nothing of late.
        self.removals = [one for one in self.removals if one.through <= self.base]
        self._tell(store.claim(SESSION, self.epoch))
        self._begin()


@pytest.mark.parametrize("part", range(6))
def test_a_copy_is_a_beginning_wherever_the_store_is_killed(part: int) -> None:
    seed = SEED + part
    run = Run(Random(seed))
    run.run(STEPS)
    operations = [*run.folders.files[SESSION].operations, None]
    disk = Disk()
    for index, operation in enumerate(operations):
        chance = Random(f"{seed}/{index}")
        images = [disk.after_kill(operation, chance)]
        images += [disk.after_power_cut(operation, chance) for _ in range(POWER_CUTS)]
        for image in images:
            where = f"seed {seed}, operation {index}: {operation}"
            before = [told for told in run.told if told.after <= index]
            coming = next((told for told in run.told if told.after > index), run.told[-1])
            judge(image, before, coming, where)
        if operation is not None:
            disk.tell(operation)


def judge(image: dict[str, bytes], before: list[Told], coming: Told, where: str) -> None:
    """``before`` was answered before the crash, ``coming`` would have been next."""
    last = before[-1] if before else None
    folders = RecordingFolders({SESSION: RecordingFiles(image)})
    store = Store(folders, LIMITS)
    if last is not None:
        number, claimant = last.copy.promised
        with pytest.raises(FencedError):
            store.claim(SESSION, Epoch(number - 1, claimant))
    latest = Epoch(99, "x")
    copy = store.claim(SESSION, latest)
    labels = {coming.copy.written, last.copy.written if last is not None else Copy().written}
    assert copy.written in labels, where
    if last is not None:
        assert copy.end >= min(last.copy.end, coming.copy.end), where
    # Of the last writer, or of one before whose end is not cut off yet.
    logs = {told.copy.promised: told for told in (*before, coming)}
    assert any(is_beginning(store, copy, told) for told in logs.values()), where
    # The writer sends the rest.
    log = coming.log
    if log.segments:
        whole = log.ship(store, copy, latest, base=log.end)
        found = Store(folders, LIMITS)
        assert found.claim(SESSION, latest) == whole, where
        assert whole.end == log.end, where
        assert is_beginning(found, whole, coming), where


def is_beginning(store: Store, copy: Copy, told: Told) -> bool:
    log = ShippedLog(segments=told.segments).extents
    if common_end(copy.extents, log) != copy.end:
        return False
    first = copy.extents[0].number if copy.extents else 0
    through = [one.through for one in told.removals if log[0].number < one.first <= first]
    if copy.end < max(through, default=0):
        return False
    return all(
        store.read(SESSION, position_of(extent.number, 0), extent.size)
        == told.segments[extent.number][: extent.size]
        for extent in copy.extents
    )


def test_the_runs_meet_what_they_are_for() -> None:
    runs = [Run(Random(part)) for part in range(8)]
    for run in runs:
        run.run(STEPS)
    told = [one.copy for run in runs for one in run.told]
    assert any(copy.renewed for copy in told)
    assert any(copy.replaced for copy in told)
    assert any(copy.extents and copy.extents[0].number > 2 for copy in told)


@pytest.mark.parametrize("part", range(3))
def test_a_start_on_a_copy_finds_what_a_start_on_the_journal_finds(part: int) -> None:
    draw = Random(SEED + part)
    core = Core(RecordingFiles(), draw=draw, time=FakeTime())
    Script(core, draw).run(160)
    core.rest()
    image = core.files.image()
    log = ShippedLog(segments={one: sound(image, one) for one in segment_numbers([*image])})
    folders = RecordingFolders()
    store = Store(folders, LIMITS)
    log.ship(store, store.claim(SESSION, Epoch(1, "x")), Epoch(1, "x"))
    assert pending(folders.files[SESSION].image(), draw) == pending(image, draw)


def sound(image: dict[str, bytes], number: int) -> bytes:
    """A segment without the space that is reserved in it."""
    data = image[segment_name(number)]
    ends = (at for at, kind, *_ in walk(data, HEADER_SIZE, len(data)) if kind == UNSOUND)
    return data[: next(ends, len(data))]


def pending(image: dict[str, bytes], draw: Random) -> dict[str, list[tuple[int, int]]]:
    core = Core(RecordingFiles(image), draw=draw, time=FakeTime(now=9.0, epoch=1_700_001_000.0))
    assert not core.recovered.damaged
    return {
        queue.name: list(zip(queue.ids, queue.numbers, strict=True))
        for queue in core.recovered.queues.values()
    }
