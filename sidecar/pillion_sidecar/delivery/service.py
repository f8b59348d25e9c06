"""The delivery service: the facade of the package and the journal's listener (S0).

``offer`` takes indications, the dispatcher starts attempts, ``conclude`` settles them. All run on
one event loop, so nothing here is locked.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from pillion_sidecar.clock import Clock, Slices, Timers
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.admission import Admission
from pillion_sidecar.delivery.backlog import Packing
from pillion_sidecar.delivery.dead_letters import DeadLetters
from pillion_sidecar.delivery.dispatcher import BeginSpan, Dispatcher
from pillion_sidecar.delivery.entries import Subscription, SubscriptionEnd
from pillion_sidecar.delivery.outcomes import OutcomeRecords
from pillion_sidecar.delivery.pending import PendingSearch
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.repeating import Room, room_in
from pillion_sidecar.delivery.settlement import DiscardReports, Settlements
from pillion_sidecar.delivery.shutdown import Shutdown
from pillion_sidecar.delivery.subscription_table import FailureTriggers
from pillion_sidecar.delivery.table import (
    AttemptObserver,
    DestinationTable,
    HandlerFactory,
    TooManyDestinations,
)
from pillion_sidecar.direct import direct_name, direct_target
from pillion_sidecar.history.outcome import NoHistory, Outcome, OutcomeSink
from pillion_sidecar.indication import DiscardReason, Indication, Selection, Target, Tracker
from pillion_sidecar.journal.ports import (
    NO_NUMBER,
    Journal,
    JournalOwner,
    Place,
    QueueState,
    Recovered,
)

NO_SELECTIONS: Mapping[str, Selection] = MappingProxyType({})


class DeliveryService:
    """Queues indications and delivers them, whatever their listeners do."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        call_soon: Callable[[Callable[[], None]], object],
        create_handler: HandlerFactory,
        observer: AttemptObserver,
        followers: tuple[Tracker, ...] = (),
        maximum_destinations: int = 10_000,
        draw: Callable[[], float] = random.random,
        history: OutcomeSink | None = None,
        begin_span: BeginSpan | None = None,
        slices: Slices | None = None,
    ) -> None:
        """``followers`` follow every indication, recovered ones too; ``history`` keeps each
        outcome; ``begin_span`` records attempts; ``slices``: see ``Dispatcher``."""
        self._clock = clock
        self._timers = timers
        self._observer = observer
        self._maximum_destinations = maximum_destinations
        self._draw = draw
        self._begin_span = begin_span
        self._slices = slices
        self._table = DestinationTable(
            clock=clock,
            timers=timers,
            create_handler=create_handler,
            actions=self,
        )
        self._triggers = FailureTriggers(
            clock=clock,
            timers=timers,
            subscriptions=self._table.subscriptions,
            queue=self._table.queue,
        )
        self._followers = followers
        self._reports = DiscardReports(clock=clock, timers=timers)
        self._records = OutcomeRecords(clock=clock, history=history or NoHistory())
        self._call_soon = call_soon
        self._is_open = False

    def open(self, journal: Journal, recovered: Recovered) -> None:
        """Attach a journal: once, before the first revision adopts what was recovered. Nothing is
        offered before."""
        self._is_open = True
        self._journal = journal
        packing = Packing(
            journal, subscription_at=self._table.subscriptions.at, followers=self._followers
        )
        self._settlements = Settlements(
            journal=journal,
            packing=packing,
            call_soon=self._call_soon,
            arrange=self.arrange,
            reports=self._reports,
            records=self._records,
        )
        self._dispatcher = Dispatcher(
            clock=self._clock,
            timers=self._timers,
            call_soon=self._call_soon,
            table=self._table,
            settlements=self._settlements,
            observer=self._observer,
            draw=self._draw,
            triggers=self._triggers,
            begin_span=self._begin_span,
            slices=self._slices,
            lease=journal.lease,
        )
        self._admission = Admission(
            clock=self._clock,
            table=self._table,
            journal=journal,
            settlements=self._settlements,
            arrange=self._dispatcher.arrange,
            call_soon=self._call_soon,
        )
        self._settlements.dead_letters = DeadLetters(
            clock=self._clock, journal=journal, queues=self
        )
        self._shutdown = self._dispatcher.shutdown = Shutdown(
            clock=self._clock,
            timers=self._timers,
            table=self._table,
            journal=journal,
            settlements=self._settlements,
            admission=self._admission,
            hasten=self.hasten,
            arrange=self._dispatcher.arrange,
        )
        self._table.open(journal, recovered, packing=packing, draw=self._draw)
        self._recovered: Recovered | None = recovered
        self._expose(journal)

    def _expose(self, journal: Journal) -> None:
        # Parts of ``indication.Queues`` and ``JournalOwner`` that one component implements.
        admission = self._admission
        self.offer, self.offer_all = admission.offer, admission.offer_all
        self.hold, self.have_ended = admission.hold, admission.have_ended
        self.release, self.discard_held = admission.release, admission.discard_held
        self.offer_dead_letter = admission.offer_dead_letter
        self.end_group = admission.releases.end_group
        self.end_other_groups = admission.releases.end_other_groups
        self.committed = admission.committed
        self.subscription_records = self._table.subscriptions.records
        self.barrier = journal.barrier
        self._records.notes_redrives = journal.durability is not Durability.DISK

    # ------------------------------------------------------------------ configuration

    def apply(
        self,
        configuration: Configuration,
        *,
        selections: Mapping[str, Selection] = NO_SELECTIONS,
    ) -> None:
        """Apply a revision; unchanged queues are not touched. ``selections``: by the names of the
        filters that list properties.

        Raises :class:`TooManyDestinations`, and changes nothing, if it has more destinations than
        this deliverer may keep queues for (S0.17).
        """
        count = len(configuration.destinations)
        if count > self._maximum_destinations:
            raise TooManyDestinations(count, maximum=self._maximum_destinations)
        self._table.apply(configuration, selections)
        self._dispatcher.marks_retries = configuration.service.correlated_indications
        recovered, self._recovered = self._recovered, None
        if recovered is not None:
            self._adopt(recovered)
        self._triggers.apply(configuration.service)

    def _adopt(self, recovered: Recovered) -> None:
        for queue in self._table.all_queues():
            self._settlements.pending += queue.depth
            self._settlements.adopt_gaps(queue)
            for index in queue.waiting.back.subscriptions():
                subscription = self._table.subscriptions.at(index)
                if not subscription.delivers_to(queue.name):
                    self.purge_subscription(queue, subscription)
            self.arrange(queue)
        for indication, places in recovered.held:
            self._admission.adopt_held(indication, places, trackers=self._followers)
        for queue in self._table.orphans():
            self._settlements.pending += queue.depth
            self.purge_removed(queue)

    # ------------------------------------------------------------------ what others ask

    def target_of(self, outcome: Outcome) -> Target | None:
        """Return the target that missed an indication; None if it is subscribed no more."""
        if outcome.subscription == direct_name(outcome.destination):
            return self.direct_target(outcome.destination)
        subscription = self._table.subscriptions.get(outcome.subscription)
        if subscription is None or not subscription.delivers_to(outcome.destination):
            return None
        if self._table.queue(outcome.destination) is None:
            return None
        resource = subscription.resource
        return Target(resource.name, resource.filter_name, outcome.destination)

    def direct_target(self, destination: str) -> Target | None:
        """Return the target of what no filter selects for a destination; None if there is no such
        destination."""
        queue = self._table.queue(destination)
        if queue is None or queue.draining:
            return None
        return direct_target(destination, relayed=queue.relay_to is not None)

    def room_to_repeat(self, destination: str) -> Room:
        """Return how many replayed indications its queue takes now."""
        if self._journal.is_half_full:
            return Room(0, "the journal is half full")
        return room_in(self._table.queue(destination), destination)

    def is_empty(self, destination: str) -> bool:
        """Whether a destination has nothing to deliver."""
        queue = self._table.queue(destination)
        return queue is None or not (queue.depth or queue.reserved)

    def follow_replays(self, replayed: Callable[[Outcome], None]) -> None:
        """Call ``replayed`` with each outcome of a replayed indication."""
        self._records.replayed = replayed

    def lose(self, indication: Indication, destination: str) -> None:
        queue = self._table.queue(destination)
        if queue is not None:
            self._settlements.lose(queue, indication)

    def arrange(self, queue: DestinationQueue) -> None:
        self._dispatcher.arrange(queue)

    def purge_subscription(self, queue: DestinationQueue, subscription: Subscription) -> None:
        """Discard what waits for an inactive subscription (S0.10)."""
        ended, packed = queue.remove_subscription(subscription)
        reason = DiscardReason.SUBSCRIPTION_NOT_ACTIVE
        self._settlements.discard_many(queue, ended, reason, packed=packed)
        self.arrange(queue)

    def purge_removed(self, queue: DestinationQueue) -> None:
        """Discard everything that the queue of a removed destination holds, in flight too."""
        entries, packed = queue.surrender()
        # Without a uid, damage has taken its name: whether it was removed is unknown.
        reason = DiscardReason.DESTINATION_REMOVED if queue.uid else DiscardReason.DAMAGED
        self._settlements.discard_many(queue, entries, reason, packed=packed)

    # ------------------------------------------------------------------ administration

    @property
    def pending(self) -> int:
        """(Indication, subscription) pairs that are not settled."""
        return self._settlements.pending

    def queues(self) -> Iterable[DestinationQueue]:
        return self._table.queues()

    def former_discards(self) -> Mapping[str, Mapping[DiscardReason, int]]:
        """Discards of removed destinations, by name and by every reason in order."""
        return self._table.former_discards

    def all_queues(self) -> Iterable[DestinationQueue]:
        """With queues that drain behind a new one of their name."""
        return self._table.all_queues()

    def ended_subscriptions(self) -> Sequence[Subscription]:
        return self._table.subscriptions.ended()

    def queue(self, name: str) -> DestinationQueue | None:
        return self._table.queue(name)

    def subscription_end(self, name: str) -> SubscriptionEnd | None:
        """Return why a subscription is inactive; None if it is active, or unknown."""
        subscription = self._table.subscriptions.get(name)
        return None if subscription is None else subscription.end

    async def search(self, matches: Callable[[Indication], bool]) -> PendingSearch:
        """Look for pending indications in all queues."""
        search = PendingSearch(
            journal=self._journal,
            subscription_at=self._table.subscriptions.at,
            matches=matches,
        )
        await search.run(list(self._table.all_queues()))
        return search

    def skip(self, name: str) -> bool:
        """Discard the first indication of a queue; False without one.

        An attempt under way may still deliver it; it is not retried.
        """
        if (queue := self._table.queue(name)) is None:
            return False
        if not queue.cancel_first():
            first = queue.evict()
            if first is None:
                return False
            self._settlements.discard_evicted(queue, first, DiscardReason.PURGED)
        queue.health.hurry()
        self.arrange(queue)
        self._dispatcher.retire_if_drained(queue)
        return True

    def purge(self, name: str) -> int | None:
        if (queue := self._table.queue(name)) is None:
            return None
        queue.cancel_in_flight()
        purged, packed = queue.waiting.surrender()
        count = len(purged) + len(packed)
        self._settlements.discard_many(queue, purged, DiscardReason.PURGED, packed=packed)
        self.arrange(queue)
        self._dispatcher.retire_if_drained(queue)
        return count

    def retry(self, name: str) -> bool:
        """End the wait of a queue for its next attempt; False if nothing waits for a retry.

        If that attempt fails, the limits of attempts do not count it.
        """
        queue = self._table.queue(name)
        if queue is None or queue.suspended or not queue.depth or not queue.health.bring_forward():
            return False
        self.arrange(queue)
        return True

    def hasten(self) -> None:
        for queue in self._table.all_queues():
            queue.health.hurry()
            self.arrange(queue)

    # ------------------------------------------------------------------ the end

    async def drain(self, grace_seconds: float, *, hand_over_to: str | None = None) -> int:
        """Deliver for at most ``grace_seconds``; return how many pairs are left (S0.14).

        ``hand_over_to``: the gateway for what the listeners do not take.
        """
        if not self._is_open:
            return 0
        return await self._shutdown.drain(grace_seconds, hand_over_to=hand_over_to)

    def left(self) -> dict[str, int]:
        """Pending pairs by destination, most first, without zeros."""
        counts: dict[str, int] = {}
        for queue in self._table.all_queues():
            counts[queue.name] = counts.get(queue.name, 0) + queue.depth + queue.reserved
        left = [(name, count) for name, count in counts.items() if count]
        return dict(sorted(left, key=lambda one: (-one[1], one[0])))

    async def give_up(self) -> None:
        """Take nothing more, and discard what is only in memory, in turns of the event loop."""
        if self._is_open:
            await self._shutdown.give_up()

    def close(self) -> None:
        """Stop, and log what is left for each destination (S0.14). Indications only in memory are
        discarded, each logged; the journal keeps its own."""
        if self._is_open:
            self._triggers.close()
            self._shutdown.close()
            self._reports.count()

    # ------------------------------------------------------------------ what the journal asks

    def journal_listener(
        self,
        *,
        groups: Callable[[], bytes],
        identities: Callable[[Sequence[bytes]], Sequence[tuple[DiscardReason | None, str] | None]],
        failed: Callable[[OSError], None],
    ) -> JournalOwner:
        """Return the journal's listener: this service, with these three callbacks."""
        self.groups, self.identities, self._journal_failed = groups, identities, failed
        return self

    def failed(self, error: OSError) -> None:
        self._shutdown.journal_failed = True
        self._journal_failed(error)

    def unsettled(self, indication_id: int, places: Sequence[Place]) -> Sequence[Place]:
        if indication_id in self._admission.held:
            return places
        return [place for place in places if place.number != NO_NUMBER and self._holds(place)]

    def _holds(self, place: Place) -> bool:
        queues = self._table.queues_at(place.destination)
        return any(
            queue.contains(place.number) for queue in queues
        ) or self._settlements.turns.contains(place.destination, place.number)

    def lowest_pending(self, destination: int) -> int:
        if self._settlements.turns.is_at(destination):
            return 0
        queues = self._table.queues_at(destination)
        return min((queue.lowest_number for queue in queues), default=0)

    def moved(self, indication_id: int, places: Sequence[Place], position: int, size: int) -> None:
        if (held := self._admission.held.get(indication_id)) is not None:
            held[0].position, held[0].size = position, size
            return
        for place in places:
            queues = self._table.queues_at(place.destination)
            if not any(queue.move(place.number, position, size) for queue in queues):
                self._settlements.turns.move(place.destination, place.number, position, size)

    def queue_states(self) -> list[QueueState]:
        offset = self._journal.offset
        return [queue.state(offset=offset) for queue in self._table.all_queues()]
