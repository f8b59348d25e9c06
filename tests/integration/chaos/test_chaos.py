"""Publishers, a deliverer and listeners as processes; kills, stops, cuts, a full disk and a clock
that is stepped. Afterwards the records are read: nothing acknowledged is lost, no order is broken,
and repeats carry the same number.

``PILLION_CHAOS_SEED`` replays a run's blows, which it prints; ``PILLION_CHAOS_ROUNDS`` makes it
longer (``make soak``).
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from support.chaos_world import World, schedule, world

ROUNDS = int(os.environ.get("PILLION_CHAOS_ROUNDS", "20"))
SEED = int(os.environ.get("PILLION_CHAOS_SEED", random.SystemRandom().randrange(1_000_000)))
#: Seconds that a round may take, a backstop.
ROUND_SECONDS = 15


def told_of(run: World) -> str:
    blows = ", ".join(f"{name} {count}" for name, count in sorted(run.struck.items()))
    never = "" if run.disk else "; the disk was never full: this user must not mount a small one"
    return f"{run.restarts} runs of the deliverer, {blows}{never}"


@pytest.mark.timeout(120 + ROUND_SECONDS * ROUNDS)
async def test_nothing_acknowledged_is_lost_whatever_happens(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    print(f"PILLION_CHAOS_SEED={SEED} PILLION_CHAOS_ROUNDS={ROUNDS}")
    async with world(tmp_path) as run:
        for blows in schedule(SEED, rounds=ROUNDS):
            await run.strike(blows)
        await run.finish()
    history = run.history()
    acknowledged, repeats = len(history.acknowledged), history.repeats()
    told = f"chaos: {acknowledged} acknowledged, {repeats} came again; PILLION_CHAOS_SEED={SEED}"
    print(f"{told}; {told_of(run)}")
    assert history.problems() == []
    assert acknowledged > 10 * ROUNDS
    # A full disk does not stop a start.
    assert run.refused_starts == 0
    assert "late" not in run.verdicts()
    for event in ("indication-discarded", "journal-damaged", "deliverer-failed"):
        assert run.deliverer.events(event) == []
    record_property("told", f"{told}; {told_of(run)}")
