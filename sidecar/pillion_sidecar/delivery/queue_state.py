"""A destination queue goes on where the run before stopped."""

from collections.abc import Callable

from pillion_sidecar.config.resources import (
    ListenerDestination,
    Protocol,
)
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.backlog import CompactEntries
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Hold, HoldCause
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.relay import same_listener
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.ports import QueueState, RecoveredQueue

_CAUSES = frozenset(HoldCause)


def queue_state(queue: DestinationQueue, *, offset: float) -> QueueState:
    """Return what of a queue must be known after a restart; ``offset`` is the journal's."""
    pauses, hold = queue.pauses, queue.hold
    flying = [(entry.number, entry.attempts) for entry in queue.flying if entry.attempts]
    return QueueState(
        destination=queue.index,
        listener=queue.listener,
        sends_identifiers=queue.sends_identifiers,
        epoch=queue.sequence.epoch,
        base=queue.sequence.base,
        next_number=queue.sequence.next_number,
        failures=queue.failures,
        next_attempt_at=_shifted(queue.next_attempt_at, offset),
        failing_since=_shifted(queue.failing_since, offset),
        paused_since=_shifted(pauses.began, offset),
        pauses=tuple((begin + offset, end + offset) for begin, end in pauses.spells),
        attempts=(*flying, *queue.waiting.tried(in_order=queue.takes_in_order)),
        gaps=queue.gaps.records(),
        troubled_since=_shifted(queue.troubled_since, offset),
        hold=None if hold is None else (hold.cause.value, hold.message, hold.since + offset),
    )


def restore_state(queue: DestinationQueue, state: QueueState, *, offset: float, now: float) -> None:
    """Give a new queue the state of the run before; ``now`` is monotonic."""
    queue.failures = state.failures
    queue.gaps.restore(state.gaps)
    queue.failing_since = _shifted(state.failing_since, -offset)
    queue.troubled_since = _shifted(state.troubled_since or state.failing_since, -offset)
    if state.next_attempt_at is not None and state.next_attempt_at - offset > now:
        # A clock that was set back meanwhile must not keep it waiting for longer than its policy.
        interval = max(queue.retry.maximum_interval_seconds, queue.retry.interval_seconds)
        queue.next_attempt_at = min(state.next_attempt_at - offset, now + interval)
    queue.pauses.spells = [(begin - offset, end - offset) for begin, end in state.pauses]
    queue.pauses.began = _shifted(state.paused_since, -offset)
    if state.hold is not None and not queue.depth:
        # No attempt will say whether the hold is over.
        queue.troubled_since = queue.failing_since
    elif state.hold is not None and state.hold[0] in _CAUSES:
        cause, message, since = state.hold
        queue.hold = Hold(HoldCause(cause), message, since - offset)
        # It may have been mended meanwhile.
        queue.next_attempt_at = None


def _shifted(time: float | None, by: float) -> float | None:
    return None if time is None else time + by


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
    if state is not None and not queue.listener:
        queue.listener = state.listener
    if state is None or damaged or not _goes_on(state, queue, found):
        queue.sequence.next_number = found.next_number
        queue.renumber()
    else:
        queue.sequence.resume(epoch=state.epoch, base=state.base, next_number=found.next_number)
    if state is not None:
        restore_state(queue, state, offset=offset, now=now)
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
    return ListenerDestination(name=name, uid=found.uid, destination="", protocol=Protocol.CIM_XML)


class NoHandler:
    """That of a destination which is there no more."""

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        raise AssertionError("a queue without a destination delivers nothing")

    def prepare(self, indication: Indication) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
