"""The Prometheus text format 0.0.4, as far as Pillion writes it by hand.

By hand because a scrape with 10,000 destinations must stay under 50 ms of CPU: the client library's
metric objects take twenty times that.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SPECIAL = re.compile(r'[\\"\n]')
_ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n"}


class MetricType(StrEnum):
    """The types that the text format knows and Pillion uses."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is called and what it means. The reference page is made from these."""

    name: str
    type: MetricType
    #: One line for people, without a line break.
    help: str
    labels: tuple[str, ...] = ()

    @property
    def header(self) -> str:
        """The HELP and TYPE lines."""
        text = self.help.replace("\\", r"\\")
        return f"# HELP {self.name} {text}\n# TYPE {self.name} {self.type}\n"

    def sample(self, value: float, *labels: str) -> str:
        """One line; ``labels`` are the values of ``self.labels``, in that order."""
        if not self.labels:
            return f"{self.name} {number(value)}\n"
        pairs = ",".join(
            f"{label}={quoted(text)}" for label, text in zip(self.labels, labels, strict=True)
        )
        return f"{self.name}{{{pairs}}} {number(value)}\n"


def escaped(text: str) -> str:
    """Return a label value with backslash, double quote and line feed escaped."""
    if _SPECIAL.search(text) is None:
        return text
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], text)


def all_escaped(texts: list[str]) -> list[str]:
    """Return label values escaped; one search where none of them needs it, which is the rule."""
    if _SPECIAL.search("".join(texts)) is None:
        return texts
    return [escaped(text) for text in texts]


def quoted(text: str) -> str:
    """Return a label value as it stands after the equals sign."""
    return f'"{escaped(text)}"'


def number(value: float) -> str:
    """Return a sample's value; whole numbers without a point, times to the microsecond kept."""
    if isinstance(value, int):
        return str(int(value))
    return repr(int(value)) if value.is_integer() else repr(value)


class Histogram:
    """Observations in buckets, one row of buckets for each value of a single label.

    ``known`` lists the label's values: each has a row from the start, and there is no other, so
    that the label is bounded. Any other value is counted under ``other``.

    The delivery path cannot afford a general one: an observation takes 0.6 us.
    """

    def __init__(self, metric: Metric, *, bounds: Sequence[float], known: Sequence[str]) -> None:
        self.metric = metric
        self._bounds = tuple(bounds)
        self._rows = {value: [0] * (len(self._bounds) + 1) for value in known}
        self._sums = dict.fromkeys(known, 0.0)

    def observe(self, value: str, amount: float) -> None:
        """Count one observation under the label value ``value``."""
        row = self._rows.get(value)
        if row is None:
            value, row = self._other()
        row[bisect_left(self._bounds, amount)] += 1
        self._sums[value] += amount

    def _other(self) -> tuple[str, list[int]]:
        self._sums.setdefault("other", 0.0)
        return "other", self._rows.setdefault("other", [0] * (len(self._bounds) + 1))

    def lines(self) -> Iterator[str]:
        """The samples, in the text format."""
        name, (label,) = self.metric.name, self.metric.labels
        edges = [*(number(bound) for bound in self._bounds), "+Inf"]
        for value, row in self._rows.items():
            pair = f"{label}={quoted(value)}"
            for edge, count in zip(edges, accumulate(row), strict=True):
                yield f'{name}_bucket{{{pair},le="{edge}"}} {count}\n'
            yield f"{name}_sum{{{pair}}} {number(self._sums[value])}\n"
            yield f"{name}_count{{{pair}}} {sum(row)}\n"
