"""Who follows what was accepted: receipts, by request and line (S1.9).

Everything is bounded: receipts in number, discards in detail.
"""

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
    """Return what tells an indication apart as long as anyone follows it.

    What is settled may be another object than what was accepted, read back from the journal, so it
    is told by its id; a member of a group gets another one when it is released (S1.5), and is told
    by its identity. Where no journal gives ids, it stays the same object.
    """
    if indication.member is not None and indication.digest is not None:
        return indication.digest
    return indication.id or -id(indication)


class Follower(Tracker, Protocol):
    """A tracker that intake tells what it hands over, line by line.

    A line is ``offering`` and then, where a queue refused it, ``withdrawn``; where fewer targets
    were queued than routed (a subscription that suppresses repeats), ``reduced``. Where it goes to
    no listener at all, it is ``unreached`` in the end.
    """

    def offering(self, indication: Indication, targets: Sequence[Target], line: int) -> None: ...

    def withdrawn(self, indication: Indication, targets: Sequence[Target]) -> None: ...

    def reduced(self, indication: Indication, targets: Sequence[Target]) -> None: ...

    def unreached(self, reason: Unreached) -> None: ...

    def repeated(self, digest: bytes, original: Original, line: int) -> None:
        """A line is a duplicate; ``original`` says what became of the first one so far."""


@dataclass(slots=True, eq=False)
class Signal:
    """Lets any number of coroutines wait for one moment, each with a time-out of its own."""

    _timers: Timers
    given: bool = False
    _waiting: set[asyncio.Future[None]] = field(default_factory=set)
    _told: list[Callable[[], None]] = field(default_factory=list)

    def give(self) -> None:
        """The moment has come."""
        self.given = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        told, self._told = self._told, []
        for tell in told:
            tell()

    def then(self, tell: Callable[[], None]) -> None:
        """Call back once, at the moment, or now where it has come. The call must not raise."""
        if self.given:
            tell()
        else:
            self._told.append(tell)

    async def wait(self, seconds: float) -> bool:
        """Wait for the moment, for at most ``seconds``; return whether it has come."""
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
    """What has become of one request's lines: its own, and the originals of its duplicates.

    A line is *pending* until each of its targets is settled, *delivered* once each has it. It is
    told as discarded as soon as one target is, so it may be pending and discarded.
    """

    def __init__(
        self, *, memory: DuplicateMemory, timers: Timers, namespace: str | None = None
    ) -> None:
        """``namespace`` is that of the publisher, where it was asked for a token."""
        self.id = secrets.token_urlsafe(12)
        self.namespace = namespace
        self.delivered = 0
        #: Accepted lines that go to no listener, by reason; none of them is delivered.
        self.unreached_lines: Counter[Unreached] = Counter()
        self.discarded: list[DiscardedLine] = []
        #: Discards that are counted only, beyond those that ``discarded`` details.
        self.discarded_beyond = 0
        self.settled_all = Signal(timers)
        #: Given once every line that was accepted, or whose original was, is on disk.
        self.secured = Signal(timers)
        #: Whether its request asked for that.
        self.is_for_durable = False
        #: Whether its publisher is called back with it, so that it is followed to the end.
        self.is_called_back = False
        self._memory = memory
        # By ``key_of``.
        self._lines: dict[int | bytes, int] = {}
        # The line that is being offered right now: its id is not known before it is taken.
        self._offered: Indication | None = None
        self._offered_line = 0
        self._failed: set[int | bytes] = set()
        self._originals: dict[bytes, list[int]] = {}
        self._waiting_originals = 0
        self._complete = False

    @property
    def pending(self) -> int:
        """Lines of which a target is not settled."""
        offered = 0 if self._offered is None else 1
        return len(self._lines) + offered + self._waiting_originals

    def completed(self) -> None:
        """No further line comes: the request has been read to its end."""
        self._complete = True
        self._check()

    def close(self) -> None:
        """Follow nothing any more."""
        for digest in self._originals:
            self._memory.stop_waiting(digest, self)
        self._originals.clear()
        self._waiting_originals = 0
        self._lines.clear()
        self._failed.clear()
        self._offered = None

    # ------------------------------------------------------------------ told by intake

    def offering(self, indication: Indication, targets: Sequence[Target], line: int) -> None:
        """See ``Follower``."""
        if self._offered is not None:
            self._note_offered(self._offered)
        if targets:
            self._offered = indication
            self._offered_line = line

    def unreached(self, reason: Unreached) -> None:
        """See ``Follower``."""
        self.unreached_lines[reason] += 1
        if reason is not Unreached.UNROUTED:
            # ``reduced`` has counted it.
            self.delivered -= 1

    def _note_offered(self, indication: Indication) -> None:
        self._offered = None
        self._lines[key_of(indication)] = self._offered_line

    def withdrawn(self, indication: Indication, targets: Sequence[Target]) -> None:
        """See ``Follower``."""
        if self._offered is indication:
            self._note_offered(indication)
        self._lines.pop(key_of(indication), None)
        self._failed.discard(key_of(indication))

    def reduced(self, indication: Indication, targets: Sequence[Target]) -> None:
        """See ``Follower``."""
        if self._offered is indication:
            self._note_offered(indication)
        key = key_of(indication)
        if not indication.unsettled and self._lines.pop(key, None) is not None:
            if key in self._failed:
                self._failed.remove(key)
            else:
                self.delivered += 1

    def repeated(self, digest: bytes, original: Original, line: int) -> None:
        """See ``Follower``."""
        if not original.pending:
            self._conclude(original, line)
            return
        self._waiting_originals += 1
        lines = self._originals.setdefault(digest, [])
        if not lines:
            self._memory.wait_for(digest, self)
        lines.append(line)

    # ------------------------------------------------------------------ told by delivery

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        """See ``Tracker``."""
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
        """See ``Waiter``."""
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
    """The receipts that a publisher may ask for again; the oldest give way."""

    def __init__(self, *, maximum: int = MAXIMUM_RECEIPTS) -> None:
        self._maximum = maximum
        self._receipts: OrderedDict[str, Receipt] = OrderedDict()

    def keep(self, receipt: Receipt) -> None:
        """Keep a receipt until it is the oldest of too many."""
        self._receipts[receipt.id] = receipt
        while len(self._receipts) > self._maximum:
            oldest = self._receipts.popitem(last=False)[1]
            if not oldest.is_called_back:
                oldest.close()

    def drop(self, receipt: Receipt) -> None:
        """Keep and follow a receipt no longer."""
        self._receipts.pop(receipt.id, None)
        receipt.close()

    def find(self, receipt_id: str, *, namespace: str | None = None) -> Receipt | None:
        """Return the receipt with an ID; None where a publisher of ``namespace`` has none (any
        more)."""
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
    #: The original of a duplicate, which another publisher had published: all that is known of it
    #: is how it ended.
    is_of_duplicate: bool = False

    @classmethod
    def of(cls, indication: Indication, destination: str, reason: DiscardReason) -> Self:
        """Return the fault of an indication at one destination."""
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
    """The faults of all publishers, in the order in which they happened.

    The reliable messaging faults that a sender polls for (S1.4, S1.9). Bounded for each publisher
    and over all; the oldest give way, and a publisher is told how many.
    """

    def __init__(
        self, *, maximum: int = MAXIMUM_FAULTS, maximum_of_all: int = MAXIMUM_FAULTS_OF_ALL
    ) -> None:
        self._maximum = maximum
        self._maximum_of_all = maximum_of_all
        # By publisher and the number of the fault there.
        self._logs: OrderedDict[tuple[int, int], FaultLog] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logs)

    def added(self, log: "FaultLog", number: int) -> None:
        """A log has one more; the oldest of it, or of all, gives way where there are too many."""
        if len(log) > self._maximum:
            del self._logs[log.publisher, log.drop_oldest()]
        self._logs[log.publisher, number] = log
        if len(self._logs) > self._maximum_of_all:
            (_, oldest), other = self._logs.popitem(last=False)
            assert other.drop_oldest() == oldest

    def removed(self, log: "FaultLog", numbers: range) -> None:
        """A log is kept no longer."""
        for number in numbers:
            del self._logs[log.publisher, number]


class FaultLog:
    """The faults of one publisher, numbered from 1 in the order in which they happened."""

    def __init__(self, faults: Faults, publisher: int) -> None:
        #: Tells the publisher apart among those that share ``faults``.
        self.publisher = publisher
        self._all = faults
        self._faults: OrderedDict[int, Fault] = OrderedDict()
        #: The number of the last fault; 0 before the first.
        self.last = 0

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, fault: Fault) -> None:
        """Keep a fault until it is the oldest of too many."""
        self.last += 1
        self._faults[self.last] = fault
        self._all.added(self, self.last)

    def drop_oldest(self) -> int:
        """Keep the oldest no longer; return its number."""
        return self._faults.popitem(last=False)[0]

    def after(self, number: int, *, limit: int) -> list[tuple[int, Fault]]:
        """Return the faults behind a number, ``limit`` at most, each with its own."""
        first = max(number, self.last - len(self._faults)) + 1
        return [
            (at, self._faults[at]) for at in range(first, min(self.last, first + limit - 1) + 1)
        ]

    def dropped_after(self, number: int) -> int:
        """Return how many faults behind a number are kept no longer."""
        return max(0, self.last - len(self._faults) - number)

    def close(self) -> None:
        """Keep none any more."""
        self._all.removed(self, range(self.last - len(self._faults) + 1, self.last + 1))
        self._faults.clear()
