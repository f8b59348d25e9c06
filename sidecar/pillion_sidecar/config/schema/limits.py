"""Rate limits."""

import math

from pillion_sidecar.fields import Integer, Number, declared, resource, structure

#: One in a quarter of an hour.
LEAST_RATE = 0.001
MOST_RATE = 1_000_000


@resource
class RateLimit:
    """In any time of t seconds at most ``most_at_once + per_second * t``."""

    per_second: float = declared(
        type=Number(minimum=LEAST_RATE, maximum=MOST_RATE),
        description="Maximum number per second in the long run; it may be a fraction: 0.1 is one "
        "in ten seconds.",
    )
    #: None: see ``most_at_once``.
    burst: int | None = declared(
        default=None,
        type=Integer(minimum=1, maximum=MOST_RATE),
        assumed="`perSecond`, rounded up",
        description="Maximum number at once, after a time with less.",
    )

    @property
    def most_at_once(self) -> int:
        return math.ceil(self.per_second) if self.burst is None else self.burst


RATE_LIMIT = structure(RateLimit)
