"""Whether a destination is backlogged, with enough play that it does not flap. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pillion_operator.gathering.aggregate import DestinationDelivery
from pillion_operator.status.conditions import Condition

#: Seconds that an indication may wait at least, and retry intervals, before it is a backlog.
LEAST_AGE = 60.0
INTERVALS = 2.0
#: The share of a queue that is a backlog, and the one below which it is over.
FULL = 0.8
FULL_NO_MORE = 0.6
#: The share of the age below which a backlog is over.
OLD_NO_MORE = 0.5

_QUEUE = "QueueNearlyFull"
_AGE = "OldIndications"


@dataclass(frozen=True, slots=True)
class Backlog:
    """The condition, and in how many seconds time alone makes it True (None: it does not)."""

    condition: Condition
    due_again: float | None


def backlogged(
    delivery: DestinationDelivery,
    *,
    retry_interval: float,
    live: Mapping[str, Any] | None,
    now: float,
) -> Backlog:
    """Judge the backlog; ``live`` is the condition that holds until now."""
    limit = max(LEAST_AGE, INTERVALS * retry_interval)
    oldest = delivery.oldest_indication_time
    age = 0.0 if oldest is None else now - oldest
    held = live is not None and live.get("status") == "True"
    # A backlog keeps its reason while that holds, and turns to the other one only afterwards.
    by_queue = held and live is not None and live.get("reason") == _QUEUE
    if delivery.fullest >= (FULL_NO_MORE if by_queue else FULL):
        return Backlog(
            Condition(
                "Backlogged",
                "True",
                _QUEUE,
                f"A deliverer's queue is filled by {FULL:.0%} or more (until it is below "
                f"{FULL_NO_MORE:.0%}). Beyond queueSize, queueFullPolicy says what happens.",
            ),
            None,
        )
    if oldest is not None and age >= (limit * OLD_NO_MORE if held else limit):
        return Backlog(
            Condition(
                "Backlogged",
                "True",
                _AGE,
                f"The oldest indication waits for {limit:g} seconds or more (until it is less "
                "than half of that). See Delivering for why.",
            ),
            None,
        )
    due = None if oldest is None else max(0.0, limit - age)
    message = "What comes is delivered before it is old and before its queue is nearly full."
    return Backlog(Condition("Backlogged", "False", "KeepingUp", message), due)
