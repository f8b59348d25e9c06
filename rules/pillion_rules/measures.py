"""What rules measure over several readings of a key: aggregates of windows, and rates of change.

Numbers of readings come in, and readings with a level go to the step function. State and sums do
not depend on the order of arrival between two watermarks.
"""

import math
import operator
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from pillion_rules.formulas import Formula, Value
from pillion_rules.rule import Rule
from pillion_rules.state import NEVER
from pillion_rules.transitions import CLEAR, Reading

#: What a rule measures at one reading. None: null, or not finite.
Numbers: TypeAlias = Sequence[float | None]


class Aggregate(StrEnum):
    """How the numbers of a window's readings become one number."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a rule with ``measure`` or ``rate`` measures, and its conditions."""

    rule: Rule
    #: Of each number of a reading; none for a rate, whose numbers have the names of ``numbers``.
    aggregates: tuple[Aggregate, ...] = ()
    #: The names of the numbers in the formulas.
    numbers: tuple[str, ...]
    #: Each value that is measured, of the numbers.
    values: Mapping[str, Formula]
    #: Conditions by level, the highest first, of the values and the numbers.
    severities: tuple[tuple[int, Formula], ...]
    #: None: every condition is false.
    clear: Formula | None = None
    #: Of what is kept: it is of no use after an edit.
    fingerprint: int = field(init=False)

    def __post_init__(self) -> None:
        times = self.rule.durations
        layout = (self.aggregates, self.numbers, times.window, times.slide, self.rule.rate)
        object.__setattr__(self, "fingerprint", zlib.crc32(repr(layout).encode()))

    def reading(self, at: int, numbers: Mapping[str, Value], texts: Mapping[str, str]) -> Reading:
        """Judge what was measured at a time."""
        found = {name: formula.of(numbers) for name, formula in self.values.items()}
        shown = {name: text for name, one in found.items() if (text := text_of(one)) is not None}
        return Reading(at, self._level({**numbers, **found}), {**texts, **shown})

    def _level(self, values: Mapping[str, Value]) -> int | None:
        held = [(level, formula.of(values)) for level, formula in self.severities]
        highest = next((level for level, holds in held if holds), None)
        if highest is not None:
            return highest
        if self.clear is not None:
            return CLEAR if self.clear.of(values) else None
        return CLEAR if all(holds is not None for _, holds in held) else None


def text_of(value: Value) -> str | None:
    """A measured number as a message shows it: six digits, or all before the point."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    # No minus before a zero.
    value += 0.0
    if value == round(value) or abs(value) >= 1e6:
        return f"{value:.0f}"
    return f"{value:.6g}"


class Measuring(Protocol):
    """What a rule has measured of one key."""

    def take(
        self, ready: Iterable[tuple[int, Numbers, Mapping[str, str]]], *, after: int, through: int
    ) -> list[Reading]:
        """Judge what is complete from ``after`` up to ``through``; ``ready`` are the readings of
        this time, one for each time, in order."""

    def due(self, after: int) -> int | None:
        """When there is something to take, or to forget, next; None: there is nothing to keep."""

    def content(self) -> Any:
        """What :func:`measuring` reads, of JSON's types."""


def measuring(measured: Measured, content: Any) -> Measuring:
    """Go on from ``content``; without it, or after an edit of what is measured, begin anew."""
    kept = content[1] if content is not None and content[0] == measured.fingerprint else None
    return Windows(measured, kept) if measured.aggregates else Rates(measured, kept)


class Windows:
    """Windows of event time, in panes that no boundary cuts. A window is judged at its end, and
    once more at the next end, if no reading is in that window: its counts are 0."""

    def __init__(self, measured: Measured, kept: Any) -> None:
        self._measured = measured
        times = measured.rule.durations
        assert times.window is not None
        self._length, self._slide = times.window, times.slide
        self._pane = math.gcd(times.window, times.slide)
        self._panes: dict[int, list[Any]] = {begin: parts for begin, parts in kept or ()}

    def add(self, at: int, numbers: Numbers) -> None:
        """Take a reading that has arrived; it may be behind others."""
        begin = at - at % self._pane
        parts = self._panes.get(begin)
        kinds = self._measured.aggregates
        if parts is None:
            parts = self._panes[begin] = [None] * len(kinds)
        for place, (kind, number) in enumerate(zip(kinds, numbers, strict=True)):
            if number is not None:
                parts[place] = _joined(kind, parts[place], _part_of(kind, number))

    def take(
        self, ready: Iterable[tuple[int, Numbers, Mapping[str, str]]], *, after: int, through: int
    ) -> list[Reading]:
        ends = {
            end
            for begin in self._panes
            for end in range(self._first_end(begin), self._empty_end(begin) + 1, self._slide)
            if after < end <= through
        }
        found = [self._judged(end) for end in sorted(ends)]
        for begin in [one for one in self._panes if self._empty_end(one) <= through]:
            del self._panes[begin]
        return found

    def due(self, after: int) -> int | None:
        found = []
        for begin in self._panes:
            first = self._first_end(begin)
            if first <= after:
                first += -(-(after + 1 - first) // self._slide) * self._slide
            found.append(first)
        return min(found, default=None)

    def crowd(self, most: int) -> int:
        """Up to which time to take early, if there are more panes than ``most``."""
        if len(self._panes) <= most:
            return NEVER
        return self._empty_end(sorted(self._panes)[-most - 1])

    def content(self) -> Any:
        return [self._measured.fingerprint, [*self._panes.items()]]

    def _first_end(self, begin: int) -> int:
        """The end of the first window that has a pane."""
        return (begin - self._length) // self._slide * self._slide + self._slide + self._length

    def _empty_end(self, begin: int) -> int:
        """The end of the first window behind a pane."""
        return begin - begin % self._slide + self._length + self._slide

    def _judged(self, end: int) -> Reading:
        kinds = self._measured.aggregates
        total: list[Any] = [None] * len(kinds)
        for begin in range(end - self._length, end, self._pane):
            if (parts := self._panes.get(begin)) is not None:
                total = [
                    _joined(kind, one, other)
                    for kind, one, other in zip(kinds, total, parts, strict=True)
                ]
        numbers = [_number_of(kind, part) for kind, part in zip(kinds, total, strict=True)]
        given = dict(zip(self._measured.numbers, numbers, strict=True))
        return self._measured.reading(end, given, {})


class Rates:
    """The change of each value since the last reading that had one."""

    def __init__(self, measured: Measured, kept: Any) -> None:
        self._measured = measured
        self._rates = tuple(measured.rule.rate or ())
        #: Time and value.
        self._last: dict[str, tuple[int, float]] = {
            name: (at, value) for name, (at, value) in (kept or {}).items()
        }

    def take(
        self, ready: Iterable[tuple[int, Numbers, Mapping[str, str]]], *, after: int, through: int
    ) -> list[Reading]:
        found = []
        for at, numbers, texts in ready:
            given: dict[str, Value] = dict(zip(self._measured.numbers, numbers, strict=True))
            rates = {name: self._rate(name, at, given[name]) for name in self._rates}
            found.append(self._measured.reading(at, {**given, **rates}, texts))
        forget = self._measured.rule.durations.forget
        self._last = {name: kept for name, kept in self._last.items() if kept[0] + forget > through}
        return found

    def due(self, after: int) -> int | None:
        forget = self._measured.rule.durations.forget
        return min((at + forget for at, _ in self._last.values()), default=None)

    def content(self) -> Any:
        return [self._measured.fingerprint, self._last]

    def _rate(self, name: str, at: int, value: float | None) -> float | None:
        if value is None:
            return None
        before = self._last.get(name)
        self._last[name] = (at, value)
        times = self._measured.rule.durations
        if before is None or at - before[0] > times.forget:
            return None
        found = (value - before[1]) / (at - before[0]) * times.per
        return found if math.isfinite(found) else None


# -------------------------------------------------------------------------- aggregates


def _part_of(kind: Aggregate, number: float) -> Any:
    match kind:
        case Aggregate.COUNT:
            return 1
        case Aggregate.SUM:
            return [number]
        case _:
            return number


def _joined(kind: Aggregate, one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return _JOIN[kind](one, other)


def _number_of(kind: Aggregate, part: Any) -> Value:
    match kind:
        case Aggregate.COUNT:
            return part or 0
        case Aggregate.SUM if part is not None:
            return math.fsum(part) if math.isfinite(sum(part)) else None
        case _:
            found: Value = part
            return found


def _exact_sum(one: Sequence[float], other: Sequence[float]) -> Sequence[float]:
    """Join two sums, each as numbers whose sum is exact: rounding does not depend on the order."""
    parts = list(one)
    for number in other:
        kept = []
        for part in parts:
            large, small = (number, part) if abs(number) >= abs(part) else (part, number)
            number = large + small
            if rest := small - (number - large):
                kept.append(rest)
        parts = [*kept, number]
    return parts


_JOIN: Mapping[Aggregate, Callable[[Any, Any], Any]] = {
    Aggregate.COUNT: operator.add,
    Aggregate.SUM: _exact_sum,
    Aggregate.MIN: min,
    Aggregate.MAX: max,
}
