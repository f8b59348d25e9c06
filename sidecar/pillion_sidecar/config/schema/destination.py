"""ListenerDestination: where indications are delivered to, after CIM_ListenerDestination."""

from pillion_sidecar.config.resources import (
    Backoff,
    DeliverThrough,
    Ordering,
    Protocol,
    RemovalPolicy,
    SequenceIdentifiers,
)
from pillion_sidecar.config.schema.common import (
    INTERVAL,
    MOST_ATTEMPTS,
    indication_lifetime,
    one_of,
    queue_full_policy,
    queue_size,
)
from pillion_sidecar.config.schema.fields import Boolean, Column, Field, Integer, Kind, Rule, Struct
from pillion_sidecar.config.schema.security import (
    CREDENTIALS,
    SECURITY_RULES,
    TLS,
    URL_SOURCE,
    URL_SOURCE_RULES,
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

_RETRY = Struct(
    fields=(
        Field(
            name="attempts",
            type=Integer(minimum=0, maximum=MOST_ATTEMPTS),
            assumed="the service's `deliveryRetryAttempts`",
            description="How often a delivery is tried again after the original attempt has "
            "failed. 0: never.",
        ),
        Field(
            name="intervalSeconds",
            type=INTERVAL,
            assumed="the service's `deliveryRetryIntervalSeconds`",
            description="How many seconds lie between a failed attempt and the next one; with "
            "backoff Exponential, between the first two.",
        ),
        Field(
            name="backoff",
            type=one_of(Backoff),
            assumed="`Fixed` where any retry field is written",
            description="How the wait grows. Fixed: not at all, as DSP1054 has it. Exponential: it "
            "doubles after each failure, up to maximumIntervalSeconds.",
        ),
        Field(
            name="maximumIntervalSeconds",
            type=INTERVAL,
            assumed="3600, or `intervalSeconds` where that is more, where any retry field is "
            "written",
            description="The most seconds between two attempts, also where the listener's "
            "Retry-After asks for more. Not less than intervalSeconds.",
        ),
        Field(
            name="jitterPercent",
            type=Integer(minimum=0, maximum=100),
            assumed="0 where any retry field is written",
            description="The share of each wait that is drawn at random, so that many deliverers "
            "do not knock at one moment. The wait only gets shorter by it.",
        ),
        Field(
            name="respectRetryAfter",
            type=Boolean(),
            assumed="`true`",
            description="Whether a listener's Retry-After lengthens the wait.",
        ),
    ),
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

_ADDRESS = (
    Field(
        name="destination",
        type=URL,
        # No default, and not required: destinationFrom may stand in its place.
        assumed="the URL in the Secret of `destinationFrom`",
        description="The URL of the listener, with its scheme: http://host:port/path or "
        "https://host:port/path. Addresses of this machine, link-local addresses and those under "
        "which clouds hand out credentials are refused unless the deliverer allows them.",
    ),
    Field(
        name="destinationFrom",
        type=URL_SOURCE,
        description="Where the URL of the listener comes from, in place of destination: a URL that "
        "is itself a credential, such as that of a webhook. No log, status, metric or answer shows "
        "such a URL.",
    ),
    Field(
        name="protocol",
        type=one_of(Protocol),
        required=True,
        description="How the listener is spoken to. CIM-XML: export messages (DSP0200). "
        "CloudEvents: one structured event per request (HTTP binding 1.0).",
    ),
    Field(
        name="timeoutSeconds",
        type=Integer(minimum=1, maximum=3600),
        default=30,
        description="How many seconds the listener has to answer one delivery, connecting "
        "included. Then the attempt has failed.",
    ),
    Field(
        name="tls",
        type=TLS,
        description="How a listener behind https is verified, and which certificate the deliverer "
        "shows to it.",
    ),
    Field(
        name="credentials",
        type=CREDENTIALS,
        description="The deliverer's own credentials: either basic or bearer.",
    ),
)

_ORDER = (
    Field(
        name="ordering",
        type=one_of(Ordering),
        default="Destination",
        description="Within what the order of indications holds. Destination: among all that go "
        "there. Group: among those of one group. None: nowhere.",
    ),
    Field(
        name="maxInFlight",
        type=Integer(minimum=1, maximum=1000),
        default=1,
        description="The most deliveries under way at once. More than 1 needs ordering Group or "
        "None.",
    ),
    Field(
        name="sequenceIdentifiers",
        type=one_of(SequenceIdentifiers),
        default="Auto",
        description="Whether SequenceContext and SequenceNumber are sent (DSP1054 7.10). Auto: "
        "where one deliverer alone serves the listener, in order, and the URL is not from a "
        "Secret. Send: always, which needs ordering Destination; a second deliverer to the same "
        "URL would make the listener take some indications for late ones. Omit: never.",
    ),
)

_LIFE = (
    Field(
        name="deliverThrough",
        type=one_of(DeliverThrough),
        default="Deliverer",
        description="Who delivers the indications that sidecars accepted for this destination. "
        "Deliverer: each sidecar by itself. Gateway: the gateway that the sidecar's service names "
        "in gatewayRef; the sidecars relay to it. Then one queue and one order hold for all "
        "sidecars, and an indication that two of them accepted, as when a Spark task was run "
        "twice, is delivered once. A gateway itself delivers either way.",
    ),
    Field(
        name="suspended",
        type=Boolean(),
        default=False,
        description="Whether deliveries wait. Indications are queued meanwhile; the time counts "
        "neither against attempts nor against lifetime.",
    ),
    Field(
        name="removalPolicy",
        type=one_of(RemovalPolicy),
        default="Discard",
        description="What becomes of queued indications when this resource is deleted. Discard: "
        "they are discarded and reported. Drain: they are still delivered, or discarded by "
        "retry and lifetime as ever.",
    ),
)

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
    spec=Struct(
        fields=(
            *_ADDRESS,
            Field(
                name="retry",
                type=_RETRY,
                assumed="the service's retry; where that writes no retry field either and "
                "durability is `Disk`: 30 s, doubling up to 300 s, with a jitter of 20 % and no "
                "limit of attempts, else 3 attempts 30 s apart",
                description="When a failed delivery is tried again. Where this or the service "
                "writes any retry field, those that neither writes have the defaults of DSP1054.",
            ),
            queue_size(assumed="the service's `queueSize`"),
            queue_full_policy(default=None, assumed="the service's `queueFullPolicy`"),
            indication_lifetime(
                assumed="the service's `indicationLifetimeSeconds`, else ten times the time that "
                "all retries take; 86,400 where their number has no limit"
            ),
            *_ORDER,
            *_LIFE,
        ),
        rules=(*URL_SOURCE_RULES, *_ORDER_RULES, *SECURITY_RULES),
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
        Column(
            name="Depth",
            type="integer",
            path=".status.depth",
            description="How many indications wait.",
        ),
        Column(
            name="Oldest",
            type="date",
            path=".status.oldestIndicationTime",
            description="How long the oldest has waited.",
        ),
        Column(
            name="Last Result",
            path=".status.lastResult",
            description="How the last attempt ended.",
        ),
        Column(
            name="Discarded",
            type="integer",
            path=".status.discarded",
            description="How many indications were discarded undelivered.",
        ),
        Column(
            name="Protocol",
            path=".spec.protocol",
            description="How the listener is spoken to.",
            priority=1,
        ),
        Column(
            name="Destination",
            path=".spec.destination",
            description="The URL of the listener; empty: it is in a Secret.",
            priority=1,
        ),
        condition_column(
            "RelayFailing", "Whether sidecars fail to relay to their gateway.", priority=1
        ),
        Column(
            name="Next Attempt",
            path=".status.nextAttemptTime",
            description="When the next attempt after a failure is due.",
            priority=1,
        ),
        Column(
            name="First Loss",
            path=".status.firstLossDueTime",
            description="When the first indication will be lost if nothing more is delivered.",
            priority=1,
        ),
        AGE,
    ),
)
