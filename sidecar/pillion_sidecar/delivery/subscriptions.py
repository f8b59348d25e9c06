"""A subscription while it runs: the resource, and what has become of it."""

from enum import StrEnum

from pillion_sidecar.clock import Timer
from pillion_sidecar.config.resources import (
    IndicationSubscription,
    RepeatPolicy,
    SubscriptionState,
)
from pillion_sidecar.delivery.repeats import RepeatNotifications


class SubscriptionEnd(StrEnum):
    """Why a subscription is no longer active. The user's resource is never changed by it."""

    DISABLED = "Disabled"
    EXPIRED = "Expired"
    FATAL_ERROR = "FatalError"
    REMOVAL_ACTION = "RemovalAction"
    REMOVED = "Removed"


class Subscription:
    """The running form of an IndicationSubscription."""

    __slots__ = ("began_at", "cause", "end", "expiry", "index", "repeats", "resource")

    def __init__(
        self, resource: IndicationSubscription, *, began_at: float, index: int = 0
    ) -> None:
        """``began_at``: when it was first loaded, in seconds since the epoch; ``index`` is the
        journal's."""
        self.resource = resource
        self.index = index
        self.began_at = began_at
        self.end: SubscriptionEnd | None = (
            None if resource.state is SubscriptionState.ENABLED else SubscriptionEnd.DISABLED
        )
        #: What ended it while its own resource stayed as it was; None otherwise.
        self.cause: SubscriptionEnd | None = None
        policy = resource.repeat_notification
        self.repeats = None if policy.policy is RepeatPolicy.NONE else RepeatNotifications(policy)
        #: The timer of subscriptionDurationSeconds.
        self.expiry: Timer | None = None

    @property
    def active(self) -> bool:
        """Whether indications are delivered for it."""
        return self.end is None

    def delivers_to(self, destination: str) -> bool:
        """Whether indications are delivered for it, and to that destination."""
        return self.active and self.resource.destination_name == destination
