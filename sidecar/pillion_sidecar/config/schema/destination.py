"""ListenerDestination: where indications are delivered to, after CIM_ListenerDestination."""

from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

from pillion_sidecar.config.schema import common
from pillion_sidecar.config.schema.common import INTERVAL, MOST_ATTEMPTS, QueueFullPolicy
from pillion_sidecar.config.schema.fields import (
    Column,
    Integer,
    Kind,
    Rule,
    Text,
    declared,
    relevant,
    resource,
    structure,
)
from pillion_sidecar.config.schema.listener import (
    CREDENTIALS,
    SECURITY_RULES,
    TLS,
    URL,
    URL_SOURCE,
    URL_SOURCE_RULES,
    Credentials,
    TLSOptions,
    protocol_rules,
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
from pillion_sidecar.protocols import PROTOCOLS


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


class DeliverThrough(StrEnum):
    """Who delivers to a destination what sidecars have accepted."""

    #: The deliverer that accepted it.
    DELIVERER = "Deliverer"
    #: The gateway that the sidecar's service names in gatewayRef.
    GATEWAY = "Gateway"


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


@resource
class RetryPolicy:
    """The retry of one destination, all overrides applied. The defaults are DSP1054's."""

    #: Attempts after the original one; 0 = no retry (S0.7), None = no limit.
    attempts: int | None = declared(
        default=3,
        type=Integer(minimum=0, maximum=MOST_ATTEMPTS),
        assumed="the service's `deliveryRetryAttempts`",
        description="How often a delivery is tried again after the original attempt has failed. 0: "
        "never.",
    )
    interval_seconds: float = declared(
        default=30.0,
        type=INTERVAL,
        assumed="the service's `deliveryRetryIntervalSeconds`",
        description="How many seconds lie between a failed attempt and the next one; with backoff "
        "Exponential, between the first two.",
    )
    backoff: Backoff = declared(
        default=Backoff.FIXED,
        assumed="`Fixed` where any retry field is written",
        description="How the wait grows. Fixed: not at all, as DSP1054 has it. Exponential: it "
        "doubles after each failure, up to maximumIntervalSeconds.",
    )
    maximum_interval_seconds: float = declared(
        default=3600.0,
        type=INTERVAL,
        assumed="3600, or `intervalSeconds` where that is more, where any retry field is written",
        description="The most seconds between two attempts, also where the listener's Retry-After "
        "asks for more. Not less than intervalSeconds.",
    )
    #: The share of the wait that is drawn at random, 0 to 1.
    jitter: float = declared(
        default=0.0,
        name="jitterPercent",
        type=Integer(minimum=0, maximum=100),
        convert=lambda percent: percent / 100,
        assumed="0 where any retry field is written",
        description="The share of each wait that is drawn at random, so that many deliverers do "
        "not knock at one moment. The wait only gets shorter by it.",
    )
    respect_retry_after: bool = declared(
        default=True,
        assumed="`true`",
        description="Whether a listener's Retry-After lengthens the wait.",
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
            remedy="Raise it, or leave it out.",
        ),
    ),
)


@resource
class ListenerDestination:
    """Where to, after CIM_ListenerDestination; the service's defaults are already applied."""

    name: str
    #: metadata.uid, or, standalone, one derived from kind and name.
    uid: str
    #: The URL, with a scheme. It may be a credential, so no text about the destination shows it.
    destination: str = declared(
        repr=False,
        type=URL,
        assumed="the URL in the Secret of `destinationFrom`",
        description="The URL of the listener, with its scheme: http://host:port/path or "
        "https://host:port/path. Addresses of this machine, link-local addresses and those under "
        "which clouds hand out credentials are refused unless the deliverer allows them.",
    )
    #: Whether the URL comes from a Secret, so that no part of it may be shown.
    url_is_secret: bool = declared(
        default=False,
        name="destinationFrom",
        type=URL_SOURCE,
        description="Where the URL of the listener comes from, in place of destination: a URL that "
        "is itself a credential, such as that of a webhook. No log, status, metric or answer shows "
        "such a URL.",
    )
    protocol: str = declared(
        type=Text(values=tuple(PROTOCOLS), max_length=max(map(len, PROTOCOLS))),
        description="How the listener is spoken to. "
        + " ".join(f"{one.name}: {one.summary}." for one in PROTOCOLS.values()),
    )
    timeout_seconds: float = declared(
        default=30.0,
        type=Integer(minimum=1, maximum=3600),
        description="How many seconds the listener has to answer one delivery, connecting "
        "included. Then the attempt has failed.",
    )
    tls: TLSOptions = declared(
        default=TLSOptions(),
        type=TLS,
        description="How a listener behind https is verified, and which certificate the deliverer "
        "shows to it.",
    )
    credentials: Credentials | None = declared(
        default=None,
        type=CREDENTIALS,
        description="The deliverer's own credentials: either basic or bearer.",
    )
    #: None: neither the destination nor its service writes any retry field; by durability, see
    #: :mod:`pillion_sidecar.config.durability`.
    retry: RetryPolicy | None = declared(
        default=None,
        type=RETRY,
        assumed="the service's retry; where that writes no retry field either and durability is "
        "`Disk`: 30 s, doubling up to 300 s, with a jitter of 20 % and no limit of attempts, else "
        "3 attempts 30 s apart",
        description="When a failed delivery is tried again. Where this or the service writes any "
        "retry field, those that neither writes have the defaults of DSP1054.",
        handler_relevant=False,
    )
    #: None: neither the destination nor its service says; by durability, see
    #: :mod:`pillion_sidecar.config.durability`.
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
        assumed="the service's `indicationLifetimeSeconds`, else ten times the time that all "
        "retries take; 86,400 where their number has no limit",
        handler_relevant=False,
    )
    ordering: Ordering = declared(
        default=Ordering.DESTINATION,
        description="Within what the order of indications holds. Destination: among all that go "
        "there. Group: among those of one group. None: nowhere.",
        handler_relevant=False,
    )
    max_in_flight: int = declared(
        default=1,
        type=Integer(minimum=1, maximum=1000),
        description="The most deliveries under way at once. More than 1 needs ordering Group or "
        "None.",
        handler_relevant=False,
    )
    sequence_identifiers: SequenceIdentifiers = declared(
        default=SequenceIdentifiers.AUTO,
        description="Whether SequenceContext and SequenceNumber are sent (DSP1054 7.10). Auto: "
        "where one deliverer alone serves the listener, in order, and the URL is not from a "
        "Secret. Send: always, which needs ordering Destination; a second deliverer to the same "
        "URL would make the listener take some indications for late ones. Omit: never.",
        handler_relevant=False,
    )
    deliver_through: DeliverThrough = declared(
        default=DeliverThrough.DELIVERER,
        description="Who delivers the indications that sidecars accepted for this destination. "
        "Deliverer: each sidecar by itself. Gateway: the gateway that the sidecar's service names "
        "in gatewayRef; the sidecars relay to it. Then one queue and one order hold for all "
        "sidecars, and an indication that two of them accepted, as when a Spark task was run "
        "twice, is delivered once. A gateway itself delivers either way.",
        handler_relevant=False,
        relay_relevant=True,
    )
    suspended: bool = declared(
        default=False,
        description="Whether deliveries wait. Indications are queued meanwhile; the time counts "
        "neither against attempts nor against lifetime.",
        handler_relevant=False,
    )
    removal_policy: RemovalPolicy = declared(
        default=RemovalPolicy.DISCARD,
        description="What becomes of queued indications when this resource is deleted. Discard: "
        "they are discarded and reported. Drain: they are still delivered, or discarded by retry "
        "and lifetime as ever.",
        handler_relevant=False,
    )
    #: The service whose gateway this deliverer relays to; None: it delivers by itself.
    relay_to: str | None = declared(
        default=None,
        relay_relevant=True,
    )
    #: Why nothing can be sent to it, so that its queue is held; None: it can be tried.
    fault: DestinationFault | None = None

    @property
    def url_is_hidden(self) -> bool:
        """Whether the URL comes from a Secret, or is withheld: it is compared with no other, since
        the answer would confirm a guess of it."""
        return self.url_is_secret or self.destination == WITHHELD_URL

    @property
    def connection(self) -> tuple[object, ...]:
        """What its handler is made from: where any of it differs, another handler is needed."""
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
        message="is Send, but numbers mean nothing without ordering Destination",
        remedy="Set ordering to Destination, or sequenceIdentifiers to Auto or Omit.",
    ),
)

LISTENER_DESTINATION = Kind(
    name="ListenerDestination",
    plural="listenerdestinations",
    short_name="ldest",
    description="Where indications are delivered to, after CIM_ListenerDestination: one listener, "
    "with a queue of its own. What one destination does, however badly, costs no other anything.",
    spec_description="The listener: its URL, how it is spoken to, and how patiently.",
    spec=structure(
        ListenerDestination,
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
            "How many indications wait for this listener, over all deliverers, those to be relayed "
            "to a gateway included.",
        ),
        count(
            "highWater",
            "The most that have waited in the queue of one deliverer since it was started.",
        ),
        moment(
            "oldestIndicationTime",
            "When the oldest of the waiting indications was accepted. Absent: none waits.",
        ),
        word(
            "lastResult",
            "How the latest attempt of any deliverer ended. Error: a later attempt may mend it. "
            "FatalError: none can. PostDeliveryError: the connection ended before the answer, so "
            "the listener may have it or not.",
            "Success",
            "Error",
            "FatalError",
            "PostDeliveryError",
        ),
        moment(
            "nextAttemptTime",
            "When the next attempt after a failure is due. Absent: no deliverer waits for one.",
        ),
        moment(
            "firstLossDueTime",
            "When the first indication will be discarded if nothing more is delivered: by its "
            "lifetime, its last attempt, or a full queue. The journal's byte bound is not "
            "counted, and may be reached sooner. Absent: none is due.",
        ),
        count(
            "discarded",
            "How many indications deliverers have discarded undelivered, each since it was "
            "started. Those of pods that ended are not among them.",
        ),
        moment(
            "lastDiscardTime",
            "When a deliverer last discarded an indication undelivered, since it was started. "
            "Absent: none has.",
        ),
        count("deliverers", "How many deliverers told the operator about this destination."),
        count("relays", "How many of them leave delivery to a gateway. Absent: none does."),
    ),
    columns=(
        READY,
        REASON,
        condition_column("Delivering", "Whether the listener takes indications."),
        Column("Depth", ".status.depth", "How many indications wait.", type="integer"),
        Column(
            "Oldest", ".status.oldestIndicationTime", "How long the oldest has waited.", type="date"
        ),
        Column("Last Result", ".status.lastResult", "How the last attempt ended."),
        Column(
            "Discarded",
            ".status.discarded",
            "How many indications were discarded undelivered.",
            type="integer",
        ),
        Column("Protocol", ".spec.protocol", "How the listener is spoken to.", priority=1),
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
            "When the next attempt after a failure is due.",
            priority=1,
        ),
        Column(
            "First Loss",
            ".status.firstLossDueTime",
            "When the first indication will be lost if nothing more is delivered.",
            priority=1,
        ),
        AGE,
    ),
)
