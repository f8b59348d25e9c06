"""The arithmetic of a retry policy: how its waits grow, and what they sum up to. Pure."""

from pillion_sidecar.config.resources import Backoff, RetryPolicy

#: Seconds after the first failure by which the alert PillionListenerUnreachable has fired, where
#: deliverers are scraped at least once a minute.
ALERT_SECONDS = 75.0


def interval_after(policy: RetryPolicy, failures: int) -> float:
    """Return the seconds between a failed attempt and the next one, before jitter (S0.5).

    ``failures`` counts the failed attempts since the last success, at least 1.
    """
    if policy.backoff is Backoff.FIXED:
        return policy.interval_seconds
    # The exponent is bounded so that a long outage cannot overflow a float.
    doubled = policy.interval_seconds * 2.0 ** min(failures - 1, 64)
    return min(doubled, policy.maximum_interval_seconds)


def waits(policy: RetryPolicy, *, failures: int, count: int) -> float:
    """Return the sum of ``count`` waits, before jitter, the first one after ``failures`` failed
    attempts."""
    total = 0.0
    for number in range(failures, failures + count):
        wait = interval_after(policy, number)
        if wait == interval_after(policy, number + 1):
            # It grows no more.
            return total + wait * (failures + count - number)
        total += wait
    return total


def retry_span(policy: RetryPolicy) -> float | None:
    """Return the seconds from the original attempt to the last one, before jitter; None: attempts
    have no limit."""
    if policy.attempts is None:
        return None
    return waits(policy, failures=1, count=policy.attempts)


def first_loss_after(policy: RetryPolicy, *, lifetime: float) -> float | None:
    """Return the seconds from the first failed attempt to the first discard, before jitter; None:
    nothing is discarded. ``lifetime`` 0: none."""
    ends = [end for end in (retry_span(policy), lifetime or None) if end is not None]
    return min(ends, default=None)
