"""Dead letters: what is discarded for a destination is handed to another one as well (S0.11)."""

from collections.abc import Callable
from typing import Protocol

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import RemovalPolicy
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.entries import QueueEntry
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.indication import DeadLetter, DiscardReason, Indication, Refusal, Target
from pillion_sidecar.journal.ports import Journal

#: Whether a discard for this reason makes a dead letter: a loss that no administrator asked for, of
#: a content that is there, while the process goes on.
MAKES_DEAD_LETTER = {
    DiscardReason.QUEUE_FULL: True,
    DiscardReason.ATTEMPTS_EXCEEDED: True,
    DiscardReason.LIFETIME_EXPIRED: True,
    DiscardReason.SUBSCRIPTION_NOT_ACTIVE: False,
    #: With ``removalPolicy: DeadLetter``.
    DiscardReason.DESTINATION_REMOVED: True,
    DiscardReason.FATAL_ERROR: True,
    DiscardReason.SHUTDOWN: False,
    DiscardReason.PURGED: False,
    DiscardReason.OUT_OF_ORDER: True,
    DiscardReason.DAMAGED: False,
}
#: Bytes of dead letters that are not on disk, beyond which a mass discard waits.
MOST_UNWRITTEN = 4 << 20
#: Seconds between two lines about refused dead letters of one destination.
PERIOD_SECONDS = 60.0
_NO_DESTINATION = Refusal(0.0, "there is no such destination")


class DeadLetterQueues(Protocol):
    """The queues of the destinations that get dead letters."""

    def direct_target(self, destination: str) -> Target | None: ...

    def offer_dead_letter(
        self, indication: Indication, target: Target, *, evicted: bool
    ) -> Refusal | None:
        """Queue a dead letter, or return why not. It makes no other queue give way. ``evicted``:
        it was discarded to make room."""


class DeadLetters:
    def __init__(self, *, clock: Clock, journal: Journal, queues: DeadLetterQueues) -> None:
        self._clock = clock
        self._journal = journal
        self._queues = queues
        self._counts_bytes = journal.durability is Durability.DISK
        self._unwritten = 0
        # By destination: when its last line was logged, and how many were refused since.
        self._told: dict[str, tuple[float, int]] = {}

    def take(
        self, queue: DestinationQueue, entry: QueueEntry, reason: DiscardReason, detail: str
    ) -> str | None:
        """Hand on what is being discarded; return the destination that has it.

        The caller settles the entry in the same turn of the event loop: the journal writes all of
        a turn at once, and settlements behind indications, so a crash never leaves the settlement
        alone. ``detail``: of the attempt that decided it.
        """
        name = queue.destination.dead_letter
        if name is None or not is_dead_letter(queue, entry.indication, reason):
            return None
        made = self._made(queue, entry, reason, detail)
        target = self._queues.direct_target(name)
        evicted = reason is DiscardReason.QUEUE_FULL
        refusal = (
            _NO_DESTINATION
            if target is None or name == queue.name
            else self._queues.offer_dead_letter(made, target, evicted=evicted)
        )
        queue.statistics.hand_on(taken=refusal is None)
        if refusal is not None:
            self._tell(queue, name, refusal.reason)
            return None
        if self._counts_bytes:
            self._unwritten += len(made.body)
        return name

    def _made(
        self, queue: DestinationQueue, entry: QueueEntry, reason: DiscardReason, detail: str
    ) -> Indication:
        """Without identity, which would hide a later repeat of the publisher's, and without its
        place in an ordered group, whose rules would hold or discard it."""
        lost = entry.indication
        if not detail and (attempted := queue.statistics.attempted.get(entry.number)):
            detail = attempted.outcome.detail
        return Indication(
            body=lost.body,
            class_name=lost.class_name,
            # Its lifetime begins.
            accepted_at=self._clock.monotonic(),
            source=lost.source,
            identifier=lost.identifier,
            group=lost.group,
            languages=lost.languages,
            trace=lost.trace,
            dead_letter=DeadLetter(
                destination=queue.name,
                reason=reason.value,
                detail=detail,
                attempts=entry.attempts,
                at=self._clock.time(),
            ),
        )

    def _tell(self, queue: DestinationQueue, name: str, reason: str) -> None:
        now = self._clock.monotonic()
        told_at, since = self._told.get(queue.name, (float("-inf"), 0))
        if now - told_at < PERIOD_SECONDS:
            self._told[queue.name] = (told_at, since + 1)
            return
        self._told[queue.name] = (now, 0)
        events.dead_letter_refused(queue, name, reason=reason, count=since + 1)

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the disk that a mass discard goes on :meth:`once_written`."""
        return self._unwritten >= MOST_UNWRITTEN

    def once_written(self, then: Callable[[], None]) -> None:
        def written() -> None:
            self._unwritten = 0
            then()

        self._journal.barrier(written)


def is_dead_letter(queue: DestinationQueue, indication: Indication, reason: DiscardReason) -> bool:
    """Whether what a queue discards becomes a dead letter; one that is one already does not."""
    if indication.dead_letter is not None or not indication.body:
        return False
    if reason is DiscardReason.DESTINATION_REMOVED:
        return queue.destination.removal_policy is RemovalPolicy.DEAD_LETTER
    return MAKES_DEAD_LETTER[reason]
