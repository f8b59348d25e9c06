"""Sets of sequence numbers as intervals (S1.8): a group without gaps takes sixteen bytes."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise


class Intervals:
    """A set of integers from 0 to 2**63 - 1: begin and end of each interval, ascending. Lookup is a
    binary search; adjacent intervals are merged."""

    __slots__ = ("_bounds",)

    def __init__(self, bounds: Sequence[int] = ()) -> None:
        """``bounds``: begin and end (exclusive) of each interval, strictly ascending."""
        if len(bounds) % 2 or any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"not the bounds of intervals: {list(bounds[:8])}")
        self._bounds = array("Q", bounds)

    def __len__(self) -> int:
        return len(self._bounds) // 2

    def __contains__(self, number: int) -> bool:
        # An odd place is between a begin and its end.
        return bool(bisect_right(self._bounds, number) % 2)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Intervals({self.bounds})"

    @property
    def bounds(self) -> tuple[int, ...]:
        return tuple(self._bounds)

    @property
    def first_missing(self) -> int:
        bounds = self._bounds
        return bounds[1] if bounds and not bounds[0] else 0

    @property
    def highest(self) -> int:
        return self._bounds[-1] - 1 if self._bounds else -1

    def add(self, number: int) -> None:
        bounds = self._bounds
        at = bisect_right(bounds, number)
        if at % 2:
            return
        ends_here = at > 0 and bounds[at - 1] == number
        begins_next = at < len(bounds) and bounds[at] == number + 1
        if ends_here and begins_next:
            del bounds[at - 1 : at + 1]
        elif ends_here:
            bounds[at - 1] = number + 1
        elif begins_next:
            bounds[at] = number
        else:
            bounds[at:at] = array("Q", (number, number + 1))

    def lengthens(self, number: int) -> bool:
        """Whether an absent number is adjacent to an interval, and needs none of its own."""
        at = bisect_right(self._bounds, number)
        return (at > 0 and self._bounds[at - 1] == number) or (
            at < len(self._bounds) and self._bounds[at] == number + 1
        )

    def merge(self, other: "Intervals") -> None:
        spans = sorted([*self._spans(), *other._spans()])
        merged: list[int] = []
        for begin, end in spans:
            if merged and begin <= merged[-1]:
                merged[-1] = max(merged[-1], end)
            else:
                merged += (begin, end)
        self._bounds = array("Q", merged)

    def _spans(self) -> Iterator[tuple[int, int]]:
        bounds = self._bounds
        return zip(bounds[::2], bounds[1::2], strict=True)

    def gaps(self, through: int) -> Iterator[tuple[int, int]]:
        """Yield first and last number of each gap from 0 to ``through``."""
        following = 0
        for begin, end in self._spans():
            if following > through:
                return
            if begin > following:
                yield following, min(begin - 1, through)
            following = end
        if following <= through:
            yield following, through
