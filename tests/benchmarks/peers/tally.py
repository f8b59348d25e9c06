"""What becomes of the events that a peer has taken: lost, doubled, late."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.peers.listeners import Arrival

MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Tally:
    #: Events of which one arrived at least.
    arrived: int
    #: Taken by the peer, and not arrived.
    lost: int
    #: Arrivals beyond the first of an event.
    doubled: int
    #: First arrivals behind a later event of the same listener.
    overtaken: int


def tally(acknowledged: Collection[int], arrivals: Iterable[Arrival]) -> Tally:
    """Compare the numbers of the events that a peer has acknowledged with what arrived."""
    seen: set[int] = set()
    latest: dict[int, int] = {}
    doubled = overtaken = 0
    for one in arrivals:
        if one.number in seen:
            doubled += 1
            continue
        seen.add(one.number)
        if one.number < latest.get(one.listener, -1):
            overtaken += 1
        else:
            latest[one.listener] = one.number
    lost = sum(1 for number in acknowledged if number not in seen)
    return Tally(len(seen), lost, doubled, overtaken)


def percentile(values: Sequence[float], share: float) -> float:
    """The least of the values that so many of them do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def delays(arrivals: Iterable[Arrival]) -> list[float]:
    """Milliseconds from publishing each event to its first arrival."""
    first: dict[int, float] = {}
    for one in arrivals:
        first.setdefault(one.number, (one.arrived - one.sent) / MILLISECOND)
    return list(first.values())
