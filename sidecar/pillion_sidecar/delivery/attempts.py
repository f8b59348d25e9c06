"""What a destination queue remembers of its attempts."""

from collections import deque
from dataclasses import dataclass

from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult

#: Attempts remembered for ``pillion queues NAME``.
REMEMBERED_ATTEMPTS = 20


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


class RecentAttempts:
    """The last attempts of one queue. Records are made of them only when somebody looks."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: deque[tuple[float, str | None, int, int, DeliveryOutcome, float]] = deque(
            maxlen=REMEMBERED_ATTEMPTS
        )

    def add(
        self,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        number: int,
        at: float,
        seconds: float,
    ) -> None:
        """Remember an attempt that has ended; ``number`` is its SequenceNumber, ``at`` when it
        began, in seconds since the epoch."""
        identifier = entry.indication.identifier
        self._last.append((at, identifier, number, entry.attempts + 1, outcome, seconds))

    def records(self) -> list[AttemptRecord]:
        """Return them, oldest first."""
        return [
            AttemptRecord(
                at=at,
                identifier=identifier,
                sequence_number=number,
                attempt=attempt,
                result=outcome.result,
                detail=outcome.detail,
                status=outcome.status,
                seconds=seconds,
            )
            for at, identifier, number, attempt, outcome, seconds in self._last
        ]
