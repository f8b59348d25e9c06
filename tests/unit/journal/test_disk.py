"""The live journal: when it writes, whom it tells, and what it does when the disk does not."""

import errno
import logging
from collections.abc import Callable, Sequence

import pytest

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import DiscardReason, Indication
from pillion_sidecar.journal import log
from pillion_sidecar.journal.limits import MIB
from pillion_sidecar.journal.marks import MARKS_NAME
from pillion_sidecar.journal.ports import QueueState
from pillion_sidecar.testing import FakeTime
from support.crashing_files import Kind, Operation, RecordingFiles
from support.journal_owner import LiveJournal


@pytest.fixture
def files() -> RecordingFiles:
    return RecordingFiles()


@pytest.fixture
def live(files: RecordingFiles) -> LiveJournal:
    return LiveJournal(files)


def kinds(files: RecordingFiles, since: int) -> list[Kind]:
    """What was done to the segments, reservations apart."""
    done = [one for one in files.operations[since:] if not one.name.startswith(MARKS_NAME)]
    return [one.kind for one in done if one.kind is not Kind.ALLOCATE]


def full_after(files: RecordingFiles, capacity: int) -> Callable[[Operation], OSError | None]:
    """A disk of so many bytes."""

    def failing(operation: Operation) -> OSError | None:
        if operation.kind not in (Kind.WRITE, Kind.ALLOCATE):
            return None
        end = operation.offset + (len(operation.data) or operation.size)
        growth = end - len(files.read(operation.file, 0, end))
        if growth and sum(map(files.size, files.names())) + growth > capacity:
            return OSError(errno.ENOSPC, "No space left on device")
        return None

    return failing


# ---------------------------------------------------------------------- group commit


def test_all_of_one_turn_is_written_at_once(live: LiveJournal, files: RecordingFiles) -> None:
    before = len(files.operations)
    for _ in range(20):
        live.accept(1)
    assert live.owner.committed_through == 0
    live.run()
    assert kinds(files, before) == [Kind.WRITE, Kind.SYNC]
    assert live.owner.committed_through == 20


def test_what_comes_while_the_disk_works_is_written_at_once_behind_it(
    live: LiveJournal, files: RecordingFiles
) -> None:
    before = len(files.operations)
    live.accept(1)
    live.turn()
    for _ in range(5):
        live.accept(1)
        live.turn()
    assert len(live.worker.jobs) == 1
    live.worker.step()
    assert live.owner.committed_through == 1
    live.run()
    assert kinds(files, before) == [Kind.WRITE, Kind.SYNC] * 2
    assert live.owner.committed_through == 6


def test_a_barrier_is_told_only_after_the_sync(live: LiveJournal, files: RecordingFiles) -> None:
    told: list[tuple[str, Kind, int]] = []

    def note(name: str) -> Callable[[], None]:
        return lambda: told.append((name, kinds(files, 0)[-1], live.owner.committed_through))

    live.journal.barrier(note("nothing"))
    assert [name for name, _, _ in told] == ["nothing"]
    live.accept(1)
    live.journal.barrier(note("gathered"))
    live.turn()
    live.journal.barrier(note("in flight"))
    live.accept(1)
    live.journal.barrier(note("behind"))
    assert live.journal.statistics.pending_barriers == 3
    live.worker.step()
    assert told[1:] == [("gathered", Kind.SYNC, 1), ("in flight", Kind.SYNC, 1)]
    live.run()
    assert [name for name, _, _ in told] == ["nothing", "gathered", "in flight", "behind"]
    assert told[-1][2] == 2


def test_settlements_wait_for_a_commit_but_not_for_long(
    live: LiveJournal, files: RecordingFiles
) -> None:
    first, second, third = live.accept(1), live.accept(1), live.accept(1)
    live.run()
    live.time.advance(1.0)
    before = len(files.operations)
    live.settle(first, 1)
    live.settle(second, 1)
    live.run()
    assert kinds(files, before) == []
    live.time.advance(0.05)
    live.run()
    assert kinds(files, before) == [Kind.WRITE, Kind.SYNC]
    live.settle(third, 1)
    live.accept(2)
    live.run()
    before = len(files.operations)
    live.time.advance(1.0)
    live.run()
    assert kinds(files, before) == []


def test_an_indication_is_read_back_as_it_was_written_or_not_yet(live: LiveJournal) -> None:
    written = live.accept(1, 2, body=b'{"a": 1}', digest=b"d" * 16)
    long = live.accept(1, body=b"x" * 300_000)
    live.run()
    gathered = live.accept(1, body=b"later")
    got: list[Indication | None] = []
    live.journal.load([gathered.position, written.position, long.position], got.extend)
    assert got == []
    live.run()
    assert [one.body for one in got if one is not None] == [b"later", b'{"a": 1}', b"x" * 300_000]
    again = got[1]
    assert again is not None
    assert (again.id, again.position, again.size) == (written.id, written.position, written.size)
    assert again.accepted_at == pytest.approx(written.accepted_at)
    assert (again.digest, again.identifier, again.unsettled) == (b"d" * 16, "one", 2)


def test_a_damaged_record_is_missed_and_told(
    live: LiveJournal, files: RecordingFiles, caplog: pytest.LogCaptureFixture
) -> None:
    whole, broken = live.accept(1, body=b"whole"), live.accept(1, body=b"broken")
    live.run()
    offset = (broken.position & 0xFFFFFFFF) + broken.size - 1
    files.open("0000000000000001.segment", writable=True).write(offset, b"?")
    got: list[Indication | None] = []
    live.journal.load([broken.position, whole.position], got.extend)
    live.run()
    assert got[0] is None
    assert got[1] is not None
    assert live.journal.statistics.damaged == 1
    assert [getattr(record, "event", "") for record in caplog.records] == ["journal-damaged"]


# ---------------------------------------------------------------------- segments


def segments(files: RecordingFiles) -> list[str]:
    return [name for name in files.names() if name.endswith(".segment")]


def test_a_segment_is_followed_by_the_next_at_its_size(files: RecordingFiles) -> None:
    live = LiveJournal(files, segment_bytes=100_000)
    for _ in range(30):
        live.accept(1, body=b"x" * 5000)
        live.run()
    assert segments(files) == ["0000000000000001.segment", "0000000000000002.segment"]
    statistics = live.journal.statistics
    sealed = files.size("0000000000000001.segment")
    assert 100_000 < sealed < 106_000
    assert statistics.total_bytes > 150_000


def test_a_segment_is_followed_by_the_next_at_its_age_if_it_holds_anything(
    files: RecordingFiles,
) -> None:
    live = LiveJournal(files, segment_seconds=60.0)
    live.time.advance(200.0)
    live.run()
    assert segments(files) == ["0000000000000001.segment"]
    live.accept(1)
    live.run()
    live.time.advance(61.0)
    live.run()
    assert segments(files) == ["0000000000000001.segment", "0000000000000002.segment"]


def test_a_dead_destination_beside_busy_ones_takes_no_more_than_twice_its_own(
    files: RecordingFiles,
) -> None:
    """One alert a minute waits for a dead listener, among a hundred that are delivered at once."""
    segment = 64 << 10
    live = LiveJournal(files, segment_bytes=segment, segment_seconds=1e9)
    worst = 0
    for turn in range(4000):
        if turn % 10 == 0:
            live.accept(0, body=b"x" * 1000, digest=turn.to_bytes(16, "big"))
        busy = [live.accept(1, body=b"y" * 400) for _ in range(10)]
        live.run()
        for indication in busy:
            live.settle(indication, 1)
        live.time.advance(6.0)
        while live.soon or live.worker.jobs or live.reader.jobs:
            live.turn()
            live.worker.step()
            live.reader.step()
            now = live.journal.statistics
            worst = max(worst, now.total_bytes - 2 * now.live_bytes - segment)
            files.operations.clear()
    # A segment reaches beyond its size by the last write, which is of one turn here.
    assert worst <= 10 * 600, worst
    assert live.journal.statistics.total_bytes < 2 * 400 * 1300 + 2 * segment
    assert len(live.owner.pending_places) == 400
    got: list[Indication | None] = []
    live.journal.load([one.position for one in live.owner.indications.values()], got.extend)
    live.run()
    assert [one.id for one in got if one is not None] == sorted(live.owner.pending_places)


def test_identities_outlive_their_segment_and_are_bounded(files: RecordingFiles) -> None:
    live = LiveJournal(files, segment_bytes=20_000)
    south = live.journal.destination(uid="u-south", name="south")
    digests = [number.to_bytes(16, "big") for number in range(300)]
    for digest in digests:
        taken = live.accept(south, body=b"x" * 500, digest=digest)
        live.settle(taken, south, DiscardReason.PURGED)
        live.owner.known[digest] = (DiscardReason.PURGED, "south")
        live.run()
    live.time.advance(1.0)
    live.run()
    assert len(segments(files)) == 1
    assert live.journal.statistics.identity_bytes > 0
    live.journal.close()
    again = LiveJournal(files, time=live.time)
    remembered = {digest: (DiscardReason.PURGED, "south") for digest in digests}
    assert {
        digest: ended for digest, ended in again.owner.known.items() if ended[0] is not None
    } == remembered


# ---------------------------------------------------------------------- a full disk


def test_a_full_disk_refuses_what_is_new_and_lets_the_rest_go_on(
    files: RecordingFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    live = LiveJournal(files, segment_bytes=MIB)
    files.failing = full_after(files, 3 * MIB)
    taken: list[Indication] = []
    while (why := live.journal.refusal(10_000)) is None:
        taken.append(live.accept(1, body=b"x" * 10_000))
        live.run()
        assert len(taken) < 1000
    assert why.startswith("the journal's disk is full: ")
    assert live.journal.statistics.is_full
    # All that was taken is safe, and what is delivered is settled in the room that is left.
    assert live.owner.committed_through == len(taken)
    for indication in taken[:50]:
        live.settle(indication, 1)
    commits = live.journal.statistics.commits
    live.time.advance(0.05)
    live.run()
    assert live.journal.statistics.commits == commits + 1
    files.failing = None
    live.time.advance(1.0)
    live.run()
    assert live.journal.refusal(10_000) is None
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events == ["journal-full", "journal-writable"]


def test_room_comes_back_when_segments_are_removed(files: RecordingFiles) -> None:
    live = LiveJournal(files, segment_bytes=MIB)
    files.failing = full_after(files, 4 * MIB)
    taken: list[Indication] = []
    while live.journal.refusal(10_000) is None:
        taken.append(live.accept(1, body=b"x" * 10_000))
        live.run()
        assert len(taken) < 1000
    for indication in taken:
        live.settle(indication, 1)
    live.time.advance(0.05)
    live.run()
    assert live.journal.refusal(10_000) is None
    assert live.journal.statistics.live_bytes == 0


class Stores:
    """A ``LogFollower`` whose stores lack everything, or nothing."""

    def __init__(self) -> None:
        self.lack = True
        #: Segments for which it was asked when the folder had no space for them.
        self.crowded: set[int] = set()
        self.removals: list[int] = []
        self.through: list[tuple[int, int]] = []

    def begin(self, number: int, created: float, data: bytes) -> None: ...

    def append(self, data: bytes) -> None: ...

    def on_disk(self, position: int, last_id: int, /) -> None:
        self.through.append((position, last_id))

    def forces(self, indication_id: int, reason: str, /) -> bool:
        return self.lack and reason == "purged"

    def keeps(self, number: int, /, *, is_crowded: bool) -> bool:
        if is_crowded:
            self.crowded.add(number)
        return self.lack and not is_crowded

    def refusal(self) -> str | None:
        return None

    def removed(self, number: int, through: int) -> None:
        self.removals.append(number)

    def remembered(self, numbers: Sequence[int]) -> None: ...


@pytest.fixture
def stores(live: LiveJournal) -> Stores:
    stores = Stores()
    live.journal.follow(stores)
    return stores


def _fill(live: LiveJournal, segments: int) -> None:
    """Accept and settle so many segments of indications."""
    for _ in range(segments * MIB // 10_000):
        live.settle(live.accept(1, body=b"x" * 10_000), 1)
        live.run()
    live.time.advance(0.05)
    live.run()


def test_a_segment_that_stores_lack_is_kept_until_they_have_it(
    live: LiveJournal, stores: Stores
) -> None:
    _fill(live, 4)
    assert stores.removals == []
    assert live.journal.statistics.segments >= 4
    stores.lack = False
    live.journal.reconsider()
    live.run()
    assert stores.removals == sorted(stores.removals)
    assert live.journal.statistics.segments <= 2


def test_no_segment_is_kept_beyond_the_folders_bound(live: LiveJournal, stores: Stores) -> None:
    _fill(live, 60)
    assert stores.crowded
    assert set(stores.removals) <= stores.crowded
    assert live.journal.statistics.total_bytes <= live.settings.maximum_bytes


def test_stores_are_told_of_the_ids_that_are_on_disk(live: LiveJournal, stores: Stores) -> None:
    one = live.accept(1)
    live.run()
    assert stores.through == [(live.journal.written, one.id)]
    assert live.journal.forces(one, DiscardReason.PURGED)
    assert not live.journal.forces(one, DiscardReason.LIFETIME_EXPIRED)


def test_without_stores_nothing_is_forced(live: LiveJournal) -> None:
    assert not live.journal.forces(live.accept(1), DiscardReason.PURGED)


def test_room_comes_back_though_the_oldest_segment_has_something_pending(
    files: RecordingFiles,
) -> None:
    live = LiveJournal(files, segment_bytes=MIB)
    files.failing = full_after(files, 4 * MIB)
    taken: list[Indication] = []
    while live.journal.refusal(10_000) is None:
        taken.append(live.accept(1, body=b"x" * 10_000))
        live.run()
        assert len(taken) < 1000
    # One listener is dead: what it has in the oldest segment fits into what is reserved.
    for indication in taken[1:]:
        live.settle(indication, 1)
    for _ in range(5):
        live.time.advance(1.0)
        live.run()
    assert live.journal.refusal(10_000) is None
    assert set(live.pending) == {taken[0].id}


def test_a_full_disk_forgets_no_identity_of_what_is_settled(
    files: RecordingFiles, caplog: pytest.LogCaptureFixture
) -> None:
    live = LiveJournal(files, segment_bytes=MIB)
    digests: list[bytes] = []
    for number in range(3000):
        digest = number.to_bytes(16, "big")
        digests.append(digest)
        live.settle(live.accept(1, body=b"x" * 1000, digest=digest), 1)
        live.time.advance(1.0)
        live.run()
        # Others take the rest of the disk whenever a segment is about to end, also what its end
        # leaves of its reservation.
        is_near_end = live.journal.statistics.total_bytes > 0.98 * MIB
        used = sum(map(files.size, files.names()))
        files.failing = full_after(files, used - MIB // 2) if is_near_end else None
    files.failing = None
    live.time.advance(1.0)
    live.run()
    assert "identities-forgotten" not in [getattr(one, "event", "") for one in caplog.records]
    again = LiveJournal(RecordingFiles(files.image()))
    assert set(again.owner.known) == set(digests)


def test_a_disk_without_room_for_identities_forgets_them_and_says_so(
    files: RecordingFiles, caplog: pytest.LogCaptureFixture
) -> None:
    live = LiveJournal(files, segment_bytes=MIB)
    files.failing = lambda operation: (
        OSError(errno.ENOSPC, "No space left on device")
        if ".identities" in operation.name and operation.kind is Kind.WRITE
        else None
    )
    for number in range(3000):
        digest = number.to_bytes(16, "big")
        live.settle(live.accept(1, body=b"x" * 1000, digest=digest), 1)
        live.run()
    (told, *_) = [one for one in caplog.records if vars(one).get("event") == "identities-forgotten"]
    assert 0 < vars(told)["count"] < 1100
    assert "are not recognized when they are published again" in told.getMessage()


@pytest.mark.parametrize("kind", [Kind.WRITE, Kind.SYNC])
def test_what_a_full_disk_did_not_take_is_written_again_at_its_place(
    live: LiveJournal, files: RecordingFiles, kind: Kind
) -> None:
    failed: list[Operation] = []

    def failing(operation: Operation) -> OSError | None:
        if operation.kind is kind and len(failed) < 3:
            failed.append(operation)
            return OSError(errno.EDQUOT, "Disk quota exceeded")
        return None

    files.failing = failing
    told: list[bool] = []
    first = live.accept(1, body=b"first")
    live.journal.barrier(lambda: told.append(True))
    live.run()
    live.accept(1, body=b"second")
    live.run()
    assert not told
    assert live.owner.committed_through == 0
    for _ in range(3):
        live.time.advance(1.0)
        live.run()
    assert told == [True]
    assert live.owner.committed_through == 2
    live.journal.close()
    files.failing = None
    again = LiveJournal(files, time=live.time)
    assert again.owner.indications[first.id].body == b"first"
    assert len(again.pending) == 2


def test_any_other_failure_of_the_disk_is_the_end(live: LiveJournal, files: RecordingFiles) -> None:
    files.failing = lambda operation: (
        OSError(errno.EIO, "Input/output error") if operation.kind is Kind.SYNC else None
    )
    told: list[bool] = []
    live.accept(1)
    live.journal.barrier(lambda: told.append(True))
    live.run()
    assert [error.errno for error in live.owner.errors] == [errno.EIO]
    assert live.journal.refusal(1) == "the journal's disk failed: Input/output error"
    files.failing = None
    before = len(files.operations)
    live.accept(1)
    live.time.advance(60.0)
    live.run()
    # Whether the bytes before are on disk is not known, so nothing is written behind them.
    assert len(files.operations) == before
    assert not told


def test_the_end_on_a_full_disk_says_what_is_lost(
    live: LiveJournal, files: RecordingFiles, caplog: pytest.LogCaptureFixture
) -> None:
    safe = live.accept(1)
    live.run()
    files.failing = lambda operation: (
        OSError(errno.ENOSPC, "No space left on device") if operation.kind is Kind.WRITE else None
    )
    live.accept(1)
    live.run()
    live.journal.close()
    events = [getattr(record, "event", "") for record in caplog.records]
    assert events == ["journal-full", "journal-incomplete"]
    files.failing = None
    assert set(LiveJournal(files, time=live.time).pending) == {safe.id}


# ---------------------------------------------------------------------- bounds


def test_pending_bytes_are_bounded(files: RecordingFiles) -> None:
    live = LiveJournal(files, maximum_bytes=8 * MIB, segment_bytes=None)
    bound = live.settings.live_bound
    while not live.journal.is_over_bytes(100_000):
        assert live.journal.refusal(100_000) is None
        live.accept(1, body=b"x" * 100_000)
        live.run()
    assert live.journal.statistics.live_bytes + 100_000 > 0.9 * bound
    while live.journal.refusal(100_000) is None:
        live.accept(1, body=b"x" * 100_000)
        live.run()
    assert live.journal.statistics.live_bytes <= bound
    refusal = live.journal.refusal(100_000)
    assert refusal is not None
    assert refusal.startswith("the journal is full: ")
    assert sum(files.size(name) for name in files.names()) <= 8 * MIB
    for indication in list(live.owner.indications.values()):
        live.settle(indication, 1)
    assert live.journal.refusal(100_000) is None
    assert not live.journal.is_over_bytes(100_000)


def test_what_waits_for_a_slow_disk_is_bounded(
    live: LiveJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MAXIMUM_WAITING", 100_000)
    live.accept(1)
    live.turn()
    # The write of the first is under way.
    for _ in range(10):
        assert live.journal.refusal(10_000) is None
        live.accept(1, body=b"x" * 10_000)
        live.turn()
    refusal = live.journal.refusal(1)
    assert refusal is not None
    assert refusal.startswith("the journal's disk is slow: ")
    live.run()
    assert live.journal.refusal(1) is None


# ---------------------------------------------------------------------- over a restart


def test_the_states_of_queues_names_and_groups_survive(files: RecordingFiles) -> None:
    live = LiveJournal(files)
    journal = live.journal
    south = journal.destination(uid="u-south", name="south")
    mail = journal.subscription(uid="u-mail", name="mail", filter_name="alerts")
    state = QueueState(
        destination=south,
        listener="http://south/",
        sends_identifiers=True,
        epoch=4,
        base=2,
        next_number=9,
        failures=3,
    )
    journal.note(state)
    live.time.advance(0.05)
    live.run()
    journal.close()
    again = LiveJournal(files, time=live.time, begun=False)
    assert again.recovered.queues[south].state == state
    assert again.recovered.queues[south].next_number == 9
    assert again.recovered.next_epoch == 5
    assert again.journal.id == journal.id
    assert again.journal.destination(uid="u-south", name="south") == south
    assert again.journal.subscription(uid="u-mail", name="mail", filter_name="alerts") == mail
    assert again.journal.destination(uid="u-other", name="south") not in (south,)


def test_a_name_of_an_earlier_run_is_kept_once_it_is_used_again(files: RecordingFiles) -> None:
    time = FakeTime()
    first = LiveJournal(files, time=time)
    index = first.journal.subscription(uid="u", name="mail", filter_name="alerts")
    first.settle(first.accept(1), 1)
    first.run()
    first.journal.close()
    second = LiveJournal(files, time=time)
    assert second.journal.subscription(uid="u", name="mail", filter_name="alerts") == index
    second.accept(1)
    second.run()
    # The first run's segment is gone by now, and its names with it.
    assert segments(files) == ["0000000000000002.segment"]
    second.journal.close()
    assert LiveJournal(files, time=time).recovered.subscriptions[index].name == "mail"


def test_of_state_only_the_bodies_are_not_written(files: RecordingFiles) -> None:
    live = LiveJournal(files, durability=Durability.STATE_ONLY)
    index = live.journal.destination(uid="u-south", name="south")
    live.accept(index, body=b"secret" * 100, digest=b"p" * 16)
    live.settle(live.accept(index + 1, digest=b"d" * 16), index + 1)
    live.run()
    live.journal.close()
    assert not any(b"secret" in content for content in files.image().values())
    again = LiveJournal(files, time=live.time, durability=Durability.STATE_ONLY)
    assert again.recovered.lost == {"south": 1}
    assert again.pending == {}
    assert set(again.owner.known) == {b"d" * 16}
    again.run()
    again.journal.close()
    # Told once.
    third = LiveJournal(files, time=live.time, durability=Durability.STATE_ONLY)
    assert third.recovered.lost == {}
