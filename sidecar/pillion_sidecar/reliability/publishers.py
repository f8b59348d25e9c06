"""Publishers' counts by destination, and the barrier for ``/v1/flush``. Bounded: the least recently
used publisher is dropped, preferably one with nothing pending."""

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.history.outcome import Outcome, repeated_fault
from pillion_sidecar.indication import DiscardReason, Indication, Target, Unreached
from pillion_sidecar.reliability.duplicates import DuplicateMemory, Original
from pillion_sidecar.reliability.identity import identity_digest
from pillion_sidecar.reliability.receipts import Signal, key_of

MAXIMUM_PUBLISHERS = 10_000
#: Discards remembered, for all publishers together, to prevent double counting.
MAXIMUM_DISCARDS = 20_000
#: How many of the least recently used are checked for pending indications.
_ASKED = 16
#: Milliseconds since the epoch: the end of the year 9999.
_LAST_SINCE = 253_402_300_799_999


class DestinationCounts:
    __slots__ = ("delivered", "discarded", "pending")

    def __init__(self) -> None:
        self.pending = 0
        self.delivered = 0
        self.discarded: Counter[DiscardReason] = Counter()


class Barrier:
    """One flush: waits until each destination has once had nothing pending since its start; then it
    has settled everything before the flush."""

    __slots__ = ("awaited", "done", "originals")

    def __init__(self, *, awaited: set[str], originals: bool, timers: Timers) -> None:
        self.awaited = awaited
        #: Also await originals of duplicates.
        self.originals = originals
        self.done = Signal(timers)
        self.check()

    def check(self) -> None:
        if not self.awaited and not self.originals:
            self.done.give()


class CountedDiscards:
    """Discards already counted: a request repeated after a lost answer makes its lines duplicates
    of themselves. Bounded: the oldest are dropped."""

    def __init__(self, *, maximum: int = MAXIMUM_DISCARDS) -> None:
        self._maximum = maximum
        # By publisher and identity: the counted destination; None for its own indication.
        self._destinations: OrderedDict[tuple[int, bytes], str | None] = OrderedDict()

    def own(self, publisher: int, digest: bytes, destination: str) -> bool:
        """Note a discard of the publisher's own indication; return whether to count it."""
        key = (publisher, digest)
        before = self._destinations.get(key)
        self._keep(key, None)
        return before != destination

    def repeated(self, publisher: int, digest: bytes, destination: str) -> bool:
        """Note a discard of a duplicate's original; return whether to count it."""
        key = (publisher, digest)
        if key in self._destinations:
            return False
        self._keep(key, destination)
        return True

    def is_own(self, publisher: int, digest: bytes) -> bool:
        return self._destinations.get((publisher, digest), "") is None

    def _keep(self, key: tuple[int, bytes], destination: str | None) -> None:
        self._destinations[key] = destination
        if len(self._destinations) > self._maximum:
            self._destinations.popitem(last=False)


class Publisher:
    """One publisher's counts; a ``Follower`` and a ``Waiter``. Its indications count by
    destination; a duplicate of another's counts where the original was discarded."""

    def __init__(
        self,
        *,
        memory: DuplicateMemory,
        timers: Timers,
        discards: CountedDiscards | None = None,
        number: int = 0,
        instance: str = "",
        since: float = 0.0,
        repeated: Callable[[str, DiscardReason], None] | None = None,
    ) -> None:
        """``number`` is unique among those that share ``discards``. ``repeated`` is told of the
        destination and the reason for which the original of a duplicate was discarded."""
        #: Changes after a restart, and after it was dropped. Counts begin at ``since``, seconds
        #: since the epoch.
        self.instance = instance
        self.since = since
        #: Indications accepted, however many listeners they have.
        self.accepted = 0
        self.destinations: dict[str, DestinationCounts] = {}
        #: Indications without listener, by reason.
        self.unreached_indications: Counter[Unreached] = Counter()
        self._tell_repeated = repeated
        self._discards = CountedDiscards() if discards is None else discards
        self._number = number
        self._memory = memory
        self._timers = timers
        self._barriers: list[Barrier] = []
        self._originals: set[bytes] = set()
        # The indication being offered, with the number of settled targets.
        self._offered: Indication | None = None
        self._settled_early = 0
        # Indications with fewer targets queued than routed. It is unknown which, so the rest is
        # subtracted once the last is settled.
        self._partial: dict[int | bytes, list[str]] = {}

    @property
    def idle(self) -> bool:
        """Whether nothing is pending and nobody waits."""
        return not (
            self._barriers
            or self._originals
            or any(counts.pending for counts in self.destinations.values())
        )

    @property
    def pending_originals(self) -> int:
        """Duplicates whose originals are still being delivered."""
        return len(self._originals)

    async def flush(self, seconds: float) -> bool:
        """Wait until everything accepted, or answered ``duplicate``, before this call is settled;
        return whether it is."""
        barrier = Barrier(
            awaited={name for name, counts in self.destinations.items() if counts.pending},
            originals=bool(self._originals),
            timers=self._timers,
        )
        self._barriers.append(barrier)
        try:
            return await barrier.done.wait(seconds)
        finally:
            self._barriers.remove(barrier)

    def close(self) -> None:
        for digest in self._originals:
            self._memory.stop_waiting(digest, self)
        self._originals.clear()

    # Follower.

    def offering(self, indication: Indication, targets: Sequence[Target], line: int) -> None:
        self._offered = indication
        self._settled_early = 0
        self.accepted += 1
        for target in targets:
            self._counts(target.destination).pending += 1

    def offered_all(
        self,
        indications: Sequence[Indication],
        targets: Sequence[Sequence[Target]],
        lines: Sequence[int],
    ) -> None:
        self.accepted += len(indications)
        names = Counter(target.destination for of_one in targets for target in of_one)
        for name, places in names.items():
            self._counts(name).pending += places

    def withdrawn(self, indication: Indication, targets: Sequence[Target]) -> None:
        self.accepted -= 1
        self._not_pending(targets)

    def _not_pending(self, targets: Sequence[Target]) -> None:
        for target in targets:
            self._less_pending(target.destination)

    def reduced(self, indication: Indication, targets: Sequence[Target]) -> None:
        missing = len(targets) - indication.unsettled - self._settled_early
        if missing <= 0:
            return
        if indication.unsettled:
            self._partial[key_of(indication)] = [target.destination for target in targets]
        else:
            self._not_pending(targets)

    def unreached(self, reason: Unreached) -> None:
        self.unreached_indications[reason] += 1

    def repeated(self, digest: bytes, original: Original, line: int) -> None:
        if original.pending:
            if digest not in self._originals:
                self._originals.add(digest)
                self._memory.wait_for(digest, self)
        else:
            self._count_original(digest, original)

    # Tracker and Waiter.

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        counts = self._counts(destination)
        if discarded is None:
            counts.delivered += 1
        elif self._is_new(indication, destination):
            counts.discarded[discarded] += 1
            if discarded is DiscardReason.DAMAGED and self._tell_repeated is not None:
                # Its record, which has the publisher, cannot be read.
                self._tell_repeated(destination, discarded)
        self._less_pending(destination)
        if indication is self._offered:
            self._settled_early += 1
        if self._partial:
            self._settle_partial(indication, destination)

    def _is_new(self, indication: Indication, destination: str) -> bool:
        digest = indication.digest or identity_digest(indication.source, indication.identifier)
        return digest is None or self._discards.own(self._number, digest, destination)

    def _settle_partial(self, indication: Indication, destination: str) -> None:
        routed = self._partial.get(key_of(indication))
        if routed is None:
            return
        routed.remove(destination)
        if not indication.unsettled:
            for name in self._partial.pop(key_of(indication)):
                self._less_pending(name)

    def original_settled(self, digest: bytes, original: Original) -> None:
        self._originals.discard(digest)
        self._count_original(digest, original)
        if not self._originals:
            for barrier in self._barriers:
                barrier.originals = False
                barrier.check()

    def _count_original(self, digest: bytes, original: Original) -> None:
        destination, reason = original.destination, original.reason
        if destination is None or reason is None:
            return
        if self._discards.repeated(self._number, digest, destination):
            self._counts(destination).discarded[reason] += 1
            # Later: it may be the publisher's own, whose discard is told in this same turn.
            self._timers.call_later(0, partial(self._repeat, digest, destination, reason))

    def _repeat(self, digest: bytes, destination: str, reason: DiscardReason) -> None:
        if self._tell_repeated is not None and not self._discards.is_own(self._number, digest):
            self._tell_repeated(destination, reason)

    def _counts(self, destination: str) -> DestinationCounts:
        counts = self.destinations.get(destination)
        if counts is None:
            counts = self.destinations[destination] = DestinationCounts()
        return counts

    def _less_pending(self, destination: str) -> None:
        counts = self._counts(destination)
        counts.pending -= 1
        if not counts.pending:
            for barrier in self._barriers:
                barrier.awaited.discard(destination)
                barrier.check()


class Instance(NamedTuple):
    """The name of a deliverer's record of a publisher, as it is given to that publisher."""

    #: The ID of the history, and the number of its last outcome before the record began.
    history: str
    after: int = 0
    #: Seconds since the epoch.
    since: float | None = None

    @classmethod
    def read(cls, text: str) -> "Instance":
        """What is no such name is taken for the ID of a history."""
        history, *rest = text.split(".")
        if len(rest) != 3 or not all(one.isascii() and one.isdecimal() for one in rest[:2]):
            return cls(text)
        after, since = (int(one[:20]) for one in rest[:2])
        return cls(history, after, since / 1000) if since <= _LAST_SINCE else cls(text)


class FaultNotes(Protocol):
    """The history, as far as publishers need it."""

    @property
    def id(self) -> str: ...

    @property
    def last(self) -> int:
        """The number of the last outcome."""

    def add(self, outcome: Outcome) -> None: ...


class Publishers:
    """By the ID that they give (``Pillion-Publisher``)."""

    def __init__(
        self,
        *,
        memory: DuplicateMemory,
        timers: Timers,
        clock: Clock,
        history: FaultNotes,
        maximum: int = MAXIMUM_PUBLISHERS,
    ) -> None:
        self._clock = clock
        self._history = history
        self._run = secrets.token_urlsafe(9)
        self._memory = memory
        self._timers = timers
        self._maximum = maximum
        self._publishers: OrderedDict[str, Publisher] = OrderedDict()
        self._discards = CountedDiscards()
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._publishers)

    def find(self, publisher_id: str) -> Publisher | None:
        publisher = self._publishers.get(publisher_id)
        if publisher is not None:
            self._publishers.move_to_end(publisher_id)
        return publisher

    def meet(self, publisher_id: str) -> Publisher:
        """Return a publisher, adding a new one."""
        publisher = self.find(publisher_id)
        if publisher is None:
            if len(self._publishers) >= self._maximum:
                self._make_room()
            number, since = next(self._numbers), self._clock.time()
            publisher = Publisher(
                memory=self._memory,
                timers=self._timers,
                discards=self._discards,
                number=number,
                instance=f"{self._history.id}.{self._history.last}.{int(since * 1000)}"
                f".{self._run}{number}",
                since=since,
                repeated=partial(self._note_fault, publisher_id),
            )
            self._publishers[publisher_id] = publisher
        return publisher

    def _note_fault(self, publisher_id: str, destination: str, reason: DiscardReason) -> None:
        note = repeated_fault(
            publisher_id, destination=destination, reason=reason.value, at=self._clock.time()
        )
        self._history.add(note)

    def _make_room(self) -> None:
        # There are at least as many as may be kept, so the loop always finds one.
        least_recent = [name for name, _ in zip(self._publishers, range(_ASKED), strict=False)]
        for name in least_recent:
            if self._publishers[name].idle:
                break
        else:
            name = least_recent[0]
        self._publishers.pop(name).close()
