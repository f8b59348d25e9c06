"""When an attempt is repeated, and when an indication is lost. Times are monotonic.

The first loss is the earliest of three: the lifetime of the oldest indication ends, its last
attempt fails, or the queue is full and its oldest indication gives way."""

from collections.abc import Iterable

from pillion_sidecar.config.durability import interval_after, waits
from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import RetryPolicy
from pillion_sidecar.delivery.entries import MOST_REFUSALS
from pillion_sidecar.delivery.queue import DestinationQueue

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


def first_loss_due(queue: DestinationQueue, now: float) -> float | None:
    """Return when the first indication is discarded if nothing more is delivered; None: none is
    due.

    While the destination is suspended or held, neither lifetimes nor attempts run: then a queue
    loses something only where it is full. When a queue is full is a forecast, by the rate of
    arrivals since the oldest indication was accepted. The journal's own bound is not in it.
    """
    oldest, pauses = queue.oldest_accepted_at, queue.health.pauses
    if oldest is None:
        return None
    due = _loss_by_full_queue(queue, oldest, now)
    if pauses.began is None:
        ends = oldest + queue.lifetime + pauses.since(oldest) if queue.lifetime else None
        due = earliest((due, ends, _loss_by_attempts(queue, now)))
    return None if due is None else max(now, due)


def _loss_by_full_queue(queue: DestinationQueue, oldest: float, now: float) -> float | None:
    if queue.draining:
        return None
    begins = now if queue.gives_way(now=now) else _gives_way_at(queue, now)
    if begins is None:
        return None
    full = full_at(room=queue.free_places, depth=queue.depth, age=now - oldest, now=now)
    return None if full is None else max(full, begins)


def _gives_way_at(queue: DestinationQueue, now: float) -> float | None:
    """When another failed attempt would have it give way; None where none would."""
    adaptive = queue.destination.queue_full_policy is QueueFullPolicy.ADAPTIVE
    if not adaptive or queue.health.failing_since is None or queue.relay_to is not None:
        return None
    return _next_attempt_at(queue, now)


def _loss_by_attempts(queue: DestinationQueue, now: float) -> float | None:
    """When the attempts of the first entries end, while the listener fails."""
    if queue.health.failing_since is None:
        return None
    first = queue.waiting.first()
    entries = queue.flying if first is None else [*queue.flying, first]
    return earliest(
        last_attempt_at(
            queue.retry,
            made=entry.attempts,
            failures=queue.health.failures,
            next_attempt_at=_next_attempt_at(queue, now),
            refusals_left=MOST_REFUSALS - entry.refusals if entry.refusals else None,
        )
        for entry in entries
    )


def _next_attempt_at(queue: DestinationQueue, now: float) -> float:
    due = queue.health.next_attempt_at
    return now if due is None else due


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
