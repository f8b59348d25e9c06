"""IndicationSubscription, after CIM_IndicationSubscription."""

from enum import StrEnum

from pillion_sidecar.config.schema.common import (
    LONGEST_TIME,
    TIME,
    RemovalAction,
    immutable,
    reference,
    service_reference,
)
from pillion_sidecar.config.schema.status import AGE, READY, REASON, status, word
from pillion_sidecar.fields import (
    Column,
    Integer,
    JSONObject,
    Kind,
    ListOf,
    Rule,
    declared,
    resource,
    structure,
    text_matching,
)

_DURATION = Integer(minimum=1, maximum=LONGEST_TIME)


class RepeatPolicy(StrEnum):
    NONE = "None"
    SUPPRESS = "Suppress"
    DELAY = "Delay"


class SubscriptionState(StrEnum):
    """The values that a user may set."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"


@resource
class RepeatNotification:
    """RepeatNotificationPolicy and its parameters (D.3)."""

    policy: RepeatPolicy = declared(
        default=RepeatPolicy.NONE,
        name="repeatNotificationPolicy",
        description="What happens to repeats of one event (DSP1054 RepeatNotificationPolicy). "
        "None: all are delivered. Suppress: only the first repeatNotificationCount "
        "within repeatNotificationIntervalSeconds are delivered. Delay: none is "
        "delivered until more than repeatNotificationCount arrive within "
        "repeatNotificationIntervalSeconds; then one is delivered, and none for the "
        "next repeatNotificationGapSeconds.",
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
        description="Seconds for which repeats are ignored after a delivery. Delay needs it.",
    )
    count: int = declared(
        default=1,
        name="repeatNotificationCount",
        type=Integer(minimum=1, maximum=1_000_000),
        json_default=None,
        description="The limit of repeats within the interval. Suppress and Delay need it.",
    )
    #: Properties that identify a repeat, besides the class.
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
        description="Indications of one class with equal values of these properties are repeats "
        "of one event. Empty: all indications of a class are.",
    )


@resource
class IndicationSubscription:
    name: str
    uid: str
    service: str = declared(
        default="default",
        name="serviceRef",
        type=service_reference(),
        json_default={},
        description="The service whose deliverers serve this subscription. It cannot be changed: "
        "indications queued in one service do not move to another.",
    )
    filter_name: str = declared(
        name="filterRef",
        type=reference("IndicationFilter"),
        description="The filter that selects the indications. A change applies to later "
        "indications; queued ones are still delivered.",
    )
    destination_name: str = declared(
        name="destinationRef",
        type=reference("ListenerDestination"),
        description="The destination of the indications. It cannot be changed: indications "
        "queued for one destination do not move to another.",
    )
    state: SubscriptionState = declared(
        default=SubscriptionState.ENABLED,
        name="subscriptionState",
        description="Whether indications are delivered for this subscription. When it becomes "
        "Disabled, its queued indications are discarded and reported.",
    )
    on_fatal_error_policy: RemovalAction = declared(
        default=RemovalAction.IGNORE,
        description="What happens to this subscription when its destination has been held or "
        "failing for failureTriggerTimeIntervalSeconds without a success (DSP1054 "
        "OnFatalErrorPolicy). Ignore: nothing. Disable, Remove: delivery for it "
        "ends. The resource itself is never changed or deleted.",
    )
    #: How long the destination must be held or failing before that policy acts.
    failure_trigger_time_interval_seconds: float = declared(
        default=2_592_000.0,
        type=_DURATION,
        description="Seconds for which the destination must be held or failing, without a "
        "success, before onFatalErrorPolicy applies (DSP1054 "
        "FailureTriggerTimeInterval).",
    )
    #: None: unlimited. Counted from ``created_at``.
    duration_seconds: float | None = declared(
        default=None,
        name="subscriptionDurationSeconds",
        type=_DURATION,
        assumed="it does not end",
        description="Seconds from the creation to the end of this subscription (DSP1054 "
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


_MOVES = "cannot be changed, since its queued indications would be lost"
_MOVE_REMEDY = (
    "Create a subscription with another name, and delete this one when the depth of its "
    "destination is 0."
)

INDICATION_SUBSCRIPTION = Kind(
    name="IndicationSubscription",
    plural="indicationsubscriptions",
    short_name="indsub",
    description="A filter and a destination, after CIM_IndicationSubscription: every indication "
    "that the filter selects is delivered to the destination, once for this "
    "subscription.",
    spec_description="The filter, the destination, and the policies for repeats and failures.",
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
            "The effective state, after removal actions, fatal-error policies and the duration.",
            "Enabled",
            "Disabled",
            "Removed",
            "Expired",
        ),
    ),
    columns=(
        READY,
        REASON,
        Column("State", ".status.subscriptionState", "The effective state."),
        Column("Filter", ".spec.filterRef.name", "The filter."),
        Column("Destination", ".spec.destinationRef.name", "The destination."),
        Column("Service", ".spec.serviceRef.name", "The service that serves it.", priority=1),
        AGE,
    ),
)
