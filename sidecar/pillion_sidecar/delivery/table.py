"""The destination queue table, and the changes that a revision of the configuration makes
(S0.3)."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from operator import attrgetter
from typing import Protocol, TypeAlias

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.addresses import address_of
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import ListenerDestination, Ordering, RemovalPolicy
from pillion_sidecar.config.schema.destination import (
    SequenceIdentifiers as SequenceIdentifiersPolicy,
)
from pillion_sidecar.config.schema.subscription import IndicationSubscription
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.backlog import Backlog, Packing
from pillion_sidecar.delivery.compact_entries import CompactEntries
from pillion_sidecar.delivery.entries import QueueEntry, Subscription
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, Handler, HoldCause
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.relay import as_delivered, same_listener
from pillion_sidecar.delivery.sequence import SequenceIdentifiers
from pillion_sidecar.delivery.subscription_table import SubscriptionTable
from pillion_sidecar.direct import destination_uid, direct_subscription
from pillion_sidecar.indication import DiscardReason, Indication, Selection, Target
from pillion_sidecar.journal.ports import Journal, QueueState, Recovered, RecoveredQueue
from pillion_sidecar.protocols import FALLBACK

HandlerFactory: TypeAlias = Callable[[ListenerDestination], Handler]


class AttemptObserver(Protocol):
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
    def arrange(self, queue: DestinationQueue) -> None: ...

    def purge_subscription(self, queue: DestinationQueue, subscription: Subscription) -> None: ...

    def purge_removed(self, queue: DestinationQueue) -> None: ...


#: Maximum number of contexts that a run skips after the previous one.
SKIPPED_EPOCHS = 1 << 32
#: Maximum removed destinations whose discards are remembered.
MOST_FORMER = 1_000


class DestinationTable:
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
        #: The uids of destinations with a direct subscription.
        self._direct: set[str] = set()
        #: Discards of removed destinations, so that metrics go on to show them, oldest first.
        self.former_discards: dict[str, dict[DiscardReason, int]] = {}
        self._queue_at: dict[int, DestinationQueue] = {}
        #: The newest queue with a journal index.
        self.queue_at = self._queue_at.get

    def open(
        self,
        journal: Journal,
        recovered: Recovered,
        *,
        packing: Packing,
        draw: Callable[[], float],
    ) -> None:
        """Restore from the journal, before the first revision. ``draw`` gives numbers from 0 to
        1."""
        self._journal = journal
        self._recovered = recovered
        self._packing = packing
        self.subscriptions.open(journal, recovered)
        self._direct = {
            uid
            for one in recovered.subscriptions.values()
            if (uid := destination_uid(one.uid)) is not None
        }
        # Shared by all contexts, so that none restarts at 0 (D.2). The previous run may have begun
        # contexts and crashed before it journaled them.
        skipped = int(draw() * SKIPPED_EPOCHS) if recovered.next_epoch else 0
        self._epochs = itertools.count(recovered.next_epoch + skipped)

    def queues_at(self, index: int) -> list[DestinationQueue]:
        """The queues with a journal index: another may drain behind the first."""
        newest = self.queue_at(index)
        others = [queue for queue in self._draining if queue.index == index]
        return others if newest is None or newest in others else [newest, *others]

    def queues(self) -> list[DestinationQueue]:
        """Each name once: a new queue hides a draining one of its name."""
        return [*({queue.name: queue for queue in self._draining} | self._queues).values()]

    def all_queues(self) -> list[DestinationQueue]:
        """With hidden queues; those that drain last."""
        return [*self._queues.values(), *self._draining]

    def queue(self, name: str) -> DestinationQueue | None:
        """Return the queue by name, falling back to a draining one."""
        known = self._queues.get(name)
        if known is None and self._draining:
            known = next((queue for queue in self._draining if queue.name == name), None)
        return known

    def resolve(
        self, targets: Sequence[Target], *, ended: bool = False
    ) -> list[tuple[Target, Subscription, DestinationQueue]]:
        """Return the targets with an active subscription, each with its subscription and queue;
        ``ended`` includes inactive ones."""
        resolved = []
        for target in targets:
            subscription = self.subscriptions.get(target.subscription)
            if subscription is None and target.is_direct:
                subscription = self._subscribe_directly(target.destination)
            if subscription is not None and (ended or subscription.end is None):
                resolved.append((target, subscription, self._queues[target.destination]))
        return resolved

    def _subscribe_directly(self, name: str) -> Subscription | None:
        queue = self._queues.get(name)
        if queue is None:
            return None
        self._direct.add(queue.uid)
        return self.subscriptions.add(direct_subscription(queue.destination))

    # ------------------------------------------------------------------ revisions

    def apply(self, configuration: Configuration, selections: Mapping[str, Selection]) -> None:
        """Apply a revision. Unchanged queues are not touched. If a handler cannot be made, nothing
        is changed."""
        configuration = as_delivered(configuration, self._journal.durability)
        handlers = self._make_handlers(configuration)
        alone = sole_destinations(configuration)
        for name, destination in configuration.destinations.items():
            sends = sends_identifiers(destination, sole=name in alone)
            queue = self._queues.get(name)
            if queue is not None and queue.destination.uid != destination.uid:
                # Deleted and created again between two revisions.
                self._remove(queue)
                queue = None
            if queue is None:
                self._queues[name] = self._create(
                    configuration, destination, sends=sends, handler=handlers[name]
                )
            else:
                self._change(queue, destination, sends=sends, handler=handlers.get(name))
        # Destinations before subscriptions, so that discards have their true reason.
        for name in self._queues.keys() - configuration.destinations.keys():
            self._remove(self._queues[name])
        self.subscriptions.apply(
            {**configuration.all_subscriptions, **self._direct_subscriptions()}, selections
        )

    def _direct_subscriptions(self) -> dict[str, IndicationSubscription]:
        self._direct &= {queue.uid for queue in self._queues.values()}
        direct = [
            direct_subscription(queue.destination)
            for queue in self._queues.values()
            if queue.uid in self._direct
        ]
        return {one.name: one for one in direct}

    def _make_handlers(self, configuration: Configuration) -> dict[str, Handler]:
        """Make the handlers that a revision needs, by destination: all or none."""
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
        former = self.former_discards.pop(queue.name, None)
        if former is not None:
            queue.statistics.continue_from(former)
        before = self.queue_at(index)
        if before is not None:
            queue.follow(before)
        self._queue_at[index] = queue
        return queue

    def _restore(self, queue: DestinationQueue, found: RecoveredQueue) -> None:
        """Restore a queue from the journal.

        Its sequence context continues, unless the journal is damaged or the listener is another one
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
        if queue.pace is not None:
            # What the previous run has spent is not known.
            queue.pace.empty(self._clock.monotonic())
        if state is not None:
            queue.gaps.restore(state.gaps)
            queue.statistics.restore(state)
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
        """Return the queues of the previous run whose destinations are gone: in no round, and to be
        emptied. Each once."""
        orphans = []
        for found in self._recovered.queues.values():
            queue = self._make_queue(
                _gone_destination(found), index=found.index, service="", handler=_NoHandler()
            )
            queue.remove()
            self._remember_discards(queue)
            self._restore(queue, found)
            orphans.append(queue)
        self._recovered.queues = {}
        return orphans

    def note(self, queue: DestinationQueue) -> None:
        self._journal.note(queue.state(offset=self._journal.offset))

    def _change(
        self,
        queue: DestinationQueue,
        destination: ListenerDestination,
        *,
        sends: bool,
        handler: Handler | None,
    ) -> None:
        before, listener = queue.destination, queue.listener_id
        same = before is destination or before == destination
        if same and queue.sends_identifiers == sends:
            return
        begins_to_send = sends and not queue.sends_identifiers
        now = self._clock.monotonic()
        if queue.suspended and not destination.suspended:
            # Nothing was tried meanwhile.
            queue.health.restart_trouble(now)
        queue.configure(destination, sends_identifiers=sends)
        hold = queue.health.hold
        if hold is not None and _ends(hold.cause, before, destination):
            self._release(queue, now)
            queue.health.retry_now()
        if handler is not None:
            queue.replace_handler(handler)
            # Another listener, or another way to it: attempt immediately.
            queue.health.retry_now()
            if not queue.depth:
                self._release(queue, now)
                queue.health.forget_trouble_of_hold()
            self._hold_for_fault(queue)
        moved = not same_listener(listener, queue.listener_id)
        if moved or begins_to_send:
            # A listener that has seen no number of this context expects 0, and would wait for it.
            queue.renumber()
        queue.pause_or_go_on(now)
        self.note(queue)
        self._actions.arrange(queue)

    def _hold_for_fault(self, queue: DestinationQueue) -> None:
        """Hold a queue with a faulty destination now: an attempt may come much later."""
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
        """Send all of a queue to another destination, attempts under way too.

        Return the entries in flight that an administrator has given up.
        """
        handler = self._create_handler(destination)
        for entry in queue.abandon_attempts():
            queue.waiting.put_back(entry)
        self._release(queue, self._clock.monotonic())
        queue.health.reset()
        self._change(queue, destination, sends=sends, handler=handler)
        return queue.take_cancelled()

    def _remove(self, queue: DestinationQueue) -> None:
        drains = queue.destination.removal_policy is RemovalPolicy.DRAIN
        # A suspended queue could never be resumed.
        if (queue.depth or queue.reserved) and drains and not queue.suspended:
            del self._queues[queue.name]
            queue.drain()
            self._draining.append(queue)
            if queue.health.hold is not None:
                # The hold could never end: try the listener now, and then by its retry policy.
                self._release(queue, self._clock.monotonic())
                queue.health.retry_now()
                self._actions.arrange(queue)
            return
        self.retire(queue)
        self._actions.purge_removed(queue)

    def retire(self, queue: DestinationQueue) -> None:
        queue.remove()
        self._remember_discards(queue)
        if queue.draining:
            self._draining.remove(queue)
            queues = self.queues_at(queue.index)
            if len(queues) == 1:
                queues[0].own_index()
        else:
            del self._queues[queue.name]

    def _remember_discards(self, queue: DestinationQueue) -> None:
        newer = self._queues.get(queue.name)
        if newer is not None and newer is not queue:
            # It hid this one, which has drained.
            newer.statistics.add_discards(queue.statistics.discarded)
            return
        # What is discarded with the destination counts later.
        self.former_discards[queue.name] = queue.statistics.discarded
        if len(self.former_discards) > MOST_FORMER:
            del self.former_discards[next(iter(self.former_discards))]


def _goes_on(state: QueueState, queue: DestinationQueue, found: RecoveredQueue) -> bool:
    """Whether the listener knows the context of the previous run, and all that waits is of it.

    What a queue left that drained beside the last one is older.
    """
    began = queue.sends_identifiers and not state.sends_identifiers
    is_older = len(found.numbers) > 0 and found.numbers[0] < state.base
    return same_listener(state.listener, queue.listener_id) and not began and not is_older


def _ends(cause: HoldCause, before: ListenerDestination, after: ListenerDestination) -> bool:
    """Whether a change of the resource ends a hold or pause before another attempt."""
    if cause is HoldCause.DISABLED:
        return before != after
    policies = attrgetter("response_policy", "circuit_breaker")
    return cause.is_pause and policies(before) != policies(after)


def _gone_destination(found: RecoveredQueue) -> ListenerDestination:
    name = found.name or f"(destination {found.index}, whose name is lost)"
    dead_letter = None if found.state is None else found.state.dead_letter
    return ListenerDestination(
        name=name,
        uid=found.uid,
        destination="",
        protocol=FALLBACK,
        dead_letter=dead_letter,
        removal_policy=RemovalPolicy.DISCARD if dead_letter is None else RemovalPolicy.DEAD_LETTER,
    )


class _NoHandler:
    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        raise AssertionError("a queue without a destination delivers nothing")

    def prepare(self, indication: Indication, selection: Selection | None) -> None: ...

    def close(self) -> None: ...


def sole_destinations(configuration: Configuration) -> set[str]:
    """Return the names of the destinations that do not share their listener.

    A faulty one does not; one with a hidden URL may.
    """
    compared = {
        name: address_of(destination) if destination.fault is None else f"fault of {name}"
        for name, destination in configuration.destinations.items()
        if not destination.url_is_hidden
    }
    shared = Counter(compared.values())
    return {name for name, address in compared.items() if shared[address] == 1}


def sends_identifiers(destination: ListenerDestination, *, sole: bool) -> bool:
    """Whether sequence identifiers are sent to a destination (D.2).

    ``sole``: no other destination of the configuration has its listener.
    """
    policy = destination.sequence_identifiers
    if policy is SequenceIdentifiersPolicy.AUTO:
        return sole and destination.ordering is Ordering.DESTINATION
    return policy is SequenceIdentifiersPolicy.SEND
