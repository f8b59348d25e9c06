"""The garbage collector, kept away from what is large and lasts."""

import gc
from collections.abc import Iterator

import pytest

from pillion_cli.exits import MOST_LEFT, gc_disabled


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
