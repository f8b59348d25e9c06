"""Records what becomes of each entry, once (S0.11)."""

from collections.abc import Callable

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.delivery.handler import DeliveryOutcome
from pillion_sidecar.delivery.health import Attempted
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.history.outcome import Outcome, OutcomeResult, OutcomeSink, redrive_note
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.ports import NO_NUMBER


class OutcomeRecords:
    def __init__(self, *, clock: Clock, history: OutcomeSink) -> None:
        self._clock = clock
        self.history = history
        #: Whether what was redriven is noted once it is settled: in memory it may be lost before.
        self.notes_redrives = False
        #: Is told each outcome of a replayed indication.
        self.replayed: Callable[[Outcome], None] = _nobody

    def attempted(
        self, queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome, began_at: float
    ) -> None:
        """``began_at``: ``Clock.monotonic()`` at the begin of an attempt that failed."""
        at = began_at + self._clock.time() - self._clock.monotonic()
        before = queue.statistics.attempted.get(entry.number)
        first = at if before is None else before.first
        if before is None and entry.attempts:
            # Those of an earlier run.
            first = None
        queue.statistics.attempted[entry.number] = Attempted(first, at, outcome)

    def delivered(
        self, queue: DestinationQueue, entry: QueueEntry, outcome: DeliveryOutcome, began_at: float
    ) -> None:
        result = OutcomeResult.DELIVERED
        if queue.relay_to is not None:
            result = OutcomeResult.HANDED_OVER if queue.hands_over else OutcomeResult.RELAYED
        self._record(queue, entry, result, outcome, began_at=began_at, attempts=entry.attempts + 1)

    def discarded(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        reason: DiscardReason,
        detail: str,
        *,
        dead_letter: str | None,
        forced: bool,
    ) -> None:
        """``detail``: of the attempt that decided it, without secrets; ``dead_letter``: the
        destination that has it; ``forced``: too few stores have it."""
        self._record(
            queue,
            entry,
            OutcomeResult.DISCARDED,
            None,
            attempts=entry.attempts,
            reason=reason.value,
            detail=detail,
            dead_letter=dead_letter,
            forced=forced,
        )

    def _record(
        self,
        queue: DestinationQueue,
        entry: QueueEntry,
        result: OutcomeResult,
        outcome: DeliveryOutcome | None,
        *,
        attempts: int,
        began_at: float | None = None,
        reason: str | None = None,
        detail: str = "",
        dead_letter: str | None = None,
        forced: bool = False,
    ) -> None:
        now = self._clock.time()
        offset = now - self._clock.monotonic()
        indication, number, resource = entry.indication, entry.number, entry.subscription.resource
        first = last = None if began_at is None else began_at + offset
        if attempted := queue.statistics.attempted.pop(number, None):
            first, last = attempted.first, last or attempted.last
            outcome = outcome or attempted.outcome
        elif attempts > 1:
            # Those of an earlier run.
            first = None
        recorded = Outcome(
            time=now,
            result=result.value,
            destination=queue.name,
            subscription=resource.name,
            class_name=indication.class_name,
            source=indication.source,
            identifier=indication.identifier,
            reason=reason,
            cause=None if outcome is None else outcome.failure_cause,
            detail=detail or (None if outcome is None else outcome.detail or None),
            status=None if outcome is None else outcome.status,
            attempts=attempts,
            first_attempt=first,
            last_attempt=last,
            accepted=indication.accepted_at + offset,
            sequence_context=queue.sequence.context,
            sequence_number=None if number == NO_NUMBER else queue.sequence.sequence_number(number),
            group=indication.group,
            group_sequence=None if indication.member is None else indication.member.sequence,
            languages=indication.languages,
            subscription_uid=resource.uid,
            redrives=indication.redrives if indication.redrives > 0 else None,
            queue=queue.index,
            number=None if number == NO_NUMBER else number,
            id=indication.id,
            body=indication.body if self.history.keeps_body(result) else None,
            dead_letter=dead_letter,
            lost=indication.dead_letter,
            digest=indication.digest if reason is not None else None,
            replay=indication.replay or None,
            publisher=indication.publisher,
            trace=indication.trace,
            forced=forced,
        )
        self._add(recorded)

    def _add(self, recorded: Outcome) -> None:
        self.history.add(recorded)
        if recorded.redrives is not None:
            self._repeated(recorded, recorded.redrives, at=recorded.time)

    def _repeated(self, recorded: Outcome, number: int, *, at: float) -> None:
        if recorded.replay is not None:
            self.replayed(recorded)
        elif self.notes_redrives:
            self.history.add(redrive_note(recorded, number, at=at))


def _nobody(_: Outcome) -> None: ...
