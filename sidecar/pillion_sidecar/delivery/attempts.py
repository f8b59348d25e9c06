"""What a destination queue remembers of its attempts."""

from dataclasses import dataclass

from pillion_sidecar.delivery.handler import DeliveryResult


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt, for people to look at."""

    #: Seconds since the epoch.
    at: float
    identifier: str | None
    sequence_number: int
    attempt: int
    result: DeliveryResult
    detail: str
    status: int | None
    seconds: float
