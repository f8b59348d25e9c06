"""The figures of one destination queue (S0.12)."""

from collections import deque
from dataclasses import dataclass

from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.indication import DiscardReason

#: Attempts remembered for ``pillion queues NAME``.
REMEMBERED_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt, for people to look at."""

    #: When it began, in seconds since the epoch.
    at: float
    #: IndicationIdentifier.
    identifier: str | None
    #: SequenceNumber (D.2).
    sequence_number: int
    #: 1 for the original attempt.
    attempt: int
    result: DeliveryResult
    #: One line for people.
    detail: str
    #: The status of the HTTP answer.
    status: int | None
    seconds: float


class QueueStatistics:
    """Counters since the start, and the last attempts. Times are ``Clock.monotonic()``."""

    __slots__ = (
        "_recent",
        "attempts",
        "delivered",
        "discarded",
        "handed_over",
        "high_water",
        "last_attempt_at",
        "last_discard_at",
        "last_outcome",
        "last_success_at",
        "suppressed",
    )

    def __init__(self) -> None:
        #: The greatest depth.
        self.high_water = 0
        self.delivered = 0
        #: Indications that a repeat notification policy kept from the queue.
        self.suppressed = 0
        #: What a gateway took at the end, instead of the listener.
        self.handed_over = 0
        #: Every result, in the order of the enumeration.
        self.attempts: dict[DeliveryResult, int] = dict.fromkeys(DeliveryResult, 0)
        #: Every reason, in the order of the enumeration.
        self.discarded: dict[DiscardReason, int] = dict.fromkeys(DiscardReason, 0)
        self.last_discard_at: float | None = None
        self.last_success_at: float | None = None
        self.last_attempt_at: float | None = None
        self.last_outcome: DeliveryOutcome | None = None
        # Records are made of them only when somebody looks.
        self._recent: deque[tuple[float, str | None, int, int, DeliveryOutcome, float]] = deque(
            maxlen=REMEMBERED_ATTEMPTS
        )

    def note_depth(self, depth: int) -> None:
        if depth > self.high_water:
            self.high_water = depth

    def begin_attempt(self, now: float) -> None:
        self.last_attempt_at = now

    def suppress(self) -> None:
        self.suppressed += 1

    def discard(self, reason: DiscardReason, *, now: float) -> None:
        self.discarded[reason] += 1
        self.last_discard_at = now

    def succeed(self, *, hands_over: bool, now: float) -> None:
        """Count a delivery; ``hands_over``: to a gateway, instead of the listener."""
        if hands_over:
            self.handed_over += 1
        else:
            self.delivered += 1
        self.last_success_at = now

    def record(
        self,
        entry: QueueEntry,
        outcome: DeliveryOutcome,
        *,
        number: int,
        at: float,
        seconds: float,
    ) -> None:
        """Remember an attempt that has ended; ``number`` is its SequenceNumber, ``at`` when it
        began, in seconds since the epoch. One that gave way is shown and not counted."""
        if not outcome.gave_way:
            self.attempts[outcome.result] += 1
            self.last_outcome = outcome
        identifier = entry.indication.identifier
        self._recent.append((at, identifier, number, entry.attempts + 1, outcome, seconds))

    @property
    def recent(self) -> list[AttemptRecord]:
        """The last attempts, oldest first."""
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
            for at, identifier, number, attempt, outcome, seconds in self._recent
        ]
