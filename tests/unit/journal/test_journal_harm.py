"""The harm of the soak: it costs what it says, and the next start tells of it."""

from pathlib import Path
from random import Random

import pytest

from pillion_sidecar.journal.files import SystemFiles
from support.journal_harm import Harm, findings, readable
from support.journal_owner import LiveJournal

SEEDS = range(12)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    live = LiveJournal(SystemFiles(tmp_path), segment_bytes=4096)
    for count in range(20):
        live.accept(0, body=b" " * 700, identifier=f"i{count}")
        live.run()
    live.journal.close()
    return tmp_path


@pytest.mark.parametrize("what", ["flip", "flip_last", "remove", "tear"])
@pytest.mark.parametrize("seed", SEEDS)
def test_harm_that_is_to_be_told_is_told(folder: Path, what: str, seed: int) -> None:
    assert findings(folder) == []
    before = readable(folder)
    assert len(before) == 20
    cost = getattr(Harm(folder, Random(seed)), what)()
    assert bool(findings(folder)) == cost.told
    assert before - readable(folder) == cost.identifiers
    assert cost.told or not cost.identifiers
