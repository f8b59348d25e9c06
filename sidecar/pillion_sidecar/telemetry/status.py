"""A destination queue in JSON, after PG_ListenerDestinationQueue (S0.12).

Times are RFC 3339 in UTC; what is zero is left out of the two sets of counts.
"""

from datetime import UTC, datetime
from typing import Any

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.entries import Subscription
from pillion_sidecar.delivery.handler import DeliveryOutcome, Hold
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.retry import first_loss_due
from pillion_sidecar.delivery.statistics import AttemptRecord


def queue_status(queue: DestinationQueue, *, clock: Clock) -> dict[str, Any]:
    """What ``GET /v1/queues`` says of one queue."""
    now = clock.monotonic()
    epoch = clock.time() - now
    health, statistics = queue.health, queue.statistics
    accepted_at = queue.oldest_accepted_at
    return {
        "name": queue.name,
        "uid": queue.uid,
        "protocol": queue.protocol,
        "relayTo": queue.relay_to,
        "suspended": queue.suspended,
        "hold": _hold(health.hold, epoch),
        "draining": queue.draining,
        "depth": queue.depth,
        "held": queue.held,
        "capacity": queue.capacity,
        "highWater": statistics.high_water,
        "inFlight": queue.in_flight,
        "oldestIndicationAgeSeconds": None if accepted_at is None else round(now - accepted_at, 3),
        "oldestIndicationTime": _moment(accepted_at, epoch),
        "creationTime": timestamp(queue.created_at),
        "delivered": statistics.delivered,
        "suppressed": statistics.suppressed,
        "handedOver": statistics.handed_over,
        "attemptsByResult": {
            key.value: count for key, count in statistics.attempts.items() if count
        },
        "discarded": {key.value: count for key, count in statistics.discarded.items() if count},
        "lastDiscardTime": _moment(statistics.last_discard_at, epoch),
        "lastAttemptTime": _moment(statistics.last_attempt_at, epoch),
        "lastSuccessTime": _moment(statistics.last_success_at, epoch),
        "lastResult": _outcome(statistics.last_outcome),
        "failingSince": _moment(health.failing_since, epoch),
        "nextAttemptTime": _moment(health.next_attempt_at, epoch),
        "firstLossDueTime": _moment(first_loss_due(queue, now), epoch),
        "sequenceContext": queue.sequence_context,
        "nextSequenceNumber": queue.next_sequence_number,
    }


def retry_status(queue: DestinationQueue) -> dict[str, Any]:
    """What ``GET /v1/queues/{name}`` says of the retry in force; ``attempts`` null: no limit,
    ``indicationLifetimeSeconds`` 0: as long as it takes."""
    retry = queue.retry
    return {
        "indicationLifetimeSeconds": queue.lifetime,
        "retry": {
            "attempts": retry.attempts,
            "intervalSeconds": retry.interval_seconds,
            "backoff": retry.backoff.value,
            "maximumIntervalSeconds": retry.maximum_interval_seconds,
            "jitterPercent": round(retry.jitter * 100),
        },
    }


def subscription_end(subscription: Subscription) -> dict[str, Any]:
    """What ``GET /v1/queues`` says of a subscription that ended by itself."""
    states = {"Removed": "Removed", "Expired": "Expired"}
    return {
        "name": subscription.resource.name,
        "uid": subscription.resource.uid,
        "state": states.get(subscription.end or "", "Disabled"),
        "reason": str(subscription.cause),
    }


def attempt_status(record: AttemptRecord) -> dict[str, Any]:
    """What ``GET /v1/queues/{name}`` says of one attempt."""
    return {
        "time": timestamp(record.at),
        "identifier": record.identifier,
        "sequenceNumber": record.sequence_number,
        "attempt": record.attempt,
        "result": record.result.value,
        "detail": record.detail,
        "status": record.status,
        "seconds": round(record.seconds, 6),
    }


def timestamp(at: float) -> str:
    """Seconds since the epoch as RFC 3339, to the millisecond."""
    moment = datetime.fromtimestamp(at, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(monotonic: float | None, epoch: float) -> str | None:
    return None if monotonic is None else timestamp(epoch + monotonic)


def _hold(hold: Hold | None, epoch: float) -> dict[str, Any] | None:
    if hold is None:
        return None
    return {
        "cause": hold.cause.value,
        "message": hold.message,
        "since": timestamp(epoch + hold.since),
    }


def _outcome(outcome: DeliveryOutcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    return {"result": outcome.result.value, "detail": outcome.detail, "status": outcome.status}
