"""Sums up all deliverers' queues of one destination. Pure. The order of the answers makes no
difference; those of several services may be combined."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pillion_operator.polling.reports import Answer, DelivererReport, DeliveryResult, QueueReport

_SUCCESS = DeliveryResult.SUCCESS
#: Its detail, or the gateway and the detail.
_Failure = TypeVar("_Failure", str, tuple[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class DestinationDelivery:
    """One destination over all polled deliverers; times are seconds since the epoch."""

    #: Deliverers with a queue for it, and deliverers of its services without an answer.
    deliverers: int = 0
    unreachable: int = 0
    depth: int = 0
    #: The greatest depth that one deliverer has seen.
    high_water: int = 0
    #: Depth divided by capacity, of the fullest queue.
    fullest: float = 0.0
    oldest_indication_time: float | None = None
    last_result: DeliveryResult | None = None
    next_attempt_time: float | None = None
    #: When the first indication is discarded if nothing more is delivered.
    first_loss_due_time: float | None = None
    #: Indications discarded undelivered since the deliverers started, and the time of the last.
    discarded: int = 0
    last_discard_time: float | None = None
    #: Deliverers whose last attempt failed, and succeeded.
    failing: int = 0
    delivering: int = 0
    #: Deliverers that hold it, and why, the most frequent first.
    held: int = 0
    holds: tuple[tuple[str, int], ...] = ()
    #: Deliverers that have paused it, and why, the most frequent first.
    paused: int = 0
    pauses: tuple[tuple[str, int], ...] = ()
    #: How attempts failed and at how many deliverers, the most frequent first.
    details: tuple[tuple[str, int], ...] = ()
    #: The most frequent cause of deliverers that fail, hold or pause it; empty: unknown, or none.
    cause: str = ""
    #: The first of the times since when they do.
    failing_since: float | None = None
    #: Since when the first of them delivers late, and fewer than arrive.
    slow_since: float | None = None
    #: Deliverers that relay to a gateway. Their queues count above, but reaching the gateway says
    #: nothing about the listener.
    relays: int = 0
    #: Of these: whose last attempt to relay failed, and succeeded.
    relays_failing: int = 0
    relays_delivering: int = 0
    #: The gateway, the failure and the number of deliverers; the most frequent first.
    relay_details: tuple[tuple[tuple[str, str], int], ...] = ()


def delivery_of(destination: str, answers: Sequence[Answer]) -> DestinationDelivery:
    reports = [answer for answer in answers if isinstance(answer, DelivererReport)]
    queues = [report.queues[destination] for report in reports if destination in report.queues]
    return _summed_up(queues, len(answers) - len(reports))


def deliveries(answers: Sequence[Answer]) -> Mapping[str, DestinationDelivery]:
    # In one pass: a service may have thousands of destinations, and of deliverers.
    reports = [answer for answer in answers if isinstance(answer, DelivererReport)]
    queues: defaultdict[str, list[QueueReport]] = defaultdict(list)
    for report in reports:
        for name, queue in report.queues.items():
            queues[name].append(queue)
    unreachable = len(answers) - len(reports)
    return {name: _summed_up(queues[name], unreachable) for name in sorted(queues)}


def _summed_up(queues: Sequence[QueueReport], unreachable: int) -> DestinationDelivery:
    direct = [queue for queue in queues if queue.relay_to is None]
    relays = [queue for queue in queues if queue.relay_to is not None]
    latest = max(direct, key=_recency, default=None)
    failing = [queue for queue in direct if queue.failing]
    not_relaying = [queue for queue in relays if queue.failing]
    held = [queue for queue in direct if queue.hold is not None]
    paused = [queue for queue in direct if queue.pause is not None]
    stopped = [*failing, *held]
    causes = _by_number(queue.last_cause for queue in stopped if queue.last_cause)
    return DestinationDelivery(
        deliverers=len(queues),
        unreachable=unreachable,
        depth=sum(queue.depth for queue in queues),
        high_water=max((queue.high_water for queue in queues), default=0),
        fullest=max((q.depth / q.capacity for q in queues if q.capacity), default=0.0),
        oldest_indication_time=_earliest(queue.oldest_indication_time for queue in queues),
        last_result=None if latest is None else latest.last_result,
        next_attempt_time=_earliest(queue.next_attempt_time for queue in direct),
        first_loss_due_time=_earliest(queue.first_loss_due_time for queue in queues),
        discarded=sum(queue.discarded for queue in queues),
        last_discard_time=_latest(queue.last_discard_time for queue in queues),
        failing=len(failing),
        delivering=sum(queue.hold is None and queue.last_result is _SUCCESS for queue in direct),
        held=len(held),
        holds=_by_number(f"{queue.hold}: {queue.hold_detail}" for queue in held),
        paused=len(paused),
        pauses=_by_number(f"{queue.pause}: {queue.pause_detail}" for queue in paused),
        details=_by_number(_way(queue) for queue in failing if queue.last_detail),
        cause=causes[0][0] if causes else "",
        failing_since=_earliest(queue.failing_since for queue in stopped),
        slow_since=_earliest(queue.slow_since for queue in queues),
        relays=len(relays),
        relays_failing=len(not_relaying),
        relays_delivering=sum(queue.last_result is _SUCCESS for queue in relays),
        relay_details=_by_number((q.relay_to or "", q.last_detail) for q in not_relaying),
    )


def _way(queue: QueueReport) -> str:
    return f"{queue.last_cause}: {queue.last_detail}" if queue.last_cause else queue.last_detail


def _recency(queue: QueueReport) -> tuple[float, str]:
    # The result breaks ties, so that the order of the answers makes no difference.
    at = queue.last_attempt_time
    return (-1.0 if at is None else at, queue.last_result or "")


def _by_number(failures: Iterable[_Failure]) -> tuple[tuple[_Failure, int], ...]:
    return tuple(sorted(Counter(failures).items(), key=lambda item: (-item[1], item[0])))


def _latest(times: Iterable[float | None]) -> float | None:
    return max((at for at in times if at is not None), default=None)


def _earliest(times: Iterable[float | None]) -> float | None:
    return min((at for at in times if at is not None), default=None)
