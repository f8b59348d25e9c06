"""Kill points: a run of the deliverer's core is cut at each operation of its journal's folder, by
kills and by power cuts, and opened again: nothing acknowledged is lost, nothing is out of order.

``PILLION_KILL_POINTS`` is how many at least, over all seeds; ``PILLION_KILL_SEED`` the first seed,
to replay a run.
"""

import errno
import os
from collections.abc import Callable
from random import Random

import pytest

from pillion_sidecar.testing import FakeTime
from support.core import Core
from support.crashing_files import Disk, Failing, Kind, Operation, RecordingFiles
from support.kill_points import Broken, Campaign, Script, history_of

#: At least so many in all, each time others unless the seed is given.
POINTS = int(os.environ.get("PILLION_KILL_POINTS", "10000"))
SEED = int(os.environ.get("PILLION_KILL_SEED", Random().randrange(1_000_000)))
#: Parts, which run beside each other.
PARTS = 8
STEPS = 160


@pytest.mark.slow
@pytest.mark.timeout(60 + POINTS // 20)
@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_or_out_of_order_wherever_it_is_killed(
    part: int, record_property: Callable[[str, object], None]
) -> None:
    seed, points, acknowledged, reopened = SEED + part, 0, 0, 0
    while points < POINTS / PARTS:
        campaign = Campaign(seed)
        campaign.run(steps=STEPS)
        points += campaign.points
        acknowledged += campaign.acknowledged
        reopened += campaign.reopened
        seed += PARTS
    told = f"{points} kill points, 0 lost, 0 out of order; PILLION_KILL_SEED={SEED + part}"
    print(f"{told}: {acknowledged} acknowledged, {reopened} cut or opened once more")
    record_property("told", told)
    record_property("kill points", points)
    assert acknowledged


# ---------------------------------------------------------------------- the test's own test


class NeverSyncing(RecordingFiles):
    """A disk that says that it has synced, and has not."""

    def do(self, operation: Operation) -> None:
        if operation.kind is not Kind.SYNC:
            super().do(operation)


class SyncingTooSoon(RecordingFiles):
    """A disk that syncs a file before each write instead of after."""

    def do(self, operation: Operation) -> None:
        if operation.kind is Kind.WRITE:
            super().do(Operation(kind=Kind.SYNC, file=operation.file, name=operation.name))
        if operation.kind is not Kind.SYNC:
            super().do(operation)


class NeverSyncingNames(RecordingFiles):
    """A folder that says that its names are on disk, and they are not."""

    def do(self, operation: Operation) -> None:
        if operation.kind is not Kind.SYNC_FOLDER:
            super().do(operation)


@pytest.mark.parametrize("broken", [NeverSyncing, SyncingTooSoon, NeverSyncingNames])
def test_a_journal_that_does_not_sync_is_found_out(
    broken: Callable[[], RecordingFiles],
) -> None:
    with pytest.raises(Broken):
        Campaign(1).run(steps=STEPS, files=broken)


# ---------------------------------------------------------------------- a disk that fails


def failing_from(count: int, kind: Kind, error: OSError, times: int) -> Failing:
    """Fail the operations of a kind from the ``count``-th on, so many times."""
    seen = 0

    def fail(operation: Operation) -> OSError | None:
        nonlocal seen
        if operation.kind is not kind:
            return None
        seen += 1
        return error if count < seen <= count + times else None

    return fail


@pytest.mark.parametrize("kind", [Kind.SYNC, Kind.WRITE])
@pytest.mark.parametrize("count", range(2, 40, 4))
def test_a_disk_that_fails_ends_the_deliverer_and_loses_nothing(kind: Kind, count: int) -> None:
    draw = Random(count)
    files = RecordingFiles()
    core = Core(files, draw=draw, time=FakeTime())
    failed_at: list[int] = []
    fail = failing_from(count, kind, OSError(errno.EIO, "Input/output error"), 1)

    def fail_once(operation: Operation) -> OSError | None:
        error = fail(operation)
        if error is not None:
            failed_at.append(len(files.operations))
        return error

    files.failing = fail_once
    script = Script(core, draw)
    while not failed_at:
        script.run(1)
    core.disks()
    assert core.failure is not None
    # The deliverer stops; what the world was told until then must be true.
    told = tuple(event for event in core.events if event.after <= failed_at[0])
    disk = Disk()
    for operation in files.operations[: failed_at[0]]:
        disk.tell(operation)
    campaign = Campaign(count)
    for number in range(20):
        # A sync that failed may have dropped what was to be synced.
        image = disk.after_power_cut(None, draw)
        where = f"failure {count}, image {number}"
        campaign.judge(image, told, draw, where, crashes=1, boots=2)


@pytest.mark.parametrize("kind", [Kind.ALLOCATE, Kind.WRITE])
@pytest.mark.parametrize("count", range(1, 30, 4))
def test_a_full_disk_is_waited_for_and_loses_nothing(kind: Kind, count: int) -> None:
    draw = Random(count)
    files = RecordingFiles()
    core = Core(files, draw=draw, time=FakeTime())
    full = OSError(errno.ENOSPC, "No space left on device")
    files.failing = failing_from(count, kind, full, 12)
    Script(core, draw).run(200)
    assert core.failure is None
    files.failing = None
    # Space comes back by itself.
    core.advance(5.0)
    core.rest()
    Script(core, draw, prefix="after").run(40)
    core.rest()
    core.deliver_all()
    core.rest()
    assert core.accepts()
    assert history_of(tuple(core.events)).problems() == []
