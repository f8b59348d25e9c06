"""When to try again: the pure arithmetic of retry."""

from pillion_sidecar.config.resources import Backoff, ListenerDestination, RetryPolicy

#: A lifetime is ten times the time that all retries take (DSP1054 1.1.0 7.10).
LIFETIME_FACTOR = 10


def retry_wait(
    policy: RetryPolicy, *, failures: int, retry_after: float | None, draw: float
) -> float:
    """Return how many seconds to leave a destination alone after a failed attempt (S0.5).

    ``failures`` counts the failed attempts since the last success, this one included. ``draw`` is
    a random number in [0, 1); the part of the wait that is jitter shrinks by it, so jitter spreads
    attempts without ever exceeding the wait that the policy states. What the listener asked for
    (``retry_after``, seconds) lengthens the wait, never shortens it, and is capped too.
    """
    wait = policy.interval_seconds
    if policy.backoff is Backoff.EXPONENTIAL:
        # The exponent is bounded so that a long outage cannot overflow a float.
        wait = min(wait * 2.0 ** min(failures - 1, 64), policy.maximum_interval_seconds)
    wait -= wait * policy.jitter * draw
    if policy.respect_retry_after and retry_after is not None:
        wait = max(wait, min(retry_after, policy.maximum_interval_seconds))
    return wait


def retry_span(policy: RetryPolicy) -> float:
    """Return the seconds from the original attempt to the last one, waits without jitter summed."""
    return sum(
        retry_wait(policy, failures=number, retry_after=None, draw=0.0)
        for number in range(1, policy.attempts + 1)
    )


def lifetime(destination: ListenerDestination) -> float:
    """Return how many seconds an indication may wait for this destination; 0 = as long as it takes.

    By default ten times the effective retry (D.2); a product of 0 means no lifetime.
    """
    if destination.indication_lifetime_seconds is not None:
        return destination.indication_lifetime_seconds
    return LIFETIME_FACTOR * retry_span(destination.retry)
