"""The garbage collector, kept away from what is large and lasts."""

import gc
from collections.abc import Iterator

import pytest

from pillion_cli.exits import MOST_LEFT, gc_disabled, short_collections


@pytest.fixture(autouse=True)
def _thawed() -> Iterator[None]:
    """What these tests freeze is the collector's again, which is at work."""
    yield
    gc.unfreeze()
    gc.enable()


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


def test_what_survives_a_long_collection_is_not_looked_at_again() -> None:
    made: list[list[int]] = [[number] for number in range(1_000)]
    before = gc.get_freeze_count()
    with short_collections(-1.0):
        gc.collect(1)
        assert gc.get_freeze_count() == before
        gc.collect()
    assert gc.get_freeze_count() - before >= len(made)
    gc.unfreeze()
    gc.collect()
    assert gc.get_freeze_count() == 0


def cycles(count: int) -> list[list[object]]:
    made: list[list[object]] = [[] for _ in range(count)]
    for one in made:
        one.append(one)
    return made


def test_twice_as_much_as_at_first_is_left_to_the_collector_again() -> None:
    # By itself it would begin a full collection at any time.
    gc.disable()
    with short_collections(-1.0):
        gc.collect()
        first = gc.get_freeze_count()
        made = cycles(2 * first)
        gc.collect()
        assert gc.get_freeze_count() == 0
        made.clear()
        assert gc.collect() >= 2 * first
        assert first // 2 < gc.get_freeze_count() < 2 * first


def test_what_survives_a_short_collection_is_left_to_the_collector() -> None:
    before = gc.get_freeze_count()
    with short_collections(3600.0):
        gc.collect()
    assert gc.get_freeze_count() == before
