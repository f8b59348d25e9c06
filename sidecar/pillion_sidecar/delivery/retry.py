"""When an attempt is repeated, and when an indication is lost. Pure; times are monotonic.

The first loss is the earliest of three: the lifetime of the oldest indication ends, its last
attempt fails, or the queue is full and its oldest indication gives way."""

from collections.abc import Iterable

from pillion_sidecar.config.durability import interval_after, waits
from pillion_sidecar.config.resources import RetryPolicy

#: Seconds: what is further away than a year is no forecast.
HORIZON = 365 * 86_400.0
#: More attempts than any policy has.
MOST_ATTEMPTS = 1 << 30
#: Seconds: arrivals are counted over this time at least, so that the first two do not pass for a
#: flood.
SHORTEST_AGE = 1.0


def retry_wait(
    policy: RetryPolicy, *, failures: int, retry_after: float | None, draw: float
) -> float:
    """Return how many seconds to leave a destination alone after a failed attempt (S0.5).

    ``failures`` counts the failed attempts since the last success, this one included. ``draw`` is
    a random number in [0, 1); the part of the wait that is jitter shrinks by it, so jitter spreads
    attempts without ever exceeding the wait that the policy states. What the listener asked for
    (``retry_after``, seconds) lengthens the wait, never shortens it, and is capped too.
    """
    wait = interval_after(policy, failures)
    wait -= wait * policy.jitter * draw
    if policy.respect_retry_after and retry_after is not None:
        wait = max(wait, min(retry_after, policy.maximum_interval_seconds))
    return wait


def last_attempt_at(
    policy: RetryPolicy,
    *,
    made: int,
    failures: int,
    next_attempt_at: float,
    refusals_left: int | None = None,
) -> float | None:
    """Return when the last attempt for an indication is made at the earliest; None: attempts have
    no limit.

    ``made`` counts the attempts that it has spent, ``failures`` those of its queue since the last
    success. ``refusals_left``: how many more it may have of a listener that has refused this
    indication; None: it has not.
    """
    if policy.attempts is None and refusals_left is None:
        return None
    # The next one is not waited for any more.
    left = MOST_ATTEMPTS if policy.attempts is None else max(0, policy.attempts - made)
    if refusals_left is not None:
        left = min(left, max(0, refusals_left - 1))
    return next_attempt_at + (1 - policy.jitter) * waits(policy, failures=failures + 1, count=left)


def full_at(*, room: int, depth: int, age: float, now: float) -> float | None:
    """Return when the next indication finds a queue full, if they go on to arrive as they have
    since the oldest was accepted, ``age`` seconds ago; None: not within a year, by that rate.

    ``room`` is the number of free places, ``depth`` that of pending indications.
    """
    if room <= 0:
        return now
    if depth <= 0:
        return None
    wait = room * max(age, SHORTEST_AGE) / depth
    return now + wait if wait <= HORIZON else None


def earliest(times: Iterable[float | None]) -> float | None:
    """Return the earliest of the times that there are; None without one."""
    return min((time for time in times if time is not None), default=None)
