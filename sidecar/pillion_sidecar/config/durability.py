"""Defaults that depend on the durability in force."""

from collections.abc import Iterable

from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import Backoff, ListenerDestination, RetryPolicy
from pillion_sidecar.config.schema.service import Acknowledgement, Durability, IndicationService

#: Seconds after the first failure by which PillionListenerUnreachable has fired, with a scrape
#: interval of at most a minute.
ALERT_SECONDS = 75.0
#: Default queueSize on disk.
QUEUE_SIZE_ON_DISK = 1_000_000
QUEUE_SIZE_IN_MEMORY = 10_000
#: Default retry on disk, where no retry field is written: nothing is lost before an operator can
#: act. In memory the default is DSP1054's.
RETRY_ON_DISK = RetryPolicy(
    attempts=None,
    interval_seconds=30.0,
    backoff=Backoff.EXPONENTIAL,
    maximum_interval_seconds=300.0,
    jitter=0.2,
)
#: Default indicationLifetimeSeconds with unlimited attempts.
LIFETIME_WITHOUT_LIMIT = 86_400.0
#: DSP1054 1.1.0 7.10: a lifetime is ten times the duration of all retries.
LIFETIME_FACTOR = 10
#: Default duplicateWindowSeconds: at least a day, and longer than the longest lifetime by this, so
#: that no indication outlives its identity.
LEAST_DUPLICATE_WINDOW = 86_400.0
DUPLICATE_WINDOW_MARGIN = 3600.0
_MOST_NAMES = 10


def interval_after(policy: RetryPolicy, failures: int) -> float:
    """Return seconds before jitter (S0.5); ``failures`` since the last success, at least 1."""
    if policy.backoff is Backoff.FIXED:
        return policy.interval_seconds
    # Bounded: a long outage cannot overflow a float.
    doubled = policy.interval_seconds * 2.0 ** min(failures - 1, 64)
    return min(doubled, policy.maximum_interval_seconds)


def waits(policy: RetryPolicy, *, failures: int, count: int) -> float:
    """Return the sum of ``count`` waits before jitter, the first after ``failures`` failures."""
    total = 0.0
    for number in range(failures, failures + count):
        wait = interval_after(policy, number)
        if wait == interval_after(policy, number + 1):
            return total + wait * (failures + count - number)
        total += wait
    return total


def retry_span(policy: RetryPolicy) -> float | None:
    """Return seconds from the original attempt to the last, before jitter; None: no limit."""
    if policy.attempts is None:
        return None
    return waits(policy, failures=1, count=policy.attempts)


def first_loss_after(policy: RetryPolicy, *, lifetime: float) -> float | None:
    """Return seconds from the first failed attempt to the first discard, before jitter; None:
    never. ``lifetime`` 0: none."""
    ends = [end for end in (retry_span(policy), lifetime or None) if end is not None]
    return min(ends, default=None)


def assumed_durability(service: IndicationService, *, has_journal: bool) -> Durability:
    """Return the durability asked for, else the safest that the deliverer has."""
    if service.durability is not None:
        return service.durability
    return Durability.DISK if has_journal else Durability.MEMORY


def highest_acknowledgement(durability: Durability) -> Acknowledgement:
    """Return the highest level before delivery. With bodies in memory nothing is promised."""
    return Acknowledgement.DURABLE if durability is Durability.DISK else Acknowledgement.ACCEPTED


def assumed_acknowledgement(
    service: IndicationService, durability: Durability, *, has_stores: bool = False
) -> Acknowledgement:
    """Return the default level; lower than the service asks for where there is no journal, or no
    store of it."""
    highest = highest_acknowledgement(durability)
    asked = service.acknowledgement
    if asked is Acknowledgement.STABLE and has_stores:
        return asked
    return asked if asked in (Acknowledgement.ACCEPTED, Acknowledgement.DELIVERED) else highest


def queue_capacity(destination: ListenerDestination, durability: Durability) -> int:
    if destination.queue_size is not None:
        return destination.queue_size
    return QUEUE_SIZE_ON_DISK if durability is Durability.DISK else QUEUE_SIZE_IN_MEMORY


def effective_retry(destination: ListenerDestination, durability: Durability) -> RetryPolicy:
    return assumed_retry(durability) if destination.retry is None else destination.retry


def assumed_retry(durability: Durability) -> RetryPolicy:
    """Return the retry where neither the service nor the destination writes any."""
    return RETRY_ON_DISK if durability is Durability.DISK else RetryPolicy()


def effective_lifetime(destination: ListenerDestination, durability: Durability) -> float:
    """Return seconds, 0 for no limit. Default (D.2): ten times the effective retry; a day with
    unlimited attempts."""
    if destination.indication_lifetime_seconds is not None:
        return destination.indication_lifetime_seconds
    span = retry_span(effective_retry(destination, durability))
    return LIFETIME_WITHOUT_LIMIT if span is None else LIFETIME_FACTOR * span


def duplicate_window(configuration: Configuration, durability: Durability) -> float:
    """Return the seconds that an identity without ``expires`` is remembered."""
    written = configuration.service.duplicate_window_seconds
    if written is not None:
        return written
    lifetimes = (effective_lifetime(one, durability) for one in configuration.destinations.values())
    return max(LEAST_DUPLICATE_WINDOW, max(lifetimes, default=0.0) + DUPLICATE_WINDOW_MARGIN)


def loses_before_alert(destinations: Iterable[ListenerDestination]) -> str | None:
    """Warn of destinations whose written retry discards before a Prometheus alert can fire."""
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
        "a listener that is down loses its first indication before a Prometheus alert can fire, "
        f"which takes {ALERT_SECONDS:g} s: {named}. Remove the retry fields and "
        "indicationLifetimeSeconds, or raise them"
    )
