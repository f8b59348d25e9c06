"""Retry waits and the forecast of the first loss. Times are monotonic.

The first loss is the earliest of three: the end of the oldest lifetime, the last attempt, or an
eviction by a full queue.
"""

from collections.abc import Iterable

from pillion_sidecar.config.durability import interval_after, waits
from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import RetryPolicy
from pillion_sidecar.delivery.entries import MOST_REFUSALS
from pillion_sidecar.delivery.queue import DestinationQueue

#: Seconds; no forecast beyond.
HORIZON = 365 * 86_400.0
#: More attempts than any policy has.
MOST_ATTEMPTS = 1 << 30
#: Minimum seconds over which arrivals are counted, so that two are no flood.
SHORTEST_AGE = 1.0


def retry_wait(
    policy: RetryPolicy, *, failures: int, retry_after: float | None, draw: float
) -> float:
    """Return the seconds to wait after a failed attempt (S0.5).

    ``failures`` counts failed attempts since the last success, this one included. ``draw`` is in
    [0, 1); jitter only shortens the policy's wait. ``retry_after`` (seconds) only lengthens it, and
    is capped.
    """
    wait = interval_after(policy, failures)
    wait -= wait * policy.jitter * draw
    if policy.respect_retry_after and retry_after is not None:
        wait = max(wait, min(retry_after, policy.maximum_interval_seconds))
    return wait


def first_loss_due(queue: DestinationQueue, now: float) -> float | None:
    """Return when the first indication is discarded if nothing more is delivered; None: never.

    While suspended or held, only a full queue loses anything. Its time is a forecast from the rate
    of arrivals since the oldest was accepted; the journal's own bound is not included.
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
    begins = now if queue.evicts_oldest(now=now) else _evicts_at(queue, now)
    if begins is None:
        return None
    full = full_at(room=queue.free_places, depth=queue.depth, age=now - oldest, now=now)
    return None if full is None else max(full, begins)


def _evicts_at(queue: DestinationQueue, now: float) -> float | None:
    """When another failed attempt would make it evict; None if none would."""
    adaptive = queue.destination.queue_full_policy is QueueFullPolicy.ADAPTIVE
    if not adaptive or queue.health.failing_since is None or queue.relay_to is not None:
        return None
    return _next_attempt_at(queue, now)


def _loss_by_attempts(queue: DestinationQueue, now: float) -> float | None:
    """When the attempts of the first entries end, while the listener fails."""
    if queue.health.failing_since is None:
        return None
    first = queue.waiting.first()
    entries = queue.in_flight if first is None else [*queue.in_flight, first]
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
    """Return the earliest time of an indication's last attempt; None: attempts are unlimited.

    ``made`` counts its spent attempts, ``failures`` those of its queue since the last success.
    ``refusals_left`` is None if the listener has not refused this indication.
    """
    if policy.attempts is None and refusals_left is None:
        return None
    # The next one does not wait any more.
    left = MOST_ATTEMPTS if policy.attempts is None else max(0, policy.attempts - made)
    if refusals_left is not None:
        left = min(left, max(0, refusals_left - 1))
    return next_attempt_at + (1 - policy.jitter) * waits(policy, failures=failures + 1, count=left)


def full_at(*, room: int, depth: int, age: float, now: float) -> float | None:
    """Return when the queue is full at the rate of arrivals since the oldest, ``age`` seconds ago;
    None: not within a year.

    ``room`` is the number of free places, ``depth`` that of pending indications.
    """
    if room <= 0:
        return now
    if depth <= 0:
        return None
    wait = room * max(age, SHORTEST_AGE) / depth
    return now + wait if wait <= HORIZON else None


def earliest(times: Iterable[float | None]) -> float | None:
    return min((time for time in times if time is not None), default=None)
