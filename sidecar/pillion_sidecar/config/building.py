"""From a checked spec to the value that the deliverer runs on. Pure, and cannot fail."""

from collections.abc import Mapping
from typing import Any

from pillion_cim.declarations import ClassDeclaration
from pillion_sidecar.config.parsing import Resource
from pillion_sidecar.config.resources import (
    Acknowledgement,
    AllowedPublisher,
    Backoff,
    Credentials,
    DelivererMode,
    DelivererSpec,
    DeliverThrough,
    Durability,
    IndicationFilter,
    IndicationService,
    IndicationSubscription,
    ListenerDestination,
    MissedInjectionPolicy,
    Ordering,
    Protocol,
    QueryLanguage,
    QueueFullPolicy,
    RemovalAction,
    RemovalPolicy,
    RepeatNotification,
    RepeatPolicy,
    RetryPolicy,
    SequenceIdentifiers,
    StorageSpec,
    SubscriptionState,
    TLSOptions,
)
from pillion_sidecar.config.schema.quantities import amount

#: The retry of DSP1054's defaults: what is not written beside a retry field that is.
DSP1054 = RetryPolicy()
#: maximumIntervalSeconds of a destination that writes another retry field, and not this one.
LONGEST_WAIT_SECONDS = 3600.0


def _seconds(value: int | None) -> float | None:
    return None if value is None else float(value)


def _name(reference: Mapping[str, Any] | None) -> str | None:
    return None if reference is None else str(reference["name"])


def build_service(
    resource: Resource, *, classes: tuple[ClassDeclaration, ...] = ()
) -> IndicationService:
    """The service of a checked IndicationService; ``classes`` are all that it declares."""
    spec = resource.spec
    durability, acknowledgement = spec.get("durability"), spec.get("acknowledgement")
    deliverer = build_deliverer(spec["deliverer"])
    limit = deliverer.storage.size_limit
    return IndicationService(
        name=resource.name,
        delivery_retry_attempts=spec.get("deliveryRetryAttempts"),
        delivery_retry_interval_seconds=_seconds(spec.get("deliveryRetryIntervalSeconds")),
        queue_size=spec.get("queueSize"),
        queue_full_policy=QueueFullPolicy(spec["queueFullPolicy"]),
        indication_lifetime_seconds=_seconds(spec.get("indicationLifetimeSeconds")),
        duplicate_window_seconds=_seconds(spec.get("duplicateWindowSeconds")),
        duplicate_window_entries=spec["duplicateWindowEntries"],
        subscription_removal_action=RemovalAction(spec["subscriptionRemovalAction"]),
        subscription_removal_time_interval_seconds=float(
            spec["subscriptionRemovalTimeIntervalSeconds"]
        ),
        correlated_indications=spec["correlatedIndications"],
        durability=None if durability is None else Durability(durability),
        acknowledgement=None if acknowledgement is None else Acknowledgement(acknowledgement),
        callbacks=tuple(spec["callbacks"]),
        classes=classes,
        publishers=tuple(
            AllowedPublisher(
                namespace=publisher["namespace"],
                service_account=publisher.get("serviceAccount"),
            )
            for publisher in spec["publishers"]
        ),
        gateway=_name(spec.get("gatewayRef")),
        hand_over_to=_name(spec.get("handOverTo")),
        shutdown_grace_period_seconds=float(spec["shutdownGracePeriodSeconds"]),
        deliverer=deliverer,
        # Part of a byte is none.
        storage_bytes=None if limit is None else int(amount(limit)),
    )


def build_deliverer(spec: Mapping[str, Any]) -> DelivererSpec:
    """The checked ``deliverer`` block of an IndicationService."""
    storage = spec["storage"]
    limit = storage.get("sizeLimit")
    return DelivererSpec(
        mode=DelivererMode(spec["mode"]),
        pod_selector=spec.get("podSelector"),
        inject_spark_driver=spec["injectSparkDriver"],
        on_missed_injection=MissedInjectionPolicy(spec["onMissedInjection"]),
        replicas=spec["replicas"],
        image=spec.get("image"),
        resources={
            section: {name: str(quantity) for name, quantity in quantities.items()}
            for section, quantities in spec["resources"].items()
        },
        storage=StorageSpec(
            size_limit=None if limit is None else str(limit),
            storage_class_name=storage.get("storageClassName"),
        ),
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
    lifetime = _seconds(spec.get("indicationLifetimeSeconds"))
    policy = spec.get("queueFullPolicy")
    return ListenerDestination(
        name=resource.name,
        uid=uid,
        # A destination with a fault in these is held: nothing is sent to it.
        destination=(spec["destination"] if resource.sound("destination") else secret_url or ""),
        url_is_secret="destinationFrom" in spec,
        protocol=Protocol(spec["protocol"]) if resource.sound("protocol") else Protocol.CIM_XML,
        timeout_seconds=float(spec["timeoutSeconds"]),
        tls=tls,
        credentials=credentials,
        retry=written_retry(
            spec.get("retry", {}),
            attempts=service.delivery_retry_attempts,
            interval_seconds=service.delivery_retry_interval_seconds,
        ),
        queue_size=spec.get("queueSize", service.queue_size),
        queue_full_policy=QueueFullPolicy(policy) if policy else service.queue_full_policy,
        indication_lifetime_seconds=(
            service.indication_lifetime_seconds if lifetime is None else lifetime
        ),
        ordering=Ordering(spec["ordering"]),
        max_in_flight=spec["maxInFlight"],
        sequence_identifiers=SequenceIdentifiers(spec["sequenceIdentifiers"]),
        suspended=spec["suspended"],
        removal_policy=RemovalPolicy(spec["removalPolicy"]),
        deliver_through=DeliverThrough(spec["deliverThrough"]),
    )


def written_retry(
    spec: Mapping[str, Any], *, attempts: int | None, interval_seconds: float | None
) -> RetryPolicy | None:
    """The retry that a destination's ``retry`` and its service's ``attempts`` and
    ``interval_seconds`` come to: where any field is written, the others are DSP1054's (S0.7).

    None: no field is written.
    """
    attempts = spec.get("attempts", attempts)
    interval = spec.get("intervalSeconds", interval_seconds)
    if not spec and attempts is None and interval is None:
        return None
    interval = DSP1054.interval_seconds if interval is None else float(interval)
    return RetryPolicy(
        attempts=DSP1054.attempts if attempts is None else attempts,
        interval_seconds=interval,
        backoff=Backoff(spec.get("backoff", DSP1054.backoff)),
        maximum_interval_seconds=float(
            spec.get("maximumIntervalSeconds", max(LONGEST_WAIT_SECONDS, interval))
        ),
        jitter=spec.get("jitterPercent", 0) / 100,
        respect_retry_after=spec.get("respectRetryAfter", DSP1054.respect_retry_after),
    )


def build_filter(resource: Resource) -> IndicationFilter:
    """The filter of a checked IndicationFilter."""
    spec = resource.spec
    return IndicationFilter(
        name=resource.name,
        query=spec["query"],
        query_language=QueryLanguage(spec["queryLanguage"]),
        source_namespaces=tuple(spec.get("sourceNamespaces", ())),
    )


def build_subscription(resource: Resource, *, uid: str) -> IndicationSubscription:
    """The subscription of a checked IndicationSubscription."""
    spec = resource.spec
    return IndicationSubscription(
        name=resource.name,
        uid=uid,
        service=spec["serviceRef"]["name"],
        filter_name=spec["filterRef"]["name"],
        destination_name=spec["destinationRef"]["name"],
        state=SubscriptionState(spec["subscriptionState"]),
        on_fatal_error_policy=RemovalAction(spec["onFatalErrorPolicy"]),
        failure_trigger_time_interval_seconds=float(spec["failureTriggerTimeIntervalSeconds"]),
        repeat_notification=RepeatNotification(
            policy=RepeatPolicy(spec["repeatNotificationPolicy"]),
            interval_seconds=float(spec.get("repeatNotificationIntervalSeconds", 0)),
            gap_seconds=float(spec.get("repeatNotificationGapSeconds", 0)),
            count=spec.get("repeatNotificationCount", 1),
            key=tuple(spec["repeatKey"]),
        ),
        duration_seconds=_seconds(spec.get("subscriptionDurationSeconds")),
        created_at=resource.created_at,
    )
