"""IndicationService: how a namespace delivers, after CIM_IndicationService."""

from enum import StrEnum

from pillion_cim.declarations import ClassDeclaration
from pillion_sidecar.config.schema import common
from pillion_sidecar.config.schema.common import (
    INTERVAL,
    MOST_ATTEMPTS,
    SERVICE_NAME_LENGTH,
    SERVICE_NAME_RULES,
    TIME,
    QueueFullPolicy,
    RemovalAction,
    config_map_key_reference,
    object_name,
    reference,
    text_matching,
)
from pillion_sidecar.config.schema.deliverer import DELIVERER, DelivererSpec
from pillion_sidecar.config.schema.fields import (
    Column,
    Field,
    Integer,
    JSONObject,
    Kind,
    ListOf,
    Rule,
    Struct,
    Text,
    declared,
    resource,
    structure,
)
from pillion_sidecar.config.schema.listener import PREFIX
from pillion_sidecar.config.schema.status import AGE, REASON, condition_column, count, status, word

#: The default of DeliveryRetryAttempts.
ASSUMED_ATTEMPTS = (
    "3 where this service or the destination writes any retry field, or durability is not `Disk`; "
    "else no limit"
)

#: The most prefixes that callbacks may have.
MOST_CALLBACKS = 100

#: The most classes that a service lists, and characters of its MOF.
MOST_CLASSES = 1000
MOST_MOF = 262_144
#: The most ConfigMaps that a service takes MOF from.
MOST_CONFIG_MAPS = 16


def _class_name() -> Text:
    return text_matching(
        "[A-Za-z_][A-Za-z0-9_]*",
        max_length=256,
        message="is not the name of a class",
        remedy="Use letters, digits and underscores, not beginning with a digit.",
    )


#: The most entries of publishers.
MOST_PUBLISHERS = 100


def _gateway(use: str) -> Struct:
    return reference(
        f"IndicationService, in mode Gateway, {use}",
        max_length=SERVICE_NAME_LENGTH,
        rules=SERVICE_NAME_RULES,
    )


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


_CLASS = structure(
    Field("name", _class_name(), "The class, such as HP_AlertIndication.", required=True),
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
    "The same, as the text of MOF class declarations: with their properties, whose "
    "types and names are then checked. Methods, default values and most qualifiers are skipped; "
    "#pragma include is refused. A deliverer on a folder of files reads *.mof files there, too.",
    assumed="none",
)
_MOF_FROM = Field(
    "mofFrom",
    ListOf(
        item=structure(
            Field(
                "configMapRef",
                config_map_key_reference("the MOF", key="classes.mof"),
                "The ConfigMap with the text of MOF class declarations.",
                required=True,
            )
        ),
        max_items=MOST_CONFIG_MAPS,
        atomic=True,
    ),
    "The same as mof, from ConfigMaps. The operator adds their texts to mof, "
    f"{MOST_MOF:,} characters in all; a change of a ConfigMap is a new revision. While one is "
    "missing or wrong, Accepted says so, and deliverers keep the revision that they have. "
    "Without a cluster it is an error.",
    default=[],
)


@resource
class AllowedPublisher:
    """Whom a gateway lets publish: service accounts of a namespace."""

    namespace: str = declared(
        type=object_name(63),
        description="The namespace of the service accounts.",
    )
    #: None: all of that namespace.
    service_account: str | None = declared(
        default=None,
        type=object_name(),
        assumed="every service account of the namespace",
        description="The name of one service account.",
    )


@resource
class IndicationService:
    """How this deliverer delivers, after CIM_IndicationService."""

    name: str = "default"
    deliverer: DelivererSpec = declared(
        default=DelivererSpec(),
        type=DELIVERER,
        json_default={},
        description="Where and as what the deliverers of this service run in a cluster. A "
        "deliverer that is started by hand on a folder of files ignores it.",
    )
    #: None: not written, both of them. See :mod:`pillion_sidecar.config.durability`.
    delivery_retry_attempts: int | None = declared(
        default=None,
        type=Integer(minimum=0, maximum=MOST_ATTEMPTS),
        assumed=ASSUMED_ATTEMPTS,
        description="How often the delivery of an indication is tried again after the original "
        "attempt has failed (DSP1054 DeliveryRetryAttempts). 0: never. A destination's "
        "retry.attempts overrides it.",
    )
    delivery_retry_interval_seconds: float | None = declared(
        default=None,
        type=INTERVAL,
        assumed="30; the wait is fixed where this service or the destination writes any retry "
        "field, or durability is not `Disk`, else it doubles up to 300, with a jitter of 20 %",
        description="The seconds between a failed attempt and the next one (DSP1054 "
        "DeliveryRetryInterval). A destination's retry.intervalSeconds overrides it.",
    )
    #: None: by durability; see :mod:`pillion_sidecar.config.durability`.
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
    #: None: by the destination's effective retry (D.2), or by durability.
    indication_lifetime_seconds: float | None = declared(
        type=common.TIME,
        description=common.ABOUT_LIFETIME,
        default=None,
        assumed="ten times the time that all retries of a destination take; 86,400 where their "
        "number has no limit",
    )
    #: None: not written. See :mod:`pillion_sidecar.config.durability`.
    duplicate_window_seconds: float | None = declared(
        default=None,
        type=TIME,
        assumed="86,400, or an hour more than the longest lifetime of an indication where that is "
        "more: 90,000 on disk",
        description="How long, in seconds, the identity of an accepted indication is remembered, "
        "so that the same one published again is not delivered again. 0: not at all.",
    )
    duplicate_window_entries: int = declared(
        default=1_000_000,
        type=Integer(minimum=1, maximum=100_000_000),
        description="The most identities that are remembered; beyond it the oldest is forgotten, "
        "which a metric counts.",
    )
    subscription_removal_action: RemovalAction = declared(
        default=RemovalAction.IGNORE,
        description="What happens to a subscription whose listener has failed for "
        "subscriptionRemovalTimeIntervalSeconds (DSP1054 SubscriptionRemovalAction). Ignore: "
        "nothing. Disable, Remove: nothing more is delivered for it. Your resource is never "
        "changed or deleted by it.",
    )
    subscription_removal_time_interval_seconds: float = declared(
        default=2_592_000.0,
        type=TIME,
        description="For how many seconds a listener must have failed without a break before "
        "subscriptionRemovalAction is taken (DSP1054 SubscriptionRemovalTimeInterval).",
    )
    correlated_indications: bool = declared(
        default=False,
        description="Whether an indication that is delivered again carries its own "
        "IndicationIdentifier in CorrelatedIndications, so that its listener can tell a repeat.",
    )
    #: None: not said. What is assumed depends on where the deliverer runs; see
    #: :mod:`pillion_sidecar.config.durability`.
    durability: Durability | None = declared(
        default=None,
        assumed="`Disk`; `Memory` for a deliverer that was started without `--journal`",
        description="Where accepted indications are kept until they are delivered. Disk: in a "
        "journal on the deliverer's volume; they outlive its end, however it comes, as long as the "
        "volume does. StateOnly: in memory, while what else has to be remembered, such as the "
        "identities of what was delivered, is on disk; the indications are lost with the "
        "deliverer, and how many were is reported. Memory: in memory alone; all is lost with the "
        "deliverer. A change is in force once the deliverer is started again.",
    )
    #: None: the highest that the durability gives.
    acknowledgement: Acknowledgement | None = declared(
        default=None,
        assumed="the highest that durability gives: `Durable` on disk, else `Accepted`",
        description="How far a publish must have come before it is answered, unless the request "
        "says. Accepted: valid, routed and queued. Durable: on the deliverer's disk as well; it "
        "needs durability Disk. Delivered: every listener has it. Stable needs stores outside the "
        "pod, which this version does not have.",
    )
    #: Where publishers may have receipts sent: URLs that others lie below, as they were written.
    callbacks: tuple[str, ...] = declared(
        default=(),
        type=ListOf(item=PREFIX, max_items=MOST_CALLBACKS),
        description="URL prefixes, such as https://jobs.example.com/receipts, to which publishers "
        "may request receipts. A prefix matches whole path segments. A callback to any other URL "
        "is refused; without prefixes, publishers poll for their receipts.",
    )
    shutdown_grace_period_seconds: float = declared(
        default=20.0,
        type=Integer(minimum=0, maximum=3600),
        description="For how many seconds delivery goes on after the deliverer was told to stop.",
    )
    #: The classes that it declares beside those of the CIM schema.
    classes: tuple[ClassDeclaration, ...] = declared(
        default=(),
        type=ListOf(
            item=_CLASS,
            max_items=MOST_CLASSES,
            atomic=True,
        ),
        description="Classes that are not in Pillion's CIM schema, such as those of vendors' "
        "providers. A filter on a class selects the classes declared below it, ISA knows them, and "
        "the values of inherited properties need no type. Classes of the schema cannot be declared "
        "again.",
        more=(_MOF, _MOF_FROM),
    )
    #: gatewayRef: the service in mode Gateway that delivers for this one; None: nobody does.
    gateway: str | None = declared(
        default=None,
        name="gatewayRef",
        type=_gateway("that delivers for this one"),
        description="The gateway that the sidecars of this service relay to what goes to "
        "destinations with deliverThrough Gateway. It needs one replica and durability Disk. Only "
        "with mode Sidecar.",
    )
    #: handOverTo: the service in mode Gateway that takes what is left when a deliverer ends.
    hand_over_to: str | None = declared(
        default=None,
        type=_gateway("that takes what is left"),
        description="The gateway that takes what a sidecar of this service could not deliver "
        "before its pod ended: within shutdownGracePeriodSeconds, from listeners that fail at "
        "once, from the others in its second half. It needs one replica and durability Disk. Only "
        "with mode Sidecar.",
    )
    #: Who may publish to a gateway; empty: every service account of its own namespace.
    publishers: tuple[AllowedPublisher, ...] = declared(
        default=(),
        type=ListOf(
            item=structure(AllowedPublisher),
            max_items=MOST_PUBLISHERS,
            atomic=True,
        ),
        description="Who may publish to the gateway of this service, by the service-account token "
        "(audience pillion) that a publisher shows. Without any: every service account of the "
        "gateway's own namespace. Sidecars that relay show the tokens of their pods, so a list "
        "that is to serve them names theirs too. Only with mode Gateway.",
    )
    #: Bytes that the deliverer's volume holds, ``deliverer.storage.sizeLimit`` as a number; None:
    #: not said.
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


_RULES = (
    _only_beside_pods("gatewayRef"),
    _only_beside_pods("handOverTo"),
    Rule(
        # The default of the whole spec is judged before it has defaults itself.
        cel="!has(self.publishers) || size(self.publishers) == 0 || "
        'self.deliverer.mode == "Gateway"',
        holds=lambda spec: not spec["publishers"] or _mode(spec) == "Gateway",
        field="publishers",
        message="has no effect unless deliverer.mode is Gateway: a sidecar is reached from its own "
        "pod alone",
        remedy="Remove it, or make a service with mode Gateway.",
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
        cel='!has(self.acknowledgement) || self.acknowledgement != "Stable"',
        holds=lambda spec: spec.get("acknowledgement") != "Stable",
        field="acknowledgement",
        message="is Stable, which needs stores outside the pod that this version does not have",
        remedy="Write Accepted, Durable or Delivered.",
    ),
)

INDICATION_SERVICE = Kind(
    name="IndicationService",
    plural="indicationservices",
    short_name="indsvc",
    name_length=SERVICE_NAME_LENGTH,
    name_rules=SERVICE_NAME_RULES,
    description="How the deliverers of this namespace deliver, after CIM_IndicationService: retry, "
    "queues, duplicates, and how safe an indication is once it was accepted. Subscriptions name "
    "the service that serves them; the one named default serves the rest.",
    spec_description="How to deliver. Every field has a default.",
    spec_optional=True,
    spec=structure(IndicationService, rules=_RULES),
    status=status(
        "IndicationService",
        word("revision", "The configuration revision that deliverers should be running on."),
        word(
            "durability",
            "Where deliverers keep accepted indications, as they report it; the least safe place "
            "where they differ. Before the first report: the durability that spec asks for.",
            *(value.value for value in Durability),
        ),
        count("destinations", "How many destinations this service delivers to."),
        count("subscriptions", "How many subscriptions this service serves."),
        count("deliverers", "How many deliverers run: sidecars, or replicas of the gateway."),
        count("readyDeliverers", "How many of them have said that they run on this revision."),
        word(
            "ready",
            "How many deliverers run on this revision, of all, such as 12/12; in mode Gateway, how "
            "many of the replicas serve. Those in unreachableDeliverers are not among the former.",
        ),
        count(
            "unreachableDeliverers",
            "How many of them did not answer the operator, as where a NetworkPolicy keeps it out. "
            "They deliver all the same; Ready does not wait for them.",
        ),
        count("injected", "How many pods have a sidecar of this service."),
        count(
            "missing",
            "How many pods should have a sidecar of this service and have none, as where they "
            "were made while the webhook could not be asked. The condition InjectionComplete "
            "names them.",
        ),
    ),
    columns=(
        Column(
            "Ready",
            ".status.ready",
            "How many deliverers run on this revision, of all; of a gateway, how many pods serve.",
        ),
        REASON,
        Column(
            "Mode",
            ".spec.deliverer.mode",
            "Whether its deliverers run beside the publishers or on their own.",
        ),
        Column(
            "Missing",
            ".status.missing",
            "How many pods should have a sidecar and have none.",
            type="integer",
        ),
        Column(
            "Destinations",
            ".status.destinations",
            "How many destinations it delivers to.",
            type="integer",
        ),
        Column(
            "Injected",
            ".status.injected",
            "How many pods have a sidecar of it.",
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
            "GatewayReady", "Whether the gateways that it names can be relayed to.", priority=1
        ),
        Column("Revision", ".status.revision", "The configuration revision.", priority=1),
        AGE,
    ),
)
