"""Partial damage of one place does not become that of all: what a folder or a store has lost in the
middle is taken from those that have it."""

import asyncio
import logging
import os
from pathlib import Path
from random import Random

import pytest

from pillion_sidecar.journal.marks import MARKS_NAME, MarksFile
from pillion_sidecar.journal.ports import NoIdentities
from pillion_sidecar.journal.records import Kind, seal
from pillion_sidecar.journal.recovery import Recovery, recover
from pillion_sidecar.journal.scan import FindingKind
from pillion_sidecar.journal.segments import HEADER_SIZE, Header, encode_header, segment_name
from pillion_sidecar.stores.claiming import Claimed
from pillion_sidecar.stores.copies import NO_EPOCH, Copy, Epoch, Extent
from pillion_sidecar.stores.quorum import completed
from pillion_sidecar.stores.shipping import RETRY_SECONDS
from pillion_sidecar.stores.store import EPOCHS_NAME, Store, StoredCopy
from pillion_sidecar.testing import FakeTime
from support.claims import LIMITS, World, begun_with, files_of, log_of, since, stores_of
from support.crashing_files import Disk, RecordingFiles
from support.stores import FIRST, NAMES, SESSION, RecordingFolders, ShippedLog

SEED = int(os.environ.get("PILLION_KILL_SEED", Random().randrange(1_000_000)))
MIDDLE = segment_name(2)


def labelled(log: ShippedLog) -> dict[str, bytes]:
    """Return the folder of a writer that had the epoch's whole log."""
    files = RecordingFiles(files_of(log))
    own = StoredCopy(SESSION, files)
    own.claim(FIRST)
    own.label(FIRST)
    return files.image()


def without(image: dict[str, bytes], name: str) -> dict[str, bytes]:
    return {one: data for one, data in image.items() if one != name}


def shortened(image: dict[str, bytes], name: str, size: int) -> dict[str, bytes]:
    return {**image, name: image[name][:size]}


def spoilt(image: dict[str, bytes], name: str, at: int) -> dict[str, bytes]:
    data = bytearray(image[name])
    data[at] ^= 1
    return {**image, name: bytes(data)}


def record_size(log: ShippedLog, number: int) -> int:
    """Return the size of one of three like records."""
    return (len(log.segments[number]) - HEADER_SIZE) // 3


def shorter(log: ShippedLog, records: int) -> ShippedLog:
    """A log that ends so many records of its last segment earlier."""
    last = max(log.segments)
    size = len(log.segments[last]) - records * record_size(log, last)
    return ShippedLog(segments={**log.segments, last: log.segments[last][:size]})


def upto(log: ShippedLog, last: int) -> ShippedLog:
    return ShippedLog(segments={one: log.segments[one] for one in log.segments if one <= last})


def copied(log: ShippedLog) -> ShippedLog:
    return ShippedLog(segments=dict(log.segments))


def repaired(world: World, claimed: Claimed) -> Recovery:
    return recover(
        world.files,
        clock=FakeTime(),
        identities=NoIdentities(),
        new_journal_id=bytes.fromhex(SESSION),
        is_copied=True,
        lacks_end=claimed.lacked,
    )


def ship(world: World, claimed: Claimed) -> None:
    """Bring every store to what the folder has then."""
    own = StoredCopy(SESSION, world.files, is_own=True).copy
    image = world.files.image()
    log = ShippedLog(
        segments={one.number: image[segment_name(one.number)][: one.size] for one in own.extents}
    )
    for name in NAMES:
        store = world.stores.stores[name]
        log.ship(store, store.claim(SESSION, claimed.epoch), claimed.epoch, base=log.end)


def content_of(world: World, store: str) -> dict[str, bytes]:
    image = world.stores.folders[store].files[SESSION].image()
    return {name: image[name] for name in image if name.endswith(".segment")}


LOG = log_of(10, 20, 30, 40)
DAMAGED = {
    "missing": without(labelled(LOG), MIDDLE),
    "two missing": without(without(labelled(LOG), MIDDLE), segment_name(3)),
    "shorter": shortened(labelled(LOG), MIDDLE, HEADER_SIZE + record_size(LOG, 2)),
    "torn": shortened(labelled(LOG), MIDDLE, HEADER_SIZE + record_size(LOG, 2) + 5),
    "header": spoilt(labelled(LOG), MIDDLE, 20),
    "first header": spoilt(labelled(LOG), segment_name(1), 20),
    "record": spoilt(labelled(LOG), MIDDLE, HEADER_SIZE + record_size(LOG, 2) + 20),
    "last record": spoilt(labelled(LOG), MIDDLE, len(LOG.segments[2]) - 1),
    "newest": spoilt(labelled(LOG), segment_name(4), HEADER_SIZE + 20),
    "several": spoilt(without(labelled(LOG), MIDDLE), segment_name(3), HEADER_SIZE + 1),
}


@pytest.mark.parametrize("how", DAMAGED)
@pytest.mark.parametrize("lag", [0, 1])
async def test_what_a_folder_has_lost_is_taken_from_the_stores(how: str, lag: int) -> None:
    world = World(RecordingFiles(DAMAGED[how]))
    world.has_shipped(shorter(LOG, lag), *NAMES)
    claimed = await world.claim()
    assert (claimed.source, claimed.lacked) == (None, False)
    assert claimed.mended
    assert not claimed.findings
    assert world.content() == files_of(LOG)
    assert not repaired(world, claimed).findings
    ship(world, claimed)
    for name in NAMES:
        assert content_of(world, name) == files_of(LOG)


async def test_a_segment_of_which_no_store_has_the_end_is_told_of() -> None:
    """Its records were known to listeners, so new contexts begin."""
    world = World(RecordingFiles(DAMAGED["missing"]))
    have = shorter(upto(LOG, 2), 1)
    world.has_shipped(have, *NAMES)
    claimed = await world.claim()
    assert (claimed.source, claimed.lacked) == (None, True)
    (finding,) = claimed.findings
    assert (finding.kind, finding.file) == (FindingKind.MISSING, MIDDLE)
    assert world.content() == {**files_of(LOG), MIDDLE: have.segments[2]}
    # A crash before that is noted leaves a folder that is known to lack it.
    assert StoredCopy(SESSION, RecordingFiles(world.files.image()), is_own=True).lacks_end


@pytest.mark.parametrize("how", ["missing", "header", "record", "newest"])
async def test_what_no_store_has_is_left_to_the_repair(how: str) -> None:
    world = World(RecordingFiles(DAMAGED[how]))
    world.has_shipped(upto(LOG, 1), *NAMES)
    claimed = await world.claim()
    assert claimed.source is None
    assert world.content() == {
        name: data for name, data in DAMAGED[how].items() if name.endswith(".segment")
    }
    recovery = repaired(world, claimed)
    assert recovery.findings
    ship(world, claimed)
    for name in NAMES:
        assert content_of(world, name) == world.content()
        assert content_of(world, name)[segment_name(3)] == LOG.segments[3]


@pytest.mark.parametrize("how", ["missing", "shorter", "header", "record", "newest", "several"])
@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_a_crash_while_a_folder_is_mended_costs_nothing(how: str, is_power_cut: bool) -> None:
    draw = Random(SEED)
    world = World(RecordingFiles(DAMAGED[how]))
    world.has_shipped(shorter(LOG, 1), *NAMES)
    await world.claim()
    disk = Disk(DAMAGED[how])
    for operation in world.files.operations:
        image = (disk.after_power_cut if is_power_cut else disk.after_kill)(operation, draw)
        again = World(RecordingFiles(image))
        again.has_shipped(shorter(LOG, 1), *NAMES)
        await again.claim("again")
        found = again.content()
        if how == "newest":
            # Its end may be torn, of which nobody else knows.
            found[segment_name(4)] = LOG.segments[4]
        assert found == files_of(LOG), f"seed {SEED}, at {operation}"
        disk.tell(operation)


async def test_damage_that_a_store_has_as_well_is_read_from_another() -> None:
    world = World(RecordingFiles(DAMAGED["record"]))
    world.has_shipped(LOG, *NAMES)
    # The third is not needed for the claim.
    damage(world, "a", DAMAGED["record"])
    damage(world, "b", DAMAGED["record"])
    claimed = await world.claim()
    assert claimed.mended
    assert "c" not in claimed.answers
    assert world.content() == files_of(LOG)
    # Where all have it, the start goes on, and its repair tells of it.
    world = World(RecordingFiles(DAMAGED["record"]))
    world.has_shipped(LOG, *NAMES)
    for name in NAMES:
        damage(world, name, DAMAGED["record"])
    claimed = await world.claim()
    assert not claimed.mended
    assert [one.kind for one in repaired(world, claimed).findings] == [FindingKind.DAMAGED]


@pytest.mark.parametrize("at", [20, HEADER_SIZE + 1, 100])
@pytest.mark.parametrize("has_folder", [False, True])
async def test_what_no_store_has_sound_is_told_by_the_repair(has_folder: bool, at: int) -> None:
    """Only that is lost: what is behind it is sound."""
    behind = upto(LOG, 2)
    world = World(RecordingFiles(labelled(behind) if has_folder else {}))
    world.has_shipped(LOG, "a")
    world.has_shipped(behind, "b", "c")
    # It goes on as it was: a restart would tell that it has no header.
    image = spoilt(labelled(LOG), segment_name(3), at)
    files = world.stores.folders["a"].files[SESSION]
    file = files.open(segment_name(3), writable=True)
    file.write(0, image[segment_name(3)])
    claimed = await world.claim()
    assert claimed.source == "a"
    assert world.content() == {**files_of(LOG), segment_name(3): image[segment_name(3)]}
    recovery = repaired(world, claimed)
    assert [one.file for one in recovery.findings] == [segment_name(3)]
    assert world.content()[segment_name(4)] == LOG.segments[4]


@pytest.mark.parametrize("has_folder", [False, True])
async def test_a_copy_ends_where_its_store_has_not_what_it_says(has_folder: bool) -> None:
    behind = upto(LOG, 2)
    world = World(RecordingFiles(labelled(behind) if has_folder else {}))
    world.has_shipped(LOG, "a")
    world.has_shipped(behind, "b", "c")
    files = world.stores.folders["a"].files[SESSION]
    files.open(segment_name(3), writable=True).truncate(0)
    claimed = await world.claim()
    assert claimed.lacked
    assert [one.file for one in claimed.findings] == [segment_name(3)]
    assert world.content() == files_of(behind)


async def test_a_store_that_may_have_what_is_damaged_at_another_is_waited_for() -> None:
    behind = upto(LOG, 2)
    world = World()
    world.has_shipped(LOG, "a", "c")
    world.has_shipped(behind, "b")
    damage(world, "a", spoilt(labelled(LOG), segment_name(3), HEADER_SIZE + 1))
    world.stores.away = {"c"}
    claiming = asyncio.create_task(world.claim())
    await world.until(lambda: "c" in world.waits[-1][0])
    world.stores.away = set()
    world.time.advance(RETRY_SECONDS)
    claimed = await claiming
    assert not claimed.findings
    assert world.content() == files_of(LOG)


async def test_another_log_of_a_store_that_was_not_claimed_is_not_read() -> None:
    world = World(RecordingFiles(DAMAGED["record"]))
    world.has_shipped(LOG, "a", "b")
    world.has_shipped(log_of(10, 20, 30, 40, created=2.0), "c")
    damage(world, "a", DAMAGED["record"])
    damage(world, "b", DAMAGED["record"])
    claimed = await world.claim()
    assert not claimed.mended
    assert world.content()[MIDDLE] == DAMAGED["record"][MIDDLE]


@pytest.mark.parametrize("has_marks", [False, True])
async def test_the_oldest_segment_is_taken_from_the_stores(has_marks: bool) -> None:
    image = DAMAGED["first header"]
    if has_marks:
        marks = RecordingFiles()
        file = MarksFile(marks, journal_id=bytes.fromhex(SESSION), oldest=1)
        file.begun(4)
        file.close()
        image = {**without(image, segment_name(1)), **marks.image()}
    world = World(RecordingFiles(image))
    world.has_shipped(LOG, *NAMES)
    claimed = await world.claim()
    assert (claimed.source, claimed.lacked) == (None, False)
    assert world.content() == files_of(LOG)
    # What the journal has removed itself does not come back.
    rest = since(copied(LOG), 3)
    world = World(RecordingFiles(labelled(rest)))
    world.has_shipped(LOG, *NAMES)
    claimed = await world.claim()
    assert world.content() == files_of(rest)


async def test_a_store_that_is_torn_in_the_middle_is_sent_the_rest() -> None:
    world = World(RecordingFiles(labelled(LOG)))
    world.has_shipped(LOG, *NAMES)
    damage(world, "b", DAMAGED["torn"])
    claimed = await world.claim()
    ship(world, claimed)
    assert content_of(world, "b") == files_of(LOG)


def damage(world: World, store: str, image: dict[str, bytes]) -> None:
    """The disk of a store has lost what the image lacks; it restarts."""
    files = world.stores.folders[store].files[SESSION].image()
    kept = {name: data for name, data in image.items() if name.endswith(".segment")}
    kept[EPOCHS_NAME] = files[EPOCHS_NAME]
    world.stores.folders[store].files[SESSION] = RecordingFiles(kept)
    world.stores.stores[store] = Store(world.stores.folders[store], LIMITS)


@pytest.mark.parametrize("how", ["missing", "shorter", "header", "record"])
@pytest.mark.parametrize("has_folder", [False, True])
async def test_what_one_store_has_lost_is_taken_from_the_others(how: str, has_folder: bool) -> None:
    behind = shorter(LOG, 1)
    world = World(RecordingFiles(labelled(behind) if has_folder else {}))
    world.has_shipped(LOG, "a")
    world.has_shipped(behind, "b", "c")
    damage(world, "a", DAMAGED[how])
    claimed = await world.claim()
    assert world.content() in (files_of(LOG), files_of(behind))
    ship(world, claimed)
    for name in "bc":
        assert content_of(world, name) == world.content()
    if how != "record":
        assert content_of(world, "a") == world.content()


@pytest.mark.parametrize("how", ["missing", "header", "first header"])
def test_a_store_that_has_lost_a_part_has_no_label(how: str) -> None:
    """It may lack a part of the base of its epoch."""
    epochs = RecordingFolders()
    store = Store(epochs, LIMITS)
    LOG.ship(store, store.claim(SESSION, FIRST), FIRST)
    files = {**DAMAGED[how], EPOCHS_NAME: epochs.files[SESSION].image()[EPOCHS_NAME]}
    folders = RecordingFolders({SESSION: RecordingFiles(files)})
    store = Store(folders, LIMITS)
    copy = store.copy(SESSION)
    assert copy.written == NO_EPOCH
    assert copy.extents == (() if how == "first header" else LOG.extents[:1])
    # Within the epoch it gets the rest again.
    LOG.ship(store, copy, FIRST, base=LOG.end)
    assert store.copy(SESSION).written == FIRST
    image = folders.files[SESSION].image()
    assert {one: image[one] for one in files_of(LOG)} == files_of(LOG)


def test_a_segment_stands_for_those_that_its_writer_had_lost() -> None:
    log = ShippedLog(segments={1: LOG.segments[1]})
    log.segments[3] = encode_header(Header(3, bytes.fromhex(SESSION), 1.0))
    log.segments[3] += seal(Kind.FILLER, b"", count=2, record_id=5)
    folders = RecordingFolders()
    store = Store(folders, LIMITS)
    log.ship(store, store.claim(SESSION, FIRST), FIRST)
    again = Store(folders, LIMITS).copy(SESSION)
    assert (again.written, again.extents) == (FIRST, log.extents)


def copy_of(*extents: tuple[int, float, int], written: int = 1) -> Copy:
    epoch = Epoch(written, "x")
    return Copy(promised=epoch, written=epoch, extents=tuple(Extent(*one) for one in extents))


@pytest.mark.parametrize(
    ("copy", "other", "whole"),
    [
        # One log: the longer segment is right, and what is missing is there.
        ([(1, 1.0, 50), (3, 1.0, 9)], [(1, 1.0, 99), (2, 1.0, 80), (3, 1.0, 7)], [99, 80, 9]),
        ([(1, 1.0, 50), (3, 1.0, 9)], [(1, 1.0, 99), (2, 1.0, 80)], [99, 80, 9]),
        # The end may be anywhere.
        ([(1, 1.0, 50)], [(1, 1.0, 99)], [50]),
        # Another writer's segments are of another log.
        ([(1, 1.0, 50), (3, 1.0, 9)], [(1, 2.0, 99)], [50, 9]),
    ],
)
def test_a_copy_is_completed_by_others_of_its_log(
    copy: list[tuple[int, float, int]], other: list[tuple[int, float, int]], whole: list[int]
) -> None:
    copies = completed({"a": copy_of(*copy), "b": copy_of(*other)})
    assert [one.size for one in copies["a"].extents] == whole


def test_a_later_log_is_not_completed_by_an_earlier_one() -> None:
    """It goes on from where the copy was shorter: the rest was never stable."""
    copies = {
        "a": copy_of((1, 1.0, 50), (2, 2.0, 9), written=2),
        "b": copy_of((1, 1.0, 99), written=1),
    }
    assert completed(copies) == copies


async def test_what_is_cut_from_a_folder_is_told() -> None:
    """Another writer went on from where the folder was shorter."""
    shared = log_of(10)
    mine = log_of(10, 300)
    image = spoilt(labelled(mine), segment_name(2), HEADER_SIZE + record_size(mine, 2) + 1)
    # A write of which the disk had all, as a COMMIT behind it says.
    image[segment_name(2)] += seal(Kind.COMMIT, bytes(16))
    world = World(RecordingFiles({**image, MARKS_NAME: b"x"}))
    other = begun_with(shared, 2.0)
    world.has_shipped(other, *NAMES, epoch=Epoch(2, "other"))
    claimed = await world.claim()
    assert claimed.lacked
    assert claimed.cut == HEADER_SIZE + record_size(mine, 2)
    assert world.content() == files_of(other)
    (finding,) = claimed.findings
    assert finding.kind is FindingKind.DAMAGED
    (kept,) = (name for name in world.files.image() if name.endswith(".damaged"))
    assert world.files.image()[kept] == image[segment_name(2)][finding.begin : finding.end]


async def test_an_end_that_no_store_has_is_a_lost_one() -> None:
    """The folder had more than what it is brought to, which listeners may know."""
    image = shortened(labelled(LOG), segment_name(4), 70)
    image[segment_name(4)] = bytes(64) + image[segment_name(4)][64:]
    world = World(RecordingFiles(without(image, segment_name(3))))
    world.has_shipped(upto(LOG, 3), *NAMES)
    claimed = await world.claim()
    assert claimed.source is not None
    assert claimed.lacked
    assert claimed.findings
    assert world.content() == files_of(upto(LOG, 3))


async def test_a_folder_at_which_nothing_is_damaged_is_read_and_left() -> None:
    world = World(RecordingFiles(labelled(LOG)))
    world.has_shipped(LOG, *NAMES)
    claimed = await world.claim()
    assert (claimed.mended, claimed.findings, claimed.cut) == ([], [], 0)
    assert not world.stores.reads()


async def test_what_a_claim_does_to_a_folder_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    image = spoilt(labelled(log_of(10, 300)), segment_name(1), HEADER_SIZE + 1)
    world = World(RecordingFiles(image))
    world.has_shipped(begun_with(log_of(10), 2.0), *NAMES, epoch=Epoch(2, "other"))
    with caplog.at_level(logging.INFO):
        await stores_of(world).claim(world.files, Path("journal"))
    told = {record.__dict__["event"]: record for record in caplog.records}
    assert list(told) == ["session-claimed", "journal-mended", "journal-cut"]
    mended, cut = told["journal-mended"].__dict__, told["journal-cut"].__dict__
    assert (mended["file"], mended["begin"]) == (segment_name(1), HEADER_SIZE)
    assert cut["bytes"] == len(log_of(10, 300).segments[2])
