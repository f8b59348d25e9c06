"""The garbage collector, kept away from what is large and lasts."""

import gc
from collections.abc import Iterator

import pytest

from pillion_cli import exits
from pillion_cli.exits import MOST_LEFT, gc_disabled, short_collections


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    """What these tests freeze is the collector's again."""
    yield
    gc.unfreeze()


def test_many_new_objects_are_not_looked_at_again() -> None:
    before = gc.get_freeze_count()
    with gc_disabled():
        assert not gc.isenabled()
        made: list[list[int]] = [[number] for number in range(2 * MOST_LEFT)]
    assert gc.isenabled()
    assert gc.get_freeze_count() - before >= len(made)


def test_a_few_are_left_to_the_collector() -> None:
    before = gc.get_freeze_count()
    with gc_disabled():
        made: list[list[int]] = [[number] for number in range(100)]
    assert len(made) == 100
    assert gc.get_freeze_count() == before
    assert gc.isenabled()


def test_a_load_that_fails_leaves_the_collector_at_work() -> None:
    with pytest.raises(ValueError, match="broken"), gc_disabled():
        raise ValueError("broken")
    assert gc.isenabled()


def test_what_survives_a_long_collection_is_not_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exits, "LONGEST_COLLECTION", -1.0)
    made: list[list[int]] = [[number] for number in range(1_000)]
    before = gc.get_freeze_count()
    with short_collections():
        gc.collect(1)
        assert gc.get_freeze_count() == before
        gc.collect()
    assert gc.get_freeze_count() - before >= len(made)
    gc.unfreeze()
    gc.collect()
    assert gc.get_freeze_count() == 0


def test_what_survives_a_short_collection_is_left_to_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exits, "LONGEST_COLLECTION", 3600.0)
    before = gc.get_freeze_count()
    with short_collections():
        gc.collect()
    assert gc.get_freeze_count() == before
