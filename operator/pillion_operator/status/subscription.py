"""The state of an IndicationSubscription (DSP1054 SubscriptionState). Pure. A removal action, a
fatal error or the end of its duration changes ``status.subscriptionState`` only, never the user's
spec. What is not Enabled is not rendered."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pillion_operator.cluster.types import Object, being_deleted
from pillion_operator.status.conditions import find_condition, seconds_of
from pillion_operator.store import identity_of
from pillion_sidecar.wire.queues import SubscriptionEnd


class State(StrEnum):
    ENABLED = "Enabled"
    DISABLED = "Disabled"
    REMOVED = "Removed"
    EXPIRED = "Expired"


FATAL_ERROR = "FatalError"
LISTENER_FAILING = "ListenerFailing"
_ENDED_EARLIER = "EndedEarlier"
_ACTIONS = {"Disable": State.DISABLED, "Remove": State.REMOVED}
_AGAIN = "It stays ended until its spec is changed."


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalRule:
    """The service's action on subscriptions of a failing listener."""

    #: ``subscriptionRemovalAction``: Ignore, Disable or Remove.
    action: str = "Ignore"
    #: ``subscriptionRemovalTimeIntervalSeconds``.
    interval: float = 2_592_000.0
    #: Since when the destination has failed continuously, in seconds since the epoch.
    failing_since: float | None = None
    #: When a change of its spec restarted the ended subscription: its listener gets the whole
    #: interval again. None: never.
    begun_anew: float | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionVerdict:
    state: State
    #: For a condition in the status, from which a later verdict takes them.
    reason: str
    message: str
    #: Seconds until time alone changes the state; None: it does not.
    due_again: float | None = None


def judge_subscription(
    subscription: Object, *, removal: RemovalRule, ended: Iterable[SubscriptionEnd] = (), now: float
) -> SubscriptionVerdict:
    """``now`` is in seconds since the epoch. ``ended`` has the reports of deliverers with the
    current configuration: an older one may still report what the user has just fixed."""
    spec: Mapping[str, Any] = subscription.get("spec") or {}
    if being_deleted(subscription):
        return SubscriptionVerdict(State.REMOVED, "Deleted", "It is being deleted.")
    identity = identity_of(subscription)
    remaining = _remaining(spec, identity, now)
    if remaining is not None and remaining <= 0:
        seconds = spec["subscriptionDurationSeconds"]
        return SubscriptionVerdict(
            State.EXPIRED,
            "Expired",
            f"Its subscriptionDurationSeconds ({seconds}) have passed. "
            "Raise or remove this field to resume delivery.",
        )
    if spec.get("subscriptionState") == "Disabled":
        message = "spec.subscriptionState is Disabled. Set it to Enabled to resume delivery."
        return SubscriptionVerdict(State.DISABLED, "Disabled", message, remaining)
    stopped = _ended_before(subscription) or _fatal(subscription, ended)
    if stopped is not None:
        return SubscriptionVerdict(*stopped, remaining)
    return _by_removal(removal, remaining=remaining, now=now)


def _by_removal(
    removal: RemovalRule, *, remaining: float | None, now: float
) -> SubscriptionVerdict:
    action = _ACTIONS.get(removal.action)
    dues = [] if remaining is None else [remaining]
    if action is not None and removal.failing_since is not None:
        since = max(removal.failing_since, removal.begun_anew or removal.failing_since)
        wait = since + removal.interval - now
        if wait <= 0:
            message = (
                "Its listener has failed for subscriptionRemovalTimeIntervalSeconds "
                f"({removal.interval:g}); subscriptionRemovalAction is {removal.action}. {_AGAIN}"
            )
            return SubscriptionVerdict(action, LISTENER_FAILING, message, remaining)
        dues.append(wait)
    message = "It is enabled, and its indications are delivered."
    return SubscriptionVerdict(State.ENABLED, "Enabled", message, min(dues, default=None))


def _remaining(spec: Mapping[str, Any], identity: Mapping[str, Any], now: float) -> float | None:
    """The seconds left of its duration; None without one."""
    duration = spec.get("subscriptionDurationSeconds")
    created = seconds_of(identity.get("creationTimestamp"))
    if duration is None or created is None:
        return None
    return created + float(duration) - now


def begins_anew(subscription: Object) -> bool:
    """Whether its status has an end, and the user has changed the spec since, by the generation of
    the condition Accepted: it is written together with subscriptionState."""
    status: Mapping[str, Any] = subscription.get("status") or {}
    if status.get("subscriptionState") not in (State.DISABLED, State.REMOVED):
        return False
    accepted = find_condition(status.get("conditions"), "Accepted")
    generation = subscription["metadata"].get("generation")
    return accepted is None or accepted.get("observedGeneration") != generation


def _ended_before(subscription: Object) -> tuple[State, str, str] | None:
    """The end in its status, unless the user has changed the spec since."""
    status: Mapping[str, Any] = subscription.get("status") or {}
    ended = status.get("subscriptionState") in (State.DISABLED, State.REMOVED)
    if not ended or begins_anew(subscription):
        return None
    state = State(status["subscriptionState"])
    for condition in status.get("conditions") or ():
        if condition.get("reason") in (FATAL_ERROR, LISTENER_FAILING):
            return state, str(condition["reason"]), str(condition.get("message") or _AGAIN)
    return state, _ENDED_EARLIER, f"It ended earlier. {_AGAIN}"


def _fatal(subscription: Object, ended: Iterable[SubscriptionEnd]) -> tuple[State, str, str] | None:
    policy = (subscription.get("spec") or {}).get("onFatalErrorPolicy", "Ignore")
    action = _ACTIONS.get(policy)
    if action is None:
        return None
    for one in ended:
        same = one.uid in (None, "", identity_of(subscription).get("uid"))
        if same and one.name == subscription["metadata"]["name"] and one.reason == FATAL_ERROR:
            message = (
                "Its destination has been held or failing for failureTriggerTimeIntervalSeconds, "
                f"and onFatalErrorPolicy is {policy}. {_AGAIN}"
            )
            return action, FATAL_ERROR, message
    return None
