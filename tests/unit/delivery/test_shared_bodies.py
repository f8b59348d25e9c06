"""Queues that hold the same long indications have one body of each in memory, after a restart
too."""

import pytest

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.journal import read_back
from pillion_sidecar.journal.limits import MIB, JournalSettings
from support.delivery import ERROR, destination
from support.journal_files import MemoryFile, MemoryFiles
from support.on_disk import OnDisk

SETTINGS = JournalSettings(durability=Durability.DISK, maximum_bytes=32 * MIB)
NAMES = [f"dead{number}" for number in range(10)]


def bodies(deliverer: OnDisk) -> list[int]:
    """Which body each loaded entry has."""
    return [
        id(entry.indication.body)
        for queue in deliverer.service.all_queues()
        for entry in queue.waiting.front
    ]


@pytest.mark.parametrize("is_cached", [True, False])
def test_one_body_for_all(is_cached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_cached:
        monkeypatch.setattr(MemoryFile, "read_cached", lambda *_: 0)
    deliverer = OnDisk(MemoryFiles(), settings=SETTINGS)
    deliverer.answer = ERROR
    deliverer.apply([destination(name) for name in NAMES])
    for number in range(8):
        assert deliverer.give(str(number), body=b"x" * 500_000) is None
        deliverer.run()
    deliverer.rest()
    again = deliverer.restart(settings=SETTINGS)
    again.answer = ERROR
    again.apply([destination(name) for name in NAMES])
    found = bodies(again)
    assert len(found) == 80
    assert len(set(found)) == 8


def test_what_is_kept_for_that_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_back, "RECENT_BYTES", 1_200_000)
    deliverer = OnDisk(MemoryFiles(), settings=SETTINGS)
    deliverer.answer = ERROR
    two = [destination(name) for name in NAMES[:2]]
    deliverer.apply(two)
    for number in range(4):
        assert deliverer.give(str(number), body=b"x" * 500_000) is None
        deliverer.run()
    deliverer.rest()
    again = deliverer.restart(settings=SETTINGS)
    again.answer = ERROR
    again.apply(two)
    # The first two of them had to make room for the last two.
    assert len(set(bodies(again))) > 4
