"""Writers ship their logs to three stores, which are cut at any operation by kills and power cuts,
while requests and answers are lost and come late: what was stable is in the log of every later
writer, unless it is settled since, and each copy becomes the last writer's log.

``PILLION_KILL_SEED`` is the first seed, to replay a run.
"""

import os
from dataclasses import dataclass, field
from random import Random

import pytest

from pillion_sidecar.journal.identities import identities_name
from pillion_sidecar.journal.segments import position_of, segment_numbers, segment_of
from pillion_sidecar.stores.copies import Copy, Epoch, StoreError
from pillion_sidecar.stores.messages import AppendRequest, ClaimRequest
from pillion_sidecar.stores.ports import Unanswered
from pillion_sidecar.stores.quorum import is_enough, latest
from pillion_sidecar.stores.shipping import MOST_RETRY_SECONDS, ShippingLimits
from support.crashing_files import Disk, Operation
from support.stores import MEMBERSHIP, NAMES, SESSION, ScriptedStores, Sent, ShippedLog, Writer

SEED = int(os.environ.get("PILLION_KILL_SEED", Random().randrange(1_000_000)))
STEPS = 500
LIMITS = ShippingLimits(request_bytes=900, tail_bytes=1200, ahead_bytes=4000)
#: Bytes that tell records apart.
NAME = 4


class Killed(Exception):
    def __init__(self, begun: Operation) -> None:
        super().__init__(str(begun))
        self.begun = begun


@dataclass(slots=True)
class World:
    draw: Random
    stores: ScriptedStores = field(default_factory=lambda: ScriptedStores(*NAMES))
    writers: list[Writer] = field(default_factory=list)
    #: Requests that nobody waits for any more, and that may be done yet.
    late: list[Sent] = field(default_factory=list)
    begun: int = 0
    kills: int = 0
    barriers: int = 0
    removals: int = 0
    #: The last segment of the log that the last writer goes on from.
    base: int = 0
    written: int = 0
    #: What is to be in the log of every later writer.
    stable: set[bytes] = field(default_factory=set)
    settled: set[bytes] = field(default_factory=set)
    #: What each folder had when its store was started.
    images: dict[str, dict[str, bytes]] = field(default_factory=dict)

    @property
    def writer(self) -> Writer:
        return self.writers[-1]

    def run(self, steps: int) -> None:
        self.claim(NAMES)
        kinds = (
            self._write, self._begin, self._remove, self._barrier, self._answer, self._lose,
            self._rest,
        )  # fmt: skip
        for step in self.draw.choices(kinds, (8, 1, 1, 3, 14, 3, 4), k=steps):
            step()
            if self.draw.random() < 0.012:
                self._claim_some()

    # ------------------------------------------------------------------ the writers

    def claim(self, names: tuple[str, ...]) -> None:
        epoch = Epoch(len(self.writers) + 1, "x")
        request = ClaimRequest(number=epoch.number, claimant=epoch.claimant)
        answers: dict[str, Copy] = {}
        while set(answers) != set(names):
            for name in names:
                answer = self._perform(Sent(name, request, lambda _: None))
                if isinstance(answer, Copy):
                    answers[name] = answer
        source = latest(answers)
        log = ShippedLog()
        for extent in answers[source].extents:
            log.segments[extent.number] = self.stores.stores[source].read(
                SESSION, position_of(extent.number, 0), extent.size
            )
        assert self.stable - self.settled <= names_of(log), f"epoch {epoch.number}"
        self.base = max(log.segments, default=0)
        transport = ScriptedStores(*NAMES)
        transport.folders, transport.stores = self.stores.folders, self.stores.stores
        self.writers.append(
            Writer(stores=transport, epoch=epoch, log=log, answers=answers, limits=LIMITS)
        )
        self._begin()

    def _claim_some(self) -> None:
        names = tuple(self.draw.sample(NAMES, self.draw.choice((2, 2, 3))))
        assert is_enough(MEMBERSHIP, names)
        self.claim(names)

    def _begin(self) -> None:
        self.writer.begin(max(self.writer.log.segments, default=0) + 1)

    def _write(self) -> None:
        # One that was fenced may not know it yet.
        writer = self.draw.choice(self.writers[-2:])
        for _ in range(self.draw.choice((1, 1, 3))):
            self.written += 1
            writer.add(self.written.to_bytes(NAME, "big") + bytes(self.draw.randrange(600)))

    def _remove(self) -> None:
        # One that was fenced may not know it yet.
        writer = self.draw.choice(self.writers[-2:])
        while len(writer.log.segments) > self.draw.choice((1, 2, 4)):
            identities = writer.log.identities
            if identities and self.draw.random() < 0.2:
                del identities[min(identities)]
            writer.remove(self._is_pending, remembers=self.draw.random() < 0.7)
            self.removals += 1

    def _is_pending(self, payload: bytes) -> bool:
        if self.draw.random() < 0.4:
            self.settled.add(payload[:NAME])
        return payload[:NAME] not in self.settled

    def _barrier(self) -> None:
        names = names_of(self.writer.log)
        self.writer.shipper.barrier(self.writer.shipper.end, lambda: self.stable.update(names))
        self.writer.barrier()
        self.barriers += 1

    # ------------------------------------------------------------------ the stores

    def _answer(self) -> None:
        waiting = [(one, sent) for one in self.writers[-2:] for sent in one.stores.waiting]
        if waiting:
            writer, sent = self.draw.choice(waiting)
            writer.stores.waiting.remove(sent)
            sent.answered(self._perform(sent) or Unanswered(reason="it was killed"))

    def _lose(self) -> None:
        waiting = self.writer.stores.waiting
        if not waiting:
            return
        sent = waiting.pop(self.draw.randrange(len(waiting)))
        if self.draw.random() < 0.5:
            self._perform(sent)
        self.late.append(sent)
        sent.answered(Unanswered(reason="it is away"))

    def _rest(self) -> None:
        if self.late and self.draw.random() < 0.5:
            self._perform(self.late.pop(self.draw.randrange(len(self.late))))
        for writer in self.writers[-2:]:
            writer.reader.run()
            writer.time.advance(self.draw.choice((0.1, 1.0, 10.0)))
            if self.draw.random() < 0.7:
                writer.shipper.on_disk(writer.shipper.end)

    def _perform(self, sent: Sent) -> Copy | StoreError | None:
        """None: the store was killed."""
        files = self.stores.folders[sent.store].files.get(SESSION)
        if files is None or self.draw.random() > 0.2:
            return self.stores.perform(sent)
        left = self.draw.randrange(6)

        def kill(operation: Operation) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed(operation)
            return None

        files.failing = kill
        try:
            return self.stores.perform(sent)
        except Killed as killed:
            self._restart(sent.store, killed.begun)
            return None
        finally:
            files.failing = None

    def _restart(self, name: str, begun: Operation) -> None:
        self.kills += 1
        files = self.stores.folders[name].files[SESSION]
        disk = Disk(self.images.get(name))
        for operation in files.operations:
            disk.tell(operation)
        crash = self.draw.choice((disk.after_kill, disk.after_power_cut))
        self.images[name] = crash(begun, self.draw)
        self.stores.restart(name, self.images[name])

    def heal(self) -> None:
        """All is answered from now on."""
        writer = self.writer
        while writer.stores.waiting or writer.reader.waiting or writer.shipper.problems:
            writer.reader.run()
            writer.stores.run()
            if not writer.reader.waiting:
                writer.time.advance(MOST_RETRY_SECONDS)


def names_of(log: ShippedLog) -> set[bytes]:
    return {payload[:NAME] for payload in log.payloads()}


@pytest.mark.parametrize("part", range(30))
def test_what_was_stable_is_in_every_later_log(part: int) -> None:
    world = World(Random(SEED + part))
    world.run(STEPS)
    world.heal()
    where = f"seed {SEED + part}"
    writer = world.writer
    assert writer.fenced == [], where
    assert writer.shipper.problems == {}, where
    assert writer.shipper.stable == writer.log.end, where
    assert world.stable - world.settled <= names_of(writer.log), where
    for earlier in world.writers:
        assert earlier.stable == sorted(earlier.stable), where
        assert all(position <= earlier.shipper.stable for position in earlier.stable), where
    for name in NAMES:
        files = world.stores.folders[name].files[SESSION].names()
        numbers = segment_numbers(files)
        # One may have removed segments that the log, from another store, has yet.
        assert numbers == [*writer.log.segments][-len(numbers) :], where
        log = ShippedLog(segments={one: writer.log.segments[one] for one in numbers})
        assert world.stores.content(name) == log.content(), where
        assert world.stable - world.settled <= names_of(log), where
        image = world.stores.folders[name].files[SESSION].image()
        for number, data in writer.log.identities.items():
            # Those of earlier writers' segments are at some stores from their removal by them.
            assert number <= world.base or image[identities_name(number)] == data, where


def test_the_runs_meet_what_they_are_for() -> None:
    worlds = [World(Random(part)) for part in range(3)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.kills for world in worlds) > 10
    sent = [one for world in worlds for writer in world.writers for one in _sent(writer)]
    assert {type(one).__name__ for one in sent} == {
        "ClaimRequest", "CutRequest", "AppendRequest", "RemoveRequest", "KeepRequest",
    }  # fmt: skip
    assert any(isinstance(one, AppendRequest) and len(one.data) > 800 for one in sent)
    assert any(isinstance(one, AppendRequest) and segment_of(one.position)[1] for one in sent)
    assert any(writer.fenced for world in worlds for writer in world.writers)
    assert any(writer.reader.reads for world in worlds for writer in world.writers)


def _sent(writer: Writer) -> list[object]:
    return [one for requests in writer.stores.sent.values() for one in requests]
