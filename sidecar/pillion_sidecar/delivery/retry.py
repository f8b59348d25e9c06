"""Retry waits and the forecast of the first loss. Times are monotonic.

The first loss is the earliest of three: the end of a lifetime, the last attempt, or an eviction by
a full queue. A queue that delivers is expected to go on at its present rates, any other to deliver
nothing more.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pillion_sidecar.config.durability import interval_after, waits
from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import RetryPolicy
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.throughput import Rates
from pillion_sidecar.indication import DiscardReason

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


class Loss(NamedTuple):
    due: float
    reason: DiscardReason


def first_loss(queue: DestinationQueue, now: float) -> Loss | None:
    """Return when and why the first indication is discarded; None: none is.

    While suspended or held, only a full queue loses anything; a pause spends no attempts. The
    journal's own bound is not included.
    """
    oldest, pauses = queue.oldest_accepted_at, queue.health.pauses
    if oldest is None:
        return None
    losses = [_loss(_loss_by_full_queue(queue, now), DiscardReason.QUEUE_FULL)]
    if pauses.began is None:
        ends = _loss_by_lifetime(queue, oldest, now) if queue.lifetime else None
        losses += [_loss(ends, DiscardReason.LIFETIME_EXPIRED), *_losses_by_attempts(queue, now)]
    loss = min(filter(None, losses), key=lambda loss: loss.due, default=None)
    return None if loss is None else loss._replace(due=max(now, loss.due))


def first_loss_due(queue: DestinationQueue, now: float) -> float | None:
    loss = first_loss(queue, now)
    return None if loss is None else loss.due


def _loss(due: float | None, reason: DiscardReason) -> Loss | None:
    return None if due is None else Loss(due, reason)


def slow_since(queue: DestinationQueue) -> float | None:
    """Return since when its listener delivers late and takes fewer than arrive; None: it does not,
    or nothing is delivered."""
    if _is_stopped(queue) or not queue.throughput.is_slow or not queue.depth:
        return None
    return queue.throughput.behind_since


def full_due(queue: DestinationQueue, now: float) -> float | None:
    """Return when the queue is full; None: not within a year, it gets nothing more, or its listener
    keeps up.

    A queue that delivers nothing gets as many as since its oldest was accepted.
    """
    oldest = queue.oldest_accepted_at
    if oldest is None or queue.draining:
        return None
    rates = _rates_of_delivering(queue, now)
    if rates is None:
        return full_at(room=queue.free_places, depth=queue.depth, age=now - oldest, now=now)
    if slow_since(queue) is None or rates.accepted <= rates.delivered:
        return None
    wait = max(0, queue.free_places) / (rates.accepted - rates.delivered)
    return now + wait if wait <= HORIZON else None


def _is_stopped(queue: DestinationQueue) -> bool:
    health = queue.health
    return queue.suspended or health.hold is not None or health.failing_since is not None


def _rates_of_delivering(queue: DestinationQueue, now: float) -> Rates | None:
    """Its present rates; None if it delivers nothing."""
    if _is_stopped(queue):
        return None
    rates = queue.throughput.rates(now)
    return rates if rates.delivered > 0 else None


def _loss_by_lifetime(queue: DestinationQueue, oldest: float, now: float) -> float | None:
    """When the first lifetime ends before its indication is delivered.

    What waits was accepted evenly from the oldest to the last, ``density`` per second. Each
    delivery brings one to the front that is 1 / density younger, so the age of the front grows by
    1 - delivered / density per second.
    """
    ends = oldest + queue.lifetime + queue.health.pauses.since(oldest)
    rates = _rates_of_delivering(queue, now)
    if rates is None:
        return ends
    newest = queue.throughput.accepted_at
    density = queue.depth / max((now if newest is None else newest) - oldest, SHORTEST_AGE)
    last_delivered = queue.depth / rates.delivered
    if density <= rates.delivered or (
        slow_since(queue) is None and last_delivered < queue.lifetime
    ):
        return None
    wait = max(0.0, ends - now) / (1 - rates.delivered / density)
    return now + wait if wait <= HORIZON else None


def _loss_by_full_queue(queue: DestinationQueue, now: float) -> float | None:
    begins = now if queue.evicts_oldest(now=now) else _evicts_at(queue, now)
    if begins is None:
        return None
    full = full_due(queue, now)
    return None if full is None else max(full, begins)


def _evicts_at(queue: DestinationQueue, now: float) -> float | None:
    """When another failed attempt would make it evict; None if none would."""
    adaptive = queue.destination.queue_full_policy is QueueFullPolicy.ADAPTIVE
    if not adaptive or queue.health.failing_since is None or queue.relay_to is not None:
        return None
    return _next_attempt_at(queue, now)


def _losses_by_attempts(queue: DestinationQueue, now: float) -> Iterable[Loss | None]:
    """When the attempts of each of the first entries end, while the listener fails."""
    health = queue.health
    if health.failing_since is None or health.hold is not None:
        return
    first = queue.waiting.first()
    for entry in queue.in_flight if first is None else [*queue.in_flight, first]:
        due = last_attempt_at(
            queue.retry,
            made=entry.attempts,
            failures=health.failures,
            next_attempt_at=_next_attempt_at(queue, now),
            refusals_left=health.discards_after - entry.refusals if entry.refusals else None,
        )
        refused = entry.refusals > 0
        yield _loss(due, DiscardReason.FATAL_ERROR if refused else DiscardReason.ATTEMPTS_EXCEEDED)


def next_attempt_at(queue: DestinationQueue, now: float) -> float | None:
    """Return when the next attempt is due that waits for a retry or the limit; None: none waits."""
    due, limited = queue.health.next_attempt_due, limited_until(queue, now)
    if due is None or limited is None:
        return limited if due is None else due
    return max(due, limited)


def limited_until(queue: DestinationQueue, now: float) -> float | None:
    """Return when the limit of a queue allows the next attempt; None: now, or nothing waits."""
    pace, health = queue.pace, queue.health
    if pace is None or not queue.waiting.count or queue.suspended or health.hold is not None:
        return None
    due = pace.due()
    return due if due > now else None


def _next_attempt_at(queue: DestinationQueue, now: float) -> float:
    due = next_attempt_at(queue, now)
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
