"""The resources that configure a deliverer, as values: parsed, defaulted and valid.

Fields are those of ``pillion.dev/v1alpha1`` (DSP1054's names), in snake case; times are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pillion_cim.declarations import ClassDeclaration


class Protocol(StrEnum):
    """How a listener is spoken to."""

    CIM_XML = "CIM-XML"
    CLOUD_EVENTS = "CloudEvents"


class QueueFullPolicy(StrEnum):
    """What happens to a full destination queue (S0.4 and the design's "Full queue")."""

    ADAPTIVE = "Adaptive"
    DISCARD_OLDEST = "DiscardOldest"
    REJECT = "Reject"


class Backoff(StrEnum):
    """How the wait between attempts grows."""

    FIXED = "Fixed"
    EXPONENTIAL = "Exponential"


class Ordering(StrEnum):
    """Within what the order of indications holds."""

    DESTINATION = "Destination"
    GROUP = "Group"
    NONE = "None"


class SequenceIdentifiers(StrEnum):
    """Whether SequenceContext and SequenceNumber are sent (D.2)."""

    AUTO = "Auto"
    SEND = "Send"
    OMIT = "Omit"


class RemovalPolicy(StrEnum):
    """What becomes of the queue of a destination that is removed."""

    DISCARD = "Discard"
    DRAIN = "Drain"


class RemovalAction(StrEnum):
    """DSP1054's Ignore, Disable and Remove: SubscriptionRemovalAction and OnFatalErrorPolicy."""

    IGNORE = "Ignore"
    DISABLE = "Disable"
    REMOVE = "Remove"


class RepeatPolicy(StrEnum):
    """RepeatNotificationPolicy."""

    NONE = "None"
    SUPPRESS = "Suppress"
    DELAY = "Delay"


class SubscriptionState(StrEnum):
    """SubscriptionState, as far as a user may set it."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


class QueryLanguage(StrEnum):
    """QueryLanguage of a filter."""

    WQL = "WQL"
    CQL = "DMTF:CQL"


class Acknowledgement(StrEnum):
    """How far a publish has come before it is answered."""

    ACCEPTED = "Accepted"
    DURABLE = "Durable"
    STABLE = "Stable"
    DELIVERED = "Delivered"


class Durability(StrEnum):
    """Where accepted indications are kept."""

    #: In the deliverer alone.
    MEMORY = "Memory"
    #: What must be remembered is on disk, the indications themselves are not.
    STATE_ONLY = "StateOnly"
    #: On the deliverer's own volume.
    DISK = "Disk"


class DelivererMode(StrEnum):
    """As what the deliverers of a service run."""

    SIDECAR = "Sidecar"
    GATEWAY = "Gateway"


class DeliverThrough(StrEnum):
    """Who delivers to a destination what sidecars have accepted."""

    #: The deliverer that accepted it.
    DELIVERER = "Deliverer"
    #: The gateway that the sidecar's service names in gatewayRef.
    GATEWAY = "Gateway"


class MissedInjectionPolicy(StrEnum):
    """What is done about a pod that should have a sidecar and has none."""

    REPORT = "Report"
    EVICT = "Evict"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The retry of one destination, all overrides applied. The defaults are DSP1054's."""

    #: Attempts after the original one; 0 = no retry (S0.7), None = no limit.
    attempts: int | None = 3
    interval_seconds: float = 30.0
    backoff: Backoff = Backoff.FIXED
    maximum_interval_seconds: float = 3600.0
    #: The share of the wait that is drawn at random, 0 to 1.
    jitter: float = 0.0
    respect_retry_after: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSOptions:
    """How a TLS listener is met. PEM bytes come from Secrets."""

    verify: bool = True
    #: Whether a name in the certificate's subject counts where it has no subjectAltName.
    allow_common_name: bool = False
    server_name: str | None = None
    ca_certificates: bytes | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Basic (username and password) or bearer (token) credentials."""

    username: str | None = None
    password: str | None = None
    bearer_token: str | None = None

    def __repr__(self) -> str:
        return "Credentials(…)"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedPublisher:
    """Whom a gateway lets publish: service accounts of a namespace."""

    namespace: str
    #: None: all of that namespace.
    service_account: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSpec:
    """The volume of a deliverer: an emptyDir beside a sidecar, a claim under a gateway. None of
    the two given: no volume."""

    #: A Kubernetes quantity; None: no limit of an emptyDir, the operator's own choice for a claim.
    size_limit: str | None = None
    #: None: the cluster's default class.
    storage_class_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelivererSpec:
    """Where and as what the deliverers of a service run. Only the operator heeds it."""

    mode: DelivererMode = DelivererMode.SIDECAR
    #: A Kubernetes label selector as JSON (matchLabels, matchExpressions), never an empty one;
    #: None: only pods that carry the label get a sidecar.
    pod_selector: Mapping[str, Any] | None = None
    inject_spark_driver: bool = False
    on_missed_injection: MissedInjectionPolicy = MissedInjectionPolicy.REPORT
    replicas: int = 1
    #: None: the operator's own choice.
    image: str | None = None
    #: A container's ``resources`` as JSON: requests and limits, each quantity a text.
    resources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    storage: StorageSpec = StorageSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class IndicationService:
    """How this deliverer delivers, after CIM_IndicationService."""

    name: str = "default"
    #: None: not written, both of them. See :mod:`pillion_sidecar.config.durability`.
    delivery_retry_attempts: int | None = None
    delivery_retry_interval_seconds: float | None = None
    #: None: by durability; see :mod:`pillion_sidecar.config.durability`.
    queue_size: int | None = None
    queue_full_policy: QueueFullPolicy = QueueFullPolicy.ADAPTIVE
    #: None: by the destination's effective retry (D.2), or by durability.
    indication_lifetime_seconds: float | None = None
    #: None: not written. See :mod:`pillion_sidecar.config.durability`.
    duplicate_window_seconds: float | None = None
    duplicate_window_entries: int = 1_000_000
    subscription_removal_action: RemovalAction = RemovalAction.IGNORE
    subscription_removal_time_interval_seconds: float = 2_592_000.0
    correlated_indications: bool = False
    #: None: not said. What is assumed depends on where the deliverer runs; see
    #: :mod:`pillion_sidecar.config.durability`.
    durability: Durability | None = None
    #: None: the highest that the durability gives.
    acknowledgement: Acknowledgement | None = None
    #: Where publishers may have receipts sent: URLs that others lie below, as they were written.
    callbacks: tuple[str, ...] = ()
    #: The classes that it declares beside those of the CIM schema.
    classes: tuple[ClassDeclaration, ...] = ()
    #: Who may publish to a gateway; empty: every service account of its own namespace.
    publishers: tuple[AllowedPublisher, ...] = ()
    #: gatewayRef: the service in mode Gateway that delivers for this one; None: nobody does.
    gateway: str | None = None
    #: handOverTo: the service in mode Gateway that takes what is left when a deliverer ends.
    hand_over_to: str | None = None
    shutdown_grace_period_seconds: float = 20.0
    deliverer: DelivererSpec = DelivererSpec()
    #: Bytes that the deliverer's volume holds, ``deliverer.storage.sizeLimit`` as a number; None:
    #: not said.
    storage_bytes: int | None = None


class HoldCause(StrEnum):
    """What is wrong with a destination: a closed set, the same in logs, metrics and answers."""

    #: Its URL is missing or cannot be used.
    DESTINATION = "invalid-destination"
    PROTOCOL = "unsupported-protocol"
    #: Its Secret is missing or may not be used, or no header can carry what it holds.
    CREDENTIALS = "invalid-credentials"
    #: The same of its certificates and key: no TLS context can be made of them.
    CERTIFICATES = "invalid-certificates"
    #: Its address, or every address of its name, is refused by the address policy.
    ADDRESS = "refused-address"


@dataclass(frozen=True, slots=True)
class DestinationFault:
    """What is wrong with a destination, as found when its resource is loaded."""

    cause: HoldCause
    #: One line for people.
    message: str


#: Stands for the URL of a destination that is in a Secret, where a deliverer cannot have it or need
#: not: nothing is ever sent there (RFC 6761 6.4).
WITHHELD_URL = "https://withheld.invalid/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerDestination:
    """Where to, after CIM_ListenerDestination; the service's defaults are already applied."""

    name: str
    #: metadata.uid, or, standalone, one derived from kind and name.
    uid: str
    #: The URL, with a scheme. It may be a credential, so no text about the destination shows it.
    destination: str = field(repr=False)
    #: Whether the URL comes from a Secret, so that no part of it may be shown.
    url_is_secret: bool = False
    protocol: Protocol
    timeout_seconds: float = 30.0
    tls: TLSOptions = TLSOptions()
    credentials: Credentials | None = None
    #: None: neither the destination nor its service writes any retry field; by durability, see
    #: :mod:`pillion_sidecar.config.durability`.
    retry: RetryPolicy | None = None
    #: None: neither the destination nor its service says; by durability, see
    #: :mod:`pillion_sidecar.config.durability`.
    queue_size: int | None = None
    queue_full_policy: QueueFullPolicy = QueueFullPolicy.ADAPTIVE
    #: None: by the effective retry, or by durability; 0: no lifetime.
    indication_lifetime_seconds: float | None = None
    ordering: Ordering = Ordering.DESTINATION
    max_in_flight: int = 1
    sequence_identifiers: SequenceIdentifiers = SequenceIdentifiers.AUTO
    suspended: bool = False
    removal_policy: RemovalPolicy = RemovalPolicy.DISCARD
    deliver_through: DeliverThrough = DeliverThrough.DELIVERER
    #: The service whose gateway this deliverer relays to; None: it delivers by itself.
    relay_to: str | None = None
    #: Why nothing can be sent to it, so that its queue is held; None: it can be tried.
    fault: DestinationFault | None = None

    @property
    def url_is_hidden(self) -> bool:
        """Whether the URL comes from a Secret, or is withheld: it is compared with no other, since
        the answer would confirm a guess of it."""
        return self.url_is_secret or self.destination == WITHHELD_URL


@dataclass(frozen=True, slots=True, kw_only=True)
class IndicationFilter:
    """Which, after CIM_IndicationFilter. The query has been compiled once, so it is valid."""

    name: str
    query: str
    query_language: QueryLanguage = QueryLanguage.CQL
    source_namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatNotification:
    """RepeatNotificationPolicy and its parameters (D.3)."""

    policy: RepeatPolicy = RepeatPolicy.NONE
    interval_seconds: float = 0.0
    gap_seconds: float = 0.0
    count: int = 1
    #: Names of the properties whose values make two indications repeats of each other; the class
    #: always counts.
    key: tuple[str, ...] = ("EventID", "AlertingManagedElement")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndicationSubscription:
    """Filter x destination, after CIM_IndicationSubscription."""

    name: str
    uid: str
    service: str = "default"
    filter_name: str
    destination_name: str
    state: SubscriptionState = SubscriptionState.ENABLED
    on_fatal_error_policy: RemovalAction = RemovalAction.IGNORE
    #: How long its destination must have been held or failing before that policy acts.
    failure_trigger_time_interval_seconds: float = 2_592_000.0
    repeat_notification: RepeatNotification = RepeatNotification()
    #: None: it never ends. Counted from ``created_at``.
    duration_seconds: float | None = None
    #: metadata.creationTimestamp, seconds since the epoch; None: when it is first loaded.
    created_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Everything that one deliverer needs to know: one complete revision.

    Each subscription names a filter and a destination that are present, and this service.
    """

    revision: str
    service: IndicationService = IndicationService()
    destinations: Mapping[str, ListenerDestination] = field(default_factory=dict)
    filters: Mapping[str, IndicationFilter] = field(default_factory=dict)
    subscriptions: Mapping[str, IndicationSubscription] = field(default_factory=dict)
    #: Those of other services, by name, whose sidecars relay or hand over to this gateway. What
    #: comes for them names them by uid: their filters have been asked already.
    relayed: Mapping[str, IndicationSubscription] = field(default_factory=dict)
    #: What was left aside while it was read, as sentences for a log.
    warnings: tuple[str, ...] = ()
    #: Destinations with a fault, which are held for it.
    held: frozenset[str] = frozenset()
    #: Why the last good versions of filters stay in force, by name of the filter.
    kept_filters: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_subscriptions(self) -> Mapping[str, IndicationSubscription]:
        """Every subscription that this deliverer delivers for, by name."""
        return {**self.subscriptions, **self.relayed} if self.relayed else self.subscriptions
