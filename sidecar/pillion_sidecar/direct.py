"""Direct subscriptions: one for each destination that gets what no filter selects for it, such as
dead letters and replayed indications. They have no resource, and end with their destination."""

from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.subscription import IndicationSubscription
from pillion_sidecar.indication import Target

#: Before the names and the uids of direct subscriptions: no resource has a slash in either.
PREFIX = "direct/"


def direct_name(destination: str) -> str:
    return f"{PREFIX}{destination}"


def direct_subscription(destination: ListenerDestination) -> IndicationSubscription:
    return IndicationSubscription(
        name=direct_name(destination.name),
        uid=f"{PREFIX}{destination.uid}",
        filter_name="",
        destination_name=destination.name,
    )


def direct_target(destination: str, *, relayed: bool = False) -> Target:
    return Target(direct_name(destination), "", destination, relayed=relayed, is_direct=True)


def is_direct(subscription: IndicationSubscription) -> bool:
    return subscription.uid.startswith(PREFIX)


def destination_uid(subscription_uid: str) -> str | None:
    """Return the uid of the destination of a direct subscription; None for any other."""
    return subscription_uid.removeprefix(PREFIX) if subscription_uid.startswith(PREFIX) else None
