"""The destination queue table, and how a new revision of the configuration changes it (S0.3)."""

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Protocol, TypeAlias

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.addresses import address_of
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import ListenerDestination, Ordering, RemovalPolicy
from pillion_sidecar.config.schema.destination import (
    SequenceIdentifiers as SequenceIdentifiersPolicy,
)
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.backlog import Backlog, CompactEntries, Packing
from pillion_sidecar.delivery.entries import QueueEntry, Subscription
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.relay import as_delivered, same_listener
from pillion_sidecar.delivery.sequence import SequenceIdentifiers
from pillion_sidecar.delivery.subscription_table import SubscriptionTable
from pillion_sidecar.indication import Indication, Target
from pillion_sidecar.journal.ports import Journal, QueueState, Recovered, RecoveredQueue
from pillion_sidecar.protocols import FALLBACK

#: Makes the handler of a destination.
HandlerFactory: TypeAlias = Callable[[ListenerDestination], Handler]


class AttemptObserver(Protocol):
    """Measures attempts (telemetry's histograms)."""

    def attempted(self, protocol: str, seconds: float) -> None: ...

    def delivered(self, protocol: str, end_to_end_seconds: float) -> None: ...


class TooManyDestinations(Exception):
    """The configuration has more destinations than the deliverer may keep queues for."""

    def __init__(self, count: int, *, maximum: int) -> None:
        super().__init__(
            f"the configuration has {count} listener destinations, and this deliverer keeps at most"
            f" {maximum} destination queues: remove some, or raise --max-destinations"
        )


class TableActions(Protocol):
    """What the table has the delivery service do to queues."""

    def arrange(self, queue: DestinationQueue) -> None: ...

    def purge_subscription(self, queue: DestinationQueue, subscription: Subscription) -> None: ...

    def purge_removed(self, queue: DestinationQueue) -> None: ...


#: A run after another one begins so many contexts further on at most.
SKIPPED_EPOCHS = 1 << 32


class DestinationTable:
    """The queues by destination name, and the subscriptions to them."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        create_handler: HandlerFactory,
        actions: TableActions,
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._create_handler = create_handler
        self._actions = actions
        self._queues: dict[str, DestinationQueue] = {}
        self._draining: list[DestinationQueue] = []
        self.subscriptions = SubscriptionTable(
            clock=clock, timers=timers, queue=self._queues.get, purge=actions.purge_subscription
        )
        self._queue_at: dict[int, DestinationQueue] = {}
        #: The newest queue with one of the journal's indices.
        self.queue_at = self._queue_at.get

    def open(
        self,
        journal: Journal,
        recovered: Recovered,
        *,
        packing: Packing,
        draw: Callable[[], float],
    ) -> None:
        """Take over what the journal found, before the first revision. ``draw`` gives numbers
        from 0 to 1."""
        self._journal = journal
        self._recovered = recovered
        self._packing = packing
        self.subscriptions.open(journal, recovered)
        # Shared by all contexts, so that none ever begins again at 0 (D.2). The run before may
        # have delivered under contexts that it began, and crashed before the journal had them.
        skipped = int(draw() * SKIPPED_EPOCHS) if recovered.next_epoch else 0
        self._epochs = itertools.count(recovered.next_epoch + skipped)

    def queues_at(self, index: int) -> list[DestinationQueue]:
        """The queues with one of the journal's indices: another may drain behind the first."""
        newest = self.queue_at(index)
        others = [queue for queue in self._draining if queue.index == index]
        return others if newest is None or newest in others else [newest, *others]

    def queues(self) -> list[DestinationQueue]:
        """All queues, each name once: a queue that drains is hidden by a new one of its name."""
        return [*({queue.name: queue for queue in self._draining} | self._queues).values()]

    def all_queues(self) -> list[DestinationQueue]:
        """All queues, those that drain last."""
        return [*self._queues.values(), *self._draining]

    def queue(self, name: str) -> DestinationQueue | None:
        """The queue of one name; the one that drains where there is no other."""
        known = self._queues.get(name)
        if known is None and self._draining:
            known = next((queue for queue in self._draining if queue.name == name), None)
        return known

    def resolve(
        self, targets: Sequence[Target], *, ended: bool = False
    ) -> list[tuple[Target, Subscription, DestinationQueue]]:
        """Return the targets whose subscription is active, each with its subscription and queue;
        with ``ended`` those too whose subscription is not."""
        resolved = []
        for target in targets:
            subscription = self.subscriptions.get(target.subscription)
            if subscription is not None and (ended or subscription.end is None):
                resolved.append((target, subscription, self._queues[target.destination]))
        return resolved

    # ------------------------------------------------------------------ revisions

    def apply(self, configuration: Configuration) -> None:
        """Make the table what a revision says. A queue whose destination and subscriptions are
        unchanged is not touched. Where a handler cannot be made, nothing is changed."""
        configuration = as_delivered(configuration, self._journal.durability)
        handlers = self._make_handlers(configuration)
        alone = sole_destinations(configuration)
        for name, destination in configuration.destinations.items():
            sends = sends_identifiers(destination, sole=name in alone)
            queue = self._queues.get(name)
            if queue is not None and queue.destination.uid != destination.uid:
                # Deleted and made anew between two revisions.
                self._remove(queue)
                queue = None
            if queue is None:
                self._queues[name] = self._create(
                    configuration, destination, sends=sends, handler=handlers[name]
                )
            else:
                self._change(queue, destination, sends=sends, handler=handlers.get(name))
        # Destinations go before subscriptions, so that discards are told by their true reason.
        for name in self._queues.keys() - configuration.destinations.keys():
            self._remove(self._queues[name])
        self.subscriptions.apply(configuration.all_subscriptions)

    def _make_handlers(self, configuration: Configuration) -> dict[str, Handler]:
        """Make the handlers that a revision needs anew, by destination: all or none."""
        made: dict[str, Handler] = {}
        with ExitStack() as undo:
            for name, destination in configuration.destinations.items():
                queue = self._queues.get(name)
                if queue is not None and queue.destination is destination:
                    continue
                if (
                    queue is None
                    or queue.destination.uid != destination.uid
                    or queue.destination.connection != destination.connection
                ):
                    made[name] = self._create_handler(destination)
                    undo.callback(made[name].close)
            undo.pop_all()
        return made

    def _create(
        self,
        configuration: Configuration,
        destination: ListenerDestination,
        *,
        sends: bool,
        handler: Handler,
    ) -> DestinationQueue:
        journal = self._journal
        index = journal.destination(uid=destination.uid, name=destination.name)
        queue = self._make_queue(
            destination, index=index, service=configuration.service.name, handler=handler
        )
        queue.configure(destination, sends_identifiers=sends)
        found = self._recovered.queues.pop(index, None)
        if found is not None:
            self._restore(queue, found)
        self._hold_for_fault(queue)
        queue.pause_or_go_on(self._clock.monotonic())
        self.note(queue)
        return queue

    def _make_queue(
        self, destination: ListenerDestination, *, index: int, service: str, handler: Handler
    ) -> DestinationQueue:
        waiting = Backlog(packing=self._packing, loaded=lambda: self._actions.arrange(queue))
        queue = DestinationQueue(
            destination,
            handler=handler,
            sequence=SequenceIdentifiers(
                service=service,
                journal_id=self._journal.id,
                destination_uid=destination.uid,
                epochs=self._epochs,
            ),
            created_at=self._clock.time(),
            waiting=waiting,
            durability=self._journal.durability,
            index=index,
        )
        before = self.queue_at(index)
        if before is not None:
            queue.follow(before)
        self._queue_at[index] = queue
        return queue

    def _restore(self, queue: DestinationQueue, found: RecoveredQueue) -> None:
        """Give a new queue what the journal found of it.

        Its sequence context goes on, unless the journal is damaged or the listener is another one
        (D.2).
        """
        state = found.state
        back = CompactEntries(
            ids=found.ids,
            positions=found.positions,
            numbers=found.numbers,
            subscriptions=found.subscriptions,
        )
        queue.waiting.restore(back, attempts={} if state is None else dict(state.attempts))
        queue.statistics.note_depth(queue.depth)
        if state is not None:
            queue.remember_listener(state.listener)
        if state is None or self._recovered.damaged or not _goes_on(state, queue, found):
            queue.sequence.continue_from(found.next_number)
            queue.renumber()
        else:
            queue.sequence.resume(epoch=state.epoch, base=state.base, next_number=found.next_number)
        if state is not None:
            queue.gaps.restore(state.gaps)
            queue.health.restore(
                state,
                offset=self._journal.offset,
                now=self._clock.monotonic(),
                longest_wait=max(
                    queue.retry.maximum_interval_seconds, queue.retry.interval_seconds
                ),
                is_empty=not queue.depth,
            )
        if queue.depth:
            events.recovered(queue, queue.depth)

    def orphans(self) -> list[DestinationQueue]:
        """Return the queues of the run before whose destinations the first revision does not have:
        in no round, and to be emptied. Each once."""
        orphans = []
        for found in self._recovered.queues.values():
            queue = self._make_queue(
                _gone_destination(found), index=found.index, service="", handler=_NoHandler()
            )
            queue.remove()
            self._restore(queue, found)
            orphans.append(queue)
        self._recovered.queues = {}
        return orphans

    def note(self, queue: DestinationQueue) -> None:
        """Tell the journal what has become of a queue."""
        self._journal.note(queue.state(offset=self._journal.offset))

    def _change(
        self,
        queue: DestinationQueue,
        destination: ListenerDestination,
        *,
        sends: bool,
        handler: Handler | None,
    ) -> None:
        before, listener = queue.destination, queue.listener
        same = before is destination or before == destination
        if same and queue.sends_identifiers == sends:
            return
        begins_to_send = sends and not queue.sends_identifiers
        now = self._clock.monotonic()
        if queue.suspended and not destination.suspended:
            # Nothing was tried meanwhile.
            queue.health.restart_trouble(now)
        queue.configure(destination, sends_identifiers=sends)
        if handler is not None:
            queue.replace_handler(handler)
            # Another listener, or this one met in another way: worth an attempt at once.
            queue.health.retry_now()
            if not queue.depth:
                self._release(queue, now)
                queue.health.forget_trouble_of_hold()
            self._hold_for_fault(queue)
        moved = not same_listener(listener, queue.listener)
        if moved or begins_to_send:
            # A listener that has seen no number of this context expects 0, and would wait for it.
            queue.renumber()
        queue.pause_or_go_on(now)
        self.note(queue)
        self._actions.arrange(queue)

    def _hold_for_fault(self, queue: DestinationQueue) -> None:
        """Hold a queue whose destination is faulty at once: an attempt may come much later."""
        fault, health = queue.destination.fault, queue.health
        if fault is None or (health.hold is not None and health.hold.cause is fault.cause):
            return
        hold = health.hold_for(fault.cause, fault.message, self._clock.monotonic())
        events.destination_held(queue, hold)

    def _release(self, queue: DestinationQueue, now: float) -> None:
        hold = queue.release(now)
        if hold is not None:
            events.destination_released(queue, hold, seconds=now - hold.since)

    def redirect(
        self, queue: DestinationQueue, destination: ListenerDestination, *, sends: bool
    ) -> list[QueueEntry]:
        """Give a queue another destination, to which all that it holds goes, what is under way too.

        Return those of the latter that an administrator has given up.
        """
        handler = self._create_handler(destination)
        for entry in queue.ground():
            queue.waiting.put_back(entry)
        self._release(queue, self._clock.monotonic())
        queue.health.reset()
        self._change(queue, destination, sends=sends, handler=handler)
        return queue.end_condemned()

    def _remove(self, queue: DestinationQueue) -> None:
        drains = queue.destination.removal_policy is RemovalPolicy.DRAIN
        # One that is suspended could never be resumed.
        if (queue.depth or queue.reserved) and drains and not queue.suspended:
            del self._queues[queue.name]
            queue.drain()
            self._draining.append(queue)
            if queue.health.hold is not None:
                # It could never end: the listener is tried now, and by its retry policy from then.
                self._release(queue, self._clock.monotonic())
                queue.health.retry_now()
                self._actions.arrange(queue)
            return
        self.retire(queue)
        self._actions.purge_removed(queue)

    def retire(self, queue: DestinationQueue) -> None:
        """Take a queue out of the table; no further attempt is made."""
        queue.remove()
        if queue.draining:
            self._draining.remove(queue)
            queues = self.queues_at(queue.index)
            if len(queues) == 1:
                queues[0].own_index()
        else:
            del self._queues[queue.name]


def _goes_on(state: QueueState, queue: DestinationQueue, found: RecoveredQueue) -> bool:
    """Whether a queue's listener knows the context of the run before, and all that waits is of it:
    what a queue left that drained beside the last one is older."""
    began = queue.sends_identifiers and not state.sends_identifiers
    is_older = len(found.numbers) > 0 and found.numbers[0] < state.base
    return same_listener(state.listener, queue.listener) and not began and not is_older


def _gone_destination(found: RecoveredQueue) -> ListenerDestination:
    """Return what stands for a destination that is there no more."""
    name = found.name or f"(destination {found.index}, whose name is lost)"
    return ListenerDestination(name=name, uid=found.uid, destination="", protocol=FALLBACK)


class _NoHandler:
    """That of a destination which is there no more."""

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        raise AssertionError("a queue without a destination delivers nothing")

    def prepare(self, indication: Indication) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def sole_destinations(configuration: Configuration) -> set[str]:
    """Return the names of the destinations that have their listener for themselves.

    One with a fault has; one whose URL is hidden may share it with anybody.
    """
    compared = {
        name: address_of(destination) if destination.fault is None else f"fault of {name}"
        for name, destination in configuration.destinations.items()
        if not destination.url_is_hidden
    }
    shared = Counter(compared.values())
    return {name for name, address in compared.items() if shared[address] == 1}


def sends_identifiers(destination: ListenerDestination, *, sole: bool) -> bool:
    """Whether sequence identifiers are sent to a destination (the design's "Sequence identifiers").

    ``sole``: it is known that no other destination of the configuration leads to its listener.
    """
    policy = destination.sequence_identifiers
    if policy is SequenceIdentifiersPolicy.AUTO:
        return sole and destination.ordering is Ordering.DESTINATION
    return policy is SequenceIdentifiersPolicy.SEND
