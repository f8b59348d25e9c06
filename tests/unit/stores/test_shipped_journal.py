"""A journal ships its log while it writes it: each copy is a beginning of it, and a start on what a
quorum has knows all that was stable, though the folder is gone.

``PILLION_KILL_SEED`` is the first seed, to replay a run.
"""

import os
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from random import Random
from typing import Any

import pytest

from pillion_sidecar.journal.disk import DiskJournal
from pillion_sidecar.journal.ports import Worker
from pillion_sidecar.journal.segments import HEADER_SIZE, position_of, segment_name, segment_numbers
from pillion_sidecar.reliability.identity import identity_digest
from pillion_sidecar.stores.quorum import latest
from pillion_sidecar.stores.reading import FolderReader
from pillion_sidecar.stores.shipping import MOST_RETRY_SECONDS, Shipper, ShippingLimits
from pillion_sidecar.stores.stability import Stability
from pillion_sidecar.testing import FakeTime
from support.core import SOURCE, Core
from support.crashing_files import RecordingFiles
from support.kill_points import Script
from support.stepped import SteppedWorker
from support.stores import (
    FIRST,
    MEMBERSHIP,
    NAMES,
    SESSION,
    ScriptedStores,
    ShippedLog,
    answers_of,
)

SEED = int(os.environ.get("PILLION_KILL_SEED", Random().randrange(1_000_000)))
STEPS = 120


@dataclass(slots=True)
class Run:
    draw: Random
    stores: ScriptedStores = field(default_factory=lambda: ScriptedStores(*NAMES))
    limits: ShippingLimits = field(default_factory=ShippingLimits)
    #: Seconds that segments are kept for stores.
    lifetime: float = 0.0
    shipper: Shipper = field(init=False)
    stability: Stability = field(init=False)
    core: Core = field(init=False)
    #: What was told to be stable.
    stable: set[str] = field(default_factory=set)
    reads: int = 0

    def __post_init__(self) -> None:
        time = FakeTime()
        self.core = Core(
            RecordingFiles(),
            draw=self.draw,
            time=time,
            following=partial(self._follow, time),
        )
        self.core.tell = self._tell  # type: ignore[method-assign]

    def _follow(self, time: FakeTime, journal: DiskJournal, reader: Worker) -> Shipper:
        assert journal.id == SESSION
        self.stability = Stability(
            clock=time,
            timers=time,
            lifetime=self.lifetime,
            flight_size=1 << 30,
            continues=False,
            base=0,
            last_id=0,
            released=lambda: self.core._soon.append(journal.reconsider),
        )
        self.shipper = Shipper(
            epoch=FIRST,
            membership=MEMBERSHIP,
            log=(),
            answers=answers_of(self.stores, FIRST),
            transport=self.stores,
            reader=LateReader(self),
            timers=time,
            fenced=lambda _: None,
            limits=replace(self.limits, gather_seconds=0.0),
            stability=self.stability,
        )
        return self.shipper

    def _tell(self, what: str, *given: Any) -> None:
        Core.tell(self.core, what, *given)
        if what == "acknowledge":
            # It is on the folder's disk; from here on, it becomes stable.
            self.shipper.barrier(self.core.journal.written, partial(self.stable.add, given[0]))

    def run(self, steps: int) -> None:
        script = Script(self.core, self.draw)
        for _ in range(steps):
            script.run(1)
            for _ in range(self.draw.randrange(3)):
                if self.stores.waiting:
                    self._answer(self.draw.choice(self.stores.waiting).store)

    def _answer(self, name: str) -> None:
        if self.draw.random() < 0.1:
            self.stores.fail(name)
        else:
            self.stores.answer(name)

    def heal(self) -> None:
        self.core.rest()
        while self.stores.waiting or self.shipper.problems:
            self.stores.run()
            self.core.disks()
            if not self.stores.waiting:
                self.core.advance(MOST_RETRY_SECONDS)
                self.core.disks()


class LateReader:
    """Reads the folder of a core that is about to be made."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self, position: int, size: int, done: Any) -> None:
        core = self._run.core
        self._run.reads += 1
        FolderReader(core.files, worker=core._workers[1]).read(position, size, done)

    def identities(self, number: int, done: Any) -> None:
        core = self._run.core
        FolderReader(core.files, worker=core._workers[1]).identities(number, done)


@pytest.mark.parametrize("part", range(12))
def test_a_start_on_a_quorums_copy_knows_all_that_was_stable(part: int) -> None:
    seed = SEED + part
    run = Run(Random(seed), lifetime=(0.0, 100.0, inf)[part % 3])
    for _ in range(4):
        run.run(STEPS // 4)
        names = run.draw.sample(NAMES, 2)
        copies = {name: run.stores.stores[name].claim(SESSION, FIRST) for name in names}
        source = latest(copies)
        core = Core(
            RecordingFiles(run.stores.start_of(source, copies[source])),
            draw=Random(seed),
            time=FakeTime(now=9.0, epoch=1_700_001_000.0),
        )
        assert not core.recovered.damaged, f"seed {seed}"
        unknown = {
            one for one in run.stable if core.memory.find(identity_digest(SOURCE, one)) is None
        }
        assert unknown == set(), f"seed {seed}"
    run.heal()
    assert run.stable, f"seed {seed}"
    assert run.lifetime < inf or not run.stability.segments, f"seed {seed}"
    assert run.shipper.stable == run.shipper.end >= run.core.journal.written
    files = run.core.files.image()
    for name in NAMES:
        image = run.stores.folders[name].files[SESSION].image()
        numbers = segment_numbers([*files])
        assert segment_numbers([*image])[0] >= numbers[0], f"seed {seed}"
        for number in numbers:
            copy = image.get(segment_name(number), b"")
            assert files[segment_name(number)].startswith(copy), f"seed {seed}"


@pytest.mark.parametrize("part", range(8))
def test_a_store_that_lags_is_given_what_is_on_the_journals_disk(part: int) -> None:
    run = Run(Random(part), limits=ShippingLimits(tail_bytes=0, request_bytes=700))
    run.stores.run()
    run.run(40)
    run.heal()
    assert run.shipper.problems == {}
    assert len({run.stores.content(name) for name in NAMES}) == 1
    assert run.reads > 5
    # What the journal has removed is not at the stores, either.
    names = [name for name in run.core.files.names() if name.endswith(".segment")]
    for store in NAMES:
        files = run.stores.folders[store].files[SESSION].names()
        assert [name for name in files if name.endswith(".segment")] == names


# ---------------------------------------------------------------------- reading


def test_the_folder_is_read_in_whole_records_up_to_its_reserved_space() -> None:
    log = ShippedLog()
    log.begin(1, created=1.0)
    ends = [HEADER_SIZE]
    for size in (2000, 30, 30):
        log.write(size)
        ends.append(len(log.content()))
    files = RecordingFiles({segment_name(1): log.content() + bytes(500)})
    worker, begin = SteppedWorker(), position_of(1, 0)
    reader = FolderReader(files, worker=worker)
    found: list[bytes] = []
    for position, size in (
        (begin, 100),
        (begin, 9999),
        (begin + ends[1], 10),
        (begin + ends[1], 9999),
        (begin + ends[3], 100),
        (begin + len(log.content()) + 490, 100),
        (position_of(2, 0), 100),
    ):
        reader.read(position, size, found.append)
    worker.drain()
    data = log.content()
    assert found == [
        data[: ends[1]],
        data,
        data[ends[1] : ends[2]],
        data[ends[1] :],
        *[b""] * 3,
    ]
