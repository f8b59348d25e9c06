"""The sum of the deliverers' reports of one destination. Pure.

Summing up is commutative and associative, so several services that use one destination are put
together by the same rules as the deliverers of one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from pillion_operator.polling.reports import (
    DelivererReport,
    DeliveryResult,
    QueueReport,
    Unreachable,
)

#: A way of failing.
_Way = TypeVar("_Way", str, tuple[str, str])
#: In a field's metadata: how the values of several parts are put together.
_COMBINE = "combine"


def _combined_by(default: Any, combine: Callable[[list[Any]], Any]) -> Any:
    return field(default=default, metadata={_COMBINE: combine})


def _by_number(details: Mapping[_Way, int]) -> tuple[tuple[_Way, int], ...]:
    return tuple(sorted(details.items(), key=lambda item: (-item[1], item[0])))


def _latest(times: Iterable[float | None]) -> float | None:
    return max((at for at in times if at is not None), default=None)


def _earliest(moments: Iterable[float | None]) -> float | None:
    return min((at for at in moments if at is not None), default=None)


def _added_up(parts: Iterable[Iterable[tuple[_Way, int]]]) -> tuple[tuple[_Way, int], ...]:
    total: Counter[_Way] = Counter()
    for part in parts:
        total.update(dict(part))
    return _by_number(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationDelivery:
    """One destination, over all deliverers that were asked; times are seconds since the epoch."""

    #: Deliverers that have a queue for it, and those of its services that gave no answer.
    deliverers: int = _combined_by(0, sum)
    unreachable: int = _combined_by(0, sum)
    #: Indications that wait, over all deliverers.
    depth: int = _combined_by(0, sum)
    #: The greatest depth that any one deliverer has seen.
    high_water: int = _combined_by(0, max)
    #: The fullest queue: its depth divided by its capacity.
    fullest: float = _combined_by(0.0, max)
    oldest_indication_time: float | None = _combined_by(None, _earliest)
    #: Of the latest attempt anywhere.
    last_attempt_time: float | None = None
    last_result: DeliveryResult | None = None
    next_attempt_time: float | None = _combined_by(None, _earliest)
    #: When the first indication anywhere is discarded if nothing more is delivered.
    first_loss_due_time: float | None = _combined_by(None, _earliest)
    #: What deliverers have discarded undelivered since they were started, and when that was last.
    discarded: int = _combined_by(0, sum)
    last_discard_time: float | None = _combined_by(None, _latest)
    #: Deliverers whose last attempt failed, succeeded, and those that have made none.
    failing: int = _combined_by(0, sum)
    delivering: int = _combined_by(0, sum)
    idle: int = _combined_by(0, sum)
    #: Deliverers where it is held, and for what, the most frequent first.
    held: int = _combined_by(0, sum)
    holds: tuple[tuple[str, int], ...] = _combined_by((), _added_up)
    #: Deliverers where it is suspended.
    suspended: int = _combined_by(0, sum)
    #: Deliverers that still deliver what they hold of it after its removal, and how much that is.
    draining: int = _combined_by(0, sum)
    draining_depth: int = _combined_by(0, sum)
    #: How attempts failed, and at how many deliverers; the most frequent first.
    details: tuple[tuple[str, int], ...] = _combined_by((), _added_up)
    #: Deliverers that leave delivery to a gateway. What waits there counts above like all else, and
    #: is nowhere else; how they get on with the gateway says nothing of the listener.
    relays: int = _combined_by(0, sum)
    #: Of these: those whose last attempt to relay failed, and those whose last one succeeded.
    relays_failing: int = _combined_by(0, sum)
    relays_delivering: int = _combined_by(0, sum)
    #: To which gateway relaying failed, and how, and at how many; the most frequent first.
    relay_details: tuple[tuple[tuple[str, str], int], ...] = _combined_by((), _added_up)


NOTHING = DestinationDelivery()


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
    known = [NOTHING, *parts]
    latest = max(known, key=_recency)
    values = {
        one.name: one.metadata[_COMBINE]([getattr(part, one.name) for part in known])
        for one in fields(DestinationDelivery)
        if _COMBINE in one.metadata
    }
    return DestinationDelivery(
        last_attempt_time=latest.last_attempt_time, last_result=latest.last_result, **values
    )


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


def _recency(known: QueueReport | DestinationDelivery) -> tuple[float, str]:
    # The result breaks ties, so that the order of the reports makes no difference.
    at = known.last_attempt_time
    return (-1.0 if at is None else at, known.last_result or "")
