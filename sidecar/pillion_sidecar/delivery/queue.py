"""A destination queue: its pending entries and its counters (S0.3, S0.12). The dispatcher decides
when to attempt."""

import math
from collections import Counter
from collections.abc import Container
from itertools import islice
from operator import attrgetter
from typing import TypeAlias

from pillion_sidecar.clock import Timer
from pillion_sidecar.config.durability import (
    effective_lifetime,
    effective_retry,
    queue_capacity,
)
from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import (
    DeliverThrough,
    ListenerDestination,
    Ordering,
    is_withheld,
)
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.backlog import Backlog
from pillion_sidecar.delivery.compact_entries import CompactEntries
from pillion_sidecar.delivery.entries import EntryColumns, QueueEntry, Subscription
from pillion_sidecar.delivery.handler import Handler, Hold
from pillion_sidecar.delivery.health import ListenerHealth, QueueStatistics, shifted
from pillion_sidecar.delivery.relay import listener_of, protocol_of
from pillion_sidecar.delivery.sequence import GroupGaps, SequenceIdentifiers, is_ordered, run_of
from pillion_sidecar.delivery.throughput import Throughput
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.ports import QueueState
from pillion_sidecar.pacing import Pace, paced
from pillion_sidecar.protocols import BatchOptions

#: How far ``ordering: Group`` looks for an indication of another group.
GROUP_SEARCH = 256
#: Fraction of a queue's capacity for held members of one incomplete group, and of all.
HELD_OF_ONE_GROUP = 4
HELD_OF_ALL_GROUPS = 2
_GROUP_SHOWN = 100

#: Source and group.
GroupName: TypeAlias = tuple[str | None, str | None]
#: Failures without a success (an attempt and its retry) after which a full queue evicts.
FAILURES_OF_A_FAILING_LISTENER = 2


class DestinationQueue:
    """The queue of one listener destination. Entries ``in_flight`` are in no other place; at most
    ``max_in_flight``."""

    #: From ``listener_of``; for a faulty destination the previous listener, which may return.
    listener_id: str = ""
    pace: Pace | None = None

    def __init__(
        self,
        destination: ListenerDestination,
        *,
        handler: Handler,
        sequence: SequenceIdentifiers,
        created_at: float,
        waiting: Backlog,
        durability: Durability = Durability.MEMORY,
        index: int = 0,
    ) -> None:
        """``created_at`` is in seconds since the epoch, ``index`` the journal's."""
        self.handler, self.sequence = handler, sequence
        self.created_at, self.index = created_at, index
        self.durability, self.waiting = durability, waiting
        #: Places of accepted indications that are not on disk yet, or held (S1.5).
        self.reserved = 0
        #: Those that members of incomplete groups hold (S1.5), in total and by source and group:
        #: beside the capacity, so that they cause no refusals.
        self.held = 0
        self._held_of: Counter[GroupName] = Counter()
        #: Those that have numbers but are not on disk.
        self.staged = 0
        #: Whether a draining queue has the same ``index``.
        self.shares_index = False
        self.in_flight: list[QueueEntry] = []
        # Whether a waiting entry may have a number below one that was taken before.
        self._disordered = False
        #: Entries in flight that an administrator gave up: discarded unless delivered.
        self.cancelled: list[QueueEntry] = []
        # Handlers from before a change of the destination, with their attempts under way.
        self._retiring: list[tuple[Handler, list[QueueEntry]]] = []
        #: Ordered groups that have ended here (S1.5).
        self.gaps = GroupGaps()
        # Batches of this queue being discarded but unread: their groups are unknown.
        self._unread_discards = 0
        self.timer: Timer | None = None
        self.health = ListenerHealth()
        self.statistics = QueueStatistics()
        self.throughput = Throughput()
        self.removed = False
        #: Removed with ``removalPolicy: Drain``: delivers what it holds and takes nothing more.
        self.draining = False
        self.configure(destination, sends_identifiers=True)

    def configure(self, destination: ListenerDestination, *, sends_identifiers: bool) -> None:
        self.destination = destination
        self.name = destination.name
        self.protocol = protocol_of(destination)
        known = destination.fault is None and not is_withheld(destination.destination)
        if known or destination.relay_to is not None:
            self.listener_id = listener_of(destination)
        self.relay_to = destination.relay_to
        self.hands_over = (
            destination.relay_to is not None
            and destination.deliver_through is DeliverThrough.DELIVERER
        )
        self.suspended = destination.suspended
        self.capacity = queue_capacity(destination, self.durability)
        self.retry = effective_retry(destination, self.durability)
        self.lifetime = effective_lifetime(destination, self.durability)
        self.max_in_flight = destination.most_under_way
        own = None if destination.relay_to is not None else destination.options
        batch = own if isinstance(own, BatchOptions) else BatchOptions()
        # A full queue would refuse what could fill the batch.
        self.most_together = min(batch.max_batch, self.capacity)
        self.pace = paced(destination.rate_limit, before=self.pace)
        if self.pace is not None:
            self.most_together = min(self.most_together, self.pace.burst)
        # Half of a lifetime is left for attempts.
        self.gather_seconds = min(batch.max_delay_seconds, (self.lifetime or math.inf) / 2)
        self.sends_identifiers = sends_identifiers
        self._by_group = destination.ordering is Ordering.GROUP
        self._in_order = destination.ordering is Ordering.DESTINATION
        if not self._in_order and (self._by_group or self.max_in_flight > 1):
            self.waiting.keep_loaded(GROUP_SEARCH)
        elif self._in_order and self.max_in_flight > 1:
            self.waiting.keep_loaded(self.max_in_flight)

    @property
    def depth(self) -> int:
        return self.waiting.count + len(self.in_flight)

    @property
    def uid(self) -> str:
        return self.destination.uid

    @property
    def in_flight_count(self) -> int:
        return len(self.in_flight)

    @property
    def sequence_context(self) -> str | None:
        return self.sequence.context if self.sends_identifiers else None

    @property
    def next_sequence_number(self) -> int:
        return self.sequence.sequence_number(self.sequence.next_number)

    @property
    def oldest_accepted_at(self) -> float | None:
        """When (monotonic) the oldest entry was accepted; None for an empty queue."""
        oldest = self.in_flight[0] if self.in_flight else None
        first = self.waiting.first()
        if first is not None and (
            oldest is None
            or (not self._in_order and first.indication.accepted_at < oldest.indication.accepted_at)
        ):
            oldest = first
        if oldest is None:
            # The front is being read.
            return self.waiting.last_accepted_at if self.waiting.count else None
        return oldest.indication.accepted_at

    @property
    def front_identifiers(self) -> list[str | None]:
        """The identifier of the entry that :meth:`DeliveryService.skip` would discard, if any."""
        first = self._first_in_flight() or self.waiting.first()
        return [] if first is None else [first.indication.identifier]

    def refuses(self, places: int, *, now: float, evicts: bool = True) -> bool:
        """Whether to refuse ``places`` more entries: they do not fit, and none is evicted or
        ``evicts`` forbids it (S0.4).

        An indication that needs more places than the capacity enters an empty queue; otherwise it
        would be refused for ever.
        """
        # One in flight may come back, and would be evicted.
        taken = (self.waiting.count if evicts else self.depth) + self.reserved - self.held
        fits = taken + min(places, self.capacity) <= self.capacity
        return not (fits or (evicts and self.evicts_oldest(now=now)))

    def stage(self, places: int) -> None:
        """Reserve places of entries that have numbers and are not on disk; negative: free them."""
        self.reserved += places
        self.staged += places

    def hold_place(self, indication: Indication) -> None:
        """Reserve a place of a member whose predecessors are missing."""
        self.reserved += 1
        self.held += 1
        self._held_of[indication.source, indication.group] += 1

    def free_place(self, indication: Indication) -> None:
        name = (indication.source, indication.group)
        self.reserved -= 1
        self.held -= 1
        self._held_of[name] -= 1
        if not self._held_of[name]:
            del self._held_of[name]

    def refuses_to_hold(self, indication: Indication, places: int) -> str | None:
        """Return why no more can be held of a group, or of all."""
        of_group = self._held_of[indication.source, indication.group]
        group, share = f"group {(indication.group or '')[:_GROUP_SHOWN]}", self.capacity
        if of_group + places > max(places, share // HELD_OF_ONE_GROUP):
            return (
                f"{group} waits for a member before this one, and holds {of_group} places of"
                f" destination {self.name} already, a quarter of its queueSize"
            )
        if self.held + places > max(places, share // HELD_OF_ALL_GROUPS):
            return (
                f"{group} waits for a member before this one, and such groups hold {self.held}"
                f" places of destination {self.name} already, half of its queueSize"
            )
        return None

    def evicts_oldest(self, *, now: float) -> bool:
        """Whether its own oldest entries are evicted when space is needed (S0.4).

        Adaptive: while suspended, held or paused, or after an attempt and its retry have failed.
        One failure may be a slow or restarting listener.
        """
        policy = self.destination.queue_full_policy
        if policy is not QueueFullPolicy.ADAPTIVE:
            return policy is QueueFullPolicy.DISCARD_OLDEST
        if self.suspended or self.health.hold is not None:
            return True
        health = self.health
        if health.failures < FAILURES_OF_A_FAILING_LISTENER or health.failing_since is None:
            return False
        # A gateway is retried after a second, so two failures say little.
        patience = self.retry.maximum_interval_seconds
        return self.relay_to is None or now - health.failing_since > patience

    def insert_back(self, entry: QueueEntry, *, now: float) -> QueueEntry | CompactEntries | None:
        """Append a new entry; return what was evicted for it (S0.4).

        A queue that pushes back had a place for it, but may exceed its capacity when entries in
        flight return. Entries of one indication do not evict each other.
        """
        is_full = self.waiting.count >= self.capacity
        evicted = self.evict(entry) if is_full and self.evicts_oldest(now=now) else None
        one = EntryColumns(entry.number, [entry.indication], [entry.subscription])
        self.extend_back(one, now=now)
        return evicted

    def extend_back(self, entries: EntryColumns, *, now: float) -> None:
        """Append new entries, for which there is room."""
        before, count = self.depth, len(entries.indications)
        self.waiting.extend(entries)
        self.statistics.note_depth(before + count)
        self.throughput.accept(now, count, is_first=not before)

    def evict(self, newcomer: QueueEntry | None = None) -> QueueEntry | CompactEntries | None:
        """Take the oldest waiting entry, unless it is of the newcomer's indication."""
        first = self.waiting.first()
        if first is not None:
            if newcomer is not None and first.indication is newcomer.indication:
                return None
            return self.waiting.popleft()
        packed = self.waiting.popleft_packed()
        if packed is None:
            return None
        evicted = CompactEntries()
        evicted.append(packed)
        return evicted

    @property
    def lowest_number(self) -> int:
        """No entry here, or uncommitted, has a lesser number."""
        numbers = [entry.number for entry in self.in_flight]
        numbers.append(self.sequence.next_number - self.staged)
        first = self.waiting.first_number
        if first is not None:
            numbers.append(first)
        return min(numbers)

    def insert_front(self, entry: QueueEntry) -> bool:
        """Put a failed entry back in order of acceptance; False if it was evicted (full,
        ``DiscardOldest``, S0.4).

        With any other policy, or after a failed gateway, it keeps its place, and the queue may
        exceed its capacity by the number in flight.
        """
        discards = self.destination.queue_full_policy is QueueFullPolicy.DISCARD_OLDEST
        if discards and self.waiting.count >= self.capacity and self.relay_to is None:
            return False
        self.waiting.put_back(entry)
        return True

    def gathered_at(self, now: float) -> float | None:
        """When (monotonic) the waiting entries are attempted though they are no full batch; None:
        now."""
        if self.in_flight or self.draining or self.waiting.count >= self.most_together:
            return None
        first = self.waiting.first()
        if first is None or first.attempts:
            return None
        end = first.indication.accepted_at + self.gather_seconds
        return end if end > now else None

    def take(self, *, now: float) -> QueueEntry | None:
        """Take the entry to attempt at ``now`` (monotonic); None if order allows none."""
        if not self.waiting.front or len(self.in_flight) >= self.max_in_flight:
            return None
        if self.in_flight and self.health.hold is not None:
            # One attempt suffices to probe a listener.
            return None
        if (
            self._in_order
            and self.in_flight
            and (self._retiring or self.health.troubled_since is not None)
        ):
            # Entries of a replaced handler may return and precede all that wait; and one attempt
            # suffices to probe a gateway.
            return None
        if self._by_group:
            entry = self._take_free(by_name=True)
        elif self.waiting.front[0].indication.member is None:
            entry = self.waiting.popleft()
        elif self._in_order:
            entry = self.waiting.popleft() if self._may_go(self.waiting.front[0], ()) else None
        else:
            entry = self._take_free(by_name=False)
        if entry is None:
            return None
        self._disordered |= bool(self.in_flight) and entry.number < self.in_flight[-1].number
        self.in_flight.append(entry)
        self.statistics.begin_attempt(now)
        return entry

    def _take_free(self, *, by_name: bool) -> QueueEntry | None:
        """Take the first entry whose message group has nothing in flight.

        Ordered groups never have two in flight; with ``by_name`` no group has.
        """
        busy = {entry.indication.group for entry in self.in_flight} - {None} if by_name else set()
        runs = {run_of(one.indication) for one in self.in_flight if is_ordered(one.indication)}
        for index, entry in enumerate(islice(self.waiting.front, GROUP_SEARCH)):
            indication = entry.indication
            # A damaged entry, or one behind a gap, is discarded when it is first.
            if indication.group not in busy and indication.body and self._may_go(entry, runs):
                return self.waiting.take_at(index)
            if is_ordered(indication):
                runs.add(run_of(indication))
        return None

    def _may_go(self, entry: QueueEntry, busy: Container[int]) -> bool:
        """``busy``: runs of groups that allow no further attempt."""
        indication = entry.indication
        if not is_ordered(indication) or self.passes_gaps:
            return True
        return (
            not self._unread_discards
            and run_of(indication) not in busy
            and not self.gaps.is_behind(indication)
        )

    @property
    def passes_gaps(self) -> bool:
        return self.relay_to is not None and not self.hands_over

    def lose(self, indication: Indication) -> bool:
        """A member of an ordered group is lost: the group ends here (S1.5). Return whether that is
        new."""
        member = indication.member
        if member is None or not member.ordered or self.passes_gaps or self.removed:
            return False
        # Not each time: it searches all in flight.
        if len(self.gaps) % 64 == 63:
            self.gaps.forget_below(self.lowest_number)
        return self.gaps.add(run_of(indication), member.sequence)

    def expiry(self) -> float | None:
        """When (monotonic) the first loaded entry's lifetime ends; None while lifetimes are paused
        (D.2)."""
        front, pauses = self.waiting.front, self.health.pauses
        if not front or not self.lifetime or self.health.is_held:
            return None
        accepted_at = front[0].indication.accepted_at
        paused = pauses.since(accepted_at) if pauses.spells else 0.0
        return accepted_at + self.lifetime + paused

    @property
    def free_places(self) -> int:
        """Negative if the queue exceeds its capacity."""
        return self.capacity - self.waiting.count - (self.reserved - self.held)

    def remove_subscription(
        self, subscription: Subscription
    ) -> tuple[list[QueueEntry], CompactEntries]:
        """Remove and return the waiting entries for one subscription; the others keep order."""
        return self.waiting.remove_subscription(
            lambda entry: entry.subscription is subscription, subscription=subscription.index
        )

    def settles_through(self, entry: QueueEntry) -> bool:
        if self.shares_index:
            return False
        in_flight = self.in_flight
        if in_flight and (
            in_flight[0].number < entry.number
            or (self._disordered and any(other.number < entry.number for other in in_flight))
        ):
            return False
        first = self.waiting.first_number
        return first is None or first > entry.number

    def renumber(self) -> None:
        """Begin a new sequence context for all that is queued: the listener is another one."""
        oldest = [entry.number for entry in self.in_flight]
        first = self.waiting.first_number
        if first is not None:
            oldest.append(first)
        # Uncommitted entries have the last numbers.
        following = self.sequence.next_number - self.staged
        self.sequence.renew(from_number=min(oldest, default=following))

    def follow(self, before: "DestinationQueue") -> None:
        """Take over the ``index`` of another queue. The journal identifies entries by number, so no
        number is reused."""
        self.sequence.continue_from(before.sequence.next_number)
        self.renumber()
        self.shares_index = before.shares_index = before.draining

    def own_index(self) -> None:
        self.shares_index = False

    def remember_listener(self, listener: str) -> None:
        """Restore the previous listener, if the resource does not name one."""
        if not self.listener_id:
            self.listener_id = listener

    def contains(self, number: int) -> bool:
        return self.waiting.contains(number) or any(one.number == number for one in self.in_flight)

    def move(self, number: int, position: int, size: int) -> bool:
        """Note that an indication was relocated; return whether the entry is here."""
        for entry in self.in_flight:
            if entry.number == number:
                entry.indication.position, entry.indication.size = position, size
                return True
        return self.waiting.move(number, position, size)

    # ------------------------------------------------------------------ handlers and attempts

    @property
    def handlers(self) -> list[Handler]:
        return [self.handler, *(handler for handler, _ in self._retiring)]

    def replace_handler(self, handler: Handler) -> None:
        """The old handler is closed once its attempts under way have ended."""
        if self.in_flight:
            # Attempts of older handlers are in both lists.
            self._retiring.append((self.handler, list(self.in_flight)))
        else:
            self.handler.close()
        self.handler = handler

    def is_outdated(self, entry: QueueEntry) -> bool:
        """Whether the attempt under way is of a handler that was replaced since."""
        return any(entry in in_flight for _, in_flight in self._retiring)

    def complete(self, entry: QueueEntry) -> bool:
        """Remove an entry from flight; False if it was abandoned."""
        if entry not in self.in_flight:
            return False
        self.in_flight.remove(entry)
        self._disordered &= bool(self.in_flight)
        if self._retiring:
            self._complete_retired(entry)
        return True

    def _complete_retired(self, entry: QueueEntry) -> None:
        for handler, in_flight in self._retiring:
            if entry in in_flight:
                in_flight.remove(entry)
                if not in_flight:
                    handler.close()
        self._retiring = [pair for pair in self._retiring if pair[1]]

    def abandon_attempts(self) -> list[QueueEntry]:
        """Abandon the attempts under way and their handlers. Return the entries in flight except
        cancelled ones (:meth:`pop_cancelled`)."""
        in_flight, self.in_flight = self.in_flight, []
        self._disordered = False
        self.close_handlers()
        return [entry for entry in in_flight if entry not in self.cancelled]

    def close_handlers(self) -> None:
        for handler in self.handlers:
            handler.close()
        self._retiring.clear()

    def _first_in_flight(self) -> QueueEntry | None:
        """Without the cancelled ones."""
        left = [entry for entry in self.in_flight if entry not in self.cancelled]
        return min(left, key=attrgetter("number"), default=None)

    def cancel_first(self) -> bool:
        """Cancel the first entry in flight; False without one."""
        first = self._first_in_flight()
        if first is None:
            return False
        self.cancelled.append(first)
        return True

    def cancel_in_flight(self) -> None:
        """Discard what is in flight unless it is delivered."""
        self.cancelled = list(self.in_flight)

    def pop_cancelled(self, entry: QueueEntry) -> bool:
        """Return whether the entry was cancelled, and forget it."""
        if entry not in self.cancelled:
            return False
        self.cancelled.remove(entry)
        return True

    def take_cancelled(self) -> list[QueueEntry]:
        """Return the cancelled entries, which the caller discards."""
        cancelled, self.cancelled = self.cancelled, []
        return cancelled

    def schedule(self, timer: Timer | None) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer

    # ------------------------------------------------------------------ holds and the end

    def pause_or_go_on(self, now: float) -> None:
        """Pause or resume lifetimes, depending on suspension and hold."""
        pauses = self.health.pauses
        if self.suspended or self.health.is_held:
            pauses.begin(now)
            self.throughput.catch_up()
        else:
            pauses.finish(now)

    def release(self, now: float) -> Hold | None:
        hold = self.health.release()
        if hold is not None:
            self.pause_or_go_on(now)
        return hold

    def begin_reading_discards(self) -> None:
        self._unread_discards += 1

    def end_reading_discards(self) -> bool:
        """Note that a batch is read; return whether it was the last one."""
        self._unread_discards -= 1
        return not self._unread_discards

    def drain(self) -> None:
        """Take nothing more, and deliver what is here."""
        self.draining = True

    def remove(self) -> None:
        self.removed = True
        self.schedule(None)
        self.close_handlers()

    def surrender(self) -> tuple[list[QueueEntry], CompactEntries]:
        """Give up and return all entries, in flight first."""
        in_flight, self.in_flight = self.in_flight, []
        waiting, packed = self.waiting.surrender()
        return in_flight + waiting, packed

    def state(self, *, offset: float) -> QueueState:
        """Return what a restart needs; ``offset`` is the journal's."""
        health, pauses, hold = self.health, self.health.pauses, self.health.hold
        in_flight = [(entry.number, entry.attempts) for entry in self.in_flight if entry.attempts]
        return QueueState(
            destination=self.index,
            listener=self.listener_id,
            sends_identifiers=self.sends_identifiers,
            epoch=self.sequence.epoch,
            base=self.sequence.base,
            next_number=self.sequence.next_number,
            failures=health.failures,
            next_attempt_at=shifted(health.next_attempt_due, offset),
            failing_since=shifted(health.failing_since, offset),
            paused_since=shifted(pauses.began, offset),
            pauses=tuple((begin + offset, end + offset) for begin, end in pauses.spells),
            attempts=(*in_flight, *self.waiting.tried(in_order=self._in_order)),
            gaps=self.gaps.records(),
            troubled_since=shifted(health.troubled_since, offset),
            hold=None if hold is None else (hold.cause.value, hold.message, hold.since + offset),
            dead_letter=self.destination.left_to,
            last_failure=None if health.failing_since is None else self.statistics.last_failure,
        )
