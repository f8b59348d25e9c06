"""Makes a report of a deliverer's pages. Pure.

Texts that status shows are bounded, and have no control characters.
"""

from collections.abc import Sequence

from pillion_operator.gathering.reports import (
    DelivererReport,
    DeliveryResult,
    EndedSubscription,
    QueueReport,
)
from pillion_sidecar.wire.queues import OutcomeStatus, QueuePage, QueueStatus

#: Characters of a failure's detail that are kept.
LONGEST_DETAIL = 200


def report_of(pod: str, pages: Sequence[QueuePage], *, at: float) -> DelivererReport:
    """The answer of a pod's deliverer, asked at ``at``."""
    queues: dict[str, QueueReport] = {}
    ended: dict[str, EndedSubscription] = {}
    for page in pages:
        # A queue that drains comes before a new one of its name, which is the one that is told of.
        queues.update((queue.name, _queue(queue)) for queue in page.queues)
        ended.update((one.name, one) for one in _ended(page))
    return DelivererReport(
        pod=pod,
        # Of the first page, which names the subscriptions that have ended: were a configuration
        # taken over in between, these would pass for the newer one's.
        revision=pages[0].revision,
        # Settled with the first configuration.
        durability=None if pages[0].revision is None else pages[0].durability,
        schema_level=pages[0].schema_level,
        queues=queues,
        ended=tuple(sorted(ended.values(), key=lambda one: one.name)),
        at=at,
    )


def _queue(queue: QueueStatus) -> QueueReport:
    result, detail = _outcome(queue.last_result)
    failing_since: float | None = None
    if result not in (None, DeliveryResult.SUCCESS):
        # Without the field, before it: the last failure is all that is known.
        since = queue.failing_since
        failing_since = queue.last_attempt_time if since is None else since
    return QueueReport(
        name=queue.name,
        depth=queue.depth,
        capacity=queue.capacity,
        high_water=queue.high_water,
        oldest_indication_time=queue.oldest_indication_time,
        last_result=result,
        last_detail=detail,
        last_attempt_time=queue.last_attempt_time,
        last_success_time=queue.last_success_time,
        next_attempt_time=queue.next_attempt_time,
        first_loss_due_time=queue.first_loss_due_time,
        failing_since=failing_since,
        discarded=sum(queue.discarded.values()),
        last_discard_time=queue.last_discard_time,
        suspended=queue.suspended,
        hold=None if queue.hold is None else queue.hold.cause,
        hold_detail="" if queue.hold is None else _one_line(queue.hold.message),
        draining=queue.draining,
        relay_to=queue.relay_to,
    )


def _ended(page: QueuePage) -> list[EndedSubscription]:
    return [
        EndedSubscription(name=one.name, reason=one.reason, uid=one.uid or None)
        for one in page.ended_subscriptions or ()
    ]


def _outcome(outcome: OutcomeStatus | None) -> tuple[DeliveryResult | None, str]:
    if outcome is None:
        return None, ""
    result = DeliveryResult(outcome.result.title().replace("-", ""))
    return result, "" if result is DeliveryResult.SUCCESS else _one_line(outcome.detail)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:LONGEST_DETAIL]).strip()
