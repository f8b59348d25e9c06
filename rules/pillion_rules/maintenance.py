"""Maintenance windows: times in which alerts go on, and are not told."""

import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

#: Start and end of a window; the end is the first time after it.
Span: TypeAlias = tuple[int, int]
#: The windows of one rule and key: lists of spans, each in order and without overlaps.
Windows: TypeAlias = Sequence[Sequence[Span]]
#: Spans by the values of some keys, by the places of these keys.
_ByKey: TypeAlias = dict[tuple[int, ...], dict[tuple[str, ...], Sequence[Span]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceWindow:
    """Times are microseconds since 1970, ``end`` is the first one after the window."""

    start: int
    end: int
    #: None: all rules.
    rule: str | None = None
    #: Values by the names of keys, in lower case. A rule without one of these keys is not meant.
    key: Mapping[str, str] = field(default_factory=dict)


class KeyedWindows:
    """The windows of rules with the same keys."""

    def __init__(self, windows: Iterable[MaintenanceWindow], keys: Sequence[str]) -> None:
        places = {name.lower(): place for place, name in enumerate(keys)}
        spans: dict[str | None, dict[tuple[int, ...], dict[tuple[str, ...], list[Span]]]] = {}
        for one in windows:
            if one.key.keys() <= places.keys():
                named = sorted((places[name], value) for name, value in one.key.items())
                of_places = spans.setdefault(one.rule, {}).setdefault(
                    tuple(place for place, _ in named), {}
                )
                values = tuple(value for _, value in named)
                of_places.setdefault(values, []).append((one.start, one.end))
        self._found: dict[str | None, _ByKey] = {
            rule: {
                places: {values: joined(found) for values, found in by_values.items()}
                for places, by_values in by_places.items()
            }
            for rule, by_places in spans.items()
        }
        self._of_all = self._digest(None, 0)

    def of(self, rule: str, key: Sequence[str]) -> Windows:
        return [
            spans
            for name in (None, rule)
            for places, by_values in self._found.get(name, {}).items()
            if (spans := by_values.get(tuple(key[place] for place in places)))
        ]

    def fingerprint(self, rule: str) -> int:
        """Another one if the windows of a rule are others; 0: it has none."""
        return self._digest(rule, self._of_all)

    def _digest(self, rule: str | None, before: int) -> int:
        found = self._found.get(rule)
        return before if found is None else zlib.crc32(repr(found).encode(), before)


def joined(spans: Iterable[Span]) -> Sequence[Span]:
    """The same times in order, without overlaps."""
    found: list[Span] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def outside(windows: Windows, at: int) -> int:
    """The first time from ``at`` on that is in no window."""
    before = None
    while before != at:
        before = at
        for spans in windows:
            place = bisect_right(spans, at, key=itemgetter(0)) - 1
            if place >= 0:
                at = max(at, spans[place][1])
    return at
