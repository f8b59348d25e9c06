"""Tells of discards: each one in the list of discards, the first of a kind in the log at once, all
others as a count (S0.11).

A kind is a destination and a reason. However many indications are discarded, the log gets a bounded
number of lines, so that a mass expiry costs no other line, and no other destination, anything.
"""

from datetime import UTC, datetime

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.delivery import events
from pillion_sidecar.delivery.entry import QueueEntry
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.ports import NO_NUMBER, Discard, DiscardList

#: Seconds between two counts.
PERIOD_SECONDS = 10.0
#: Discards told one by one in a period: of one kind, and of all.
TOLD_OF_KIND = 10
TOLD_IN_ALL = 200


class NoDiscardList:
    """The list where nobody asked for one."""

    def add(self, discard: Discard) -> None:
        """Do nothing."""


class DiscardReports:
    """Tells of discards."""

    def __init__(self, *, clock: Clock, timers: Timers, discards: DiscardList) -> None:
        self._clock = clock
        self._timers = timers
        self._list = discards
        # This period: when it began, and how many have a line.
        self._began = 0.0
        self._told = 0
        self._told_of: dict[events.DiscardKind, int] = {}
        #: Those of this period that have none. A timer is armed where there are any.
        self._counts: dict[events.DiscardKind, int] = {}
        # By destination: what is discarded at the end, when a list in memory goes with the process.
        self._at_the_end: dict[str, list[str | None]] = {}

    def tell(self, queue: DestinationQueue, entry: QueueEntry, reason: DiscardReason) -> None:
        """An indication is being discarded."""
        queue.last_discard_at = self._clock.monotonic()
        kind = queue.name, reason.value
        number = None if entry.number == NO_NUMBER else entry.number
        sequence_number = None if number is None else queue.sequence.sequence_number(number)
        self._list.add(
            Discard(
                time=datetime.fromtimestamp(self._clock.time(), UTC),
                destination=queue.name,
                subscription=entry.subscription.resource.name,
                reason=reason.value,
                source=entry.indication.source,
                identifier=entry.indication.identifier,
                sequence_context=queue.sequence.context,
                sequence_number=sequence_number,
                attempts=entry.attempts,
                queue=queue.index,
                number=number,
                id=entry.indication.id,
            )
        )
        if self._takes_a_line(kind):
            events.discarded(queue, entry, reason, sequence_number=sequence_number)
            return
        if reason is DiscardReason.SHUTDOWN:
            self._at_the_end.setdefault(queue.name, []).append(entry.indication.identifier)
            return
        if not self._counts:
            now = self._clock.monotonic()
            self._timers.call_later(max(0.0, self._began + PERIOD_SECONDS - now), self.count)
        self._counts[kind] = self._counts.get(kind, 0) + 1

    def _takes_a_line(self, kind: events.DiscardKind) -> bool:
        now = self._clock.monotonic()
        if not self._told or (not self._counts and now - self._began >= PERIOD_SECONDS):
            self._begin(now)
        told_of = self._told_of.get(kind, 0)
        if told_of >= TOLD_OF_KIND or self._told >= TOLD_IN_ALL:
            return False
        self._told += 1
        self._told_of[kind] = told_of + 1
        return True

    def _begin(self, now: float) -> None:
        self._began, self._told = now, 0
        self._told_of.clear()

    def count(self) -> None:
        """Tell how many were discarded in this period beside those that have a line, and begin a
        new one."""
        counts, self._counts = self._counts, {}
        events.discards_counted(counts)
        at_the_end, self._at_the_end = self._at_the_end, {}
        for destination, identifiers in at_the_end.items():
            events.discarded_at_shutdown(destination, identifiers)
        self._begin(self._clock.monotonic())
