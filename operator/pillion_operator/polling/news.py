"""How much an answer changes, and so how soon ``on_change`` is called. Pure."""

from enum import IntEnum

from pillion_operator.polling.reports import DelivererReport, QueueReport, Unreachable

#: Shares of a queue whose crossing is news at once: where a backlog begins and where it ends.
_BANDS = (0.6, 0.8)


class News(IntEnum):
    """How much an answer matters."""

    NONE = 0
    #: Numbers have moved.
    MOVED = 1
    #: Something that a condition may turn on.
    TURNED = 2


def news(
    before: DelivererReport | Unreachable | None, after: DelivererReport | Unreachable
) -> News:
    """What ``after`` brings over the answer before."""
    if isinstance(before, Unreachable) and isinstance(after, Unreachable):
        return News.NONE
    if not isinstance(before, DelivererReport) or not isinstance(after, DelivererReport):
        return News.TURNED
    if (before.revision, before.ended) != (after.revision, after.ended):
        return News.TURNED
    if before.durability is not after.durability:
        return News.TURNED
    if before.queues.keys() != after.queues.keys():
        return News.TURNED
    return max(
        (_of_queue(before.queues[name], queue) for name, queue in after.queues.items()),
        default=News.NONE,
    )


def _of_queue(before: QueueReport, after: QueueReport) -> News:
    if before is after or before == after:
        return News.NONE
    if _turns(before) != _turns(after):
        return News.TURNED
    return News.MOVED if _moves(before) != _moves(after) else News.NONE


def _turns(queue: QueueReport) -> tuple[object, ...]:
    filled = queue.depth / queue.capacity if queue.capacity else 0.0
    return (
        queue.failing,
        queue.last_result is None,
        queue.suspended,
        queue.hold,
        queue.draining,
        queue.relay_to,
        sum(filled >= band for band in _BANDS),
    )


def _moves(queue: QueueReport) -> tuple[object, ...]:
    """The numbers in status. The time of a success is not among them."""
    return (
        queue.depth,
        queue.capacity,
        queue.high_water,
        queue.oldest_indication_time,
        queue.last_result,
        queue.last_detail,
        queue.hold_detail,
        queue.next_attempt_time,
        queue.last_attempt_time if queue.failing else None,
    )
