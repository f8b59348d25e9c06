"""The rate limit of publishers (``publisherRateLimit``): a token bucket for each."""

from collections import OrderedDict

from pillion_sidecar.config.schema.limits import RateLimit
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
