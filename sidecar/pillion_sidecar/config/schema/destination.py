"""ListenerDestination, after CIM_ListenerDestination."""

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from pillion_sidecar.config.schema import common
from pillion_sidecar.config.schema.common import INTERVAL, MOST_ATTEMPTS, QueueFullPolicy
from pillion_sidecar.config.schema.limits import RATE_LIMIT, RateLimit
from pillion_sidecar.config.schema.listener import (
    CREDENTIALS,
    SECURITY_RULES,
    TLS,
    URL_SOURCE,
    URL_SOURCE_RULES,
    Credentials,
    TLSOptions,
    protocol_rules,
)
from pillion_sidecar.config.schema.proxy import PROXY, Proxy
from pillion_sidecar.config.schema.response_policy import (
    ABOUT_RESPONSE_POLICY,
    RESPONSE_POLICY,
    CircuitBreaker,
    ResponseRule,
)
from pillion_sidecar.config.schema.status import (
    AGE,
    READY,
    REASON,
    condition_column,
    count,
    moment,
    status,
    word,
)
from pillion_sidecar.config.schema.urls import URL
from pillion_sidecar.fields import (
    Column,
    Integer,
    Kind,
    Rule,
    declared,
    one_of,
    relevant,
    resource,
    structure,
)
from pillion_sidecar.protocols import FALLBACK, PROTOCOLS, BatchOptions


class Backoff(StrEnum):
    FIXED = "Fixed"
    EXPONENTIAL = "Exponential"


class Ordering(StrEnum):
    DESTINATION = "Destination"
    GROUP = "Group"
    NONE = "None"


class SequenceIdentifiers(StrEnum):
    """D.2."""

    AUTO = "Auto"
    SEND = "Send"
    OMIT = "Omit"


class RemovalPolicy(StrEnum):
    DISCARD = "Discard"
    DRAIN = "Drain"
    DEAD_LETTER = "DeadLetter"


class DeliverThrough(StrEnum):
    DELIVERER = "Deliverer"
    GATEWAY = "Gateway"


class HoldCause(StrEnum):
    """Why a queue stops: faults of its destination, and causes of a pause; a closed set for logs,
    metrics and responses."""

    DESTINATION = "invalid-destination"
    PROTOCOL = "unsupported-protocol"
    #: Its Secret is missing or forbidden, or no header can carry its data.
    CREDENTIALS = "invalid-credentials"
    #: No TLS context can be made of its certificates and key.
    CERTIFICATES = "invalid-certificates"
    #: The address policy refuses its address, or all addresses of its name.
    ADDRESS = "refused-address"
    #: By a rule of its responsePolicy: nothing is sent until the resource changes.
    DISABLED = "disabled"
    #: Pauses: the listener or the proxy refuses the credentials, by a rule, by the breaker.
    REFUSED = "refused-credentials"
    RESPONSE_POLICY = "response-policy"
    CIRCUIT_BREAKER = "circuit-breaker"

    @property
    def is_pause(self) -> bool:
        """Whether lifetimes go on, and only the oldest indication is tried now and then."""
        return self in _PAUSES


_PAUSES = (HoldCause.REFUSED, HoldCause.RESPONSE_POLICY, HoldCause.CIRCUIT_BREAKER)


@dataclass(frozen=True, slots=True)
class DestinationFault:
    cause: HoldCause
    message: str


#: Never resolves (RFC 6761 6.4).
_WITHHELD = "://withheld.invalid/"


def withheld_url(protocol: str) -> str:
    """The URL that stands for a Secret's where a deliverer cannot read or does not need it."""
    schemes = PROTOCOLS.get(protocol, PROTOCOLS[FALLBACK]).schemes
    scheme = next((one for one in schemes if one.is_secure), schemes[0])
    return f"{scheme.name}{_WITHHELD}"


def is_withheld(url: str) -> bool:
    return url.endswith(_WITHHELD)


WITHHELD_URL = withheld_url(FALLBACK)


@resource
class RetryPolicy:
    """With all overrides applied. Defaults are DSP1054's."""

    #: After the original one; 0: no retry (S0.7), None: no limit.
    attempts: int | None = declared(
        default=3,
        type=Integer(minimum=0, maximum=MOST_ATTEMPTS),
        assumed="the service's `deliveryRetryAttempts`",
        description="Maximum number of retries after the original attempt. 0: no retry.",
    )
    interval_seconds: float = declared(
        default=30.0,
        type=INTERVAL,
        assumed="the service's `deliveryRetryIntervalSeconds`",
        description="Seconds between a failed attempt and the next one; with backoff "
        "Exponential, before the first retry.",
    )
    backoff: Backoff = declared(
        default=Backoff.FIXED,
        assumed="`Fixed` if any retry field is set",
        description="How the interval between attempts grows. Fixed: it stays the same "
        "(DSP1054). Exponential: it doubles after each failure, up to "
        "maximumIntervalSeconds.",
    )
    maximum_interval_seconds: float = declared(
        default=3600.0,
        type=INTERVAL,
        assumed="3600 if any retry field is set, or `intervalSeconds` if that is more",
        description="Maximum seconds between two attempts, even if the listener's Retry-After "
        "asks for more. At least intervalSeconds.",
    )
    #: Random share of the wait, 0 to 1.
    jitter: float = declared(
        default=0.0,
        name="jitterPercent",
        type=Integer(minimum=0, maximum=100),
        convert=lambda percent: percent / 100,
        assumed="0 if any retry field is set",
        description="The percentage of each interval that is random, so that many deliverers do "
        "not retry at the same moment. It only shortens the interval.",
    )
    respect_retry_after: bool = declared(
        default=True,
        assumed="`true`",
        description="Whether a listener's Retry-After lengthens the interval.",
    )


RETRY = structure(
    RetryPolicy,
    rules=(
        Rule(
            cel="!has(self.maximumIntervalSeconds) || !has(self.intervalSeconds) || "
            "self.maximumIntervalSeconds >= self.intervalSeconds",
            holds=lambda retry: (
                "maximumIntervalSeconds" not in retry
                or "intervalSeconds" not in retry
                or retry["maximumIntervalSeconds"] >= retry["intervalSeconds"]
            ),
            field="maximumIntervalSeconds",
            message="is less than intervalSeconds",
            remedy="Raise it, or remove it.",
        ),
    ),
)


@resource
class ListenerDestination:
    """After CIM_ListenerDestination, with the service's defaults."""

    name: str
    #: metadata.uid; standalone, derived from kind and name.
    uid: str
    #: May be a credential: no text about the destination shows it.
    destination: str = declared(
        repr=False,
        type=URL,
        assumed="the URL in the Secret of `destinationFrom`",
        description="The URL of the listener, with its scheme: http://host:port/path or "
        "https://host:port/path. Loopback, link-local and cloud metadata addresses "
        "are refused unless the deliverer allows them.",
    )
    url_is_secret: bool = declared(
        default=False,
        name="destinationFrom",
        type=URL_SOURCE,
        description="The source of the listener's URL, instead of destination, for a URL that is "
        "itself a credential, such as a webhook URL. No log, status, metric or "
        "answer shows it.",
    )
    protocol: str = declared(
        type=one_of(PROTOCOLS),
        description="The protocol of the listener. "
        + " ".join(f"{one.name}: {one.summary}." for one in PROTOCOLS.values()),
    )
    timeout_seconds: float = declared(
        default=30.0,
        type=Integer(minimum=1, maximum=3600),
        description="Maximum seconds for one delivery attempt, including the connection. Then "
        "the attempt fails.",
    )
    tls: TLSOptions = declared(
        default=TLSOptions(),
        type=TLS,
        description="How the deliverer verifies an https listener, and which certificate it "
        "presents.",
    )
    credentials: Credentials | None = declared(
        default=None,
        type=CREDENTIALS,
        description="The credentials that the deliverer sends, one of basic, bearer and "
        "oauth2, and what else the protocol needs.",
    )
    proxy: Proxy | None = declared(
        default=None,
        type=PROXY,
        assumed="the service's `proxy`",
        description="The HTTP proxy to the listener, for protocols over HTTP. An empty object: "
        "none, even if the service has one.",
    )
    #: None: not set; see :mod:`pillion_sidecar.config.durability`.
    retry: RetryPolicy | None = declared(
        default=None,
        type=RETRY,
        assumed="the service's retry. If the service sets no retry field either, with durability "
        "`Disk`: 30 s, doubling up to 300 s, with a jitter of 20 % and no limit of "
        "attempts; otherwise: 3 attempts 30 s apart",
        description="When a failed delivery is retried. If this or the service sets any retry "
        "field, the others have the defaults of DSP1054.",
        handler_relevant=False,
    )
    #: With the service's rules behind its own.
    response_policy: tuple[ResponseRule, ...] = declared(
        default=(),
        type=RESPONSE_POLICY,
        assumed="the service's `responsePolicy`",
        description=f"{ABOUT_RESPONSE_POLICY} Then the service's rules.",
        handler_relevant=False,
    )
    circuit_breaker: CircuitBreaker | None = declared(
        default=None,
        type=structure(CircuitBreaker),
        assumed="no circuit breaker",
        description="Stops deliveries to a listener that fails again and again.",
        handler_relevant=False,
    )
    #: None: not set; see :mod:`pillion_sidecar.config.durability`.
    queue_size: int | None = declared(
        type=common.QUEUE_SIZE,
        description=common.ABOUT_QUEUE_SIZE,
        default=None,
        assumed="the service's `queueSize`",
        handler_relevant=False,
    )
    queue_full_policy: QueueFullPolicy = declared(
        description=common.ABOUT_QUEUE_FULL_POLICY,
        default=QueueFullPolicy.ADAPTIVE,
        assumed="the service's `queueFullPolicy`",
        handler_relevant=False,
    )
    #: None: by the effective retry, or by durability; 0: no lifetime.
    indication_lifetime_seconds: float | None = declared(
        type=common.TIME,
        description=common.ABOUT_LIFETIME,
        default=None,
        assumed="the service's `indicationLifetimeSeconds`, otherwise ten times the duration of "
        "all retries; 86,400 if retries have no limit",
        handler_relevant=False,
    )
    ordering: Ordering = declared(
        default=Ordering.DESTINATION,
        description="The scope in which indications keep their order. Destination: all "
        "indications of this destination. Group: the indications of one message "
        "group. None: no order.",
        handler_relevant=False,
    )
    max_in_flight: int = declared(
        default=1,
        type=Integer(minimum=1, maximum=1000),
        description="Maximum number of concurrent deliveries. More than 1 needs ordering Group "
        "or None.",
        handler_relevant=False,
    )
    rate_limit: RateLimit | None = declared(
        default=None,
        type=RATE_LIMIT,
        assumed="no limit",
        description="Maximum rate of delivery attempts, retries included; each indication of a "
        "batch counts. What exceeds it waits in the queue, in order, and spends no attempt. Of "
        "relayed indications, the gateway limits the attempts.",
        handler_relevant=False,
    )
    sequence_identifiers: SequenceIdentifiers = declared(
        default=SequenceIdentifiers.AUTO,
        description="Whether SequenceContext and SequenceNumber are sent (DSP1054 7.10). Auto: "
        "if only one deliverer serves the listener, in order, and the URL is not "
        "from a Secret. Send: always; it needs ordering Destination, and with a "
        "second deliverer for the same URL the listener mistakes some indications "
        "for late ones. Omit: never.",
        handler_relevant=False,
    )
    deliver_through: DeliverThrough = declared(
        default=DeliverThrough.DELIVERER,
        description="Which deliverer delivers the indications that sidecars accept for this "
        "destination. Deliverer: each sidecar itself. Gateway: the gateway in "
        "gatewayRef of the sidecar's service; the sidecars relay to it. All sidecars "
        "then share one queue and one order, and an indication that two sidecars "
        "accept, for example from a repeated Spark task, is delivered once. A "
        "gateway itself delivers in both cases.",
        handler_relevant=False,
        relay_relevant=True,
    )
    suspended: bool = declared(
        default=False,
        description="Whether delivery is suspended. Indications are queued; the time counts "
        "toward neither attempts nor lifetime.",
        handler_relevant=False,
    )
    removal_policy: RemovalPolicy = declared(
        default=RemovalPolicy.DISCARD,
        description="What happens to queued indications when this resource is deleted. Discard: "
        "they are discarded and reported. Drain: they are still delivered; retry and "
        "lifetime still apply. DeadLetter: they go to the destination in deadLetterRef.",
        handler_relevant=False,
    )
    #: None: what is discarded goes nowhere else. The service's default is applied.
    dead_letter: str | None = declared(
        default=None,
        name="deadLetterRef",
        type=common.dead_letter_reference("that gets what is discarded for this one"),
        assumed="the service's `deadLetterRef`; none for a destination that gets dead letters",
        description=f"{common.ABOUT_DEAD_LETTERS} That destination needs no subscription, and has "
        "no deadLetterRef of its own.",
        handler_relevant=False,
    )
    #: The service of the gateway to relay to; None: direct delivery.
    relay_to: str | None = declared(
        default=None,
        relay_relevant=True,
    )
    #: Of the class that the protocol declares; None: it has no options.
    options: object = None
    #: Why its queue is held; None: it can be tried.
    fault: DestinationFault | None = None

    @property
    def left_to(self) -> str | None:
        """The destination that gets what is queued when this one is removed; None: none."""
        return self.dead_letter if self.removal_policy is RemovalPolicy.DEAD_LETTER else None

    @property
    def url_is_hidden(self) -> bool:
        """Whether the URL is secret or withheld. It is then never compared: the result would
        confirm a guess."""
        return self.url_is_secret or is_withheld(self.destination)

    @property
    def most_under_way(self) -> int:
        """Maximum number of deliveries that the handler has at a time: with batches, one that is
        under way and the next."""
        protocol = PROTOCOLS.get(self.protocol)
        batch = 1 if protocol is None else protocol.most_at_once
        if isinstance(self.options, BatchOptions):
            batch = self.options.max_batch
            if self.rate_limit is not None:
                # No further batch, which would follow the first one without a pause.
                return max(self.max_in_flight, min(batch, self.rate_limit.most_at_once))
        return max(self.max_in_flight, 2 * batch) if batch > 1 else self.max_in_flight

    @property
    def connection(self) -> tuple[object, ...]:
        """The values that require a new handler when they change."""
        return _RELAYED(self) if self.relay_to is not None else _DIRECT(self)


_RELAYED = attrgetter(*relevant(ListenerDestination, to_relay=True))
_DIRECT = attrgetter(*relevant(ListenerDestination))


_ORDER_RULES = (
    Rule(
        cel='self.maxInFlight == 1 || self.ordering != "Destination"',
        holds=lambda spec: spec["maxInFlight"] == 1 or spec["ordering"] != "Destination",
        field="maxInFlight",
        message="is more than 1, which would break ordering Destination",
        remedy="Set ordering to Group or None, or maxInFlight to 1.",
    ),
    Rule(
        cel='self.sequenceIdentifiers != "Send" || self.ordering == "Destination"',
        holds=lambda spec: (
            spec["sequenceIdentifiers"] != "Send" or spec["ordering"] == "Destination"
        ),
        field="sequenceIdentifiers",
        message="is Send, which needs ordering Destination",
        remedy="Set ordering to Destination, or sequenceIdentifiers to Auto or Omit.",
    ),
)

LISTENER_DESTINATION = Kind(
    name="ListenerDestination",
    plural="listenerdestinations",
    short_name="ldest",
    description="The target of deliveries, after CIM_ListenerDestination: one listener with its "
    "own queue. A failing destination does not affect the others.",
    spec_description="The listener: URL, protocol, retry and queue.",
    spec=structure(
        ListenerDestination,
        *(field for one in PROTOCOLS.values() if (field := one.options_field) is not None),
        rules=(
            *URL_SOURCE_RULES,
            *protocol_rules(PROTOCOLS.values()),
            *_ORDER_RULES,
            *SECURITY_RULES,
        ),
    ),
    status=status(
        "ListenerDestination",
        count(
            "depth",
            "Number of indications queued for this listener in all deliverers, including those "
            "to relay to a gateway.",
        ),
        count(
            "highWater",
            "Maximum depth of one deliverer's queue since that deliverer started.",
        ),
        moment(
            "oldestIndicationTime",
            "When the oldest queued indication was accepted. Absent: the queue is empty.",
        ),
        word(
            "lastResult",
            "The result of the latest attempt of any deliverer. Error: a later attempt may "
            "succeed. FatalError: no attempt can succeed. PostDeliveryError: the connection "
            "ended before the answer, so the listener may or may not have the indication.",
            "Success",
            "Error",
            "FatalError",
            "PostDeliveryError",
        ),
        word(
            "failureCause",
            "Why deliverers fail to deliver, hold or pause the destination; the cause that most "
            "of them report: refused, dns, timeout and others (see the manual, Monitoring, "
            "Causes). Absent: none does, or the cause is unknown.",
        ),
        moment(
            "failingSince",
            "Since when the first of these deliverers fails, holds or pauses it. Absent: none "
            "does.",
        ),
        moment(
            "nextAttemptTime",
            "When the next attempt is due that waits for a retry or for rateLimit. Absent: none "
            "waits.",
        ),
        moment(
            "firstLossDueTime",
            "When the first indication will be discarded, due to its lifetime, its last attempt or "
            "a full queue: at the present rates, or, if nothing is delivered, if nothing more is. "
            "The size limit of the journal does not count, and may be reached earlier. Absent: no "
            "discard is due.",
        ),
        count(
            "discarded",
            "Number of indications that the running deliverers have discarded undelivered since "
            "they started. Discards of ended pods do not count.",
        ),
        moment(
            "lastDiscardTime",
            "When a running deliverer last discarded an undelivered indication. Absent: none has.",
        ),
        count("deliverers", "Number of deliverers that report this destination to the operator."),
        count("relays", "Number of these deliverers that relay to a gateway. Absent: none."),
    ),
    columns=(
        READY,
        REASON,
        condition_column("Delivering", "Whether the listener accepts indications."),
        Column("Depth", ".status.depth", "Number of queued indications.", type="integer"),
        Column(
            "Oldest",
            ".status.oldestIndicationTime",
            "Age of the oldest queued indication.",
            type="date",
        ),
        Column("Last Result", ".status.lastResult", "Result of the last attempt."),
        Column("Cause", ".status.failureCause", "Why the listener is not reached.", priority=1),
        Column("Failing Since", ".status.failingSince", "Since when.", type="date", priority=1),
        Column(
            "Discarded",
            ".status.discarded",
            "Number of indications discarded undelivered.",
            type="integer",
        ),
        Column("Protocol", ".spec.protocol", "The protocol of the listener.", priority=1),
        Column(
            "Destination",
            ".spec.destination",
            "The URL of the listener; empty: it is in a Secret.",
            priority=1,
        ),
        condition_column(
            "RelayFailing", "Whether sidecars fail to relay to their gateway.", priority=1
        ),
        Column(
            "Next Attempt",
            ".status.nextAttemptTime",
            "When the next retry, or attempt that waits for rateLimit, is due.",
            priority=1,
        ),
        Column(
            "First Loss",
            ".status.firstLossDueTime",
            "When the first indication will be discarded.",
            priority=1,
        ),
        AGE,
    ),
)
