"""What the deliverers' reports come to for one destination. Pure.

Summing up is commutative and associative, so several services that use one destination are put
together by the same rules as the deliverers of one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce

from pillion_operator.gathering.reports import (
    DelivererReport,
    DeliveryResult,
    QueueReport,
    Unreachable,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationDelivery:
    """One destination, over all deliverers that were asked; times are seconds since the epoch."""

    #: Deliverers that have a queue for it, and those of its services that gave no answer.
    deliverers: int = 0
    unreachable: int = 0
    #: Indications that wait, over all deliverers.
    depth: int = 0
    #: The greatest depth that any one deliverer has seen.
    high_water: int = 0
    #: The fullest queue: its depth divided by its capacity.
    fullest: float = 0.0
    oldest_indication_time: float | None = None
    #: Of the latest attempt anywhere.
    last_attempt_time: float | None = None
    last_result: DeliveryResult | None = None
    next_attempt_time: float | None = None
    #: Deliverers whose last attempt failed, succeeded, and those that have made none.
    failing: int = 0
    delivering: int = 0
    idle: int = 0
    #: Deliverers where it is suspended.
    suspended: int = 0
    #: Deliverers that still deliver what they hold of it after its removal, and how much that is.
    draining: int = 0
    draining_depth: int = 0
    #: How attempts failed, and at how many deliverers; the most frequent first.
    details: tuple[tuple[str, int], ...] = field(default=())


NOTHING = DestinationDelivery()


def delivery_of(
    destination: str, reports: Iterable[DelivererReport | Unreachable]
) -> DestinationDelivery:
    """Sum up what the deliverers of one service say of one destination."""
    return combined(_one(destination, report) for report in reports)


def deliveries(
    reports: Iterable[DelivererReport | Unreachable],
) -> Mapping[str, DestinationDelivery]:
    """Sum up every destination that any deliverer of one service has a queue for."""
    known = list(reports)
    names = {name for one in known if isinstance(one, DelivererReport) for name in one.queues}
    return {name: delivery_of(name, known) for name in sorted(names)}


def combined(parts: Iterable[DestinationDelivery]) -> DestinationDelivery:
    """Put together what is known of one destination."""
    return reduce(_both, parts, NOTHING)


def _one(destination: str, report: DelivererReport | Unreachable) -> DestinationDelivery:
    if isinstance(report, Unreachable):
        return DestinationDelivery(unreachable=1)
    queue = report.queues.get(destination)
    return NOTHING if queue is None else _of_queue(queue)


def _of_queue(queue: QueueReport) -> DestinationDelivery:
    return DestinationDelivery(
        deliverers=1,
        depth=queue.depth,
        high_water=queue.high_water,
        fullest=queue.depth / queue.capacity if queue.capacity else 0.0,
        oldest_indication_time=queue.oldest_indication_time,
        last_attempt_time=queue.last_attempt_time,
        last_result=queue.last_result,
        next_attempt_time=queue.next_attempt_time,
        failing=int(queue.failing),
        delivering=int(queue.last_result is DeliveryResult.SUCCESS),
        idle=int(queue.last_result is None),
        suspended=int(queue.suspended),
        draining=int(queue.draining),
        draining_depth=queue.depth if queue.draining else 0,
        details=((queue.last_detail, 1),) if queue.failing and queue.last_detail else (),
    )


def _both(one: DestinationDelivery, other: DestinationDelivery) -> DestinationDelivery:
    latest = max(one, other, key=_recency)
    details = Counter(dict(one.details))
    details.update(dict(other.details))
    return DestinationDelivery(
        deliverers=one.deliverers + other.deliverers,
        unreachable=one.unreachable + other.unreachable,
        depth=one.depth + other.depth,
        high_water=max(one.high_water, other.high_water),
        fullest=max(one.fullest, other.fullest),
        oldest_indication_time=_earlier(one.oldest_indication_time, other.oldest_indication_time),
        last_attempt_time=latest.last_attempt_time,
        last_result=latest.last_result,
        next_attempt_time=_earlier(one.next_attempt_time, other.next_attempt_time),
        failing=one.failing + other.failing,
        delivering=one.delivering + other.delivering,
        idle=one.idle + other.idle,
        suspended=one.suspended + other.suspended,
        draining=one.draining + other.draining,
        draining_depth=one.draining_depth + other.draining_depth,
        details=tuple(sorted(details.items(), key=lambda item: (-item[1], item[0]))),
    )


def _recency(delivery: DestinationDelivery) -> tuple[float, str]:
    # The result breaks ties, so that the order of the reports makes no difference.
    at = delivery.last_attempt_time
    return (-1.0 if at is None else at, delivery.last_result or "")


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
