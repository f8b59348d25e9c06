"""A history of a deliverer as a process, killed and stopped at random, whose journal is harmed
between two runs: bits, segments, the last write, the disk's room, the clock.

``PILLION_SOAK_SEED`` replays a run; ``PILLION_SOAK_ROUNDS`` is the number of rounds of all
campaigns together (``make soak``).
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from support.soak import Campaign, soak

ROUNDS = -(-int(os.environ.get("PILLION_SOAK_ROUNDS", "21")) // len(Campaign))
SEED = os.environ.get("PILLION_SOAK_SEED", "1")
#: Seconds that a round may take, a backstop.
ROUND_SECONDS = 15


@pytest.mark.timeout(300 + ROUND_SECONDS * ROUNDS)
@pytest.mark.parametrize("campaign", list(Campaign))
async def test_whatever_is_lost_was_told_and_nothing_else_is_lost(
    campaign: Campaign, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    print(f"PILLION_SOAK_SEED={SEED} PILLION_SOAK_ROUNDS={ROUNDS * len(Campaign)}")
    async with soak(campaign, tmp_path, seed=SEED) as run:
        for number in range(ROUNDS):
            await run.round(number)
        await run.finish()
    table = run.judge()
    print(table)
    record_property("told", str(table))
    assert table.problems == []
    assert table.refused_starts == 0
    assert table.durable > 10 * ROUNDS
    assert table.arrivals >= table.places - table.explained - table.discarded
