"""A token bucket: at most ``burst`` at once, and ``per_second`` in the long run. Times are
``Clock.monotonic()``."""

import math

from pillion_sidecar.config.schema.limits import RateLimit


class Pace:
    """In any time of t seconds, at most ``burst + per_second * t`` are spent."""

    __slots__ = ("_at", "_missing", "_waited", "_waits_since", "burst", "per_second")

    def __init__(self, limit: RateLimit) -> None:
        # The tokens that were missing when one was last spent.
        self._missing = 0.0
        self._at = -math.inf
        self.per_second, self.burst = limit.per_second, limit.most_at_once
        self._waits_since: float | None = None
        self._waited = 0.0

    def change(self, limit: RateLimit) -> None:
        """Go on with another limit, which counts from the last spent token. What a greater burst
        has more comes at the rate."""
        more = max(0, limit.most_at_once - self.burst)
        self.per_second, self.burst = limit.per_second, limit.most_at_once
        self._missing = min(self._missing + more, self.burst)

    def empty(self, now: float) -> None:
        """Begin without any token."""
        self._missing = float(self.burst)
        self._at = now

    def due(self, tokens: int = 1) -> float:
        """When so many tokens (at most the burst) are there; it may be in the past."""
        return self._at + (self._missing + tokens - self.burst) / self.per_second

    def available(self, now: float) -> int:
        """Return the number of tokens that can be spent now."""
        return int(self.burst - self._missing_at(now))

    def spend(self, now: float, tokens: int = 1) -> None:
        """Spend tokens, which must be :meth:`due`."""
        self._missing = tokens + self._missing_at(now)
        self._at = now

    def _missing_at(self, now: float) -> float:
        return max(0.0, self._missing - (now - self._at) * self.per_second)

    # ------------------------------------------------------------------ for a metric

    def wait(self, now: float) -> None:
        """Something waits for the limit alone."""
        self._waits_since = now

    def go_on(self, now: float) -> None:
        """Nothing waits for it any more."""
        self._waited = self.waited(now)
        self._waits_since = None

    def waited(self, now: float) -> float:
        """Seconds in which something waited."""
        since = self._waits_since
        return self._waited if since is None else self._waited + now - since


def paced(limit: RateLimit | None, *, before: Pace | None) -> Pace | None:
    """Return what keeps to a limit; ``before``: to the previous one."""
    if limit is None or before is None:
        return None if limit is None else Pace(limit)
    before.change(limit)
    return before
