"""IndicationService, after CIM_IndicationService."""

from enum import StrEnum

from pillion_cim.schema import ClassDeclaration
from pillion_sidecar.config.schema import common
from pillion_sidecar.config.schema.common import (
    ABOUT_DEAD_LETTERS,
    INTERVAL,
    MOST_ATTEMPTS,
    SERVICE_NAME_LENGTH,
    SERVICE_NAME_RULES,
    TIME,
    QueueFullPolicy,
    RemovalAction,
    config_map_key_reference,
    dead_letter_reference,
    object_name,
    reference,
)
from pillion_sidecar.config.schema.copies import JOURNAL_COPIES, JournalCopies
from pillion_sidecar.config.schema.copies import PARTS_OF_VOLUME as PARTS_OF_COPIES
from pillion_sidecar.config.schema.deliverer import DELIVERER, DelivererSpec
from pillion_sidecar.config.schema.history import HISTORY, PARTS_OF_VOLUME, HistoryPolicy
from pillion_sidecar.config.schema.limits import RATE_LIMIT, RateLimit
from pillion_sidecar.config.schema.proxy import SERVICE_PROXY, ServiceProxy
from pillion_sidecar.config.schema.response_policy import (
    ABOUT_RESPONSE_POLICY,
    RESPONSE_POLICY,
    ResponseRule,
)
from pillion_sidecar.config.schema.status import AGE, REASON, condition_column, count, status, word
from pillion_sidecar.config.schema.stores import STORES, StoresPolicy
from pillion_sidecar.config.schema.urls import PREFIX
from pillion_sidecar.fields import (
    Column,
    Field,
    Integer,
    JSONObject,
    Kind,
    ListOf,
    Rule,
    Struct,
    Text,
    amount,
    declared,
    required,
    resource,
    structure,
    text_matching,
)

ASSUMED_ATTEMPTS = (
    "3 if this service or the destination sets any retry field, or durability is not `Disk`; "
    "otherwise no limit"
)

MOST_CALLBACKS = 100

MOST_CLASSES = 1000
MOST_MOF = 262_144
MOST_CONFIG_MAPS = 16


def _class_name() -> Text:
    return text_matching(
        "[A-Za-z_][A-Za-z0-9_]*",
        max_length=256,
        message="is not the name of a class",
        remedy="Use letters, digits and underscores, not beginning with a digit.",
    )


MOST_PUBLISHERS = 100


def _gateway(use: str) -> Struct:
    return reference(
        f"IndicationService, in mode Gateway, {use}",
        max_length=SERVICE_NAME_LENGTH,
        rules=SERVICE_NAME_RULES,
    )


class Acknowledgement(StrEnum):
    """The state of an indication at which its publish request is answered."""

    ACCEPTED = "Accepted"
    DURABLE = "Durable"
    STABLE = "Stable"
    DELIVERED = "Delivered"


class Durability(StrEnum):
    #: In the deliverer only.
    MEMORY = "Memory"
    #: State on disk, indications in memory.
    STATE_ONLY = "StateOnly"
    #: On the deliverer's own volume.
    DISK = "Disk"


_CLASS = structure(
    required("name", _class_name(), "The class, such as HP_AlertIndication."),
    Field(
        "superclass",
        _class_name(),
        "The class that it derives from, such as CIM_AlertIndication: one of the "
        "CIM schema's indications, or one declared here or by MOF.",
        assumed="none: a root class, which only a class named CIM_… may be",
    ),
    rules=(
        Rule(
            cel='has(self.superclass) || self.name.matches("^(?i:CIM_)")',
            holds=lambda one: "superclass" in one or one["name"].casefold().startswith("cim_"),
            field="superclass",
            message="is missing, and only a class of the CIM schema may have none",
            remedy="Name the class that it derives from, such as CIM_AlertIndication.",
        ),
    ),
)
_MOF = Field(
    "mof",
    Text(max_length=MOST_MOF),
    "The same as classes, in MOF class declarations, including properties, whose types and names "
    "are then checked. Methods, default values and most qualifiers are ignored; #pragma include "
    "is refused. A deliverer on a folder of files also reads its *.mof files.",
    assumed="none",
)
_MOF_FROM = Field(
    "mofFrom",
    ListOf(
        item=structure(
            required(
                "configMapRef",
                config_map_key_reference("the MOF", key="classes.mof"),
                "The ConfigMap with the text of MOF class declarations.",
            )
        ),
        max_items=MOST_CONFIG_MAPS,
        atomic=True,
    ),
    "The same as mof, from ConfigMaps. The operator adds their texts to mof, at most "
    f"{MOST_MOF:,} characters in all; a change of a ConfigMap makes a new revision. While one is "
    "missing or invalid, the condition Accepted reports it, and deliverers keep their revision. "
    "Standalone deliverers refuse this field.",
    default=[],
)


@resource
class AllowedPublisher:
    namespace: str = declared(
        type=object_name(63),
        description="The namespace of the service accounts.",
    )
    #: None: all of the namespace.
    service_account: str | None = declared(
        default=None,
        type=object_name(),
        assumed="every service account of the namespace",
        description="The name of one service account.",
    )


@resource
class IndicationService:
    name: str = "default"
    deliverer: DelivererSpec = declared(
        default=DelivererSpec(),
        type=DELIVERER,
        json_default={},
        description="How and where the deliverers of this service run in a cluster. A standalone "
        "deliverer ignores it.",
    )
    #: None: neither is written. See :mod:`pillion_sidecar.config.durability`.
    delivery_retry_attempts: int | None = declared(
        default=None,
        type=Integer(minimum=0, maximum=MOST_ATTEMPTS),
        assumed=ASSUMED_ATTEMPTS,
        description="Maximum number of retries after the original attempt (DSP1054 "
        "DeliveryRetryAttempts). 0: no retry. A destination's retry.attempts "
        "overrides it.",
    )
    delivery_retry_interval_seconds: float | None = declared(
        default=None,
        type=INTERVAL,
        assumed="30; the interval is fixed if this service or the destination sets any retry "
        "field, or durability is not `Disk`; otherwise it doubles up to 300, with a "
        "jitter of 20 %",
        description="The seconds between a failed attempt and the next one (DSP1054 "
        "DeliveryRetryInterval). A destination's retry.intervalSeconds overrides it.",
    )
    response_policy: tuple[ResponseRule, ...] = declared(
        default=(),
        type=RESPONSE_POLICY,
        # No default: earlier deliverers refuse unknown fields.
        assumed="the defaults",
        description=f"{ABOUT_RESPONSE_POLICY} A destination's own rules come before these.",
    )
    #: None: see :mod:`pillion_sidecar.config.durability`.
    queue_size: int | None = declared(
        type=common.QUEUE_SIZE,
        description=common.ABOUT_QUEUE_SIZE,
        default=None,
        assumed="1,000,000 with durability `Disk`, else 10,000",
    )
    queue_full_policy: QueueFullPolicy = declared(
        description=common.ABOUT_QUEUE_FULL_POLICY,
        default=QueueFullPolicy.ADAPTIVE,
    )
    dead_letter: str | None = declared(
        default=None,
        name="deadLetterRef",
        type=dead_letter_reference("that gets what is discarded for any other one"),
        assumed="none",
        description=f"{ABOUT_DEAD_LETTERS} A destination's own deadLetterRef overrides it.",
    )
    #: None: by the destination's effective retry (D.2), or by durability.
    indication_lifetime_seconds: float | None = declared(
        type=common.TIME,
        description=common.ABOUT_LIFETIME,
        default=None,
        assumed="ten times the duration of all retries of a destination; 86,400 if retries have "
        "no limit",
    )
    #: None: see :mod:`pillion_sidecar.config.durability`.
    duplicate_window_seconds: float | None = declared(
        default=None,
        type=TIME,
        assumed="86,400, or one hour more than the longest lifetime of an indication if that is "
        "more: 90,000 on disk",
        description="Seconds for which the identity of an accepted indication is remembered, so "
        "that a repeat is not delivered again. 0: identities are not remembered.",
    )
    duplicate_window_entries: int = declared(
        default=1_000_000,
        type=Integer(minimum=1, maximum=100_000_000),
        description="Maximum number of remembered identities. Beyond it the oldest is forgotten, "
        "and a metric counts it.",
    )
    subscription_removal_action: RemovalAction = declared(
        default=RemovalAction.IGNORE,
        description="What happens to a subscription whose listener has failed for "
        "subscriptionRemovalTimeIntervalSeconds (DSP1054 SubscriptionRemovalAction). "
        "Ignore: nothing. Disable, Remove: delivery for it ends. The resource itself "
        "is never changed or deleted.",
    )
    subscription_removal_time_interval_seconds: float = declared(
        default=2_592_000.0,
        type=TIME,
        description="Seconds for which a listener must fail continuously before "
        "subscriptionRemovalAction applies (DSP1054 SubscriptionRemovalTimeInterval).",
    )
    proxy: ServiceProxy | None = declared(
        default=None,
        type=SERVICE_PROXY,
        assumed="no proxy",
        description="The HTTP proxy to all listeners of protocols over HTTP. A destination's "
        "proxy replaces it.",
    )
    correlated_indications: bool = declared(
        default=False,
        description="Whether a redelivered indication carries its own IndicationIdentifier in "
        "CorrelatedIndications, so that the listener can recognize a repeat.",
    )
    #: None: see :mod:`pillion_sidecar.config.durability`.
    durability: Durability | None = declared(
        default=None,
        assumed="`Disk`; `Memory` for a deliverer that was started without `--journal`",
        description="Where accepted indications are kept until delivery. Disk: in a journal on "
        "the deliverer's volume; they survive a crash of the deliverer as long as "
        "the volume exists. StateOnly: in memory, with other state, such as the "
        "identities of delivered indications, on disk; when the deliverer ends, "
        "queued indications are lost and their number is reported. Memory: in memory "
        "only; when the deliverer ends, everything is lost. A change takes effect at "
        "the next start of the deliverer.",
    )
    #: None: the highest that the durability gives.
    acknowledgement: Acknowledgement | None = declared(
        default=None,
        assumed="the highest that durability allows: `Durable` on disk, otherwise `Accepted`",
        description="The state that an indication must reach before its publish request is "
        "answered, unless the request sets one. Accepted: valid, routed and queued. "
        "Durable: also on the deliverer's disk; it needs durability Disk. Delivered: "
        "every listener has it. Stable: also in enough stores; it needs stores.",
    )
    #: URL prefixes for receipts, as written.
    callbacks: tuple[str, ...] = declared(
        default=(),
        type=ListOf(item=PREFIX, max_items=MOST_CALLBACKS),
        description="URL prefixes, such as https://jobs.example.com/receipts, to which publishers "
        "may request receipts. A prefix matches whole path segments. A callback to any other URL "
        "is refused; without prefixes, publishers poll for their receipts.",
    )
    history: HistoryPolicy = declared(
        default=HistoryPolicy(),
        type=HISTORY,
        json_default={},
        description="What is kept of indications that were delivered or discarded.",
    )
    #: None: the gateway keeps none.
    journal_copies: JournalCopies | None = declared(
        default=None,
        type=JOURNAL_COPIES,
        assumed="none are kept",
        description="The gateway of this service keeps copies of other deliverers' journals on "
        "its volume, so that what they have accepted outlives their pods and volumes. Only with "
        "mode Gateway and durability Disk. A change takes effect at the next start of the "
        "gateway.",
    )
    publisher_rate_limit: RateLimit | None = declared(
        default=None,
        type=RATE_LIMIT,
        assumed="no limit",
        description="Maximum rate of accepted indications of each publisher. What exceeds it is "
        "refused for now (429 with Retry-After), and nothing is lost. At a gateway a publisher is "
        "the namespace of its token; at a sidecar it is known by the source of its indications. "
        "Indications that sidecars relay are not limited.",
    )
    shutdown_grace_period_seconds: float = declared(
        default=20.0,
        type=Integer(minimum=0, maximum=3600),
        description="Seconds for which delivery continues after the signal to stop.",
    )
    #: In addition to the CIM schema.
    classes: tuple[ClassDeclaration, ...] = declared(
        default=(),
        type=ListOf(
            item=_CLASS,
            max_items=MOST_CLASSES,
            atomic=True,
        ),
        description="Classes that are not in Pillion's CIM schema, such as vendor classes. A "
        "filter on a class also selects its declared subclasses, ISA knows them, and "
        "values of inherited properties need no type. Classes of the schema cannot "
        "be declared again.",
        more=(_MOF, _MOF_FROM),
    )
    #: gatewayRef: the service in mode Gateway to relay to; None: no relay.
    gateway: str | None = declared(
        default=None,
        name="gatewayRef",
        type=_gateway("that delivers for this one"),
        description="The gateway to which the sidecars of this service relay indications for "
        "destinations with deliverThrough Gateway. It needs one replica and "
        "durability Disk. Only with mode Sidecar.",
    )
    #: handOverTo: the service in mode Gateway that takes over an ending deliverer's rest.
    hand_over_to: str | None = declared(
        default=None,
        type=_gateway("that takes over the rest"),
        description="The gateway that takes over the undelivered indications of an ending "
        "sidecar within shutdownGracePeriodSeconds: those for failing listeners at "
        "once, the others in the second half. It needs one replica and durability "
        "Disk. Only with mode Sidecar.",
    )
    #: Who may publish to a gateway; empty: all service accounts of its namespace.
    publishers: tuple[AllowedPublisher, ...] = declared(
        default=(),
        type=ListOf(
            item=structure(AllowedPublisher),
            max_items=MOST_PUBLISHERS,
            atomic=True,
        ),
        description="The service accounts that may publish to the gateway of this service. A "
        "publisher presents a service-account token with the audience pillion. "
        "Empty: every service account of the gateway's own namespace. Relaying "
        "sidecars present the tokens of their pods, so a list must also contain "
        "their service accounts. Only with mode Gateway.",
    )
    #: Keep copies of the journal; None: it is on the deliverer's volume alone.
    stores: StoresPolicy | None = declared(
        default=None,
        type=STORES,
        assumed="none: the journal is on the deliverer's volume alone",
        description="The gateways and NATS streams that keep copies of the deliverers' journals, "
        "so that what was accepted is not lost with a volume. The services of gateways set "
        "journalCopies. It needs durability Disk. A change takes effect at the next start of the "
        "deliverer, except servers, tls and credentials of a stream, which new connections use. "
        "Only with mode Sidecar.",
    )
    #: ``deliverer.storage.sizeLimit`` in bytes; None: not set.
    storage_bytes: int | None = None


def _mode(spec: JSONObject) -> str:
    return str(spec["deliverer"]["mode"])


def _only_beside_pods(field: str) -> Rule:
    return Rule(
        cel=f'!has(self.{field}) || self.deliverer.mode == "Sidecar"',
        holds=lambda spec: field not in spec or _mode(spec) == "Sidecar",
        field=field,
        message="has no effect unless deliverer.mode is Sidecar",
        remedy="Remove it, or write it in the service of the sidecars.",
    )


def _fits_volume(spec: JSONObject) -> bool:
    history = spec["history"].get("maximumBytes")
    volume = spec["deliverer"]["storage"].get("sizeLimit")
    return history is None or volume is None or amount(history) * PARTS_OF_VOLUME <= amount(volume)


def _copies_fit_volume(spec: JSONObject) -> bool:
    copies = spec.get("journalCopies")
    volume = spec["deliverer"]["storage"].get("sizeLimit")
    if copies is None or volume is None:
        return True
    return amount(copies["maximumBytes"]) * PARTS_OF_COPIES <= amount(volume)


_RULES = (
    Rule(
        cel="!has(self.history) || !has(self.history.maximumBytes) || "
        "!has(self.deliverer.storage) || !has(self.deliverer.storage.sizeLimit) || "
        "quantity(string(self.history.maximumBytes))"
        + ".add(quantity(string(self.history.maximumBytes)))" * (PARTS_OF_VOLUME - 1)
        + ".compareTo(quantity(string(self.deliverer.storage.sizeLimit))) <= 0",
        holds=_fits_volume,
        field="history",
        message="has maximumBytes of more than a seventh of deliverer.storage.sizeLimit",
        remedy="Write less, or a larger volume.",
    ),
    Rule(
        cel="!has(self.journalCopies) || "
        "!has(self.deliverer.storage) || !has(self.deliverer.storage.sizeLimit) || "
        "quantity(string(self.journalCopies.maximumBytes))"
        + ".add(quantity(string(self.journalCopies.maximumBytes)))" * (PARTS_OF_COPIES - 1)
        + ".compareTo(quantity(string(self.deliverer.storage.sizeLimit))) <= 0",
        holds=_copies_fit_volume,
        field="journalCopies",
        message="has maximumBytes of more than half of deliverer.storage.sizeLimit",
        remedy="Write less, or a larger volume.",
    ),
    Rule(
        cel='!has(self.journalCopies) || self.deliverer.mode == "Gateway"',
        holds=lambda spec: "journalCopies" not in spec or _mode(spec) == "Gateway",
        field="journalCopies",
        message="has no effect unless deliverer.mode is Gateway: nobody reaches the stores of a "
        "sidecar",
        remedy="Remove it, or write it in a service with mode Gateway.",
    ),
    Rule(
        cel='!has(self.journalCopies) || !has(self.durability) || self.durability == "Disk"',
        holds=lambda spec: "journalCopies" not in spec or spec.get("durability", "Disk") == "Disk",
        field="journalCopies",
        message="needs a disk, while durability is not Disk",
        remedy="Set durability to Disk, or remove it.",
    ),
    _only_beside_pods("gatewayRef"),
    _only_beside_pods("handOverTo"),
    Rule(
        # The default of the whole spec is checked before it has defaults itself.
        cel="!has(self.publishers) || size(self.publishers) == 0 || "
        'self.deliverer.mode == "Gateway"',
        holds=lambda spec: not spec["publishers"] or _mode(spec) == "Gateway",
        field="publishers",
        message="has no effect unless deliverer.mode is Gateway: only its own pod reaches a "
        "sidecar",
        remedy="Remove it, or create a service with mode Gateway.",
    ),
    Rule(
        cel='!has(self.acknowledgement) || self.acknowledgement != "Durable" || '
        '!has(self.durability) || self.durability == "Disk"',
        holds=lambda spec: (
            spec.get("acknowledgement") != "Durable" or spec.get("durability", "Disk") == "Disk"
        ),
        field="acknowledgement",
        message="is Durable while durability is not Disk",
        remedy="Write Accepted or Delivered, or set durability to Disk.",
    ),
    Rule(
        cel='!has(self.acknowledgement) || self.acknowledgement != "Stable" || has(self.stores)',
        holds=lambda spec: spec.get("acknowledgement") != "Stable" or "stores" in spec,
        field="acknowledgement",
        message="is Stable without stores",
        remedy="Write Accepted, Durable or Delivered, or add stores.",
    ),
    _only_beside_pods("stores"),
    Rule(
        cel='!has(self.stores) || !has(self.durability) || self.durability == "Disk"',
        holds=lambda spec: "stores" not in spec or spec.get("durability", "Disk") == "Disk",
        field="stores",
        message="keeps copies of a journal, while durability is not Disk",
        remedy="Remove it, or set durability to Disk.",
    ),
)

INDICATION_SERVICE = Kind(
    name="IndicationService",
    plural="indicationservices",
    short_name="indsvc",
    name_length=SERVICE_NAME_LENGTH,
    name_rules=SERVICE_NAME_RULES,
    description="How the deliverers of this namespace deliver, after CIM_IndicationService: "
    "retry, queues, duplicates and durability. A subscription names its service; the "
    "default is the service named default.",
    spec_description="How to deliver. Every field has a default.",
    spec_optional=True,
    spec=structure(IndicationService, rules=_RULES),
    status=status(
        "IndicationService",
        word("revision", "The configuration revision that deliverers should be running on."),
        word(
            "durability",
            "Where deliverers keep accepted indications, as they report it; if they differ, the "
            "least safe place. Before the first report: the durability in spec.",
            *(value.value for value in Durability),
        ),
        count("destinations", "Number of destinations of this service."),
        count("subscriptions", "Number of subscriptions of this service."),
        count("deliverers", "Number of running deliverers: sidecars, or replicas of the gateway."),
        count("readyDeliverers", "Number of deliverers that report this revision."),
        word(
            "ready",
            "Deliverers on this revision out of all, such as 12/12; in mode Gateway, serving "
            "replicas out of all. Unreachable deliverers count only in the total.",
        ),
        count(
            "unreachableDeliverers",
            "Number of deliverers that did not answer the operator, for example because a "
            "NetworkPolicy blocks it. They still deliver; Ready does not wait for them.",
        ),
        count("injected", "Number of pods with a sidecar of this service."),
        count(
            "missing",
            "Number of pods that should have a sidecar of this service and have none, for "
            "example because the webhook was unreachable at their creation. The condition "
            "InjectionComplete names them.",
        ),
        count(
            "pendingSessions",
            "Number of journals of pods that are gone, which stores keep and no gateway has "
            "adopted yet. The condition SessionsPending says what they wait for.",
        ),
    ),
    columns=(
        Column(
            "Ready",
            ".status.ready",
            "Deliverers on this revision out of all; for a gateway, serving pods.",
        ),
        REASON,
        Column(
            "Mode",
            ".spec.deliverer.mode",
            "Whether its deliverers are sidecars or a gateway.",
        ),
        Column(
            "Missing",
            ".status.missing",
            "Number of pods that should have a sidecar and have none.",
            type="integer",
        ),
        Column(
            "Sessions",
            ".status.pendingSessions",
            "Number of journals of pods that are gone and not adopted yet; with stores.",
            type="integer",
        ),
        Column(
            "Destinations",
            ".status.destinations",
            "Number of destinations.",
            type="integer",
        ),
        Column(
            "Injected",
            ".status.injected",
            "Number of pods with a sidecar of it.",
            type="integer",
            priority=1,
        ),
        Column(
            "Gateway",
            ".spec.gatewayRef.name",
            "The gateway that its sidecars relay to.",
            priority=1,
        ),
        condition_column(
            "GatewayReady",
            "Whether the gateways that it names can receive relayed indications.",
            priority=1,
        ),
        Column("Revision", ".status.revision", "The configuration revision.", priority=1),
        AGE,
    ),
)
