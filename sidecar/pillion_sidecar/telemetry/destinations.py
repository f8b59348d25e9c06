"""The samples of the destination queues, written by hand, a bounded piece at a time.

The text format wants all samples of a metric together, so the queues are walked once for each
metric. The pieces let the caller give the event loop a turn in between.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.delivery.reasons import DiscardReason
from pillion_sidecar.telemetry import definitions
from pillion_sidecar.telemetry.exposition import Metric, escaped
from pillion_sidecar.telemetry.ports import DestinationQueue

#: Destinations to a piece: some 0.3 ms of work.
PIECE = 1000

#: A queue beside its name, escaped once for the whole scrape.
Named: TypeAlias = tuple[str, DestinationQueue]
Write: TypeAlias = Callable[[Sequence[Named]], str]


def destination_samples(queues: Sequence[DestinationQueue], *, clock: Clock) -> Iterator[str]:
    """Yield the text for all queues: headers, then pieces of at most ``PIECE`` destinations."""
    named = [(escaped(queue.name), queue) for queue in queues]
    pieces = [named[start : start + PIECE] for start in range(0, len(named), PIECE)]
    for metric, write in _writers(clock):
        yield metric.header
        for piece in pieces:
            yield write(piece)


def _writers(clock: Clock) -> list[tuple[Metric, Write]]:
    now = clock.monotonic()
    epoch = clock.time() - now
    return [
        (definitions.QUEUE_DEPTH, _depth),
        (definitions.QUEUE_CAPACITY, _capacity),
        (definitions.QUEUE_HIGH_WATER, _high_water),
        (definitions.OLDEST_AGE, lambda piece: _oldest_age(piece, now)),
        (definitions.IN_FLIGHT, _in_flight),
        (definitions.SUSPENDED, _suspended),
        (definitions.NEXT_ATTEMPT, lambda piece: _next_attempt(piece, epoch)),
        (definitions.LAST_SUCCESS, lambda piece: _last_success(piece, epoch)),
        (definitions.ATTEMPTS, _attempts),
        (definitions.DELIVERED, _delivered),
        (definitions.DISCARDED, _discarded),
    ]


# One comprehension for each metric, with its name in the literal: a general one, which would look
# the attribute up by name, takes twice as long.


def _depth(piece: Sequence[Named]) -> str:
    return "".join(
        [f'pillion_destination_queue_depth{{destination="{n}"}} {q.depth}\n' for n, q in piece]
    )


def _capacity(piece: Sequence[Named]) -> str:
    return "".join(
        [
            f'pillion_destination_queue_capacity{{destination="{n}"}} {q.capacity}\n'
            for n, q in piece
        ]
    )


def _high_water(piece: Sequence[Named]) -> str:
    return "".join(
        [
            f'pillion_destination_queue_high_water{{destination="{n}"}} {q.high_water}\n'
            for n, q in piece
        ]
    )


def _oldest_age(piece: Sequence[Named], now: float) -> str:
    return "".join(
        [
            f'pillion_destination_oldest_indication_age_seconds{{destination="{n}"}} 0\n'
            if (accepted_at := q.oldest_accepted_at) is None
            else f'pillion_destination_oldest_indication_age_seconds{{destination="{n}"}}'
            f" {now - accepted_at:.3f}\n"
            for n, q in piece
        ]
    )


def _in_flight(piece: Sequence[Named]) -> str:
    return "".join(
        [f'pillion_destination_in_flight{{destination="{n}"}} {q.in_flight}\n' for n, q in piece]
    )


def _suspended(piece: Sequence[Named]) -> str:
    return "".join(
        [
            f'pillion_destination_suspended{{destination="{n}"}} {1 if q.suspended else 0}\n'
            for n, q in piece
        ]
    )


def _next_attempt(piece: Sequence[Named], epoch: float) -> str:
    return "".join(
        [
            f'pillion_destination_next_attempt_timestamp_seconds{{destination="{n}"}}'
            f" {epoch + due:.3f}\n"
            for n, q in piece
            if (due := q.next_attempt_at) is not None
        ]
    )


def _last_success(piece: Sequence[Named], epoch: float) -> str:
    return "".join(
        [
            f'pillion_destination_last_success_timestamp_seconds{{destination="{n}"}}'
            f" {epoch + at:.3f}\n"
            for n, q in piece
            if (at := q.last_success_at) is not None
        ]
    )


def _delivered(piece: Sequence[Named]) -> str:
    return "".join(
        [
            f'pillion_indications_delivered_total{{destination="{n}"}} {q.delivered}\n'
            for n, q in piece
        ]
    )


def _attempts(piece: Sequence[Named]) -> str:
    rows = _Rows(definitions.ATTEMPTS, tuple(DeliveryResult))
    return "".join([rows.text(n, q.attempts.values()) for n, q in piece])


def _discarded(piece: Sequence[Named]) -> str:
    rows = _Rows(definitions.DISCARDED, tuple(DiscardReason))
    return "".join([rows.text(n, q.discarded.values()) for n, q in piece])


class _Rows:
    """The samples of one destination over a closed set of second labels.

    Every member has its sample from the start, zero or not: a counter that first appears with 1
    hides its first event from ``increase()``.
    """

    def __init__(self, metric: Metric, members: Sequence[str]) -> None:
        destination, label = metric.labels
        opening = f'{metric.name}{{{destination}="'
        closings = [f'",{label}="{member}"}} ' for member in members]
        self._zeros = _around_name(opening, [f"{closing}0\n" for closing in closings])
        self._counts = _around_name(opening, [f"{closing}%d\n" for closing in closings])

    def text(self, name: str, counts: Iterable[int]) -> str:
        """``counts`` are those of the members, in their order."""
        values = (*counts,)
        if not any(values):
            return name.join(self._zeros)
        return name.replace("%", "%%").join(self._counts) % values


def _around_name(opening: str, closings: Sequence[str]) -> list[str]:
    """The parts of a text that is complete once the name has joined them."""
    return [opening, *(closing + opening for closing in closings[:-1]), closings[-1]]
