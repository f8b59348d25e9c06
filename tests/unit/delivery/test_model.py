"""The delivery service against a model: whatever is done to it, in whatever order, the promises
hold that no single example can show.

The model knows what was accepted, what was attempted and what was settled; each handler checks an
attempt as it begins, and invariants check the books after each step.
"""

import bisect
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.common import QueueFullPolicy, RemovalAction
from pillion_sidecar.config.schema.destination import (
    ListenerDestination,
    Ordering,
    RemovalPolicy,
    RetryPolicy,
    SequenceIdentifiers,
)
from pillion_sidecar.config.schema.response_policy import REFUSALS
from pillion_sidecar.config.schema.service import IndicationService
from pillion_sidecar.config.schema.subscription import IndicationSubscription, SubscriptionState
from pillion_sidecar.delivery.handler import (
    HOLD_RETRY_SECONDS,
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    HoldCause,
)
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.indication import DiscardReason, Indication, Target
from support.delivery import (
    ERROR,
    HELD,
    SUCCESS,
    Deliverer,
    ScriptedHandler,
    destination,
    subscription,
)

#: ``PILLION_MODEL_RUNS`` runs it long: the default keeps it under ten seconds.
RUNS = int(os.environ.get("PILLION_MODEL_RUNS", "300"))
STEPS = 50

DESTINATIONS = ("north", "south", "west")
URLS = ("http://one.example/", "http://two.example/")
SUBSCRIPTIONS = tuple(f"{name}-{number}" for name in DESTINATIONS for number in (1, 2))
GROUPS = (None, "a", "b")

#: What handlers say; rules and breakers have tests of their own.
FAULTS = [one for one in HoldCause if not one.is_pause and one is not HoldCause.DISABLED]

outcomes = st.one_of(
    st.just(DeliveryOutcome(DeliveryResult.SUCCESS)),
    st.just(DeliveryOutcome(DeliveryResult.SUCCESS)),
    st.builds(
        DeliveryOutcome,
        st.sampled_from([DeliveryResult.ERROR, DeliveryResult.POST_DELIVERY_ERROR]),
        st.just("no"),
        st.none(),
        st.sampled_from([None, 2.0, 45.0, 500.0]),
    ),
    st.just(DeliveryOutcome(DeliveryResult.ERROR, "refused", 422, refuses_indication=True)),
    st.just(DeliveryOutcome(DeliveryResult.FATAL_ERROR, "never")),
    st.builds(
        DeliveryOutcome,
        st.sampled_from([DeliveryResult.ERROR, DeliveryResult.FATAL_ERROR]),
        st.just("wrong"),
        hold=st.sampled_from(FAULTS),
    ),
    st.just(DeliveryOutcome(DeliveryResult.ERROR, "HTTP 401", 401, hold=HoldCause.REFUSED)),
)
retries = st.builds(
    RetryPolicy,
    attempts=st.integers(0, 3),
    interval_seconds=st.sampled_from([10.0, 30.0]),
    maximum_interval_seconds=st.just(60.0),
    respect_retry_after=st.booleans(),
)
orders = st.sampled_from(
    [
        (Ordering.DESTINATION, 1),
        (Ordering.DESTINATION, 1),
        (Ordering.GROUP, 1),
        (Ordering.GROUP, 3),
        (Ordering.NONE, 2),
        (Ordering.NONE, 3),
    ]
)
changes = st.one_of(
    st.builds(dict, destination=st.sampled_from(URLS)),
    st.builds(dict, timeout_seconds=st.sampled_from([5.0, 30.0])),
    st.builds(dict, retry=retries),
    st.builds(dict, queue_size=st.integers(1, 4)),
    st.builds(dict, queue_full_policy=st.sampled_from(QueueFullPolicy)),
    st.builds(dict, suspended=st.booleans()),
    st.builds(dict, removal_policy=st.sampled_from(RemovalPolicy)),
    st.builds(dict, indication_lifetime_seconds=st.sampled_from([None, 0.0, 25.0])),
    st.builds(dict, sequence_identifiers=st.sampled_from(SequenceIdentifiers)),
    orders.map(lambda order: {"ordering": order[0], "max_in_flight": order[1]}),
)


@dataclass(eq=False)
class Entry:
    """An accepted (indication, subscription), as the model knows it."""

    position: int
    indication: Indication
    subscription: str
    accepted_at: float
    generation: int
    failures: int = 0
    refusals: int = 0
    #: Retry attempts of the policy that was in force at the last failure.
    allowed: int = 0
    delivered: bool = False
    in_flight: bool = False
    numbers: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False)
class Attempt:
    handler: "WatchedHandler"
    queue: DestinationQueue
    entry: Entry
    done: Callable[[DeliveryOutcome], None]


@dataclass(eq=False)
class Books:
    """What the model knows of one queue."""

    accepted: list[Entry] = field(default_factory=list)
    results: Counter[DeliveryResult] = field(default_factory=Counter)
    not_before: float | None = None
    #: Entries from before this position were accepted under another order.
    ordered_from: int = 0


class WatchedHandler(ScriptedHandler):
    """Holds each attempt until it is told how it ends, and has the model look at it."""

    def __init__(
        self, model: "DeliveryModel", resource: ListenerDestination, answer: DeliveryOutcome | None
    ) -> None:
        super().__init__(answer)
        self.model = model
        self.name = resource.name

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        self.model.attempted(self, delivery, done)


class WatchedDeliverer(Deliverer):
    def __init__(self, model: "DeliveryModel") -> None:
        super().__init__()
        self.model = model

    def _create_handler(self, resource: ListenerDestination) -> ScriptedHandler:
        handler = WatchedHandler(self.model, resource, None)
        self.created.append(handler)
        return handler


class DeliveryModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.deliverer = WatchedDeliverer(self)
        self.service = self.deliverer.service
        self.time = self.deliverer.time
        self.destinations: dict[str, ListenerDestination] = {}
        self.subscriptions: dict[str, IndicationSubscription] = {}
        #: Subscriptions that a fatal error has ended.
        self.ended: set[str] = set()
        #: How often each subscription has been disabled or removed: it is another one each time.
        self.generations: Counter[str] = Counter()
        self.dirty = False
        self.entries: dict[tuple[str, str], Entry] = {}
        self.numbers: dict[str, list[tuple[int, int]]] = {}
        self.books: dict[DestinationQueue, Books] = {}
        self.flying: list[Attempt] = []
        self.settled: Counter[tuple[str, str]] = Counter()
        self.expected: Counter[tuple[str, str]] = Counter()
        self.delivered: Counter[tuple[str, str]] = Counter()
        self.offering = ""
        self.closed = False
        self.published = 0

    # ------------------------------------------------------------------ what the service tells

    def settled_by_service(
        self, indication: Indication, name: str, discarded: DiscardReason | None
    ) -> None:
        assert indication.identifier is not None
        key = (indication.identifier, name)
        assert indication.identifier != self.offering, "settled from within its own offer"
        self.settled[key] += 1
        assert self.settled[key] <= self.expected[key], "settled more often than accepted"
        assert indication.unsettled >= 0
        if discarded is None:
            self.delivered[key] -= 1
            assert self.delivered[key] >= 0, "told as delivered, but no attempt succeeded"
        assert (discarded is DiscardReason.SHUTDOWN) is self.closed
        if discarded is DiscardReason.LIFETIME_EXPIRED:
            assert self.time.monotonic() - indication.accepted_at >= 25.0 - 1e-6

    def queue_of(self, handler: WatchedHandler) -> DestinationQueue:
        for queue in self.all_queues():
            if queue.handler is handler:
                return queue
        raise AssertionError("an attempt on a handler that is no queue's")

    def all_queues(self) -> list[DestinationQueue]:
        return self.service._table.all_queues()

    def attempted(
        self,
        handler: WatchedHandler,
        delivery: Delivery,
        done: Callable[[DeliveryOutcome], None],
    ) -> None:
        assert not handler.closed, "an attempt on a closed handler"
        assert not self.closed
        queue = self.queue_of(handler)
        books = self.books.setdefault(queue, Books())
        name = delivery.filter_name.removeprefix("filter-of-")
        assert delivery.indication.identifier is not None
        entry = self.entries[delivery.indication.identifier, name]
        assert not entry.delivered, "delivered twice"
        assert not entry.in_flight, "twice in flight"
        assert delivery.attempt == entry.failures + 1
        assert entry.failures <= entry.allowed or not entry.failures
        if not queue.draining:
            assert not queue.suspended
        now = self.time.monotonic()
        assert books.not_before is None or now >= books.not_before - 1e-6, "before the interval"
        flying = [attempt for attempt in self.flying if attempt.queue is queue]
        assert len(flying) < queue.destination.max_in_flight
        self.check_order(queue, books, entry)
        self.check_number(delivery, entry)
        entry.in_flight = True
        attempt = Attempt(handler, queue, entry, done)
        self.flying.append(attempt)
        if handler.answer is not None:
            self.deliverer._soon.append(partial(self.end, attempt, handler.answer))

    def check_order(self, queue: DestinationQueue, books: Books, entry: Entry) -> None:
        ordering = queue.destination.ordering
        waiting = {id(held.indication) for held in queue.waiting.front}
        flying = {id(attempt.entry) for attempt in self.flying if attempt.queue is queue}
        group = entry.indication.group
        for other in books.accepted:
            if other.position >= entry.position:
                break
            if other.position < books.ordered_from and entry.position < books.ordered_from:
                continue
            if id(other.indication) not in waiting and id(other) not in flying:
                continue
            if other.indication is entry.indication and not any(
                held.indication is other.indication
                and held.subscription.resource.name == other.subscription
                for held in queue.waiting.front
            ):
                continue
            same = group is not None and other.indication.group == group
            assert ordering is not Ordering.DESTINATION, "overtaken"
            assert ordering is not Ordering.GROUP or not same, "overtaken in its group"

    def check_number(self, delivery: Delivery, entry: Entry) -> None:
        context, number = delivery.sequence_context, delivery.sequence_number
        assert (context is None) is (number is None)
        if context is None or number is None:
            return
        assert entry.numbers.setdefault(context, number) == number, "another number on retry"
        assigned = self.numbers.setdefault(context, [])
        pair = (entry.position, number)
        place = bisect.bisect_left(assigned, pair)
        if place < len(assigned) and assigned[place] == pair:
            return
        assigned.insert(place, pair)
        for left, right in pairwise(assigned):
            assert left[1] < right[1], "numbers not in the order of acceptance"

    def end(self, attempt: Attempt, outcome: DeliveryOutcome) -> None:
        """End an attempt; one of a handler that was closed is not listened to any more."""
        if attempt not in self.flying:
            return
        self.flying.remove(attempt)
        entry, queue = attempt.entry, attempt.queue
        entry.in_flight = False
        if not attempt.handler.closed:
            books = self.books[queue]
            books.results[outcome.result] += 1
            if outcome.result is DeliveryResult.SUCCESS:
                entry.delivered = True
                assert entry.indication.identifier is not None
                self.delivered[entry.indication.identifier, queue.name] += 1
                books.not_before = None
            elif (cause := self.stops(queue, outcome)) and attempt.handler is not queue.handler:
                # Of a handler that was replaced.
                pass
            elif cause is not None and not queue.draining:
                wait = self.probed_after(queue) if cause.is_pause else HOLD_RETRY_SECONDS
                books.not_before = self.time.monotonic() + wait
            elif outcome.result is not DeliveryResult.FATAL_ERROR or outcome.hold is not None:
                self.fail(queue, books, entry, outcome)
        attempt.done(outcome)
        self.forget_waits()

    def stops(self, queue: DestinationQueue, outcome: DeliveryOutcome) -> HoldCause | None:
        """What a failure holds or pauses its queue for; a pause goes on after other failures."""
        hold = queue.health.hold
        is_paused = hold is not None and hold.cause.is_pause
        says_nothing = outcome.hold is None and (
            outcome.refuses_indication or outcome.result is DeliveryResult.FATAL_ERROR
        )
        if outcome.hold is not None or not is_paused or says_nothing:
            return outcome.hold
        assert hold is not None
        return hold.cause

    def probed_after(self, queue: DestinationQueue) -> float:
        retry, lifetime = queue.retry, queue.lifetime
        if not lifetime:
            return retry.maximum_interval_seconds
        return min(retry.maximum_interval_seconds, max(retry.interval_seconds, lifetime / 4))

    def forget_waits(self) -> None:
        """A wait ends with what waited: what comes next is tried at once."""
        for queue, books in self.books.items():
            if not queue.depth:
                books.not_before = None

    def fail(
        self, queue: DestinationQueue, books: Books, entry: Entry, outcome: DeliveryOutcome
    ) -> None:
        policy = queue.destination.retry
        wait = policy.interval_seconds
        if policy.respect_retry_after and outcome.retry_after is not None:
            wait = max(wait, min(outcome.retry_after, policy.maximum_interval_seconds))
        books.not_before = self.time.monotonic() + wait
        entry.failures += 1
        entry.refusals += outcome.refuses_indication
        assert entry.refusals <= REFUSALS
        entry.allowed = policy.attempts
        is_last = entry.failures > entry.allowed or entry.refusals == REFUSALS
        if outcome.refuses_indication and is_last and entry.failures > 1:
            books.not_before = None

    # ------------------------------------------------------------------ configuration

    def apply(self) -> None:
        before = {queue.name: queue for queue in self.service._table._queues.values()}
        present = {
            name: resource
            for name, resource in self.subscriptions.items()
            if resource.destination_name in self.destinations
        }
        configuration = Configuration(
            revision=str(self.published),
            service=IndicationService(),
            destinations=dict(self.destinations),
            subscriptions=present,
        )
        old = self.deliverer.configuration
        for name in SUBSCRIPTIONS:
            if old.subscriptions.get(name) == (resource := present.get(name)):
                continue
            self.ended.discard(name)
            if resource is None or resource.state is not SubscriptionState.ENABLED:
                self.generations[name] += 1
        for name, queue in before.items():
            new = self.destinations.get(name)
            books = self.books.setdefault(queue, Books())
            removed = new is None or new.uid != queue.destination.uid
            if removed and queue.health.hold is not None:
                # Nobody can correct it any more: with ``Drain`` the hold ends with its wait, and
                # the listener is tried at once. The wait after a failure goes on.
                books.not_before = None
            if new is None or new == queue.destination:
                continue
            if new.destination != queue.destination.destination or (
                new.timeout_seconds != queue.destination.timeout_seconds
            ):
                books.not_before = None
            if (new.ordering, new.max_in_flight) != (
                queue.destination.ordering,
                queue.destination.max_in_flight,
            ):
                books.ordered_from = len(self.entries)
        self.subscriptions = dict(present)
        self.deliverer.configuration = configuration
        self.service.apply(configuration)
        self.dirty = False

    @initialize(size=st.integers(1, 3), order=orders)
    def begin(self, size: int, order: tuple[Ordering, int]) -> None:
        for name in DESTINATIONS[:2]:
            self.destinations[name] = destination(
                name, queue_size=size, ordering=order[0], max_in_flight=order[1]
            )
            self.subscriptions[f"{name}-1"] = subscription(f"{name}-1", name)
        self.apply()

    @rule(
        name=st.sampled_from(DESTINATIONS),
        change=changes,
        also=changes,
        anew=st.integers(0, 7),
        at_once=st.booleans(),
    )
    def change_destination(
        self, name: str, change: dict[str, Any], also: dict[str, Any], anew: int, at_once: bool
    ) -> None:
        known = self.destinations.get(name)
        uid = f"uid-{name}" if known is None else known.uid
        if anew == 0:
            uid += "x"
        changed = destination(name) if known is None else known
        changed = replace(changed, uid=uid, **(change | also))
        if changed.ordering is not Ordering.DESTINATION:
            changed = replace(changed, sequence_identifiers=SequenceIdentifiers.AUTO)
        self.destinations[name] = changed
        self.dirty = True
        if at_once:
            self.apply()

    @rule(name=st.sampled_from(DESTINATIONS), at_once=st.booleans())
    def remove_destination(self, name: str, at_once: bool) -> None:
        self.destinations.pop(name, None)
        self.dirty = True
        if at_once:
            self.apply()

    @rule(
        name=st.sampled_from(SUBSCRIPTIONS),
        policy=st.sampled_from(RemovalAction),
        state=st.sampled_from([SubscriptionState.ENABLED] * 3 + [SubscriptionState.DISABLED]),
        at_once=st.booleans(),
    )
    def change_subscription(
        self, name: str, policy: RemovalAction, state: SubscriptionState, at_once: bool
    ) -> None:
        to = name.partition("-")[0]
        self.subscriptions[name] = subscription(name, to, state=state, on_fatal_error_policy=policy)
        self.dirty = True
        if at_once:
            self.apply()

    @rule(name=st.sampled_from(SUBSCRIPTIONS), at_once=st.booleans())
    def remove_subscription(self, name: str, at_once: bool) -> None:
        self.subscriptions.pop(name, None)
        self.dirty = True
        if at_once:
            self.apply()

    @precondition(lambda self: self.dirty)
    @rule()
    def reload(self) -> None:
        self.apply()

    # ------------------------------------------------------------------ publishing

    @rule(
        names=st.lists(st.sampled_from(SUBSCRIPTIONS), min_size=1, max_size=4, unique=True),
        group=st.sampled_from(GROUPS),
        run=st.booleans(),
    )
    def publish(self, names: list[str], group: str | None, run: bool) -> None:
        in_force = self.deliverer.configuration.subscriptions
        targets = [
            Target(name, in_force[name].filter_name, in_force[name].destination_name)
            for name in sorted(names)
            if name in in_force
        ]
        active = [
            target
            for target in targets
            if in_force[target.subscription].state is SubscriptionState.ENABLED
            and target.subscription not in self.ended
        ]
        identifier = self.offering = str(self.published)
        self.published += 1
        indication = Indication(
            body=b"{}",
            class_name="CIM_AlertIndication",
            accepted_at=self.time.monotonic(),
            identifier=identifier,
            group=group,
            trackers=(Telling(self),),
        )
        queues = {target.destination: self.deliverer.queue(target.destination) for target in active}
        lengths = {name: len(queue.waiting) for name, queue in queues.items()}
        pending = self.service.pending
        refusal = self.service.offer(indication, targets)
        self.offering = ""
        if refusal is not None:
            assert self.service.pending == pending
            assert indication.unsettled == 0
            refusing = queues[refusal.destination]
            assert refusing.waiting, "an empty queue refuses"
            assert refusing.destination.queue_full_policy is not QueueFullPolicy.DISCARD_OLDEST
            assert {name: len(queue.waiting) for name, queue in queues.items()} == lengths
            return
        assert indication.unsettled == len(active)
        for target in active:
            queue = queues[target.destination]
            entry = Entry(
                len(self.entries),
                indication,
                target.subscription,
                indication.accepted_at,
                self.generations[target.subscription],
            )
            self.entries[identifier, target.subscription] = entry
            self.books.setdefault(queue, Books()).accepted.append(entry)
            self.expected[identifier, target.destination] += 1
        for name, queue in queues.items():
            siblings = self.expected[identifier, name]
            assert len(queue.waiting) <= max(queue.capacity, lengths[name], siblings)
        if run:
            self.deliverer.run()

    @precondition(lambda self: self.deliverer._soon)
    @rule()
    def turn(self) -> None:
        self.deliverer.step()

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), outcome=outcomes, run=st.booleans())
    def end_attempt(self, data: st.DataObject, outcome: DeliveryOutcome, run: bool) -> None:
        self.end(data.draw(st.sampled_from(self.flying)), outcome)
        if run:
            self.deliverer.run()

    @rule(name=st.sampled_from(DESTINATIONS), outcome=st.one_of(st.none(), outcomes))
    def answer_by_itself(self, name: str, outcome: DeliveryOutcome | None) -> None:
        queue = self.service.queue(name)
        if queue is not None and isinstance(queue.handler, WatchedHandler):
            queue.handler.answer = outcome

    @rule(seconds=st.sampled_from([0.5, 9.0, 10.0, 31.0, 120.0, 700.0]))
    def advance(self, seconds: float) -> None:
        self.deliverer.advance(seconds)

    # ------------------------------------------------------------------ administration

    @rule(name=st.sampled_from(DESTINATIONS))
    def skip(self, name: str) -> None:
        queue = self.service.queue(name)
        some = queue is not None and queue.depth > len(queue.cancelled)
        if queue is not None and some:
            self.books.setdefault(queue, Books()).not_before = None
        assert self.service.skip(name) is some

    @rule(name=st.sampled_from(DESTINATIONS))
    def purge(self, name: str) -> None:
        queue = self.service.queue(name)
        waiting = None if queue is None else len(queue.waiting)
        assert self.service.purge(name) == waiting

    @rule()
    def hasten(self) -> None:
        for books in self.books.values():
            books.not_before = None
        self.service.hasten()

    # ------------------------------------------------------------------ what always holds

    @invariant()
    def promises_hold(self) -> None:
        self.forget_waits()
        self.pending_is_what_is_not_settled()
        self.the_books_add_up()
        self.nothing_is_forgotten()
        self.handlers_live_as_long_as_they_are_needed()

    def pending_is_what_is_not_settled(self) -> None:
        unsettled = sum(self.expected.values()) - sum(self.settled.values())
        assert self.service.pending == unsettled
        held = sum(queue.depth for queue in self.all_queues())
        assert held <= unsettled
        if not self.deliverer._soon:
            assert held == unsettled
            assert not +self.delivered, "a success that was told to nobody"

    def the_books_add_up(self) -> None:
        queues = self.all_queues()
        for queue, books in self.books.items():
            if queue.removed or self.deliverer._soon:
                continue
            assert queue in queues
            assert queue.statistics.attempts == {
                result: books.results[result] for result in DeliveryResult
            }
            assert queue.statistics.delivered == books.results[DeliveryResult.SUCCESS]
            # It goes on counting the discards of those of its name before it.
            alike = [own for one, own in self.books.items() if one.name == queue.name]
            delivered = sum(own.results[DeliveryResult.SUCCESS] for own in alike)
            named = [one for one in queues if one.name == queue.name]
            # One that drains keeps its own until it has drained.
            discarded = sum(sum(one.statistics.discarded.values()) for one in named)
            settled = delivered + discarded
            pending = sum(one.depth for one in named)
            assert sum(len(own.accepted) for own in alike) == settled + pending
            flying = [attempt for attempt in self.flying if attempt.queue is queue]
            assert queue.in_flight_count == len(flying)
            assert set(map(id, queue.cancelled)) <= set(map(id, queue.in_flight))

    def nothing_is_forgotten(self) -> None:
        if self.deliverer._soon:
            return
        for queue in self.all_queues():
            armed = queue.timer is not None and not queue.timer.cancelled
            if not queue.waiting or queue.suspended:
                assert not armed, "a timer without a purpose"
            elif queue.health.next_attempt_at is not None:
                assert armed, "waits for nothing"
                if queue.health.is_held:
                    assert queue.health.pauses.began is not None, "its lifetimes count"
            else:
                busy = {entry.indication.group for entry in queue.in_flight} - {None}
                free = queue.destination.ordering is not Ordering.GROUP or any(
                    entry.indication.group not in busy for entry in queue.waiting.front
                )
                probes = queue.health.hold is not None and queue.in_flight_count > 0
                is_busy = queue.in_flight_count >= queue.max_in_flight or probes
                assert is_busy or not free, "not attempted"
            assert queue.depth or not queue.draining, "drained, but still there"
        if not any(queue.waiting for queue in self.all_queues()):
            # One may be left that looks for subscriptions to end, and will find none; and one that
            # logs the number of discards.
            left = (self.service._triggers._timer, self.service._reports._timer)
            timers = [timer for _, _, timer in self.time._heap if timer not in left]
            assert all(timer.cancelled for timer in timers), "a timer while idle"

    def handlers_live_as_long_as_they_are_needed(self) -> None:
        needed = {id(queue.handler) for queue in self.all_queues()}
        for queue in self.all_queues():
            needed |= {id(handler) for handler in queue.handlers}
        for handler in self.deliverer.created:
            assert handler.closed is (id(handler) not in needed)

    def teardown(self) -> None:
        self.closed = True
        self.service.close()
        assert self.service.pending == 0
        assert self.settled == self.expected
        assert all(handler.closed for handler in self.deliverer.created)
        assert self.time.next_due() is None
        for attempt in list(self.flying):
            self.end(attempt, DeliveryOutcome(DeliveryResult.SUCCESS))
        self.deliverer.run()
        assert self.settled == self.expected
        assert self.deliverer.idle


class Telling:
    """The tracker of every indication."""

    def __init__(self, model: DeliveryModel) -> None:
        self.model = model

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        self.model.settled_by_service(indication, destination, discarded)


TestDelivery = DeliveryModel.TestCase
TestDelivery.settings = settings(
    max_examples=RUNS,
    stateful_step_count=STEPS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize(("outcome", "is_tried_at_once"), [(HELD, True), (ERROR, False)])
def test_a_removal_ends_the_wait_of_a_hold_but_not_of_a_failure(
    is_made_anew: bool, outcome: DeliveryOutcome, is_tried_at_once: bool
) -> None:
    model = DeliveryModel()
    model.begin(size=2, order=(Ordering.DESTINATION, 1))
    drain = {"removal_policy": RemovalPolicy.DRAIN}
    model.change_destination(name="north", change=drain, also={}, anew=1, at_once=True)
    model.publish(names=["north-1"], group=None, run=True)
    model.end(model.flying[0], outcome)
    model.promises_hold()
    if is_made_anew:
        model.change_destination(name="north", change={}, also={}, anew=0, at_once=True)
    else:
        model.remove_destination(name="north", at_once=True)
    model.promises_hold()
    model.deliverer.run()
    assert bool(model.flying) is is_tried_at_once
    model.advance(30.0)
    model.end(model.flying[0], SUCCESS)
    model.deliverer.run()
    model.promises_hold()
    assert model.settled["0", "north"] == 1
    model.teardown()
