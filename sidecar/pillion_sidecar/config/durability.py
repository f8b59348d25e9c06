"""The defaults that depend on the durability that a deliverer really runs with. Pure."""

from collections.abc import Iterable

from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import Backoff, ListenerDestination, RetryPolicy
from pillion_sidecar.config.schema.service import Acknowledgement, Durability, IndicationService

#: Seconds after the first failure by which the alert PillionListenerUnreachable has fired, where
#: deliverers are scraped at least once a minute.
ALERT_SECONDS = 75.0
#: queueSize where neither the destination nor its service names one.
QUEUE_SIZE_ON_DISK = 1_000_000
QUEUE_SIZE_IN_MEMORY = 10_000
#: The retry on disk where neither the destination nor its service writes any field of it: nothing
#: is lost before an operator can act. In memory it is DSP1054's.
RETRY_ON_DISK = RetryPolicy(
    attempts=None,
    interval_seconds=30.0,
    backoff=Backoff.EXPONENTIAL,
    maximum_interval_seconds=300.0,
    jitter=0.2,
)
#: indicationLifetimeSeconds with a retry that has no limit of attempts: a day.
LIFETIME_WITHOUT_LIMIT = 86_400.0
#: A lifetime is ten times the time that all retries take (DSP1054 1.1.0 7.10).
LIFETIME_FACTOR = 10
#: duplicateWindowSeconds where the service names none is at least a day; and this much longer than
#: the longest lifetime, so that no indication outlives its identity.
LEAST_DUPLICATE_WINDOW = 86_400.0
DUPLICATE_WINDOW_MARGIN = 3600.0
#: Destinations that a warning names.
_MOST_NAMES = 10


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


def assumed_durability(service: IndicationService, *, has_journal: bool) -> Durability:
    """The durability that the service asks for, else the safest that the deliverer has."""
    if service.durability is not None:
        return service.durability
    return Durability.DISK if has_journal else Durability.MEMORY


def highest_acknowledgement(durability: Durability) -> Acknowledgement:
    """How safe an indication is at most before it is delivered. Of bodies in memory nothing is
    promised, whatever is remembered of them."""
    return Acknowledgement.DURABLE if durability is Durability.DISK else Acknowledgement.ACCEPTED


def assumed_acknowledgement(service: IndicationService, durability: Durability) -> Acknowledgement:
    """How a publish that does not say is acknowledged, with the ``durability`` in force.

    That may be less than the service asks for where a deliverer has no journal. A promise that it
    cannot keep is not made then.
    """
    highest = highest_acknowledgement(durability)
    asked = service.acknowledgement
    return highest if asked in (None, Acknowledgement.DURABLE) else asked


def queue_capacity(destination: ListenerDestination, durability: Durability) -> int:
    """The most indications that the destination's queue holds, with the ``durability`` in force."""
    if destination.queue_size is not None:
        return destination.queue_size
    return QUEUE_SIZE_ON_DISK if durability is Durability.DISK else QUEUE_SIZE_IN_MEMORY


def effective_retry(destination: ListenerDestination, durability: Durability) -> RetryPolicy:
    """The retry of a destination, with the ``durability`` in force (S0.7)."""
    if destination.retry is not None:
        return destination.retry
    return RETRY_ON_DISK if durability is Durability.DISK else RetryPolicy()


def effective_lifetime(destination: ListenerDestination, durability: Durability) -> float:
    """How many seconds an indication may wait for this destination, with the ``durability`` in
    force; 0 = as long as it takes.

    By default ten times the effective retry (D.2), a product of 0 being no lifetime; a day where
    attempts have no limit.
    """
    if destination.indication_lifetime_seconds is not None:
        return destination.indication_lifetime_seconds
    span = retry_span(effective_retry(destination, durability))
    return LIFETIME_WITHOUT_LIMIT if span is None else LIFETIME_FACTOR * span


def duplicate_window(configuration: Configuration, durability: Durability) -> float:
    """How many seconds an identity without ``expires`` is remembered, with the ``durability`` in
    force."""
    written = configuration.service.duplicate_window_seconds
    if written is not None:
        return written
    lifetimes = (effective_lifetime(one, durability) for one in configuration.destinations.values())
    return max(LEAST_DUPLICATE_WINDOW, max(lifetimes, default=0.0) + DUPLICATE_WINDOW_MARGIN)


def loses_before_alert(destinations: Iterable[ListenerDestination]) -> str | None:
    """A warning that names the destinations whose retry loses an indication before an alert can
    fire; None: there is none. Only what is written makes it so, on any durability."""
    early = []
    for one in destinations:
        lifetime = effective_lifetime(one, Durability.MEMORY)
        after = first_loss_after(effective_retry(one, Durability.MEMORY), lifetime=lifetime)
        if after is not None and after < ALERT_SECONDS:
            early.append(f"{one.name} (after {after:g} s)")
    if not early:
        return None
    named = ", ".join(sorted(early)[:_MOST_NAMES]) + (", …" if len(early) > _MOST_NAMES else "")
    return (
        "a listener that is down loses its first indication before an alert can fire, which takes "
        f"{ALERT_SECONDS:g} s: {named}. Remove the retry fields and indicationLifetimeSeconds, or "
        "raise them"
    )
