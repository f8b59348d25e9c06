"""Receipts by request and line (S1.9). Bounded."""

import asyncio
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

from pillion_sidecar.clock import Timers
from pillion_sidecar.indication import (
    DiscardReason,
    GroupMember,
    Indication,
    Target,
    Tracker,
    Unreached,
)
from pillion_sidecar.reliability.duplicates import DuplicateMemory, Original
from pillion_sidecar.wire.submission import DiscardedLine

MAXIMUM_RECEIPTS = 10_000
MAXIMUM_DISCARDS_DETAILED = 10_000


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

    def offered_all(
        self,
        indications: Sequence[Indication],
        targets: Sequence[Sequence[Target]],
        lines: Sequence[int],
    ) -> None:
        """Each was queued for all its targets; none is a member of a group."""

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


class GroupPlace(NamedTuple):
    """A place in a message group, which a member keeps when it gets another id."""

    source: str | None
    group: str
    sequence: int

    @classmethod
    def of(cls, member: GroupMember, indication: Indication) -> Self:
        return cls(indication.source, indication.group or "", member.sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingLines:
    """Lines by key: see :func:`key_of`."""

    lines: Mapping[int | bytes, int]
    #: Unsettled targets, where they are or were several.
    targets: Mapping[int | bytes, int]
    places: Mapping[int | bytes, GroupPlace]
    #: Lines that were discarded at a target.
    failed: Set[int | bytes]
    #: Lines by the digests of the pending originals that they repeat.
    originals: Mapping[bytes, tuple[int, ...]]


class ReceiptView(Protocol):
    """What is told of a receipt, of this run or of an earlier one."""

    id: str
    delivered: int
    unreached_lines: Counter[Unreached]
    discarded: list[DiscardedLine]
    discarded_beyond: int
    is_for_durable: bool
    secured: Signal
    is_for_stable: bool
    stable: Signal
    settled_all: Signal

    @property
    def reached(self) -> Signal:
        """Given once the lines have the level that their request asked for."""

    @property
    def pending(self) -> int: ...


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
        #: Given once enough stores have them, too.
        self.stable = Signal(timers)
        self.is_for_stable = False
        #: Followed to the end, for the callback.
        self.is_called_back = False
        self._memory = memory
        self._lines: dict[int | bytes, int] = {}
        # The line being offered: it has no id before it is taken.
        self._offered: Indication | None = None
        self._offered_line = self._offered_targets = 0
        # Unsettled targets of the lines that have or had several, and the places of members of
        # groups: what a note of the receipt needs beside the lines.
        self._targets: dict[int | bytes, int] = {}
        self._places: dict[int | bytes, GroupPlace] = {}
        self._failed: set[int | bytes] = set()
        self._originals: dict[bytes, list[int]] = {}
        self._waiting_originals = 0
        self._complete = False

    @property
    def reached(self) -> Signal:
        if self.is_for_stable:
            return self.stable
        return self.secured if self.is_for_durable else self.settled_all

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
        self._targets.clear()
        self._places.clear()
        self._failed.clear()
        self._offered = None

    def pending_lines(self) -> PendingLines:
        """Return a copy of what is pending: of the lines of a request that has been read."""
        if self._offered is not None:
            self._note_offered(self._offered)
        return PendingLines(
            lines=dict(self._lines),
            targets=dict(self._targets),
            places=dict(self._places),
            failed=frozenset(self._failed),
            originals={digest: tuple(lines) for digest, lines in self._originals.items()},
        )

    # Follower.

    def offering(self, indication: Indication, targets: Sequence[Target], line: int) -> None:
        if self._offered is not None:
            self._note_offered(self._offered)
        if targets:
            self._offered = indication
            self._offered_line, self._offered_targets = line, len(targets)

    def offered_all(
        self,
        indications: Sequence[Indication],
        targets: Sequence[Sequence[Target]],
        lines: Sequence[int],
    ) -> None:
        if self._offered is not None:
            self._note_offered(self._offered)
        for indication, of_one, line in zip(indications, targets, lines, strict=True):
            if of_one:
                key = indication.id or -id(indication)
                self._lines[key] = line
                if len(of_one) != 1:
                    self._targets[key] = len(of_one)

    def unreached(self, reason: Unreached) -> None:
        self.unreached_lines[reason] += 1
        if reason is not Unreached.UNROUTED:
            # ``reduced`` has counted it.
            self.delivered -= 1

    def _note_offered(self, indication: Indication) -> None:
        self._offered = None
        key = key_of(indication)
        self._lines[key] = self._offered_line
        if self._offered_targets != 1:
            self._targets[key] = self._offered_targets
        if indication.member is not None:
            self._places[key] = GroupPlace.of(indication.member, indication)

    def _forget(self, key: int | bytes) -> int | None:
        self._targets.pop(key, None)
        self._places.pop(key, None)
        return self._lines.pop(key, None)

    def withdrawn(self, indication: Indication, targets: Sequence[Target]) -> None:
        if self._offered is indication:
            self._note_offered(indication)
        self._forget(key_of(indication))
        self._failed.discard(key_of(indication))

    def reduced(self, indication: Indication, targets: Sequence[Target]) -> None:
        if self._offered is indication:
            self._note_offered(indication)
        key = key_of(indication)
        if indication.unsettled:
            self._targets[key] = indication.unsettled
        elif self._forget(key) is not None:
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
        if indication.unsettled:
            self._targets[key] = indication.unsettled
        else:
            del self._lines[key]
            if self._targets or self._places:
                self._forget(key)
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
