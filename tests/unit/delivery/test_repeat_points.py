"""A redrive and a replay are killed at each operation on the disk, and go on: nothing is lost, and
repeats are marked (S0.11)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.delivery import replay as engine
from pillion_sidecar.delivery.handler import DeliveryOutcome
from pillion_sidecar.indication import DiscardReason
from support.crashing_files import RecordingFiles
from support.delivery import FATAL_ERROR, SUCCESS
from support.repeat_points import LOST, Do, World, cut_everywhere, redrive, replay

PAGE = 4


async def at_once(function: Callable[..., Any], *given: Any, **more: Any) -> Any:
    return function(*given, **more)


@pytest.mark.parametrize("do", [redrive, replay])
def test_nothing_is_lost_wherever_it_is_killed(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "PAGE", PAGE)
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    points = 0
    # No test of the event loop: its workers are on it, too.
    for cut, world in asyncio.run(cut_everywhere(do, tmp_path)):
        points += 1
        came = Counter(one.identifier for one in world.all_arrived)
        assert came.keys() == {f"i{number}" for number in range(LOST)}, cut.where
        assert all(one.is_marked for one in world.all_arrived), cut.where
        # A page whose note is missing, and what was delivered and not settled on disk.
        assert came.total() - LOST <= 2 * PAGE, cut.where
    assert points > 20


@pytest.mark.parametrize("answer", [SUCCESS, FATAL_ERROR])
def test_a_restart_knows_the_identity_of_what_was_redriven(
    answer: DeliveryOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "to_thread", at_once)
    world, digest = World(tmp_path), b"a" * 16
    deliverer = world.deliverer
    deliverer.memory.add(digest, deliverer.time.monotonic(), expires_at=None, pending=True)
    for handler in deliverer.created:
        handler.answer = FATAL_ERROR
    lost = deliverer.indication("a")
    lost.digest, lost.trackers = digest, (deliverer.memory,)
    deliverer.service.offer(lost, deliverer.targets("to-ops"))
    deliverer.rest()
    for handler in deliverer.created:
        handler.answer = answer
    asyncio.run(redrive(world))
    before = deliverer.memory.find(digest)
    assert before is not None
    assert before.reason is DiscardReason.FATAL_ERROR
    assert before.is_gone is (answer is FATAL_ERROR)
    world.end()
    files = deliverer.files
    assert isinstance(files, RecordingFiles)
    after = World(tmp_path, files.image())
    assert after.deliverer.memory.find(digest) == before
    after.end()
