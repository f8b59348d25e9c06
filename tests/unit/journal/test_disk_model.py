"""The live journal against a model of what is pending, over many random steps."""

from functools import partial
from random import Random

import pytest

from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.testing import FakeTime
from support.journal_files import MemoryFiles
from support.journal_owner import LiveJournal

STEPS = 1500
SEGMENT = 12_000


class History:
    """One random run, with its checks."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.files = MemoryFiles()
        self.time = FakeTime()
        self.live = self.open()
        self.digests = 0
        #: What was ever accepted with an identity: how it ended must outlive its segment.
        self.known: set[bytes] = set()
        self.reopened = self.loaded = 0

    def open(self) -> LiveJournal:
        return LiveJournal(self.files, time=self.time, segment_bytes=SEGMENT, segment_seconds=600.0)

    def accept(self) -> None:
        digest = None
        if self.draw.random() < 0.5:
            self.digests += 1
            digest = self.digests.to_bytes(16, "big")
            self.known.add(digest)
        where = self.draw.sample(range(6), self.draw.choice((0, 1, 1, 1, 2, 5)))
        body = self.draw.randbytes(self.draw.choice((10, 100, 100, 3000)))
        self.live.accept(*where, body=body, digest=digest)

    def settle(self) -> None:
        # The destination 0 is dead for most of the time.
        where = self.draw.choice((0, *range(1, 6), *range(1, 6)))
        owner = self.live.owner
        waiting = [
            record_id
            for record_id, places in owner.pending_places.items()
            if any(place.destination == where for place in places)
        ]
        for record_id in sorted(waiting)[: self.draw.randint(1, 8)]:
            if self.draw.random() < 0.2:
                record_id = self.draw.choice(waiting)
            if record_id in owner.pending_places and any(
                place.destination == where for place in owner.pending_places[record_id]
            ):
                reason = DiscardReason.PURGED if self.draw.random() < 0.1 else None
                self.live.settle(owner.indications[record_id], where, reason)

    def hold(self) -> None:
        self.live.hold(*self.draw.sample(range(6), 2), body=self.draw.randbytes(50))

    def end_hold(self) -> None:
        held = self.live.owner.held
        if held:
            indication, places = held[self.draw.choice(list(held))]
            if self.draw.random() < 0.5:
                self.live.end_hold(indication)
            else:
                self.live.accept(*(place.destination for place in places), hold=indication)

    def load(self) -> None:
        owner = self.live.owner
        ids = self.draw.sample(
            sorted(owner.indications), min(len(owner.indications), self.draw.randint(1, 20))
        )
        wanted = [owner.indications[record_id] for record_id in ids]
        positions = [indication.position for indication in wanted]
        self.live.journal.load(positions, partial(self.check_loaded, wanted))

    def check_loaded(self, wanted: list[Indication], loaded: "list[Indication | None]") -> None:
        for indication, read in zip(wanted, loaded, strict=True):
            assert read is not None
            assert (read.id, read.body) == (indication.id, indication.body)
            if indication.id in self.live.owner.pending_places:
                assert (read.position, read.size) == (indication.position, indication.size)
            self.loaded += 1

    def some_work(self) -> None:
        for _ in range(self.draw.randint(1, 6)):
            self.draw.choice((self.live.turn, self.live.worker.step, self.live.reader.step))()

    def pass_time(self) -> None:
        self.time.advance(self.draw.choice((0.01, 0.06, 1.0, 300.0)))

    def reopen(self) -> None:
        before, held = self.live.pending, set(self.live.owner.held)
        self.live.journal.close()
        self.live = self.open()
        assert self.live.pending == before
        assert set(self.live.owner.held) == held
        assert set(self.live.owner.known) == self.known
        assert not self.live.recovered.damaged
        self.check_books()
        self.reopened += 1

    def check_books(self) -> None:
        owner = self.live.owner
        assert self.live.journal.statistics.live_bytes == sum(
            indication.size
            for indication in (
                *owner.indications.values(),
                *(indication for indication, _ in owner.held.values()),
            )
        )

    def check_bound(self) -> None:
        """With nothing left to do, the disk has at most twice what is pending and a segment."""
        self.live.run()
        self.time.advance(0.06)
        self.live.run()
        statistics = self.live.journal.statistics
        overhead = statistics.segments * 400
        assert statistics.total_bytes <= 2 * statistics.live_bytes + 2 * SEGMENT + overhead, (
            statistics
        )

    def run(self) -> None:
        steps = (
            (self.accept, 10),
            (self.settle, 8),
            (self.hold, 1),
            (self.end_hold, 1),
            (self.load, 2),
            (self.some_work, 12),
            (self.pass_time, 2),
            (self.check_books, 1),
        )
        kinds, weights = zip(*steps, strict=True)
        for number in range(STEPS):
            self.draw.choices(kinds, weights)[0]()
            if number % 211 == 210:
                self.reopen()
            elif number % 97 == 96:
                self.check_bound()
        assert self.live.owner.errors == []


@pytest.mark.parametrize("seed", range(12))
def test_what_is_pending_survives_whatever_happens(seed: int) -> None:
    history = History(seed)
    history.run()
    assert history.reopened == STEPS // 211
    assert history.loaded > 100
    assert history.live.journal.statistics.damaged == 0
