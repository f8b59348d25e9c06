"""What the deliverers' reports come to for one destination. Pure.

Summing up is commutative and associative, so several services that use one destination are put
together by the same rules as the deliverers of one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TypeVar

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
    #: When the first indication anywhere is discarded if nothing more is delivered.
    first_loss_due_time: float | None = None
    #: What deliverers have discarded undelivered since they were started, and when that was last.
    discarded: int = 0
    last_discard_time: float | None = None
    #: Deliverers whose last attempt failed, succeeded, and those that have made none.
    failing: int = 0
    delivering: int = 0
    idle: int = 0
    #: Deliverers where it is held, and for what, the most frequent first.
    held: int = 0
    holds: tuple[tuple[str, int], ...] = field(default=())
    #: Deliverers where it is suspended.
    suspended: int = 0
    #: Deliverers that still deliver what they hold of it after its removal, and how much that is.
    draining: int = 0
    draining_depth: int = 0
    #: How attempts failed, and at how many deliverers; the most frequent first.
    details: tuple[tuple[str, int], ...] = field(default=())
    #: Deliverers that leave delivery to a gateway. What waits there counts above like all else, and
    #: is nowhere else; how they get on with the gateway says nothing of the listener.
    relays: int = 0
    #: Of these: those whose last attempt to relay failed, and those whose last one succeeded.
    relays_failing: int = 0
    relays_delivering: int = 0
    #: To which gateway relaying failed, and how, and at how many; the most frequent first.
    relay_details: tuple[tuple[tuple[str, str], int], ...] = field(default=())


NOTHING = DestinationDelivery()

#: A way of failing.
_Way = TypeVar("_Way", str, tuple[str, str])


def delivery_of(
    destination: str, reports: Iterable[DelivererReport | Unreachable]
) -> DestinationDelivery:
    """Sum up what the deliverers of one service say of one destination."""
    queues, unreachable = [], 0
    for report in reports:
        if isinstance(report, Unreachable):
            unreachable += 1
        elif (queue := report.queues.get(destination)) is not None:
            queues.append(queue)
    return _summed_up(queues, unreachable)


def deliveries(
    reports: Iterable[DelivererReport | Unreachable],
) -> Mapping[str, DestinationDelivery]:
    """Sum up every destination that any deliverer of one service has a queue for, by name."""
    queues: dict[str, list[QueueReport]] = {}
    unreachable = 0
    for report in reports:
        if isinstance(report, Unreachable):
            unreachable += 1
            continue
        for name, queue in report.queues.items():
            queues.setdefault(name, []).append(queue)
    return {name: _summed_up(queues[name], unreachable) for name in sorted(queues)}


def combined(parts: Iterable[DestinationDelivery]) -> DestinationDelivery:
    """Put together what is known of one destination."""
    return reduce(_both, parts, NOTHING)


def _summed_up(queues: Sequence[QueueReport], unreachable: int) -> DestinationDelivery:
    """In one go: pair by pair would hold the event loop where deliverers are many."""
    direct = [queue for queue in queues if queue.relay_to is None]
    relays = [queue for queue in queues if queue.relay_to is not None]
    latest = max(direct, key=_recency, default=None)
    failing = [queue for queue in direct if queue.failing]
    not_relaying = [queue for queue in relays if queue.failing]
    draining = [queue for queue in queues if queue.draining]
    held = [queue for queue in direct if queue.hold is not None]
    idle = sum(queue.last_result is None and queue.hold is None for queue in direct)
    return DestinationDelivery(
        deliverers=len(queues),
        unreachable=unreachable,
        depth=sum(queue.depth for queue in queues),
        high_water=max((queue.high_water for queue in queues), default=0),
        fullest=max((q.depth / q.capacity for q in queues if q.capacity), default=0.0),
        oldest_indication_time=_earliest(queue.oldest_indication_time for queue in queues),
        last_attempt_time=None if latest is None else latest.last_attempt_time,
        last_result=None if latest is None else latest.last_result,
        next_attempt_time=_earliest(queue.next_attempt_time for queue in direct),
        first_loss_due_time=_earliest(queue.first_loss_due_time for queue in queues),
        discarded=sum(queue.discarded for queue in queues),
        last_discard_time=_latest(queue.last_discard_time for queue in queues),
        failing=len(failing),
        delivering=len(direct) - len(failing) - len(held) - idle,
        idle=idle,
        held=len(held),
        holds=_by_number(Counter(f"{queue.hold}: {queue.hold_detail}" for queue in held)),
        suspended=sum(queue.suspended for queue in queues),
        draining=len(draining),
        draining_depth=sum(queue.depth for queue in draining),
        details=_by_number(Counter(q.last_detail for q in failing if q.last_detail)),
        relays=len(relays),
        relays_failing=len(not_relaying),
        relays_delivering=sum(queue.last_result is DeliveryResult.SUCCESS for queue in relays),
        relay_details=_by_number(Counter((q.relay_to or "", q.last_detail) for q in not_relaying)),
    )


def _both(one: DestinationDelivery, other: DestinationDelivery) -> DestinationDelivery:
    latest = max(one, other, key=_recency)
    details = Counter(dict(one.details))
    details.update(dict(other.details))
    holds = Counter(dict(one.holds))
    holds.update(dict(other.holds))
    relay_details = Counter(dict(one.relay_details))
    relay_details.update(dict(other.relay_details))
    return DestinationDelivery(
        deliverers=one.deliverers + other.deliverers,
        unreachable=one.unreachable + other.unreachable,
        depth=one.depth + other.depth,
        high_water=max(one.high_water, other.high_water),
        fullest=max(one.fullest, other.fullest),
        oldest_indication_time=_earliest(
            (one.oldest_indication_time, other.oldest_indication_time)
        ),
        last_attempt_time=latest.last_attempt_time,
        last_result=latest.last_result,
        next_attempt_time=_earliest((one.next_attempt_time, other.next_attempt_time)),
        first_loss_due_time=_earliest((one.first_loss_due_time, other.first_loss_due_time)),
        discarded=one.discarded + other.discarded,
        last_discard_time=_latest((one.last_discard_time, other.last_discard_time)),
        failing=one.failing + other.failing,
        delivering=one.delivering + other.delivering,
        idle=one.idle + other.idle,
        held=one.held + other.held,
        holds=_by_number(holds),
        suspended=one.suspended + other.suspended,
        draining=one.draining + other.draining,
        draining_depth=one.draining_depth + other.draining_depth,
        details=_by_number(details),
        relays=one.relays + other.relays,
        relays_failing=one.relays_failing + other.relays_failing,
        relays_delivering=one.relays_delivering + other.relays_delivering,
        relay_details=_by_number(relay_details),
    )


def _recency(known: QueueReport | DestinationDelivery) -> tuple[float, str]:
    # The result breaks ties, so that the order of the reports makes no difference.
    at = known.last_attempt_time
    return (-1.0 if at is None else at, known.last_result or "")


def _by_number(details: Mapping[_Way, int]) -> tuple[tuple[_Way, int], ...]:
    return tuple(sorted(details.items(), key=lambda item: (-item[1], item[0])))


def _latest(times: Iterable[float | None]) -> float | None:
    return max((at for at in times if at is not None), default=None)


def _earliest(moments: Iterable[float | None]) -> float | None:
    return min((at for at in moments if at is not None), default=None)
