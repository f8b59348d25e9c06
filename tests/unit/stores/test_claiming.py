"""A start claims its journal at the stores, and takes from them what its folder lacks (S3.7)."""

import asyncio
import errno
import logging
import os
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import pytest

from pillion_sidecar import stores_runtime
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.schema.stores import StoresPolicy, Within
from pillion_sidecar.journal.disk import DiskJournal
from pillion_sidecar.journal.files import JournalError
from pillion_sidecar.journal.identities import identities_name
from pillion_sidecar.journal.marks import MARKS_NAME
from pillion_sidecar.journal.ports import NoIdentities
from pillion_sidecar.journal.recovery import recover
from pillion_sidecar.journal.segments import HEADER_SIZE, position_of, segment_name, segment_numbers
from pillion_sidecar.stores.claiming import session_of
from pillion_sidecar.stores.copies import Epoch
from pillion_sidecar.stores.messages import (
    ClaimRequest,
    ReadRequest,
)
from pillion_sidecar.stores.shipping import RETRY_SECONDS
from pillion_sidecar.stores.store import (
    EPOCHS_NAME,
    Store,
    StoredCopy,
)
from pillion_sidecar.stores_access import check_access
from pillion_sidecar.stores_runtime import JournalStores
from pillion_sidecar.testing import FakeTime
from support.claims import LIMITS, World, begun_with, files_of, group, log_of, since, stores_of
from support.crashing_files import Disk, Operation, RecordingFiles
from support.delivery import destination
from support.on_disk import OnDisk
from support.stepped import SteppedWorker
from support.stores import (
    FIRST,
    MEMBERSHIP,
    NAMES,
    OTHER,
    SESSION,
    RecordingFolders,
    ShippedLog,
    identities_file,
)

SEED = int(os.environ.get("PILLION_KILL_SEED", Random().randrange(1_000_000)))


@pytest.fixture(autouse=True)
def same_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is lost is that of the session which the stores have."""
    monkeypatch.setattr(stores_runtime, "token_hex", lambda size: SESSION[: 2 * size])


async def test_a_first_start_begins_an_epoch_on_its_own_folder() -> None:
    log = log_of(10, 20)
    world = World(RecordingFiles(files_of(log)))
    claimed = await world.claim()
    assert (claimed.epoch, claimed.source, claimed.lacked) == (Epoch(1, "new"), None, False)
    assert set(claimed.answers) >= {"a", "b"}
    assert world.content() == files_of(log)
    assert world.label() == claimed.epoch
    # Nothing was written yet, and the folder is known to be the latest.
    empty = World()
    assert (await empty.claim()).source is None
    assert empty.label() == Epoch(1, "new")


@pytest.mark.parametrize("away", NAMES)
async def test_a_folder_that_is_gone_is_restored_from_any_two_stores(away: str) -> None:
    world, log = World(), log_of(10, 2_000_000, 20)
    world.has_shipped(log, *NAMES)
    world.stores.away = {away}
    claimed = await world.claim()
    assert claimed.epoch == Epoch(2, "new")
    assert claimed.source in set(NAMES) - {away}
    assert claimed.lacked
    assert world.content() == files_of(log)
    assert world.label() == claimed.epoch
    assert len(world.stores.reads()) == 2, "the reads are spread"


async def test_a_claim_knows_whether_another_writer_has_claimed_since() -> None:
    log = log_of(10)
    world = World(RecordingFiles(files_of(log)))
    await asyncio.to_thread(StoredCopy(SESSION, world.files).label, FIRST)
    assert (await world.claim()).is_ours
    assert (await world.claim()).is_ours
    # It has written nothing yet, but may deliver.
    for name in ("a", "b"):
        world.stores.stores[name].claim(SESSION, Epoch(7, "other"))
    claimed = await world.claim()
    assert (claimed.source, claimed.is_ours) == (None, False)


async def test_a_claim_that_another_may_have_missed_knows_nothing_of_that() -> None:
    """One answer is enough for a claim where all are needed to make something stable."""
    log = log_of(10)
    world = World(RecordingFiles(files_of(log)))
    await asyncio.to_thread(StoredCopy(SESSION, world.files).label, FIRST)
    world.stores.stores["a"].claim(SESSION, Epoch(2, "other"))
    world.stores.away = {"a"}
    everyone = replace(MEMBERSHIP, within=Within.ALL)
    assert not (await world.claim(membership=everyone)).is_ours


async def test_a_folder_that_lacks_the_end_takes_it_and_keeps_its_contexts() -> None:
    log, ahead = log_of(10, 20), log_of(10, 20)
    ahead.write(30)
    world = World(RecordingFiles({**files_of(log), MARKS_NAME: b"x"}))
    await asyncio.to_thread(StoredCopy(SESSION, world.files).label, FIRST)
    world.has_shipped(ahead, "a", "b")
    claimed = await world.claim()
    assert not claimed.lacked
    assert world.content() == files_of(ahead)
    assert MARKS_NAME not in world.files.image()
    read = [one for _, one in world.stores.asked if isinstance(one, ReadRequest)]
    assert [one.position for one in read] == [log.end]


async def test_a_folder_that_is_ahead_stays_as_it_is() -> None:
    log, ahead = log_of(10), log_of(10, 20)
    world = World(RecordingFiles({**files_of(ahead), MARKS_NAME: b"x"}))
    await asyncio.to_thread(StoredCopy(SESSION, world.files).label, FIRST)
    world.has_shipped(log, *NAMES)
    claimed = await world.claim()
    assert claimed.source is None
    assert not claimed.lacked
    assert world.content() == files_of(ahead)
    assert MARKS_NAME in world.files.image()


async def test_a_folder_whose_writer_was_fenced_is_cut_to_where_it_agrees() -> None:
    """It may be longer: nobody else has that."""
    shared = log_of(10)
    other = log_of(10)
    other.begin(2, created=2.0)
    other.write(5)
    fenced = log_of(10, 300, 300)
    world = World(RecordingFiles(files_of(fenced)))
    await asyncio.to_thread(StoredCopy(SESSION, world.files).label, FIRST)
    world.has_shipped(shared, *NAMES)
    world.has_shipped(other, "b", "c", epoch=Epoch(2, "other"))
    claimed = await world.claim()
    assert claimed.epoch == Epoch(3, "new")
    assert claimed.lacked
    assert world.content() == files_of(other)


async def test_too_few_stores_are_waited_for_by_name() -> None:
    world = World()
    world.has_shipped(log_of(10), *NAMES)
    world.stores.away = {"a", "b"}
    claiming = asyncio.create_task(world.claim())
    await world.until(lambda: len(world.waits[-1][0]) == 2)
    assert world.waits[-1] == (("a", "b"), {"a": "a is away", "b": "b is away"})
    assert not claiming.done()
    world.stores.away = {"b"}
    world.time.advance(RETRY_SECONDS)
    assert (await claiming).epoch == Epoch(2, "new")


async def test_a_claim_goes_beyond_what_any_store_has_promised() -> None:
    world = World()
    world.stores.stores["b"].claim(SESSION, Epoch(7, "other"))
    claimed = await world.claim()
    assert claimed.epoch == Epoch(8, "new")
    claims = [one.number for _, one in world.stores.asked if isinstance(one, ClaimRequest)]
    assert set(claims) == {1, 8}
    assert all(copy.promised == claimed.epoch for copy in claimed.answers.values())


async def test_a_store_that_is_claimed_and_cannot_be_read_is_passed_over() -> None:
    world, log = World(), log_of(10, 20)
    world.has_shipped(log, *NAMES)
    world.stores.away = {"c"}
    world.stores.unread = {"a"}
    await world.claim()
    assert world.content() == files_of(log)
    # Neither is readable: it waits.
    world = World()
    world.has_shipped(log, *NAMES)
    world.stores.away, world.stores.unread = {"c"}, {"a", "b"}
    claiming = asyncio.create_task(world.claim())
    await world.until(lambda: len(world.waits[-1][0]) == 2)
    world.stores.unread = set()
    world.time.advance(RETRY_SECONDS)
    await claiming
    assert world.content() == files_of(log)


async def test_a_start_reads_from_all_that_have_the_log() -> None:
    """S3.11: copies are alike, so reads are spread."""
    world, log = World(), log_of(*[10] * 9)
    world.has_shipped(log, *NAMES)
    world.stores.away = {"c"}
    await world.claim()
    assert world.content() == files_of(log)
    assert abs(world.stores.reads_of("a") - world.stores.reads_of("b")) <= 1


@pytest.mark.parametrize("at", [None, 0, 20, HEADER_SIZE + 9])
async def test_a_store_that_cannot_be_read_is_not_asked_for_each_segment(at: int | None) -> None:
    """``at``: where it gives garbage; None: it does not answer."""
    world, log = World(), log_of(*[10] * 9)
    world.has_shipped(log, *NAMES)
    world.stores.away = {"c"}
    if at is None:
        world.stores.unread = {"a"}
    else:
        world.stores.garbage = {"a": at}
    await world.claim()
    assert world.content() == files_of(log)
    assert world.stores.reads_of("a") == 1
    assert all(set(problems) <= {"c"} for _, problems in world.waits)


@pytest.mark.parametrize(
    ("log", "old"),
    [
        (log_of(10, 20, 3000), log_of(10, 200, created=2.0)),
        # The copy has removed what the folder has.
        (since(log_of(10, 20, 3000, 40), 3), log_of(10, 20)),
        (since(log_of(10, 20, 3000, 40), 3), log_of(10, 200, created=2.0)),
        # The folder has removed what the copy has, and goes another way from there.
        (log_of(10, 20, 3000, 40), begun_with(since(log_of(10, 20, 3000), 3), 2.0)),
        (log_of(10, 20, 3000, 40), since(log_of(10, 20, 3000, 40, 50, created=2.0), 2)),
    ],
)
@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_a_crash_while_a_folder_is_restored_costs_nothing(
    is_power_cut: bool, log: ShippedLog, old: ShippedLog
) -> None:
    draw = Random(SEED)
    before = {**files_of(old), MARKS_NAME: b"x"}
    world = World(RecordingFiles(before))
    world.has_shipped(log, *NAMES)
    await world.claim()
    assert world.content() == files_of(log)
    disk = Disk(before)
    for operation in world.files.operations:
        image = (disk.after_power_cut if is_power_cut else disk.after_kill)(operation, draw)
        again = World(RecordingFiles(image))
        again.has_shipped(log, *NAMES)
        await again.claim("again")
        assert again.content() == files_of(log), f"seed {SEED}, at {operation}"
        disk.tell(operation)


def remembering(world: World, *names: str, numbers: tuple[int, ...] = (1, 2)) -> dict[str, bytes]:
    """The stores have files of identities; return them."""
    files = {number: identities_file(number) for number in numbers}
    for name in names:
        for number, data in files.items():
            world.stores.stores[name].keep(SESSION, FIRST, number, data, first=0)
    return {identities_name(number): data for number, data in files.items()}


async def test_what_is_remembered_of_removed_segments_is_restored() -> None:
    world, log = World(), since(log_of(10, 20, 3000), 3)
    world.has_shipped(log, *NAMES)
    world.stores.away = {"a"}
    remembering(world, "b", numbers=(1,))
    files = remembering(world, "c")
    await world.claim()
    image = world.files.image()
    assert {name: image.get(name) for name in files} == files
    # Wherever it crashes, the next start has them.
    disk = Disk({})
    for operation in world.files.operations:
        again = World(RecordingFiles(disk.after_kill(operation, Random(SEED))))
        again.has_shipped(log, *NAMES)
        remembering(again, *NAMES)
        await again.claim("again")
        image = again.files.image()
        assert {name: image.get(name) for name in files} == files, f"at {operation}"
        disk.tell(operation)


async def test_a_store_without_identities_delays_no_start() -> None:
    world, log = World(), since(log_of(10, 20, 3000), 3)
    world.has_shipped(log, *NAMES)
    remembering(world, *NAMES)
    world.stores.forgetful = set(NAMES)
    await world.claim()
    assert world.content() == files_of(log)
    # One that does not answer is waited for.
    world = World()
    world.has_shipped(log, *NAMES)
    files = remembering(world, *NAMES)
    world.stores.unread = set(NAMES)
    claiming = asyncio.create_task(world.claim())
    await world.until(lambda: len(world.waits[-1][1]) > 1)
    world.stores.unread = set()
    world.time.advance(RETRY_SECONDS)
    await claiming
    assert set(files) <= set(world.files.image())


class FollowedJournal:
    """Stands in for the part of a ``DiskJournal`` that a start needs."""

    last_id = 0

    def reconsider(self) -> None: ...

    def follow(self, follower: object, *, lease: object) -> None:
        pass


@pytest.mark.parametrize(
    ("having", "away", "told"),
    [("abc", "", []), ("ab", "", []), ("a", "b", ["c"]), ("a", "", ["b", "c"]), ("", "", [])],
)
async def test_a_start_tells_of_stores_that_may_have_lost_what_was_stable(
    having: str, away: str, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="pillion.stores")
    world = World()
    world.has_shipped(log_of(10), *having)
    world.stores.away = set(away)
    stores = stores_of(world)
    await stores.claim(world.files, Path("journal"))
    stores.close()
    lacking = [
        record for record in caplog.records if record.__dict__["event"] == "stores-lack-copy"
    ]
    found = [record.__dict__["stores"] for record in lacking]
    # A third store may be heard of or not, since two are enough.
    assert [set(one) <= set(told) and bool(one) for one in found] == [True] * bool(told)


async def test_a_start_gives_the_stores_what_its_folder_remembers() -> None:
    log = since(log_of(10, 20, 3000), 3)
    files = {identities_name(number): identities_file(number) for number in (1, 2, 3)}
    world = World(RecordingFiles({**files_of(log), **files}))
    stores = stores_of(world)
    await stores.claim(world.files, Path("journal"))
    worker = SteppedWorker()
    await stores.follow(cast(DiskJournal, FollowedJournal()), world.files, worker=worker)
    while not all(store.copy(SESSION).extents for store in world.stores.stores.values()):
        worker.drain()
        await asyncio.sleep(0)
    stores.close()
    for store in world.stores.stores.values():
        # The third segment is there, and has its own.
        assert [number for number, _ in store.identities(SESSION)] == [1, 2]


@pytest.mark.parametrize("size", [1, 300])
def test_a_repair_writes_nothing_where_a_store_has_other_bytes(size: int) -> None:
    """A power cut took the end of a write from the folder; a store that was away has it."""
    torn, ahead = log_of(10, 20), log_of(10, 20)
    ahead.write(size)
    store = Store(RecordingFolders(), LIMITS)
    ahead.ship(store, store.claim(SESSION, FIRST), FIRST)
    image = files_of(torn)
    image[segment_name(2)] += bytes(9) + b"torn" * 9
    files = RecordingFiles(image)
    for _ in range(2):
        # The second start follows a crash of the first.
        recovery = recover(
            files,
            clock=FakeTime(),
            identities=NoIdentities(),
            new_journal_id=bytes.fromhex(SESSION),
            is_copied=True,
        )
        assert recovery.recovered.damaged
        assert recovery.next_segment == 4
    extents = StoredCopy(SESSION, files).copy.extents
    assert extents[:2] == torn.extents
    repaired = ShippedLog()
    repaired.segments = {one.number: files.image()[segment_name(one.number)] for one in extents}
    epoch = Epoch(2, "new")
    repaired.ship(store, store.claim(SESSION, epoch), epoch, base=repaired.end)
    copy = store.copy(SESSION)
    assert (copy.written, copy.extents) == (epoch, extents)
    assert store.read(SESSION, position_of(2, 0), 9999) == torn.segments[2]


@pytest.mark.parametrize(("name", "is_adoptable"), [(None, True), ("orders-0", False)])
async def test_a_claim_names_the_pod_unless_a_given_name_finds_the_session_again(
    name: str | None, is_adoptable: bool
) -> None:
    world = World()
    stores = stores_of(world, session_name=name, pod_uid="u-1")
    await stores.claim(world.files, Path("journal"))
    stores.close()
    copy = world.stores.stores["a"].copy(SESSION)
    assert copy.promised.claimant.startswith("u-1/default/") is is_adoptable


class FailingFiles(RecordingFiles):
    def names(self) -> list[str]:
        raise OSError(errno.EIO, "Input/output error")


async def test_a_folder_that_cannot_be_read_is_named() -> None:
    world = World()
    stores = JournalStores(
        StoresPolicy(groups=(group("g", "a"),)),
        service="default",
        session_name=None,
        pod_uid=None,
        connect=lambda *_, **__: world.stores,
        clock=world.time,
        timers=world.time,
    )
    with pytest.raises(JournalError, match="journal folder '/data/j': Input/output error"):
        await stores.claim(FailingFiles(), Path("/data/j"))


@pytest.mark.parametrize(
    ("gateway", "says"),
    [
        (None, "needs gateways, and this deliverer was not told how to reach any"),
        ("http://gate:1", "names 2 gateways, and --gateway http://gate:1 leads to one gateway"),
    ],
)
def test_one_gateway_is_not_taken_for_several_stores(gateway: str | None, says: str) -> None:
    policy = StoresPolicy(groups=(group("g", "a", "b"),))
    with pytest.raises(ConfigurationError) as raised:
        check_access(policy, service="default", gateway=gateway)
    (problem,) = raised.value.problems
    assert (problem.field, problem.message) == ("spec.stores", says)
    check_access(StoresPolicy(groups=(group("g", "a"),)), service="one", gateway="http://gate:1")


def test_a_name_that_makes_no_url_is_refused_by_name() -> None:
    policy = StoresPolicy(groups=(group("g", "1234", "store"),))
    with pytest.raises(ConfigurationError) as raised:
        check_access(policy, service="default", gateway="http://gate:{service}")
    (problem,) = raised.value.problems
    assert (problem.field, problem.value) == ("spec.stores.groups", "store")
    assert "--gateway http://gate:{service}" in problem.message


async def test_a_folder_that_was_cut_to_nothing_is_not_gone_on_from() -> None:
    """A crash in between leaves its first segments, and what was pending is behind them."""
    old = begun_with(since(log_of(10, 20, 3000, 40), 3), 2.0)
    before = {**files_of(old), MARKS_NAME: b"x"}
    world = World(RecordingFiles(before))
    await asyncio.to_thread(StoredCopy(SESSION, world.files).label, FIRST)
    begin = len(world.files.operations)
    world.has_shipped(log_of(10, 20, 3000, 40), *NAMES, epoch=Epoch(2, "other"))
    await world.claim()
    disk = Disk(before)
    for operation in world.files.operations[:begin]:
        disk.tell(operation)
    behind = log_of(10, 20, 30)
    for operation in world.files.operations[begin:]:
        image = disk.after_kill(operation, Random(SEED))
        disk.tell(operation)
        again = World(RecordingFiles(image))
        # The store that was ahead is away now, and these have no more than what is stable.
        again.has_shipped(behind, *NAMES)
        await again.claim("again")
        found = again.content()
        is_whole = segment_name(1) in found or found == files_of(old)
        assert is_whole, f"at {operation}"


def test_a_session_is_that_of_the_first_file_with_a_header() -> None:
    assert session_of(RecordingFiles()) is None
    log = ShippedLog(session=OTHER)
    log.begin(1, created=1.0)
    assert session_of(RecordingFiles({segment_name(0): b"torn", **files_of(log)})) == OTHER


class Shipping(OnDisk):
    """A deliverer whose journal has stores."""

    stores: JournalStores

    def applied(self) -> None:
        super().applied()
        self.stores.begun()
        # The thread that reads is ahead of the one that commits.
        self.workers[1].drain()


async def begin(world: World) -> OnDisk:
    """Start on the world's folder as a deliverer does, up to its first segment."""
    stores = stores_of(world)
    _, lacks_end = await stores.claim(world.files, Path("journal"))
    deliverer = Shipping(world.files, lacks_end=lacks_end)
    deliverer.stores = stores
    await stores.follow(deliverer.journal, world.files, worker=deliverer.workers[1])
    deliverer.apply([destination("ops")])
    stores.close()
    return deliverer


def context(deliverer: OnDisk) -> str:
    return deliverer.queue("ops").sequence.context


def copied(log: ShippedLog) -> ShippedLog:
    return ShippedLog(segments=dict(log.segments))


def written_before() -> tuple[ShippedLog, str]:
    """Return the log of a deliverer that is gone, and the context that its listener knows."""
    files = RecordingFiles()
    deliverer = OnDisk(files)
    deliverer.apply([destination("ops")])
    for identifier in "abc":
        assert deliverer.give(identifier) is None
        deliverer.run()
    deliverer.journal.close()
    image = files.image()
    numbers = segment_numbers(list(image))
    log = ShippedLog(segments={one: image[segment_name(one)] for one in numbers})
    return log, context(deliverer)


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("has_folder", [False, True])
async def test_a_crash_before_new_contexts_are_on_disk_leaves_no_old_ones(
    is_power_cut: bool, has_folder: bool
) -> None:
    """The folder is the latest copy then, and listeners know numbers that no copy has."""
    draw = Random(SEED)
    log, known = written_before()
    before: dict[str, bytes] = {}
    if has_folder:
        # It has the same label, and goes another way.
        folder = RecordingFiles(files_of(begun_with(copied(log), 2.0)))
        await asyncio.to_thread(StoredCopy(SESSION, folder).label, FIRST)
        before = folder.image()
        log.begin(2, created=1.0)
        log.write(300)
    world = World(RecordingFiles(before))
    world.has_shipped(log, *NAMES)
    assert context(await begin(world)) != known
    disk = Disk(before)
    for operation in world.files.operations:
        image = (disk.after_power_cut if is_power_cut else disk.after_kill)(operation, draw)
        again = World(RecordingFiles(image))
        again.has_shipped(log, *NAMES)
        assert context(await begin(again)) != known, f"seed {SEED}, at {operation}"
        disk.tell(operation)


async def test_a_start_on_a_folder_that_lacks_nothing_keeps_its_contexts() -> None:
    log, known = written_before()
    world = World()
    world.has_shipped(log, *NAMES)
    restored = await begin(world)
    restored.journal.close()
    for _ in range(2):
        again = World(RecordingFiles(world.files.image()))
        again.has_shipped(log, *NAMES)
        assert context(await begin(again)) == context(restored)
        world = again
    own = World(RecordingFiles(files_of(log)))
    assert context(await begin(own)) == known


async def test_a_disk_that_takes_no_note_costs_new_contexts_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(operation: Operation) -> OSError | None:
        is_note = operation.name == f"{EPOCHS_NAME}.tmp" and segment_name(2) in files.names()
        return OSError(errno.ENOSPC, "No space left on device") if is_note else None

    log, _ = written_before()
    files = RecordingFiles(failing=fail)
    world = World(files)
    world.has_shipped(log, *NAMES)
    restored = await begin(world)
    (record,) = (one for one in caplog.records if one.__dict__.get("event") == "contexts-not-noted")
    assert record.getMessage().startswith("epochs.json of the journal cannot be written: No space")
    restored.journal.close()
    again = World(RecordingFiles(files.image()))
    again.has_shipped(log, *NAMES)
    assert context(await begin(again)) != context(restored)


async def test_a_folder_of_an_earlier_version_lacks_nothing() -> None:
    log, known = written_before()
    epochs = b'{"promised":[1,"x"],"written":[1,"x"]}'
    world = World(RecordingFiles({**files_of(log), EPOCHS_NAME: epochs}))
    world.has_shipped(log, *NAMES)
    assert context(await begin(world)) == known
    # That version finds what it knows: a folder that lacks nothing has no note.
    assert b"lacks" not in world.files.image()[EPOCHS_NAME]
