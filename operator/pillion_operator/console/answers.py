"""The answer of the console: a row for each queue of each deliverer, the worst first, from the last
reports. It is made once for all who may read the same namespaces, and compressed."""

import asyncio
import gzip
import heapq
import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from pillion_operator.clock import Clock
from pillion_operator.polling.reports import Answer, QueueReport, Unreachable, last_report
from pillion_sidecar.wire.queues import Moment

#: Maximum rows of an answer: the worst ones.
MOST_ROWS = 10_000
#: Seconds for which an answer holds.
ANSWER_SECONDS = 2.0
#: Maximum kept answers, each for other namespaces.
MOST_ANSWERS = 16
_GZIP_LEVEL = 3

#: A namespace, a service, and the last answers of its deliverers.
Reports: TypeAlias = tuple[str, str, tuple[Answer, ...]]


class Deliverers(Protocol):
    def services(self) -> Iterator[tuple[str, str]]: ...

    def reports(self, namespace: str, service: str) -> tuple[Answer, ...]: ...

    def find(self, namespace: str, pod: str) -> tuple[str, str] | None: ...


class Answers:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: By namespaces: until when it holds, and the compressed JSON.
        self._kept: OrderedDict[frozenset[str], tuple[float, bytes]] = OrderedDict()
        # One at a time: the work is the processor's.
        self._turn = asyncio.Lock()

    async def of(self, deliverers: Deliverers, namespaces: frozenset[str]) -> bytes:
        """Return compressed JSON of the deliverers in some namespaces."""
        async with self._turn:
            ends, body = self._kept.get(namespaces, (0.0, b""))
            now = self._clock.monotonic()
            if now < ends:
                return body
            reports = [
                (namespace, service, deliverers.reports(namespace, service))
                for namespace, service in deliverers.services()
                if namespace in namespaces
            ]
            body = await asyncio.to_thread(_body, reports)
            self._kept[namespaces] = (now + ANSWER_SECONDS, body)
            self._kept.move_to_end(namespaces)
            if len(self._kept) > MOST_ANSWERS:
                self._kept.popitem(last=False)
            return body

    async def unpacked(self, body: bytes) -> bytes:
        """For a client that takes no compressed answer."""
        async with self._turn:
            return await asyncio.to_thread(gzip.decompress, body)

    def clear(self) -> None:
        self._kept.clear()


def _body(reports: Sequence[Reports]) -> bytes:
    text = json.dumps(document(reports), separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=_GZIP_LEVEL, mtime=0)


def document(reports: Sequence[Reports]) -> dict[str, Any]:
    rows = [(rank, row) for one in reports for rank, row in _rows(one)]
    worst = heapq.nsmallest(MOST_ROWS, rows, key=lambda pair: pair[0])
    return {
        "count": len(rows),
        "deliverers": sum(len(answers) for _, _, answers in reports),
        "queues": [row if isinstance(row, dict) else _queue(*row) for _, row in worst],
    }


_Place: TypeAlias = tuple[str, str, str]
_Rank: TypeAlias = tuple[int, int, str, str, str]
#: A queue, when its deliverer reported it, and that the deliverer is away.
_Found: TypeAlias = tuple[_Place, QueueReport, float, Unreachable | None]


def _rows(reports: Reports) -> Iterator[tuple[_Rank, dict[str, Any] | _Found]]:
    """Rows of one service; most of them are not written."""
    namespace, service, answers = reports
    for answer in answers:
        place = (namespace, answer.pod, service)
        away = answer if isinstance(answer, Unreachable) else None
        last = last_report(answer)
        if away is not None and (last is None or not last.queues):
            yield (0, 0, namespace, answer.pod, ""), _without_report(place, away)
            continue
        if last is None:
            continue
        for queue in last.queues.values():
            rank = (_severity(queue, away), -queue.depth, namespace, answer.pod, queue.name)
            yield rank, (place, queue, last.at, away)


def _severity(queue: QueueReport, away: Unreachable | None) -> int:
    if away is not None or queue.failing_since is not None or queue.hold or queue.pause:
        return 0
    if queue.suspended or queue.slow_since is not None:
        return 1
    return 2 if queue.depth else 3


def _without_report(place: _Place, away: Unreachable) -> dict[str, Any]:
    return {**_place(place), "name": "", "depth": 0, "capacity": 0, "unreachable": _away(away)}


def _place(place: _Place) -> dict[str, str]:
    namespace, pod, service = place
    return {"namespace": namespace, "pod": pod, "service": service}


def _away(away: Unreachable) -> dict[str, Any]:
    return {"reason": away.reason, "since": _moment(away.since)}


def _queue(
    place: _Place, queue: QueueReport, reported: float, away: Unreachable | None
) -> dict[str, Any]:
    """Return the members of ``wire.queues.QueueStatus`` that the page shows, without defaults.

    ``reportedTime`` is when the deliverer reported the queue. The page computes ages at that time:
    the indication may have left the queue since then.
    """
    result = None
    if queue.last_result is not None and queue.failing:
        result = _given(
            result="error", cause=queue.last_cause or None, detail=queue.last_detail or None
        )
    return _given(
        **_place(place),
        name=queue.name,
        reportedTime=_moment(reported),
        depth=queue.depth,
        capacity=queue.capacity,
        held=queue.held or None,
        inFlight=queue.in_flight or None,
        suspended=queue.suspended or None,
        draining=queue.draining or None,
        relayTo=queue.relay_to,
        hold=_stop(queue.hold, queue.hold_detail, queue.failing_since),
        pause=_stop(queue.pause, queue.pause_detail, queue.failing_since),
        lastResult=result,
        rateLimit=_rate_limit(queue.limited_to_per_second),
        failingSince=_moment(queue.failing_since),
        slowSince=_moment(queue.slow_since),
        acceptedPerSecond=queue.accepted_per_second,
        deliveredPerSecond=queue.delivered_per_second,
        oldestIndicationTime=_moment(queue.oldest_indication_time),
        lastAttemptTime=_moment(queue.last_attempt_time),
        nextAttemptTime=_moment(queue.next_attempt_time),
        firstLossDueTime=_moment(queue.first_loss_due_time),
        firstLossReason=queue.first_loss_reason,
        lastDiscardTime=_moment(queue.last_discard_time),
        discarded={"all": queue.discarded} if queue.discarded else None,
        unreachable=None if away is None else _away(away),
    )


def _stop(cause: str | None, message: str, since: float | None) -> dict[str, Any] | None:
    return None if cause is None else _given(cause=cause, message=message, since=_moment(since))


def _rate_limit(per_second: float | None) -> dict[str, Any] | None:
    return None if per_second is None else {"perSecond": per_second, "limiting": True}


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else str(Moment(seconds))


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def namespaces_of(services: Iterable[tuple[str, str]]) -> frozenset[str]:
    return frozenset(namespace for namespace, _ in services)
