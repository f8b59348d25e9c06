"""Conditions and fields of a ListenerDestination's delivery. Pure. Conditions describe the
deliverers that answered; messages mention the others. Only the message of Draining changes with
every indication."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pillion_operator.cluster.types import Object
from pillion_operator.polling.aggregate import DestinationDelivery
from pillion_operator.status.conditions import Condition, find_condition, rfc3339, seconds_of
from pillion_operator.status.relaying import relay_condition, ways
from pillion_sidecar.wire.queues import LARGEST_COUNT

#: Minimum age of a backlog in seconds, and in retry intervals.
LEAST_AGE = 60.0
INTERVALS = 2.0
#: Fill levels of a queue at which a backlog begins, and ends.
FULL = 0.8
FULL_NO_MORE = 0.6
#: The share of the age below which a backlog ends.
OLD_NO_MORE = 0.5

_QUEUE = "QueueNearlyFull"
_SLOW = "FallingBehind"
_AGE = "OldIndications"

SUSPENDED = "Suspended"
#: Why deliverers have it suspended though its user has not, and the remedy.
_HELD = {
    "CredentialsMissing": "A Secret of this destination is missing or wrong: see Accepted. "
    "Indications are queued, and delivered when the Secret is correct.",
    "OlderDeliverers": "A deliverer of an older version does not know destinationFrom. "
    "Indications are queued, and delivered when you have recreated the pods that the condition "
    "OlderDeliverers of the service names.",
    "InternalError": "The operator fails on this destination: see Accepted. Indications are "
    "queued, and delivered when the defect is repaired.",
    "GatewayMissing": "It has deliverThrough Gateway, and a service that delivers to it has no "
    "gatewayRef. Indications are queued in the sidecars, and relayed when gatewayRef is set.",
}
#: Deliverers find a problem of the destination itself.
HELD = "Held"
#: Deliverers try only the oldest indication, now and then.
PAUSED = "Paused"
NO_DELIVERERS = "NoDeliverers"
UNREACHABLE = "DeliverersUnreachable"
NOTHING_SENT = "NothingSent"
_NO_ATTEMPT = "No deliverer has made an attempt yet."


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationFacts:
    suspended: bool
    #: Why deliverers have it suspended, if a Secret or a gateway is missing.
    held: str | None = None
    #: The effective retry interval in seconds; the longest of several services'.
    retry_interval: float
    #: Whether it is being deleted with removalPolicy Drain.
    draining: bool = False
    #: Whether every reachable deliverer runs without it (read only while draining).
    removed_everywhere: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryVerdict:
    conditions: tuple[Condition, ...]
    #: Besides ``conditions`` and ``observedGeneration``; unknown ones are left out.
    fields: Mapping[str, Any]
    #: Seconds until time alone changes a condition; None: it does not.
    due_again: float | None
    #: Whether everything is drained, as far as deliverers answered.
    drained: bool


def judge_delivery(
    delivery: DestinationDelivery,
    facts: DestinationFacts,
    *,
    live_conditions: Iterable[Mapping[str, Any]] | None,
    now: float,
) -> DeliveryVerdict:
    """``now`` is in seconds since the epoch; the live conditions provide hysteresis."""
    backlogged, due_again = _backlogged(
        delivery, facts, live=find_condition(live_conditions, "Backlogged"), now=now
    )
    conditions = [_delivering(delivery, facts), backlogged, _unreachable(delivery, facts)]
    relaying = relay_condition(delivery)
    if relaying is not None:
        conditions.append(relaying)
    drained = facts.draining and facts.removed_everywhere and not delivery.deliverers
    if facts.draining:
        conditions.append(_draining(delivery, drained=drained))
    return DeliveryVerdict(
        conditions=tuple(conditions), fields=_fields(delivery), due_again=due_again, drained=drained
    )


def failing_since(destination: Object | None) -> float | None:
    """Since when the listener has failed everywhere (seconds since the epoch), by the live
    conditions' transition, which outlasts the operator."""
    status = (destination or {}).get("status") or {}
    condition = find_condition(status.get("conditions"), "ListenerUnreachable")
    if condition is None or condition.get("status") != "True":
        return None
    return seconds_of(condition.get("lastTransitionTime"))


def _nothing_known(delivery: DestinationDelivery) -> tuple[str, str] | None:
    """Reason and message if no deliverer reports the destination."""
    if delivery.deliverers:
        return None
    if delivery.unreachable:
        return UNREACHABLE, "The operator cannot reach any deliverer that serves it."
    return NO_DELIVERERS, "No deliverer serves it: no subscription or no pod uses it."


def _delivering(delivery: DestinationDelivery, facts: DestinationFacts) -> Condition:
    kind, silent = "Delivering", _silent(delivery)
    if facts.suspended:
        message = "spec.suspended is true: indications are queued. Set it to false to deliver them."
        return Condition(kind, "False", SUSPENDED, message)
    if facts.held is not None:
        return Condition(kind, "False", facts.held, _HELD[facts.held])
    unknown = _nothing_known(delivery)
    if unknown is not None:
        return Condition(kind, "Unknown", *unknown)
    if delivery.held:
        return Condition(kind, "False", HELD, _held_message(delivery))
    if delivery.paused:
        how_many = "Some deliverers have" if delivery.delivering else "Every deliverer has"
        message = (
            f"{how_many} paused it: {ways(delivery.pauses)}. They try only the oldest indication, "
            f"now and then, and resume when the listener accepts it. Lifetimes go on.{silent}"
        )
        return Condition(kind, "False", PAUSED, message)
    if delivery.failing:
        how_many = "some deliverers" if delivery.delivering else "every deliverer"
        how = ways(delivery.details)
        message = f"The last attempts of {how_many} failed: {how}. They are repeated.{silent}"
        return Condition(kind, "False", "ListenerFailing", message)
    if not delivery.delivering:
        return Condition(kind, "Unknown", NOTHING_SENT, _NO_ATTEMPT)
    message = f"The last attempt of every deliverer that has made one succeeded.{silent}"
    return Condition(kind, "True", "ListenerAnswers", message)


def _unreachable(delivery: DestinationDelivery, facts: DestinationFacts) -> Condition:
    kind = "ListenerUnreachable"
    if facts.suspended:
        # Not True: the listener is not to blame while nobody tries.
        return Condition(kind, "Unknown", SUSPENDED, "Nothing is sent while it is suspended.")
    if facts.held is not None:
        return Condition(kind, "Unknown", facts.held, _HELD[facts.held])
    unknown = _nothing_known(delivery)
    if unknown is not None:
        return Condition(kind, "Unknown", *unknown)
    if delivery.failing and not delivery.delivering:
        message = (
            f"No deliverer can deliver: {ways(delivery.details)}. Check the listener, its URL, "
            f"and the network.{_silent(delivery)}"
        )
        return Condition(kind, "True", "AttemptsFail", message)
    if delivery.held and not delivery.delivering:
        return Condition(kind, "Unknown", HELD, _held_message(delivery))
    if delivery.delivering:
        message = "The last attempt of at least one deliverer succeeded." + _silent(delivery)
        return Condition(kind, "False", "ListenerAnswers", message)
    return Condition(kind, "Unknown", NOTHING_SENT, _NO_ATTEMPT)


def _held_message(delivery: DestinationDelivery) -> str:
    how_many = "Every deliverer holds" if not delivery.delivering else "Some deliverers hold"
    return (
        f"{how_many} its indications: {ways(delivery.holds)}. They are delivered when this "
        "fault is corrected, and none is discarded until the queue is full." + _silent(delivery)
    )


def _silent(delivery: DestinationDelivery) -> str:
    # No number, which changes with every executor: the service's status has it.
    return " The operator cannot reach some deliverers." if delivery.unreachable else ""


def _draining(delivery: DestinationDelivery, *, drained: bool) -> Condition:
    kind = "Draining"
    missing = " Unreachable deliverers may hold more." if delivery.unreachable else ""
    if drained:
        return Condition(kind, "False", "Drained", f"No indication is left.{missing}")
    if delivery.deliverers:
        message = (
            f"{delivery.depth} indication(s) are left at {delivery.deliverers} deliverer(s); "
            f"they are delivered, or discarded by retry and lifetime.{missing}"
        )
        return Condition(kind, "True", "Draining", message)
    message = f"Some deliverers have not loaded the removal yet.{missing}"
    return Condition(kind, "True", "RollingOut", message)


def _fields(delivery: DestinationDelivery) -> dict[str, Any]:
    if not delivery.deliverers:
        return {"deliverers": 0}
    times = {
        "failingSince": delivery.failing_since,
        "oldestIndicationTime": delivery.oldest_indication_time,
        "nextAttemptTime": delivery.next_attempt_time,
        "lastDiscardTime": delivery.last_discard_time,
        "firstLossDueTime": delivery.first_loss_due_time,
    }
    return {
        "deliverers": delivery.deliverers,
        "depth": delivery.depth,
        "highWater": delivery.high_water,
        # Beyond the schema's maximum the whole status would be refused.
        "discarded": min(delivery.discarded, LARGEST_COUNT),
        **({"relays": delivery.relays} if delivery.relays else {}),
        **({"lastResult": delivery.last_result.value} if delivery.last_result else {}),
        **({"failureCause": delivery.cause} if delivery.cause else {}),
        **{name: rfc3339(at) for name, at in times.items() if at is not None},
    }


def _backlogged(
    delivery: DestinationDelivery,
    facts: DestinationFacts,
    *,
    live: Mapping[str, Any] | None,
    now: float,
) -> tuple[Condition, float | None]:
    """The condition, and the seconds until time alone makes it True; None: it does not. ``live`` is
    the condition so far."""
    kind = "Backlogged"
    unknown = _nothing_known(delivery)
    if unknown is not None:
        return Condition(kind, "Unknown", *unknown), None
    limit = max(LEAST_AGE, INTERVALS * facts.retry_interval)
    oldest = delivery.oldest_indication_time
    age = 0.0 if oldest is None else now - oldest
    held = live is not None and live.get("status") == "True"
    # A backlog keeps its reason while that holds, and only then changes to the other.
    by_queue = held and live is not None and live.get("reason") == _QUEUE
    if delivery.fullest >= (FULL_NO_MORE if by_queue else FULL):
        message = (
            f"A deliverer's queue is filled by {FULL:.0%} or more (the condition ends "
            f"below {FULL_NO_MORE:.0%}). When the queue is full, queueFullPolicy applies."
        )
        return Condition(kind, "True", _QUEUE, message), None
    if delivery.slow_since is not None:
        message = (
            f"Deliveries have been late since {rfc3339(delivery.slow_since)}: a deliverer gets "
            "more indications than the listener, its gateway or the rateLimit takes."
        )
        return Condition(kind, "True", _SLOW, message), None
    if oldest is not None and age >= (limit * OLD_NO_MORE if held else limit):
        message = (
            f"The oldest indication has waited for {limit:g} seconds or more (the condition ends "
            "below half of that). See Delivering for the cause."
        )
        return Condition(kind, "True", _AGE, message), None
    message = "No indication has waited for long, and no queue is nearly full."
    due = None if oldest is None else max(0.0, limit - age)
    return Condition(kind, "False", "KeepingUp", message), due
