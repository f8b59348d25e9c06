"""A destination queue goes on where the run before stopped."""

from collections.abc import Callable

from pillion_sidecar.config.resources import (
    IndicationSubscription,
    ListenerDestination,
    Protocol,
    SubscriptionState,
)
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome
from pillion_sidecar.delivery.keeping import restore_state
from pillion_sidecar.delivery.packed import PackedEntries
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.relaying import same_listener
from pillion_sidecar.delivery.subscriptions import Subscription
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.ports import QueueState, RecoveredQueue, RecoveredSubscription


def restore_queue(
    queue: DestinationQueue, found: RecoveredQueue, *, damaged: bool, offset: float, now: float
) -> None:
    """Give a new queue what the journal found of it.

    Its sequence context goes on, unless the journal is ``damaged`` or the listener is another one
    (D.2). ``offset`` is the journal's, ``now`` monotonic.
    """
    state = found.state
    back = PackedEntries(
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


def gone_subscription(known: RecoveredSubscription, *, index: int, now: float) -> Subscription:
    """Return what stands for a subscription that is there no more; ``now`` is in seconds since the
    epoch."""
    resource = IndicationSubscription(
        name=known.name,
        uid=known.uid,
        filter_name=known.filter_name,
        destination_name="",
        state=SubscriptionState.DISABLED,
    )
    return Subscription(resource, began_at=now, index=index)


class NoHandler:
    """That of a destination which is there no more."""

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        raise AssertionError("a queue without a destination delivers nothing")

    def prepare(self, indication: Indication) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
