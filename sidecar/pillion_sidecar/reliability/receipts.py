"""Receipts by request and line (S1.9), and the faults. Bounded."""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from pillion_sidecar.clock import Timers
from pillion_sidecar.indication import DiscardReason, Indication, Target, Tracker, Unreached
from pillion_sidecar.reliability.duplicates import DuplicateMemory, Original
from pillion_sidecar.wire.submission import DiscardedLine

MAXIMUM_RECEIPTS = 10_000
MAXIMUM_DISCARDS_DETAILED = 10_000
#: Faults kept for one publisher, and for all together.
MAXIMUM_FAULTS = 5_000
MAXIMUM_FAULTS_OF_ALL = 50_000
#: Characters of a text that a fault repeats.
_MAXIMUM_TEXT = 1024


def key_of(indication: Indication) -> int | bytes:
    """Return a key that identifies an indication while anyone follows it.

    The settled object may be another one, read back from the journal, so its id counts; a group
    member gets another id on release (S1.5), so its identity counts. Without a journal the object
    stays the same.
    """
    if indication.member is not None and indication.digest is not None:
        return indication.digest
    return indication.id or -id(indication)


class Follower(Tracker, Protocol):
    """A tracker of the lines that intake hands over: ``offering``, then ``withdrawn`` if a queue
    refused it, ``reduced`` if fewer targets were queued than routed, ``unreached`` if it has no
    listener."""

    def offering(self, indication: Indication, targets: Sequence[Target], line: int) -> None: ...

    def withdrawn(self, indication: Indication, targets: Sequence[Target]) -> None: ...

    def reduced(self, indication: Indication, targets: Sequence[Target]) -> None: ...

    def unreached(self, reason: Unreached) -> None: ...

    def repeated(self, digest: bytes, original: Original, line: int) -> None:
        """A line is a duplicate; ``original``: the result so far."""


@dataclass(slots=True, eq=False)
class Signal:
    """Lets any number of coroutines wait for one moment, each with its own time-out."""

    _timers: Timers
    given: bool = False
    _waiting: set[asyncio.Future[None]] = field(default_factory=set)
    _told: list[Callable[[], None]] = field(default_factory=list)

    def give(self) -> None:
        self.given = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        told, self._told = self._told, []
        for tell in told:
            tell()

    def then(self, tell: Callable[[], None]) -> None:
        """Call back once, at or after the moment. The call must not raise."""
        if self.given:
            tell()
        else:
            self._told.append(tell)

    async def wait(self, seconds: float) -> bool:
        """Return whether it came within ``seconds``."""
        if self.given or seconds <= 0:
            return self.given
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        timer = self._timers.call_later(seconds, lambda: _wake(future))
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)
        return self.given


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Receipt:
    """The results of a request's lines and of its duplicates' originals. A line is pending until
    all its targets are settled, delivered once all have it, discarded as soon as one is: it may be
    pending and discarded."""

    def __init__(
        self, *, memory: DuplicateMemory, timers: Timers, namespace: str | None = None
    ) -> None:
        """``namespace``: the publisher's; None without tokens."""
        self.id = secrets.token_urlsafe(12)
        self.namespace = namespace
        self.delivered = 0
        #: Accepted lines without listener by reason; none is delivered.
        self.unreached_lines: Counter[Unreached] = Counter()
        self.discarded: list[DiscardedLine] = []
        #: Discards that are only counted, beyond those in ``discarded``.
        self.discarded_beyond = 0
        self.settled_all = Signal(timers)
        #: Given once every accepted line, or its original, is on disk.
        self.secured = Signal(timers)
        self.is_for_durable = False
        #: Followed to the end, for the callback.
        self.is_called_back = False
        self._memory = memory
        self._lines: dict[int | bytes, int] = {}
        # The line being offered: it has no id before it is taken.
        self._offered: Indication | None = None
        self._offered_line = 0
        self._failed: set[int | bytes] = set()
        self._originals: dict[bytes, list[int]] = {}
        self._waiting_originals = 0
        self._complete = False

    @property
    def pending(self) -> int:
        offered = 0 if self._offered is None else 1
        return len(self._lines) + offered + self._waiting_originals

    def completed(self) -> None:
        """The request has been read to its end."""
        self._complete = True
        self._check()

    def close(self) -> None:
        for digest in self._originals:
            self._memory.stop_waiting(digest, self)
        self._originals.clear()
        self._waiting_originals = 0
        self._lines.clear()
        self._failed.clear()
        self._offered = None

    # Follower.

    def offering(self, indication: Indication, targets: Sequence[Target], line: int) -> None:
        if self._offered is not None:
            self._note_offered(self._offered)
        if targets:
            self._offered = indication
            self._offered_line = line

    def unreached(self, reason: Unreached) -> None:
        self.unreached_lines[reason] += 1
        if reason is not Unreached.UNROUTED:
            # ``reduced`` has counted it.
            self.delivered -= 1

    def _note_offered(self, indication: Indication) -> None:
        self._offered = None
        self._lines[key_of(indication)] = self._offered_line

    def withdrawn(self, indication: Indication, targets: Sequence[Target]) -> None:
        if self._offered is indication:
            self._note_offered(indication)
        self._lines.pop(key_of(indication), None)
        self._failed.discard(key_of(indication))

    def reduced(self, indication: Indication, targets: Sequence[Target]) -> None:
        if self._offered is indication:
            self._note_offered(indication)
        key = key_of(indication)
        if not indication.unsettled and self._lines.pop(key, None) is not None:
            if key in self._failed:
                self._failed.remove(key)
            else:
                self.delivered += 1

    def repeated(self, digest: bytes, original: Original, line: int) -> None:
        if not original.pending:
            self._conclude(original, line)
            return
        self._waiting_originals += 1
        lines = self._originals.setdefault(digest, [])
        if not lines:
            self._memory.wait_for(digest, self)
        lines.append(line)

    # Tracker and Waiter.

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        offered = self._offered
        if offered is not None and (offered.id or offered is indication):
            # Not before it has its id: another may be discarded to make room for it.
            self._note_offered(offered)
        key = key_of(indication)
        line = self._lines.get(key)
        if line is None:
            return
        if discarded is not None:
            self._failed.add(key)
            self._discard(DiscardedLine(line, destination, discarded))
        if not indication.unsettled:
            del self._lines[key]
            if key in self._failed:
                self._failed.remove(key)
            else:
                self.delivered += 1
        self._check()

    def original_settled(self, digest: bytes, original: Original) -> None:
        for line in self._originals.pop(digest, ()):
            self._waiting_originals -= 1
            self._conclude(original, line)
        self._check()

    def _conclude(self, original: Original, line: int) -> None:
        if original.reason is None or original.destination is None:
            self.delivered += 1
        else:
            self._discard(DiscardedLine(line, original.destination, original.reason))

    def _discard(self, discarded: DiscardedLine) -> None:
        if len(self.discarded) < MAXIMUM_DISCARDS_DETAILED:
            self.discarded.append(discarded)
        else:
            self.discarded_beyond += 1

    def _check(self) -> None:
        if self._complete and not self.pending:
            self.settled_all.give()


class Receipts:
    """The receipts that a publisher may ask for again; the oldest are dropped."""

    def __init__(self, *, maximum: int = MAXIMUM_RECEIPTS) -> None:
        self._maximum = maximum
        self._receipts: OrderedDict[str, Receipt] = OrderedDict()

    def keep(self, receipt: Receipt) -> None:
        self._receipts[receipt.id] = receipt
        while len(self._receipts) > self._maximum:
            oldest = self._receipts.popitem(last=False)[1]
            if not oldest.is_called_back:
                oldest.close()

    def drop(self, receipt: Receipt) -> None:
        """Stop keeping and following a receipt."""
        self._receipts.pop(receipt.id, None)
        receipt.close()

    def find(self, receipt_id: str, *, namespace: str | None = None) -> Receipt | None:
        """Return a receipt of a publisher of ``namespace``, or None."""
        receipt = self._receipts.get(receipt_id)
        return receipt if receipt is not None and receipt.namespace == namespace else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One target of an accepted indication was discarded."""

    destination: str
    reason: DiscardReason
    source: str | None = None
    #: IndicationIdentifier.
    identifier: str | None = None
    group: str | None = None
    #: The group sequence.
    sequence: int | None = None
    #: The original of a duplicate, from another publisher: only its end is known.
    is_of_duplicate: bool = False

    @classmethod
    def of(cls, indication: Indication, destination: str, reason: DiscardReason) -> Self:
        member = indication.member
        return cls(
            destination=destination,
            reason=reason,
            source=_shortened(indication.source),
            identifier=_shortened(indication.identifier),
            group=_shortened(indication.group),
            sequence=None if member is None else member.sequence,
        )


def _shortened(text: str | None) -> str | None:
    return text if text is None else text[:_MAXIMUM_TEXT]


class Faults:
    """The faults of all publishers in order, for polling senders (S1.4, S1.9). Bounded per
    publisher and in total; the oldest are dropped, and publishers see how many."""

    def __init__(
        self, *, maximum: int = MAXIMUM_FAULTS, maximum_of_all: int = MAXIMUM_FAULTS_OF_ALL
    ) -> None:
        self._maximum = maximum
        self._maximum_of_all = maximum_of_all
        # By publisher and fault number.
        self._logs: OrderedDict[tuple[int, int], FaultLog] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logs)

    def added(self, log: "FaultLog", number: int) -> None:
        """Drop the oldest fault of the log, or of all, beyond the limits."""
        if len(log) > self._maximum:
            del self._logs[log.publisher, log.drop_oldest()]
        self._logs[log.publisher, number] = log
        if len(self._logs) > self._maximum_of_all:
            (_, oldest), other = self._logs.popitem(last=False)
            assert other.drop_oldest() == oldest

    def removed(self, log: "FaultLog", numbers: range) -> None:
        for number in numbers:
            del self._logs[log.publisher, number]


class FaultLog:
    """The faults of one publisher, numbered from 1."""

    def __init__(self, faults: Faults, publisher: int) -> None:
        #: Unique among those that share ``faults``.
        self.publisher = publisher
        self._all = faults
        self._faults: OrderedDict[int, Fault] = OrderedDict()
        #: Number of the last fault; 0 before the first.
        self.last = 0

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, fault: Fault) -> None:
        self.last += 1
        self._faults[self.last] = fault
        self._all.added(self, self.last)

    def drop_oldest(self) -> int:
        """Drop the oldest; return its number."""
        return self._faults.popitem(last=False)[0]

    def after(self, number: int, *, limit: int) -> list[tuple[int, Fault]]:
        """Return at most ``limit`` faults after a number, each with its own."""
        first = max(number, self.last - len(self._faults)) + 1
        return [
            (at, self._faults[at]) for at in range(first, min(self.last, first + limit - 1) + 1)
        ]

    def dropped_after(self, number: int) -> int:
        """Return how many faults after a number were dropped."""
        return max(0, self.last - len(self._faults) - number)

    def close(self) -> None:
        self._all.removed(self, range(self.last - len(self._faults) + 1, self.last + 1))
        self._faults.clear()
