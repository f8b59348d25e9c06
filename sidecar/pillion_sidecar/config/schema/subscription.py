"""IndicationSubscription: filter x destination, after CIM_IndicationSubscription."""

from enum import StrEnum

from pillion_sidecar.config.schema.common import (
    LONGEST_TIME,
    SERVICE_NAME_LENGTH,
    SERVICE_NAME_RULES,
    TIME,
    RemovalAction,
    immutable,
    reference,
    text_matching,
)
from pillion_sidecar.config.schema.fields import (
    Column,
    Integer,
    JSONObject,
    Kind,
    ListOf,
    Rule,
    declared,
    resource,
    structure,
)
from pillion_sidecar.config.schema.status import AGE, READY, REASON, status, word

_DURATION = Integer(minimum=1, maximum=LONGEST_TIME)


class RepeatPolicy(StrEnum):
    """RepeatNotificationPolicy."""

    NONE = "None"
    SUPPRESS = "Suppress"
    DELAY = "Delay"


class SubscriptionState(StrEnum):
    """SubscriptionState, as far as a user may set it."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


@resource
class RepeatNotification:
    """RepeatNotificationPolicy and its parameters (D.3)."""

    policy: RepeatPolicy = declared(
        default=RepeatPolicy.NONE,
        name="repeatNotificationPolicy",
        description="What happens to repeats of one event (DSP1054 RepeatNotificationPolicy). "
        "None: all are delivered. Suppress: the first repeatNotificationCount within "
        "repeatNotificationIntervalSeconds are, the rest are not. Delay: nothing is, until more "
        "than repeatNotificationCount have come within repeatNotificationIntervalSeconds; then one "
        "is, and none for repeatNotificationGapSeconds.",
    )
    interval_seconds: float = declared(
        default=0.0,
        name="repeatNotificationIntervalSeconds",
        type=_DURATION,
        json_default=None,
        description="The interval in which repeats are counted. Suppress and Delay need it.",
    )
    gap_seconds: float = declared(
        default=0.0,
        name="repeatNotificationGapSeconds",
        type=TIME,
        json_default=None,
        description="How long repeats are ignored after one was delivered. Delay needs it.",
    )
    count: int = declared(
        default=1,
        name="repeatNotificationCount",
        type=Integer(minimum=1, maximum=1_000_000),
        json_default=None,
        description="How many repeats count as few. Suppress and Delay need it.",
    )
    #: Names of the properties whose values make two indications repeats of each other; the class
    #: always counts.
    key: tuple[str, ...] = declared(
        default=("EventID", "AlertingManagedElement"),
        name="repeatKey",
        type=ListOf(
            item=text_matching(
                "[A-Za-z_][A-Za-z0-9_]*",
                max_length=256,
                message="is not the name of a CIM property",
                remedy="Use letters, digits and '_', not beginning with a digit.",
            ),
            max_items=16,
        ),
        description="The properties whose values make two indications of one class repeats of one "
        "event. Empty: the class alone does.",
    )


@resource
class IndicationSubscription:
    """Filter x destination, after CIM_IndicationSubscription."""

    name: str
    uid: str
    service: str = declared(
        default="default",
        name="serviceRef",
        type=reference(
            "IndicationService",
            max_length=SERVICE_NAME_LENGTH,
            default="default",
            rules=SERVICE_NAME_RULES,
        ),
        json_default={},
        description="The service whose deliverers serve this subscription. It cannot be changed: "
        "indications that wait in the queues of one service do not move to another.",
    )
    filter_name: str = declared(
        name="filterRef",
        type=reference("IndicationFilter"),
        description="The filter that says which indications are delivered. A change applies to "
        "indications that come after it; those in the queue are still delivered.",
    )
    destination_name: str = declared(
        name="destinationRef",
        type=reference("ListenerDestination"),
        description="The destination that they are delivered to. It cannot be changed: indications "
        "in the queue of one destination do not move to another.",
    )
    state: SubscriptionState = declared(
        default=SubscriptionState.ENABLED,
        name="subscriptionState",
        description="Whether indications are delivered for this subscription. When it becomes "
        "Disabled, its queued indications are discarded and reported.",
    )
    on_fatal_error_policy: RemovalAction = declared(
        default=RemovalAction.IGNORE,
        description="What happens to this subscription once its destination has been held or has "
        "failed for failureTriggerTimeIntervalSeconds without a success (DSP1054 "
        "OnFatalErrorPolicy). Ignore: it goes on. Disable, Remove: nothing more is delivered for "
        "it. Your resource is never changed or deleted by it.",
    )
    #: How long its destination must have been held or failing before that policy acts.
    failure_trigger_time_interval_seconds: float = declared(
        default=2_592_000.0,
        type=_DURATION,
        description="How long the destination must have been held or failing, without a success, "
        "before onFatalErrorPolicy acts (DSP1054 FailureTriggerTimeInterval).",
    )
    #: None: it never ends. Counted from ``created_at``.
    duration_seconds: float | None = declared(
        default=None,
        name="subscriptionDurationSeconds",
        type=_DURATION,
        assumed="it does not end",
        description="For how many seconds since its creation this subscription lasts (DSP1054 "
        "SubscriptionDuration).",
    )
    repeat_notification: RepeatNotification = declared(
        default=RepeatNotification(),
        inline=True,
    )
    #: metadata.creationTimestamp, seconds since the epoch; None: when it is first loaded.
    created_at: float | None = None


def _needs(field: str, *policies: str) -> Rule:
    def holds(spec: JSONObject) -> bool:
        return spec["repeatNotificationPolicy"] not in policies or field in spec

    listed = ", ".join(f'"{policy}"' for policy in policies)
    named = " or ".join(policies)
    return Rule(
        cel=f"!(self.repeatNotificationPolicy in [{listed}]) || has(self.{field})",
        holds=holds,
        field="repeatNotificationPolicy",
        message=f"is {named} without {field}",
        remedy=f"Write {field}, or set repeatNotificationPolicy to None.",
    )


_MOVES = "cannot be changed, since what is queued for this subscription would be lost"
_MOVE_REMEDY = (
    "Make a second subscription under another name, and delete this one once the depth of its "
    "destination is 0."
)

INDICATION_SUBSCRIPTION = Kind(
    name="IndicationSubscription",
    plural="indicationsubscriptions",
    short_name="indsub",
    description="A filter put together with a destination, after CIM_IndicationSubscription: every "
    "indication that the filter selects is delivered to the destination, once for this "
    "subscription.",
    spec_description="Which filter, which destination, and what happens at repeats and failures.",
    spec=structure(
        IndicationSubscription,
        rules=(
            _needs("repeatNotificationIntervalSeconds", "Suppress", "Delay"),
            _needs("repeatNotificationCount", "Suppress", "Delay"),
            _needs("repeatNotificationGapSeconds", "Delay"),
        ),
        transitions=(
            immutable("serviceRef", message=_MOVES, remedy=_MOVE_REMEDY),
            immutable("destinationRef", message=_MOVES, remedy=_MOVE_REMEDY),
        ),
    ),
    status=status(
        "IndicationSubscription",
        word(
            "subscriptionState",
            "Whether indications are delivered for it, after removal actions, fatal-error "
            "policies and its duration.",
            "Enabled",
            "Disabled",
            "Removed",
            "Expired",
        ),
    ),
    columns=(
        READY,
        REASON,
        Column("State", ".status.subscriptionState", "Whether indications are delivered for it."),
        Column("Filter", ".spec.filterRef.name", "The filter."),
        Column("Destination", ".spec.destinationRef.name", "The destination."),
        Column("Service", ".spec.serviceRef.name", "The service that serves it.", priority=1),
        AGE,
    ),
)
