"""The samples of the destination queues, written by hand, a bounded piece at a time.

The text format wants all samples of a metric together, so the queues are walked once for each
metric. The pieces let the caller give the event loop a turn in between.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TypeAlias

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.retry import first_loss_due
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.telemetry import definitions
from pillion_sidecar.telemetry.exposition import Metric, all_escaped

#: Destinations to a piece: some 0.3 ms of work.
PIECE = 250

Names: TypeAlias = Sequence[str]
Queues: TypeAlias = Sequence[DestinationQueue]
#: Writes the samples of some queues, whose escaped names stand beside them.
Write: TypeAlias = Callable[[Names, Queues], str]


def destination_samples(queues: Queues, *, clock: Clock) -> Iterator[str]:
    """Yield the text for all queues: headers, then pieces of at most ``PIECE`` destinations."""
    # Two lists, not one of pairs: ten thousand tuples would set the garbage collector off.
    names = all_escaped([queue.name for queue in queues])
    pieces = [slice(start, start + PIECE) for start in range(0, len(queues), PIECE)]
    for metric, write in _writers(clock):
        yield metric.header
        for piece in pieces:
            yield write(names[piece], queues[piece])


def _writers(clock: Clock) -> Iterator[tuple[Metric, Write]]:
    now = clock.monotonic()
    epoch = clock.time() - now
    for metric, value in (
        (definitions.QUEUE_DEPTH, attrgetter("depth")),
        (definitions.QUEUE_HELD, attrgetter("held")),
        (definitions.QUEUE_CAPACITY, attrgetter("capacity")),
        (definitions.QUEUE_HIGH_WATER, attrgetter("statistics.high_water")),
        (definitions.IN_FLIGHT, attrgetter("in_flight")),
        (definitions.SUSPENDED, lambda queue: 1 if queue.suspended else 0),
        (definitions.RELAYED, lambda queue: 0 if queue.relay_to is None else 1),
        (definitions.DELIVERED, attrgetter("statistics.delivered")),
        (definitions.SUPPRESSED, attrgetter("statistics.suppressed")),
        (definitions.HANDED_OVER, attrgetter("statistics.handed_over")),
    ):
        yield metric, _plain(metric, value)
    yield definitions.HELD, _held
    yield definitions.OLDEST_AGE, _ages(definitions.OLDEST_AGE, now)
    for metric, moment in (
        (definitions.NEXT_ATTEMPT, attrgetter("health.next_attempt_at")),
        (definitions.LAST_SUCCESS, attrgetter("statistics.last_success_at")),
        (definitions.FAILING_SINCE, attrgetter("health.failing_since")),
        (definitions.FIRST_LOSS_DUE, lambda queue: first_loss_due(queue, now)),
    ):
        yield metric, _timestamps(metric, moment, epoch)
    attempts = attrgetter("statistics.attempts")
    discarded = attrgetter("statistics.discarded")
    yield definitions.ATTEMPTS, _counted(definitions.ATTEMPTS, tuple(DeliveryResult), attempts)
    yield definitions.DISCARDED, _counted(definitions.DISCARDED, tuple(DiscardReason), discarded)


def _plain(metric: Metric, value: Callable[[DestinationQueue], object]) -> Write:
    """A sample for each queue."""

    def write(names: Names, queues: Queues) -> str:
        pairs = zip(names, map(value, queues), strict=True)
        return _lines(metric, [f'{name}"}} {number}' for name, number in pairs])

    return write


def _held(names: Names, queues: Queues) -> str:
    """A sample for each queue that is held."""
    pairs = zip(names, map(attrgetter("health.hold"), queues), strict=True)
    rests = [f'{name}",cause="{hold.cause}"}} 1' for name, hold in pairs if hold is not None]
    return _lines(definitions.HELD, rests)


def _ages(metric: Metric, now: float) -> Write:
    """The age of each queue's oldest indication, 0 for an empty queue."""

    def write(names: Names, queues: Queues) -> str:
        pairs = zip(names, map(attrgetter("oldest_accepted_at"), queues), strict=True)
        return _lines(
            metric,
            [f'{name}"}} 0' if at is None else f'{name}"}} {now - at:.3f}' for name, at in pairs],
        )

    return write


def _timestamps(
    metric: Metric, moment: Callable[[DestinationQueue], float | None], epoch: float
) -> Write:
    """A time since the epoch, in whole seconds, for each queue that has the moment."""

    def write(names: Names, queues: Queues) -> str:
        pairs = zip(names, map(moment, queues), strict=True)
        return _lines(
            metric, [f'{name}"}} {int(epoch + at)}' for name, at in pairs if at is not None]
        )

    return write


def _lines(metric: Metric, rests: Sequence[str]) -> str:
    """Lines that all begin with the metric and its one label, from what follows in each."""
    if not rests:
        return ""
    opening = f'{metric.name}{{destination="'
    return opening + f"\n{opening}".join(rests) + "\n"


def _counted(
    metric: Metric, members: Sequence[str], counts: Callable[[DestinationQueue], Mapping[str, int]]
) -> Write:
    """A sample for each queue and member of a closed set."""
    rows = _Rows(metric, members)

    def write(names: Names, queues: Queues) -> str:
        pairs = zip(names, map(counts, queues), strict=True)
        return "".join([rows.text(name, count.values()) for name, count in pairs])

    return write


class _Rows:
    """The samples of one destination over a closed set of second labels.

    Every member has its sample from the start, zero or not: a counter that first appears with 1
    hides its first event from ``increase()``. Most are zero, so the text of zeros is the start.
    """

    def __init__(self, metric: Metric, members: Sequence[str]) -> None:
        destination, label = metric.labels
        opening = f'{metric.name}{{{destination}="'
        closings = [f'",{label}="{member}"}} ' for member in members]
        tails = [f"\n{opening}"] * (len(members) - 1) + ["\n"]
        self._ends = list(zip(closings, tails, strict=True))
        #: The name stands at the end of each opening, so it is what the parts are joined with.
        self._zeros = [opening, *(f"{closing}0{tail}" for closing, tail in self._ends)]

    def text(self, name: str, counts: Collection[int]) -> str:
        """``counts`` are those of the members, in their order."""
        if not any(counts):
            return name.join(self._zeros)
        parts = self._zeros.copy()
        for index, count in enumerate(counts):
            if count:
                closing, tail = self._ends[index]
                parts[index + 1] = f"{closing}{count}{tail}"
        return name.join(parts)
