"""Sequence numbers as intervals (S1.8)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.reliability.intervals import Intervals

_NUMBERS = st.lists(st.integers(0, 40), max_size=40)
_GREATEST = (1 << 63) - 2


def intervals_of(numbers: list[int]) -> Intervals:
    found = Intervals()
    for number in numbers:
        found.add(number)
    return found


@given(_NUMBERS)
def test_intervals_are_the_set_of_what_was_added(numbers: list[int]) -> None:
    found, expected = intervals_of(numbers), set(numbers)
    assert [n for n in range(42) if n in found] == sorted(expected)
    assert found.highest == max(expected, default=-1)
    assert found.first_missing == next(n for n in range(42) if n not in expected)
    # Packed: as few intervals as there are runs.
    assert len(found) == sum(n - 1 not in expected for n in expected)
    assert Intervals(found.bounds) == found


@given(_NUMBERS, st.integers(0, 41))
def test_gaps_are_what_is_missing(numbers: list[int], through: int) -> None:
    gaps = list(intervals_of(numbers).gaps(through))
    missing = [n for low, high in gaps for n in range(low, high + 1)]
    assert missing == [n for n in range(through + 1) if n not in numbers]
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(gaps))


@given(_NUMBERS, _NUMBERS)
def test_merged_intervals_are_the_union(first: list[int], second: list[int]) -> None:
    merged = intervals_of(first)
    merged.merge(intervals_of(second))
    assert merged == intervals_of(first + second)


@given(_NUMBERS, st.integers(0, 41))
def test_what_lengthens_an_interval_needs_none_of_its_own(numbers: list[int], number: int) -> None:
    found = intervals_of(numbers)
    before, lengthens = len(found), found.lengthens(number)
    if number not in found:
        found.add(number)
        assert lengthens == (len(found) <= before)


def test_the_greatest_sequence_fits() -> None:
    found = intervals_of([_GREATEST, 0])
    assert _GREATEST in found
    assert _GREATEST - 1 not in found
    assert found.bounds == (0, 1, _GREATEST, _GREATEST + 1)


@pytest.mark.parametrize("bounds", [(1,), (2, 1), (0, 1, 1, 2), (3, 3)])
def test_bounds_that_are_none_are_refused(bounds: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="bounds"):
        Intervals(bounds)
