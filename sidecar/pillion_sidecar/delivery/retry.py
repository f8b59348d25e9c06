"""When to try again."""

from pillion_sidecar.config.resources import RetryPolicy
from pillion_sidecar.config.retry import interval_after


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
