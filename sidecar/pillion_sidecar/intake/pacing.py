"""The rate limit of publishers (``publisherRateLimit``): a token bucket for each."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import groupby

from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.indication import Refusal
from pillion_sidecar.pacing import Pace

#: Beyond it the publisher without an indication for the longest time is forgotten; it begins anew.
MOST_PUBLISHERS = 5000
#: Characters by which publishers differ: they choose their sources.
MOST_CHARACTERS = 256
_SHOWN = 80


class PublisherPaces:
    """Publishers are known by the namespace of their token. Without tokens by source; without that
    by ``Pillion-Publisher``; those without both are one."""

    def __init__(self, limit: RateLimit) -> None:
        self._limit = limit
        self._paces: OrderedDict[str, Pace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paces)

    def change(self, limit: RateLimit) -> None:
        self._limit = limit
        for pace in self._paces.values():
            pace.change(limit)

    def of(self, publisher: str) -> Pace:
        name = publisher[:MOST_CHARACTERS]
        pace = self._paces.get(name)
        if pace is not None:
            self._paces.move_to_end(name)
            return pace
        pace = self._paces[name] = Pace(self._limit)
        if len(self._paces) > MOST_PUBLISHERS:
            self._paces.popitem(last=False)
        return pace

    def reason(self, publisher: str) -> str:
        """Return why an indication is refused."""
        limit = self._limit
        return (
            f"{publisher[:_SHOWN] or 'a publisher without source'} publishes more than"
            f" {limit.per_second:g} indications a second, with bursts of {limit.most_at_once}"
            " (publisherRateLimit)"
        )


def paced_publishers(
    limit: RateLimit | None, *, before: PublisherPaces | None
) -> PublisherPaces | None:
    """Return what keeps publishers to a limit; ``before``: to the previous one."""
    if limit is None or before is None:
        return None if limit is None else PublisherPaces(limit)
    before.change(limit)
    return before


def publisher_of(*, namespace: str | None, source: str | None, publisher: str | None) -> str:
    """Return the name of a publisher, of any length; ``publisher`` is its ``Pillion-Publisher``."""
    if namespace is not None:
        return f"namespace {namespace}"
    if source is not None:
        return f"source {source}"
    return "" if publisher is None else f"publisher {publisher}"


class LinePacing:
    """Keeps the lines of one request to the limits of their publishers."""

    def __init__(self, *, namespace: str | None, publisher: str | None) -> None:
        self._namespace = namespace
        self._publisher = publisher
        # What limits the publisher of the line.
        self._pace: Pace | None = None
        # What the first line beyond a limit was beyond, why, and the number of lines since.
        self._over: tuple[Pace, str] | None = None
        self._beyond = 0

    def refusal(
        self, paces: PublisherPaces, source: str | None, now: float, *, has_closed: bool
    ) -> Refusal | None:
        """Return why a line is refused if it, or one before it, is beyond a limit. ``has_closed``:
        all further lines are refused already."""
        publisher = self._publisher_of(source)
        pace = self._pace = paces.of(publisher)
        if not has_closed and pace.due() > now:
            self._over = pace, paces.reason(publisher)
        if self._over is None:
            return None
        over, reason = self._over
        self._beyond += 1
        # So many are accepted then.
        wait = over.due(min(self._beyond, over.burst)) - now
        return Refusal(max(0.0, wait), reason)

    def spend(self, now: float) -> None:
        """The line was accepted."""
        if self._pace is not None:
            self._pace.spend(now)

    def within(self, paces: PublisherPaces, sources: Sequence[str | None], now: float) -> int:
        """Return the number of lines before the first that is beyond a limit."""
        within, left = 0, dict[Pace, int]()
        for pace, count in self._runs(paces, sources):
            if pace not in left:
                left[pace] = pace.available(now)
            if left[pace] < count:
                return within + left[pace]
            left[pace] -= count
            within += count
        return within

    def spend_all(self, paces: PublisherPaces, sources: Sequence[str | None], now: float) -> None:
        """The lines of these sources were accepted."""
        for pace, count in self._runs(paces, sources):
            pace.spend(now, count)

    def _runs(
        self, paces: PublisherPaces, sources: Sequence[str | None]
    ) -> Iterator[tuple[Pace, int]]:
        """Yield what limits each run of lines of one source, with its length."""
        for source, run in groupby(sources):
            yield paces.of(self._publisher_of(source)), sum(1 for _ in run)

    def _publisher_of(self, source: str | None) -> str:
        return publisher_of(namespace=self._namespace, source=source, publisher=self._publisher)
