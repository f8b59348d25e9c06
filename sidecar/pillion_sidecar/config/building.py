"""From a checked spec to the value that the deliverer runs on. Pure, and cannot fail."""

from collections.abc import Mapping
from typing import Any

from pillion_cim.declarations import ClassDeclaration
from pillion_sidecar.config.parsing import Resource
from pillion_sidecar.config.resources import (
    Credentials,
    IndicationFilter,
    IndicationService,
    IndicationSubscription,
    ListenerDestination,
    RetryPolicy,
    TLSOptions,
)
from pillion_sidecar.config.schema.fields import amount, build
from pillion_sidecar.protocols import FALLBACK

#: The retry of DSP1054's defaults: what is not written beside a retry field that is.
DSP1054 = RetryPolicy()
#: maximumIntervalSeconds of a destination that writes another retry field, and not this one.
LONGEST_WAIT_SECONDS = 3600.0


def build_service(
    resource: Resource, *, classes: tuple[ClassDeclaration, ...] = ()
) -> IndicationService:
    """The service of a checked IndicationService; ``classes`` are all that it declares."""
    limit = resource.spec["deliverer"]["storage"].get("sizeLimit")
    return build(
        IndicationService,
        resource.spec,
        name=resource.name,
        classes=classes,
        # Part of a byte is none.
        storage_bytes=None if limit is None else int(amount(limit)),
    )


def build_destination(
    resource: Resource,
    *,
    service: IndicationService,
    uid: str,
    tls: TLSOptions,
    credentials: Credentials | None,
    secret_url: str | None,
) -> ListenerDestination:
    """The destination of a checked ListenerDestination, with the service's defaults.

    ``secret_url``: what the Secret of ``destinationFrom`` holds, where it can be used.
    """
    spec = resource.spec
    inherited = {
        "queueSize": service.queue_size,
        "queueFullPolicy": service.queue_full_policy,
        "indicationLifetimeSeconds": service.indication_lifetime_seconds,
    }
    return build(
        ListenerDestination,
        {**{name: value for name, value in inherited.items() if value is not None}, **spec},
        name=resource.name,
        uid=uid,
        # A destination with a fault in these is held: nothing is sent to it.
        destination=(spec["destination"] if resource.sound("destination") else secret_url or ""),
        url_is_secret="destinationFrom" in spec,
        protocol=spec["protocol"] if resource.sound("protocol") else FALLBACK,
        tls=tls,
        credentials=credentials,
        retry=written_retry(
            spec.get("retry", {}),
            attempts=service.delivery_retry_attempts,
            interval_seconds=service.delivery_retry_interval_seconds,
        ),
    )


def written_retry(
    spec: Mapping[str, Any], *, attempts: int | None, interval_seconds: float | None
) -> RetryPolicy | None:
    """The retry that a destination's ``retry`` and its service's ``attempts`` and
    ``interval_seconds`` come to: where any field is written, the others are DSP1054's (S0.7).

    None: no field is written.
    """
    written = dict(spec)
    if attempts is not None:
        written.setdefault("attempts", attempts)
    if interval_seconds is not None:
        written.setdefault("intervalSeconds", interval_seconds)
    if not written:
        return None
    interval = float(written.get("intervalSeconds", DSP1054.interval_seconds))
    written.setdefault("maximumIntervalSeconds", max(LONGEST_WAIT_SECONDS, interval))
    return build(RetryPolicy, written)


def build_filter(resource: Resource) -> IndicationFilter:
    """The filter of a checked IndicationFilter."""
    return build(IndicationFilter, resource.spec, name=resource.name)


def build_subscription(resource: Resource, *, uid: str) -> IndicationSubscription:
    """The subscription of a checked IndicationSubscription."""
    return build(
        IndicationSubscription,
        resource.spec,
        name=resource.name,
        uid=uid,
        created_at=resource.created_at,
    )
