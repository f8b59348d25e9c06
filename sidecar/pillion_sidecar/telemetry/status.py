"""What ``GET /v1/queues`` says of destination queues, by ``wire.queues``."""

from typing import Any

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.entries import Subscription
from pillion_sidecar.delivery.handler import DeliveryOutcome, Hold
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.retry import first_loss_due
from pillion_sidecar.delivery.statistics import AttemptRecord
from pillion_sidecar.wire.queues import (
    AttemptStatus,
    HoldStatus,
    Moment,
    OutcomeStatus,
    QueueDetails,
    QueueStatus,
    RetryStatus,
    SubscriptionEnd,
)


def queue_status(queue: DestinationQueue, *, clock: Clock) -> QueueStatus:
    """What ``GET /v1/queues`` says of one queue."""
    now = clock.monotonic()
    epoch = clock.time() - now
    health, statistics = queue.health, queue.statistics
    accepted_at = queue.oldest_accepted_at
    return QueueStatus(
        name=queue.name,
        uid=queue.uid,
        protocol=queue.protocol,
        relay_to=queue.relay_to,
        suspended=queue.suspended,
        hold=_hold(health.hold, epoch),
        draining=queue.draining,
        depth=queue.depth,
        held=queue.held,
        capacity=queue.capacity,
        high_water=statistics.high_water,
        in_flight=queue.in_flight,
        oldest_indication_age_seconds=None if accepted_at is None else round(now - accepted_at, 3),
        oldest_indication_time=_moment(accepted_at, epoch),
        creation_time=Moment(queue.created_at),
        delivered=statistics.delivered,
        suppressed=statistics.suppressed,
        handed_over=statistics.handed_over,
        attempts_by_result={key.value: n for key, n in statistics.attempts.items() if n},
        discarded={key.value: n for key, n in statistics.discarded.items() if n},
        last_discard_time=_moment(statistics.last_discard_at, epoch),
        last_attempt_time=_moment(statistics.last_attempt_at, epoch),
        last_success_time=_moment(statistics.last_success_at, epoch),
        last_result=_outcome(statistics.last_outcome),
        failing_since=_moment(health.failing_since, epoch),
        next_attempt_time=_moment(health.next_attempt_at, epoch),
        first_loss_due_time=_moment(first_loss_due(queue, now), epoch),
        sequence_context=queue.sequence_context,
        next_sequence_number=queue.next_sequence_number,
    )


def queue_details(queue: DestinationQueue, *, clock: Clock) -> QueueDetails:
    """What ``GET /v1/queues/{name}`` says of it."""
    retry = queue.retry
    status: dict[str, Any] = msgspec.structs.asdict(queue_status(queue, clock=clock))
    return QueueDetails(
        **status,
        indication_lifetime_seconds=queue.lifetime,
        retry=RetryStatus(
            attempts=retry.attempts,
            interval_seconds=retry.interval_seconds,
            backoff=retry.backoff.value,
            maximum_interval_seconds=retry.maximum_interval_seconds,
            jitter_percent=round(retry.jitter * 100),
        ),
        attempts=[_attempt(record) for record in reversed(queue.statistics.recent)],
    )


def subscription_end(subscription: Subscription) -> SubscriptionEnd:
    """What ``GET /v1/queues`` says of a subscription that ended by itself."""
    states = {"Removed": "Removed", "Expired": "Expired"}
    return SubscriptionEnd(
        name=subscription.resource.name,
        uid=subscription.resource.uid,
        state=states.get(subscription.end or "", "Disabled"),
        reason=str(subscription.cause),
    )


def _attempt(record: AttemptRecord) -> AttemptStatus:
    return AttemptStatus(
        time=Moment(record.at),
        identifier=record.identifier,
        sequence_number=record.sequence_number,
        attempt=record.attempt,
        result=record.result.value,
        detail=record.detail,
        status=record.status,
        seconds=round(record.seconds, 6),
    )


def _moment(monotonic: float | None, epoch: float) -> Moment | None:
    return None if monotonic is None else Moment(epoch + monotonic)


def _hold(hold: Hold | None, epoch: float) -> HoldStatus | None:
    if hold is None:
        return None
    since = Moment(epoch + hold.since)
    return HoldStatus(cause=hold.cause.value, message=hold.message, since=since)


def _outcome(outcome: DeliveryOutcome | None) -> OutcomeStatus | None:
    if outcome is None:
        return None
    return OutcomeStatus(result=outcome.result.value, detail=outcome.detail, status=outcome.status)
