"""The condition of a retry that gives little time to act. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from pillion_operator.status.conditions import Condition
from pillion_sidecar.config.durability import (
    ALERT_SECONDS,
    LIFETIME_FACTOR,
    RETRY_ON_DISK,
    first_loss_after,
    retry_span,
)
from pillion_sidecar.config.resolving import written_retry

#: In seconds: less leaves no time to act before the first loss.
TIME_TO_ACT = 600.0


def retry_condition(
    destination: Mapping[str, Any], services: Mapping[str, Mapping[str, Any]]
) -> Condition | None:
    """RetryTooShort; None if nothing that affects it is set. ``destination`` is its spec,
    ``services`` the specs of its services by name; all are valid."""
    found = sorted(_first_losses(destination, services))
    if not found:
        return None
    after, name = found[0]
    if after >= TIME_TO_ACT:
        message = "A listener may be down for at least ten minutes before an indication is lost."
        return Condition("RetryTooShort", "False", "TimeToAct", message)
    early = after < ALERT_SECONDS
    alert = f", before a Prometheus alert can fire ({ALERT_SECONDS:g} s)" if early else ""
    return Condition(
        "RetryTooShort",
        "True",
        "ShorterThanAlert" if early else "ShortRetryWritten",
        "With the retry fields and indicationLifetimeSeconds of "
        f"{_writing(destination, name)}, a listener that is down loses its first indication "
        f"{after:g} s after the first failure{alert}. Raise them, or remove them from both "
        "resources: without them, deliverers with durability Disk retry for a day. The CRDs of "
        "the first release stored 3 retries and 30 s in resources without these fields.",
    )


def _writing(destination: Mapping[str, Any], service: str) -> str:
    if destination.get("retry") or "indicationLifetimeSeconds" in destination:
        return f"this destination and IndicationService {service}"
    return f"IndicationService {service}"


def _first_losses(
    destination: Mapping[str, Any], services: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[float, str]]:
    """The seconds to the first loss for each service that sets it."""
    for name, service in services.items():
        retry = written_retry(
            destination.get("retry") or {},
            attempts=service.get("deliveryRetryAttempts"),
            interval_seconds=service.get("deliveryRetryIntervalSeconds"),
        )
        lifetime = destination.get(
            "indicationLifetimeSeconds", service.get("indicationLifetimeSeconds")
        )
        if retry is None and lifetime is None:
            continue
        policy = RETRY_ON_DISK if retry is None else retry
        if lifetime is None:
            lifetime = LIFETIME_FACTOR * (retry_span(policy) or 0.0)
        after = first_loss_after(policy, lifetime=float(lifetime))
        # Without a limit it never comes.
        yield (float("inf") if after is None else after), name
