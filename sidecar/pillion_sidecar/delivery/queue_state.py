"""A destination queue goes on where the run before stopped."""

from collections.abc import Callable

from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.backlog import CompactEntries
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome
from pillion_sidecar.delivery.health import shifted
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.relay import same_listener
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.ports import QueueState, RecoveredQueue
from pillion_sidecar.protocols import FALLBACK


def queue_state(queue: DestinationQueue, *, offset: float) -> QueueState:
    """Return what of a queue must be known after a restart; ``offset`` is the journal's."""
    health = queue.health
    pauses, hold = health.pauses, health.hold
    flying = [(entry.number, entry.attempts) for entry in queue.flying if entry.attempts]
    return QueueState(
        destination=queue.index,
        listener=queue.listener,
        sends_identifiers=queue.sends_identifiers,
        epoch=queue.sequence.epoch,
        base=queue.sequence.base,
        next_number=queue.sequence.next_number,
        failures=health.failures,
        next_attempt_at=shifted(health.next_attempt_at, offset),
        failing_since=shifted(health.failing_since, offset),
        paused_since=shifted(pauses.began, offset),
        pauses=tuple((begin + offset, end + offset) for begin, end in pauses.spells),
        attempts=(*flying, *queue.waiting.tried(in_order=queue.takes_in_order)),
        gaps=queue.gaps.records(),
        troubled_since=shifted(health.troubled_since, offset),
        hold=None if hold is None else (hold.cause.value, hold.message, hold.since + offset),
    )


def restore_queue(
    queue: DestinationQueue, found: RecoveredQueue, *, damaged: bool, offset: float, now: float
) -> None:
    """Give a new queue what the journal found of it.

    Its sequence context goes on, unless the journal is ``damaged`` or the listener is another one
    (D.2). ``offset`` is the journal's, ``now`` monotonic.
    """
    state = found.state
    back = CompactEntries(
        ids=found.ids,
        positions=found.positions,
        numbers=found.numbers,
        subscriptions=found.subscriptions,
    )
    queue.waiting.restore(back, attempts={} if state is None else dict(state.attempts))
    queue.note_depth()
    if state is not None:
        queue.remember_listener(state.listener)
    if state is None or damaged or not _goes_on(state, queue, found):
        queue.sequence.continue_from(found.next_number)
        queue.renumber()
    else:
        queue.sequence.resume(epoch=state.epoch, base=state.base, next_number=found.next_number)
    if state is not None:
        queue.gaps.restore(state.gaps)
        queue.health.restore(
            state,
            offset=offset,
            now=now,
            longest_wait=max(queue.retry.maximum_interval_seconds, queue.retry.interval_seconds),
            is_empty=not queue.depth,
        )
    if queue.depth:
        events.recovered(queue, queue.depth)


def _goes_on(state: QueueState, queue: DestinationQueue, found: RecoveredQueue) -> bool:
    """Whether a queue's listener knows the context of the run before, and all that waits is of it:
    what a queue left that drained beside the last one is older."""
    began = queue.sends_identifiers and not state.sends_identifiers
    is_older = len(found.numbers) > 0 and found.numbers[0] < state.base
    return same_listener(state.listener, queue.listener) and not began and not is_older


def gone_destination(found: RecoveredQueue) -> ListenerDestination:
    """Return what stands for a destination that is there no more."""
    name = found.name or f"(destination {found.index}, whose name is lost)"
    return ListenerDestination(name=name, uid=found.uid, destination="", protocol=FALLBACK)


class NoHandler:
    """That of a destination which is there no more."""

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        raise AssertionError("a queue without a destination delivers nothing")

    def prepare(self, indication: Indication) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
