"""The hold of a destination: what is wrong with the destination itself stops its queue and costs
no indication anything (S0.8, docs/decisions/0022)."""

from dataclasses import dataclass

from pillion_sidecar.delivery.handler import HoldCause

#: Seconds between two attempts at a destination that is held. They spend nothing.
HOLD_RETRY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a queue is held, and since when."""

    cause: HoldCause
    #: One line for people.
    message: str
    #: ``Clock.monotonic()``.
    since: float
